"""Commands about a Node on a real API server: `probe -o yaml`, `explain`, `verify --from-node`; and
about Nodes of other hosts, by their boot IDs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.output.formats import FORMATS
from tests.support.documents import validator
from tests.support.kernel_tree import NET, card, rails
from tests.support.kube.agents import ELSEWHERE, HERE, boot
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.resident import IB, Agent, P
from tests.support.machines import MACHINES, document_of
from tests.support.snapshots import FIXTURES
from tests.support.sysfs_on_disk import lay


def test_the_machines_manifests_are_applied(cluster: Cluster) -> None:
    """`kubectl apply --server-side` puts every label on the Nodes as it is printed."""
    found = [document_of(machine) | {"node": f"yaml-{machine.name}"} for machine in MACHINES]
    for one in found:
        cluster.node(one["node"])
    documents = "---\n".join(FORMATS["yaml"](one) for one in found)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=documents)
    for one in found:
        labels = cluster.labels(one["node"])
        assert {key: labels.get(key) for key in one["labels"]} == one["labels"], one["node"]


SPEED = f"{P}/speed.current"
DEVICE = f"{P}/neighbors.current.ibp7.device"


@pytest.fixture
def flags(cluster: Cluster, tmp_path: Path) -> list[str]:
    """A labeled Node, on which another manager has set a key of the table."""
    cluster.node("explained", labels={DEVICE: "leaf-1"})
    root = lay({f"{NET}/lo": None} | card("ibp0", "0000:18:00.0"), tmp_path)
    own = ["--node-name", "explained", "--sysfs-root", str(root), "--no-wait"]
    done = bwagent("probe", *own, "--kubeconfig", str(cluster.kubeconfig()))
    assert done.returncode == 0, done.stderr
    return own


def test_the_nodes_side_of_a_label(cluster: Cluster, flags: list[str]) -> None:
    """Value and managers, and the facts of the annotation; nothing is written. Without the Node the
    label is explained, too.
    """
    access = ["--kubeconfig", str(cluster.kubeconfig())]
    before = cluster.metadata("explained")["resourceVersion"]
    done = bwagent("explain", "speed.current", *flags, *access, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    validator("explain").validate(found)
    assert (found["key"], found["value"], found["state"]) == (SPEED, "400G", "seen")
    assert found["on_node"]["value"] == "400G"
    assert found["on_node"]["managers"] == ["bwagent"]
    assert found["on_node"]["interfaces"][0]["port_guid"] == "a088c20300ab0018"
    done = bwagent("explain", DEVICE, *flags, *access)
    assert done.returncode == 0
    assert f"{DEVICE}: no label" in done.stdout
    assert "leaf-1, held by" in done.stdout
    assert "held by bwagent" not in done.stdout
    assert cluster.metadata("explained")["resourceVersion"] == before
    done = bwagent("explain", "speed.current", *flags, *access, "--node-name", "nobody")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{SPEED}=400G" in done.stdout
    assert "not read: Node nobody" in done.stdout
    done = bwagent("explain", SPEED, *flags, *access, "--node-name", "nobody", "-o", "json")
    validator("explain").validate(json.loads(done.stdout))


MACHINE = "cw-h100-ibp"


def verify(cluster: Cluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--from-node", "--node-name", node, "--replay", str(FIXTURES / MACHINE))
    return bwagent("verify", *where, *words, kubeconfig=cluster.kubeconfig())


def expected(**changes: str) -> dict[str, str]:
    """Return the expected labels of the machine, as the site writes them."""
    current = (FIXTURES / MACHINE / "expected.labels").read_text().splitlines()
    pairs = (line.split("=", 1) for line in current if "neighbors.current" in line)
    found = {key.replace(".current", ".expected"): value for key, value in pairs}
    return found | {f"{P}/speed.expected": "3200G"} | changes


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout))


def test_a_node_as_expected(cluster: Cluster) -> None:
    """Both families of labels agree with what is seen."""
    cluster.node("verify-ok", labels=expected())
    done = verify(cluster, "verify-ok")
    assert done.stdout.startswith("verify-ok: no findings; 8 of 8 cables as planned\n"), done.stderr
    assert done.returncode == 0


def test_a_node_that_is_wrongly_cabled(cluster: Cluster) -> None:
    """Exit code 3, and the finding; --npd says the same in one line."""
    key = "neighbors.expected.ibp3.device"
    cluster.node(
        "verify-bad", labels=expected(**{f"{prefix}/{key}": "L90.1.9" for prefix in (P, IB)})
    )
    done = verify(cluster, "verify-bad", "-o", "json")
    assert done.returncode == 3
    assert [one["code"] for one in document(done)["findings"]][:1] == ["miscabled"]
    npd = verify(cluster, "verify-bad", "--npd")
    line = "verify-bad: 1 finding: 1 miscabled; 7 of 8 cables as planned\n"
    assert (npd.returncode, npd.stdout) == (1, line)


def test_nothing_is_expected_of_a_node(cluster: Cluster) -> None:
    """One line; unknown for --npd."""
    cluster.node("verify-none")
    done = verify(cluster, "verify-none")
    assert done.returncode == 1
    assert "nothing is expected of verify-none" in done.stderr
    assert verify(cluster, "verify-none", "--npd").returncode == 2


def test_a_node_that_contradicts_itself(cluster: Cluster) -> None:
    """The two prefixes disagree: nothing is guessed."""
    labels = expected(**{f"{IB}/neighbors.expected.ibp3.device": "L90.1.9"})
    cluster.node("verify-two", labels=labels)
    done = verify(cluster, "verify-two")
    assert done.returncode == 1
    assert "neighbors.expected.ibp3.device is 'L90.1.9' and 'L90.1.2'" in done.stderr


PLANNED = {f"{P}/speed.expected": "800G", f"{P}/neighbors.expected.ibp0.device": "leaf-1"}
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
    cluster.node(name, labels=PLANNED)
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
    cluster.node("npd-other", labels=PLANNED)
    boot(cluster, "npd-other", ELSEWHERE)
    done = run("verify", "npd-other", "--npd")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("Node npd-other: another host than this one: ")


def test_a_snapshot_may_be_of_an_earlier_boot(cluster: Cluster) -> None:
    """It is compared with the labels of its Node wherever that is, and changes nothing."""
    cluster.node("snapshot", labels=expected())
    boot(cluster, "snapshot", ELSEWHERE)
    before = stored(cluster, "snapshot")
    done = verify(cluster, "snapshot")
    assert (done.returncode, done.stderr) == (0, "")
    done = verify(cluster, "snapshot", "--force-node")
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
