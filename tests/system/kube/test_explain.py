"""`bwagent explain` on a real API server: the Node's value, its managers, and the annotation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kernel_tree import NET, card
from tests.support.kube.command import bwagent
from tests.support.kube.resident import P
from tests.support.schemas import validator
from tests.support.sysfs_on_disk import lay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

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
    before = cluster.request("GET", "/api/v1/nodes/explained").body["metadata"]["resourceVersion"]
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
    after = cluster.request("GET", "/api/v1/nodes/explained").body["metadata"]["resourceVersion"]
    assert after == before
    done = bwagent("explain", "speed.current", *flags, *access, "--node-name", "nobody")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{SPEED}=400G" in done.stdout
    assert "not read: Node nobody" in done.stdout
    done = bwagent("explain", SPEED, *flags, *access, "--node-name", "nobody", "-o", "json")
    validator("explain").validate(json.loads(done.stdout))
