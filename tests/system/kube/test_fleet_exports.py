"""Exports of a fleet on a real API server: Kueue's CRDs, and the annotations for Slinky."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent.fleet.exports.levels import kueue as kueue_manifests
from agent.fleet.exports.slurm import ANNOTATION, manifests
from agent.fleet.model import Fleet
from tests.support import kueue
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.controllers import eventually
from tests.support.real_parts import require
from tests.support.wired_fleets import NAMING, Rack, fleet, fleet_of, names, tall

APPLY = ("apply", "--server-side", "--field-manager=fleet-export", "-f", "-")


@pytest.fixture
def kinds(cluster: Cluster) -> Cluster:
    """The API server with Kueue's Topology and ResourceFlavor."""
    require(kueue.missing())
    for path in kueue.CRDS:
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    for plural in ("topologies", "resourceflavors"):
        eventually(cluster, plural, partial(served, cluster, plural))
    return cluster


def served(cluster: Cluster, plural: str) -> bool:
    """Return True once the API server serves the objects of a CRD."""
    return cluster.request("GET", f"/apis/kueue.x-k8s.io/v1beta2/{plural}").status == 200


def test_kueues_crds_take_it(kinds: Cluster) -> None:
    """The API server validates Topology and ResourceFlavor by Kueue's own CRDs; it may be applied
    again.
    """
    text = kueue_manifests(tall(), NAMING).text
    for _ in range(2):
        kinds.kubectl(*APPLY, stdin=text)
    path = "/apis/kueue.x-k8s.io/v1beta2"
    topology = kinds.request("GET", f"{path}/topologies/bwagent").body
    assert [one["nodeLabel"] for one in topology["spec"]["levels"]] == [
        *(f"{NAMING.prefix}/{name}" for name in ("fabric", "superpod", "leafgroup.current")),
        NAMING.accelerator,
        "kubernetes.io/hostname",
    ]
    flavor = kinds.request("GET", f"{path}/resourceflavors/bwagent-infiniband").body
    assert flavor["spec"]["topologyName"] == "bwagent"


def test_kueues_crds_refuse_other_levels(kinds: Cluster) -> None:
    """The judge refuses a label key that is none."""
    text = kueue_manifests(tall(), NAMING).text.replace("leafgroup.current", "leaf group")
    with pytest.raises(KubectlError, match="nodeLabel"):
        kinds.kubectl(*APPLY, "--dry-run=server", stdin=text)


def known(cluster: Cluster, found: Fleet) -> Fleet:
    """Create the Nodes of a fleet, and return it with their UIDs."""
    nodes = []
    for one in found.nodes:
        made = cluster.node(one.name, labels=dict(one.labels), annotations={"theirs": "kept"})
        nodes.append(replace(one, uid=made["metadata"]["uid"]))
    return fleet(nodes)


def node(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.request("GET", f"/api/v1/nodes/{name}").body["metadata"])


def a_fleet(prefix: str) -> Fleet:
    """Return a fleet with Nodes of its own names: two leaf groups, one with an NVLink domain."""
    return fleet_of(
        Rack(names(1, 2, prefix + "-{:03}"), ("leaf1",), domain="d1"),
        Rack(names(3, 4, prefix + "-{:03}"), ("leaf2",)),
    )


def test_slinkys_manifests_are_applied(cluster: Cluster) -> None:
    """`kubectl apply --server-side` annotates each Node, leaves the rest alone, and makes the
    ConfigMap.
    """
    found = known(cluster, a_fleet("slinky"))
    before = node(cluster, "slinky-001")
    cluster.kubectl(*APPLY, "--namespace", "default", stdin=manifests(found, NAMING).text)
    specs = [node(cluster, one.name)["annotations"] for one in found.nodes]
    assert specs == [
        {"theirs": "kept", ANNOTATION: spec}
        for spec in (*["topo-switch:leaf1,topo-block:d1"] * 2, *["topo-switch:leaf2"] * 2)
    ]
    assert node(cluster, "slinky-001")["labels"] == before["labels"]
    config = cluster.request("GET", "/api/v1/namespaces/default/configmaps/slurm-topology").body
    assert config["data"]["topology.yaml"].startswith("- topology: topo-switch\n")


def test_a_node_that_moved_is_annotated_anew(cluster: Cluster) -> None:
    """A later export replaces the annotation by itself."""
    found = known(cluster, a_fleet("moved"))
    cluster.kubectl(*APPLY, "--namespace", "default", stdin=manifests(found, NAMING).text)
    first, *others = found.nodes
    moved = fleet([replace(first, leaf_group="leaf2", accelerator=None), *others])
    cluster.kubectl(*APPLY, "--namespace", "default", stdin=manifests(moved, NAMING).text)
    assert node(cluster, "moved-001")["annotations"][ANNOTATION] == "topo-switch:leaf2"


def test_a_node_that_is_gone_is_not_made(cluster: Cluster) -> None:
    """A Node that was deleted since the export is an error, not a new Node."""
    found = known(cluster, a_fleet("gone"))
    cluster.request("DELETE", "/api/v1/nodes/gone-001")
    with pytest.raises(KubectlError, match="gone-001"):
        cluster.kubectl(*APPLY, "--namespace", "default", stdin=manifests(found, NAMING).text)
    assert cluster.request("GET", "/api/v1/nodes/gone-001").status == 404
    assert ANNOTATION in node(cluster, "gone-002")["annotations"]


def test_a_node_of_the_same_name_is_not_annotated(cluster: Cluster) -> None:
    """A Node that was made anew under its name is an error."""
    found = known(cluster, a_fleet("anew"))
    cluster.request("DELETE", "/api/v1/nodes/anew-001")
    cluster.node("anew-001")
    with pytest.raises(KubectlError, match="uid"):
        cluster.kubectl(*APPLY, "--namespace", "default", stdin=manifests(found, NAMING).text)
    assert "annotations" not in node(cluster, "anew-001")
