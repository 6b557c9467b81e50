"""`probe` and `cleanup` as command lines, on a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.bare_node import a_node_without_rdma

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

PREFIX = "backend.coreweave.cloud"


def bwagent(*arguments: str, kubeconfig: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent.cli", *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )


def labels(cluster: Cluster, node: str) -> dict[str, str]:
    found: dict[str, str] = (
        cluster.request("GET", f"/api/v1/nodes/{node}").body["metadata"].get("labels", {})
    )
    return found


@pytest.fixture
def probe(tmp_path: Path) -> tuple[str, ...]:
    """Run a probe of a node without RDMA devices: one label, quickly."""
    return ("probe", "--no-wait", "--sysfs-root", str(a_node_without_rdma(tmp_path)), "--node-name")


def test_probe_applies_and_says_so(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """The first run adds the label, the second finds it up to date; the table comes before
    the difference.
    """
    cluster.node("cmd-applies", labels={f"{PREFIX}/speed.expected": "3200G"})
    first, second = (
        bwagent(*probe, "cmd-applies", kubeconfig=cluster.kubeconfig()) for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert f"+ {PREFIX}/speed.current=0G" in first.stdout.splitlines()
    assert first.stdout.index("Labels\n") < first.stdout.index("Node cmd-applies:")
    assert second.stdout.splitlines()[-1] == "Node cmd-applies: no label changes"
    assert labels(cluster, "cmd-applies")[f"{PREFIX}/speed.expected"] == "3200G"
    assert labels(cluster, "cmd-applies")[f"{PREFIX}/speed.current"] == "0G"


def test_a_difference_changes_nothing(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """`--dry-run --diff` prints what would be added, to standard error beside JSON on
    standard output.
    """
    cluster.node("cmd-diff")
    done = bwagent(
        *probe, "cmd-diff", "--dry-run", "--diff", "-o", "json", kubeconfig=cluster.kubeconfig()
    )
    assert json.loads(done.stdout)["labels"] == {f"{PREFIX}/speed.current": "0G"}
    assert f"+ {PREFIX}/speed.current=0G" in done.stderr.splitlines()
    assert PREFIX not in str(labels(cluster, "cmd-diff"))


def test_cleanup_removes_what_is_ours(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """One Node is cleaned, then nothing is left to remove; the site's own labels stay."""
    cluster.node("cmd-clean", labels={f"{PREFIX}/rack": "r1"})
    bwagent(*probe, "cmd-clean", kubeconfig=cluster.kubeconfig())
    clean = ("cleanup", "--yes", "--node-name", "cmd-clean")
    first, second = (bwagent(*clean, kubeconfig=cluster.kubeconfig()) for _ in range(2))
    assert f"- {PREFIX}/speed.current=0G" in first.stdout.splitlines()
    assert second.stdout == "nothing to remove\n"
    assert [key for key in labels(cluster, "cmd-clean") if key.startswith(PREFIX)] == [
        f"{PREFIX}/rack"
    ]


def test_cleanup_of_all_nodes(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """Every Node with labels of the agent is cleaned, and no other one."""
    for name in ("cmd-all-1", "cmd-all-2", "cmd-all-3"):
        cluster.node(name)
    for name in ("cmd-all-1", "cmd-all-2"):
        bwagent(*probe, name, kubeconfig=cluster.kubeconfig())
    said = bwagent("cleanup", "--all", "--yes", kubeconfig=cluster.kubeconfig()).stdout
    assert ("cmd-all-1" in said, "cmd-all-2" in said, "cmd-all-3" in said) == (True, True, False)
    assert PREFIX not in str([labels(cluster, f"cmd-all-{number}") for number in (1, 2, 3)])


WRONG = {
    "no such Node": ("nowhere-1", "", "nowhere-1"),
    "no such kubeconfig": ("n1", "/nonexistent/config", "/nonexistent/config"),
}


@pytest.mark.parametrize(("node", "kubeconfig", "named"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_reached_is_one_line(
    cluster: Cluster, probe: tuple[str, ...], node: str, kubeconfig: str, named: str
) -> None:
    """An unreachable API server is reported before any observation, in one line that names
    the cause.
    """
    done = bwagent(*probe, node, kubeconfig=kubeconfig or cluster.kubeconfig())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert named in done.stderr


def test_outside_a_pod_a_kubeconfig_is_needed(probe: tuple[str, ...]) -> None:
    """Outside of a Pod and without a kubeconfig there is no API server to connect to."""
    command = [sys.executable, "-m", "agent.cli", *probe, "n1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "--kubeconfig" in done.stderr
