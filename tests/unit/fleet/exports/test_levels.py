"""The topology of Kueue: which labels are levels, and which Nodes that excludes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from agent.fleet.exports.levels import kueue
from agent.fleet.model import ROCE, Fleet
from tests.support.wired_fleets import NAMING, Rack, flat, fleet, fleet_of, mixed, names, node

GROUP, ACC = f"{NAMING.prefix}/leafgroup.current", NAMING.accelerator
HOST = "kubernetes.io/hostname"


def levels(found: Fleet) -> list[str]:
    first, *_ = yaml.safe_load_all(kueue(found, NAMING).text)
    return [one["nodeLabel"] for one in first["spec"]["levels"]]


def test_domains_of_several_leaf_groups() -> None:
    """NVLink domains that have whole leaf groups are the level above these."""
    racks = [Rack((f"gpu-{at}",), (f"leaf{at}",), domain=f"d{at // 2}") for at in range(4)]
    assert levels(fleet_of(*racks)) == [ACC, GROUP, HOST]


@pytest.mark.parametrize(
    ("domains", "why"),
    [
        (["d1", "d1", "d1", "d2"], "domains cross leaf groups"),
        (["d1", "d1", None, None], "only 2 of 4 Nodes have it"),
    ],
)
def test_domains_that_are_no_level(domains: list[str | None], why: str) -> None:
    """Domains that cross leaf groups, or that few Nodes have, are no level; a note says so."""
    nodes = [node(f"gpu-{at}", f"leaf{at // 2}", domain=one) for at, one in enumerate(domains)]
    found = fleet(nodes)
    assert levels(found) == [GROUP, HOST]
    assert f"{ACC} is no level{':' if 'cross' in why else ','} {why}" in kueue(found, NAMING).notes


def test_machines_with_other_levels_are_flavors_of_their_own() -> None:
    """Nodes without NVLink are in a Topology without that level, not left out of one with it."""
    exported = kueue(mixed(), NAMING)
    assert exported.notes == ()
    documents = list(yaml.safe_load_all(exported.text))
    gb300, h100 = "bwagent-infiniband-nvidia-gb300", "bwagent-infiniband-nvidia-h100-80gb"
    assert [(one["kind"], one["metadata"]["name"]) for one in documents] == [
        ("Topology", gb300),
        ("Topology", h100),
        ("ResourceFlavor", gb300),
        ("ResourceFlavor", h100),
    ]
    assert [[level["nodeLabel"] for level in one["spec"]["levels"]] for one in documents[:2]] == [
        [GROUP, ACC, HOST],
        [GROUP, HOST],
    ]
    assert documents[3]["spec"] == {
        "nodeLabels": {
            f"{NAMING.prefix}/flavor": "infiniband",
            "nvidia.com/gpu.product": "NVIDIA-H100_80GB",
        },
        "topologyName": h100,
    }


def test_machines_that_no_label_tells_apart() -> None:
    """Without a label of the product they are one flavor, and a note has the Nodes left out."""
    note = f"not in the topology, no {ACC}: 4 Nodes: gpu-[001-004]"
    assert kueue(mixed(None), NAMING).notes == (note,)


def test_products_with_the_same_levels_are_one_flavor() -> None:
    """A Node of another product changes no name that a ClusterQueue has."""
    first, *others = (replace(one, accelerator="d1") for one in mixed().nodes)
    assert kueue(fleet([first, *others]), NAMING).text.count("kind: ResourceFlavor") == 1


def test_a_node_without_a_product() -> None:
    first, *others = mixed().nodes
    labels = {key: value for key, value in first.labels.items() if "product" not in key}
    notes = kueue(fleet([replace(first, labels=labels), *others]), NAMING).notes
    assert notes == ("in no ResourceFlavor, no nvidia.com/gpu.product: 1 Node: gpu-001",)


def test_a_flavor_for_each_fabric() -> None:
    """InfiniBand and RoCE Nodes are two ResourceFlavors of one Topology."""
    mixed = fleet_of(Rack(names(1, 2), ("leaf1",)), Rack(names(3, 4), ("leaf2",), flavor=ROCE))
    _, *flavors = yaml.safe_load_all(kueue(mixed, NAMING).text)
    key = f"{NAMING.prefix}/flavor"
    assert [(one["metadata"]["name"], one["spec"]) for one in flavors] == [
        (f"bwagent-{kind}", {"nodeLabels": {key: kind}, "topologyName": "bwagent"})
        for kind in ("infiniband", "roce")
    ]


def test_a_node_without_a_flavor() -> None:
    """A Node without the label of its fabric is in no ResourceFlavor, which is said."""
    first, *others = flat().nodes
    found = fleet([replace(first, flavor=None), *others])
    note = f"in no ResourceFlavor, no {NAMING.prefix}/flavor: 1 Node: gpu-001"
    assert note in kueue(found, NAMING).notes
    alone = kueue(fleet([replace(first, flavor="evil")]), NAMING)
    assert (alone.text, note in alone.notes) == ("", True)
