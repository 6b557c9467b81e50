"""`probe -o yaml`, `explain` and `verify --from-node` on a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.output.formats import FORMATS
from tests.support.kernel_tree import NET, card
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.resident import P
from tests.support.machines import MACHINES, document_of
from tests.support.schemas import validator
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


PREFIX, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
MACHINE = "cw-h100-ibp"


def verify(cluster: Cluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--from-node", "--node-name", node, "--replay", str(FIXTURES / MACHINE))
    return bwagent("verify", *where, *words, kubeconfig=cluster.kubeconfig())


def expected(**changes: str) -> dict[str, str]:
    """Return the expected labels of the machine, as the site writes them."""
    current = (FIXTURES / MACHINE / "expected.labels").read_text().splitlines()
    pairs = (line.split("=", 1) for line in current if "neighbors.current" in line)
    found = {key.replace(".current", ".expected"): value for key, value in pairs}
    return found | {f"{PREFIX}/speed.expected": "3200G"} | changes


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
