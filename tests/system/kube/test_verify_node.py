"""`verify` with the expected half of a Node on a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.kube.command import bwagent
from tests.support.snapshots import FIXTURES

if TYPE_CHECKING:
    import subprocess

    from tests.support.kube.cluster import Cluster

PREFIX, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
MACHINE = "cw-h100-ibp"


def verify(cluster: Cluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Compare the machine with a Node."""
    where = ("--from-node", "--node-name", node, "--replay", str(FIXTURES / MACHINE))
    return bwagent("verify", *where, *words, kubeconfig=cluster.kubeconfig())


def expected(**changes: str) -> dict[str, str]:
    """Return the expected labels of the machine, as the site writes them."""
    current = (FIXTURES / MACHINE / "expected.labels").read_text().splitlines()
    pairs = (line.split("=", 1) for line in current if "neighbors.current" in line)
    found = {key.replace(".current", ".expected"): value for key, value in pairs}
    return found | {f"{PREFIX}/speed.expected": "3200G"} | changes


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON document."""
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
    cluster.node("verify-bad", labels=expected(**{f"{P}/{key}": "L90.1.9" for P in (PREFIX, IB)}))
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
