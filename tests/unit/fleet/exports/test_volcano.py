"""HyperNodes of Volcano: tiers, members and names, by a schema after its documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from agent.fleet.exports.volcano import hypernodes
from agent.fleet.model import Fleet
from tests.support.schemas import only
from tests.support.wired_fleets import NAMING, Rack, flat, fleet, fleet_of, names, node, tall

GROUP, ACC = f"{NAMING.prefix}/leafgroup.current", NAMING.accelerator
NAME = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}


def member(kind: str, **selector: Any) -> dict[str, Any]:
    return only(type={"const": kind}, selector=only(**selector))


EXACT = only(name={"type": "string", "minLength": 1, "maxLength": 253})
LABELS = only(matchLabels={"type": "object", "minProperties": 1})
# After https://volcano.sh/en/docs/network_topology_aware_scheduling/: a HyperNode has Nodes by name
# or by labels, or HyperNodes by name.
SCHEMA = Draft202012Validator(
    only(
        apiVersion={"const": "topology.volcano.sh/v1alpha1"},
        kind={"const": "HyperNode"},
        metadata=only(name=NAME),
        spec=only(
            tier={"type": "integer", "minimum": 1},
            members={
                "type": "array",
                "minItems": 1,
                "oneOf": [
                    {"items": member("Node", exactMatch=EXACT)},
                    {"items": member("Node", labelMatch=LABELS)},
                    {"items": member("HyperNode", exactMatch=EXACT)},
                ],
            },
        ),
    )
)


def built(found: Fleet) -> dict[str, dict[str, Any]]:
    """Return the specs by name: valid, with one parent at most, each child of a lower tier."""
    objects = list(yaml.safe_load_all(hypernodes(found, NAMING).text))
    for one in objects:
        SCHEMA.validate(one)
    specs = {one["metadata"]["name"]: one["spec"] for one in objects}
    assert len(specs) == len(objects)
    below = [(child, name) for name in specs for child in children(specs[name])]
    assert len({child for child, _ in below}) == len(below)
    assert all(specs[child]["tier"] < specs[parent]["tier"] for child, parent in below)
    return specs


def children(spec: dict[str, Any]) -> list[str]:
    return [
        one["selector"]["exactMatch"]["name"]
        for one in spec["members"]
        if one["type"] == "HyperNode"
    ]


def selected(spec: dict[str, Any], found: Fleet) -> set[str]:
    return {
        one.name
        for one in found.nodes
        for part in spec["members"]
        if (
            (labels := part["selector"].get("labelMatch"))
            and labels["matchLabels"].items() <= one.labels.items()
        )
        or part["selector"].get("exactMatch", {}).get("name") == one.name
    }


def test_the_goldens_are_valid() -> None:
    """With leaf groups only, and with all tiers."""
    assert len(built(flat())) == 2
    assert len(built(tall())) == 9


def test_a_node_without_a_domain_beside_domains() -> None:
    """In a leaf group with domains, a Node in none is a HyperNode of its own."""
    nodes = [node(f"gpu-{at}", "leaf1", domain="d1" if at < 3 else None) for at in range(1, 5)]
    specs = built(fleet(nodes))
    assert sorted(specs) == ["d1", "gpu-3", "gpu-4", "leaf1"]
    assert sorted(children(specs["leaf1"])) == ["d1", "gpu-3", "gpu-4"]


def test_domains_that_cross_leaf_groups_are_no_tier() -> None:
    """A HyperNode has one parent, so a domain of two leaf groups has no place."""
    racks = [Rack((f"gpu-{at}",), (f"leaf{at}",), domain="d1") for at in (1, 2)]
    assert sorted(built(fleet_of(*racks))) == ["leaf1", "leaf2"]
    assert hypernodes(fleet_of(*racks), NAMING).notes == (
        f"{ACC} is no tier: domains cross leaf groups",
    )


def test_leaf_groups_of_one_name() -> None:
    """Leaf groups of two fabrics with one value are told by the label of their fabric."""
    racks = [Rack((f"gpu-{at}",), ("leaf1",), {"fabric": f"f{at}"}) for at in (1, 2)]
    found = fleet_of(*racks)
    specs = built(found)
    assert selected(specs["f1-leaf1"], found) == {"gpu-1"}


def test_nodes_that_no_label_selects() -> None:
    """A Node in a leaf group by its neighbors' labels is named, for no label selects it."""
    site = {"fabric": "f1"}
    nodes = [
        *fleet_of(Rack(names(1, 2), ("leaf1",), site)).nodes,
        *fleet_of(Rack(names(5, 6), ("leaf1",), {"fabric": "f2"})).nodes,
    ]
    odd = replace(nodes[0], labels={**nodes[0].labels, GROUP: "other"})
    found = fleet([odd, *nodes[1:]])
    assert selected(built(found)["f1-leaf1"], found) == {"gpu-001", "gpu-002"}


def test_names_that_become_equal() -> None:
    """Values that differ in case or in characters that a name cannot have stay two HyperNodes."""
    found = fleet(node(f"gpu-{at}", one) for at, one in enumerate(("Leaf.1", "leaf_1", "leaf-2")))
    specs = built(found)
    assert len(specs) == 3
    assert "leaf-2" in specs
    assert all(name.startswith("leaf-") for name in specs)
