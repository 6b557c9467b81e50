"""The export for Kueue on a real API server, by Kueue's own CRDs."""

from __future__ import annotations

from functools import partial

import pytest

from agent.fleet.exports.kueue import kueue as kueue_manifests
from tests.support import kueue
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.controllers import eventually
from tests.support.real_parts import require
from tests.support.wired_fleets import NAMING, mixed, tall, tiered

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


def test_kueues_crds_take_tiers(kinds: Cluster) -> None:
    """The tiers that agents publish are levels above the leaf groups."""
    kinds.kubectl("delete", "topologies.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io", "--all")
    kinds.kubectl(*APPLY, stdin=kueue_manifests(tiered(), NAMING).text)
    path = "/apis/kueue.x-k8s.io/v1beta2/topologies/bwagent"
    levels = [level["nodeLabel"] for level in kinds.request("GET", path).body["spec"]["levels"]]
    assert levels == [
        *(f"{NAMING.prefix}/tier-{tier}.current" for tier in (2, 1)),
        f"{NAMING.prefix}/leafgroup.current",
        "kubernetes.io/hostname",
    ]


def test_kueues_crds_take_kinds_of_machines(kinds: Cluster) -> None:
    """Machines with NVLink domains and without are two flavors, each with its Topology; levels of
    the operator are levels.
    """
    kinds.kubectl(*APPLY, stdin=kueue_manifests(mixed(), NAMING).text)
    path = "/apis/kueue.x-k8s.io/v1beta2"
    for kind in ("nvidia-gb300", "nvidia-h100-80gb"):
        name = f"bwagent-infiniband-{kind}"
        assert kinds.request("GET", f"{path}/topologies/{name}").status == 200
        flavor = kinds.request("GET", f"{path}/resourceflavors/{name}").body
        assert flavor["spec"]["topologyName"] == name
    text = kueue_manifests(tall(), NAMING, (f"{NAMING.prefix}/superpod",)).text
    assert "fabric" not in text
    kinds.kubectl(*APPLY, "--dry-run=server", stdin=text.replace("name: bwagent", "name: other"))


def test_kueues_crds_refuse_other_levels(kinds: Cluster) -> None:
    """The judge refuses a label key that is none, and by a CEL rule a level that is there twice."""
    text = kueue_manifests(tall(), NAMING).text
    for odd, why in (("leaf group", "nodeLabel"), ("superpod", "unique")):
        with pytest.raises(KubectlError, match=why):
            kinds.kubectl(*APPLY, "--dry-run=server", stdin=text.replace("leafgroup.current", odd))
