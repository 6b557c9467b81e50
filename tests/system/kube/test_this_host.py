"""Nodes of other hosts, by their boot IDs, on a real API server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_tree import rails
from tests.support.kube.agents import ELSEWHERE, HERE, boot
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.resident import Agent, P
from tests.support.snapshots import FIXTURES
from tests.support.sysfs_on_disk import lay

EXPECTED = {f"{P}/speed.expected": "800G", f"{P}/neighbors.expected.ibp0.device": "leaf-1"}
COMMANDS = {
    "probe": ("probe", "--no-wait"),
    "probe --diff": ("probe", "--no-wait", "--dry-run", "--diff"),
    "explain": ("explain", "speed.current", "--no-wait"),
    "verify": ("verify", "--no-wait"),
    "verify --from-node": ("verify", "--no-wait", "--from-node"),
    "cleanup --lost": ("cleanup", "--lost", "--yes"),
}
CODES = {"verify": 1, "verify --from-node": 1}  # no neighbor is seen
Run = Callable[..., subprocess.CompletedProcess[str]]


def stored(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return the Node as it is stored, down to its version."""
    return cluster.request("GET", f"/api/v1/nodes/{node}").body


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Run:
    """Run a command of COMMANDS for a Node, on a host with two HCAs."""
    root = str(lay(rails(2), tmp_path))

    def once(command: str, node: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = (*COMMANDS[command], "--node-name", node, *more)
        words += () if command.startswith("cleanup") else ("--sysfs-root", root)
        return bwagent(*words, kubeconfig=cluster.kubeconfig())

    return once


@pytest.mark.parametrize("command", COMMANDS)
def test_another_host_is_refused(cluster: Cluster, run: Run, command: str) -> None:
    """In one line that says how to run it there; nothing is written, and nothing is printed as a
    fact. With --force-node, and where either boot ID is unknown, the command does its work.
    """
    name = f"other-{[*COMMANDS].index(command)}"
    cluster.node(name, labels=EXPECTED)
    boot(cluster, name, ELSEWHERE)
    before = stored(cluster, name)
    done = run(command, name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    line = f"Node {name}: another host than this one: its boot ID is {ELSEWHERE}, that of this host"
    assert f"{line} {HERE}; run this in the agent's Pod on that Node: " in done.stderr
    assert "-- bwagent ...; --force-node if " in done.stderr
    assert stored(cluster, name) == before
    forced = run(command, name, "--force-node")
    why = f"bwagent: {name}: not verified: 1 finding of severity unknown\n"
    said = why if command in CODES else ""
    assert (forced.returncode, forced.stderr) == (CODES.get(command, 0), said)
    assert forced.stdout
    for boot_id in ("", HERE):
        boot(cluster, name, boot_id)
        done = run(command, name)
        assert (done.returncode, done.stderr) == (forced.returncode, said)


def test_verify_says_unknown_to_node_problem_detector(cluster: Cluster, run: Run) -> None:
    cluster.node("npd-other", labels=EXPECTED)
    boot(cluster, "npd-other", ELSEWHERE)
    done = run("verify", "npd-other", "--npd")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("Node npd-other: another host than this one: ")


def test_a_snapshot_may_be_of_an_earlier_boot(cluster: Cluster) -> None:
    """It is compared with the labels of its Node wherever that is, and changes nothing."""
    labels = (FIXTURES / "cw-h100-ibp/expected.labels").read_text().splitlines()
    pairs = (line.split("=", 1) for line in labels if "neighbors.current" in line)
    cluster.node("snapshot", labels={key.replace(".current", ".expected"): v for key, v in pairs})
    boot(cluster, "snapshot", ELSEWHERE)
    before = stored(cluster, "snapshot")
    words = ("verify", "--from-node", "--node-name", "snapshot")
    replay = ("--replay", str(FIXTURES / "cw-h100-ibp"))
    done = bwagent(*words, *replay, kubeconfig=cluster.kubeconfig())
    assert (done.returncode, done.stderr) == (0, "")
    done = bwagent(*words, *replay, "--force-node", kubeconfig=cluster.kubeconfig())
    assert (done.returncode, "--replay excludes --force-node" in done.stderr) == (2, True)
    assert stored(cluster, "snapshot") == before


def test_doctor_names_another_host(cluster: Cluster) -> None:
    """As what is missing, and it does not try a change there."""
    cluster.node("doctor-other")
    boot(cluster, "doctor-other", ELSEWHERE)
    before = stored(cluster, "doctor-other")
    done = bwagent("doctor", "--node-name", "doctor-other", kubeconfig=cluster.kubeconfig())
    (line,) = (line for line in done.stdout.splitlines() if "doctor-other" in line)
    assert line.startswith("missing")
    assert "another host than this one" in line
    assert "policy" not in done.stdout
    assert (done.returncode, stored(cluster, "doctor-other")) == (1, before)


def test_an_agent_with_force_node(cluster: Cluster, tmp_path: Path) -> None:
    """It labels the Node of another boot ID. Without the flag it waits: test_kubelet.py."""
    cluster.node("rebooted")
    boot(cluster, "rebooted", ELSEWHERE)
    with Agent(cluster, tmp_path, "rebooted", rails(2), "--force-node") as agent:
        agent.speaks("800G")
        assert not agent.lines("another host")
