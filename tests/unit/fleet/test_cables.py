"""The names of leaves: what is one leaf, and what may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cabling.findings.finding import place_of
from agent.cabling.findings.names import LeafNames, leaf_key
from tests.support.planned_fleets import (
    cables,
    codes,
    exchanged,
    judge,
    only,
    plan_of,
    pulled,
    renamed,
)
from tests.support.small_fleets import far_end, node

NAMES = ["L90.1.1", "L90.1.2", "L90.2.1", "leaf01.dc1"]
NODES = [node(f"gpu-{one:03}", [far_end(name, str(one)) for name in NAMES]) for one in range(1, 6)]
PLAN = plan_of(NODES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("L90.1.1", "l90.1.1"),
        ("MF0;L90.1.1:MQM9700/U1", "L90.1.1"),
        ("0xb0cf0e0300d40000", "b0cf:0e03:00d4:0000"),
        ("00:1c:73:00:00:01", "001c.7300.0001"),
    ],
)
def test_one_leaf_has_one_key(one: str, other: str) -> None:
    assert leaf_key(one) == leaf_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("L90.1.1", "L90.1.2"), ("leaf01.dc1", "leaf01.dc2"), ("leaf.1", "leaf.2")],
)
def test_two_leaves_have_two(one: str, other: str) -> None:
    assert leaf_key(one) != leaf_key(other)


def test_the_leaves_of_a_plan_by_another_spelling() -> None:
    leaves = LeafNames(["L90.1.1", "L90.1.2", "leaf01.dc1", "leaf01.dc2"])
    assert leaves.like("L90.1.2") == ["L90.1.2"]
    assert leaves.like("leaf1.dc2.example.com") == ["leaf01.dc2"]
    assert leaves.like("L90.1") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_leaf_with_dots_in_its_name_is_down_alone(name: str) -> None:
    rail = NAMES.index(name)
    found = only(judge(pulled(NODES, *((one.name, f"mlx5_{rail}") for one in NODES)), PLAN))
    assert (found.code, found.expected) == ("leaf-down", (name, None))


def test_a_leaf_with_dots_in_its_name_is_renamed_alone() -> None:
    found = only(judge(renamed(NODES, {"L90.1.2": "L90.7.7"}), PLAN))
    assert (found.code, found.expected[0], found.actual[0]) == ("renamed", "L90.1.2", "L90.7.7")


def test_findings_are_listed_at_their_own_leaf() -> None:
    nodes = exchanged(NODES, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0"))
    nodes = exchanged(nodes, ("gpu-003", "mlx5_2"), ("gpu-004", "mlx5_2"))
    found = judge(nodes, PLAN).findings
    assert codes(judge(nodes, PLAN)) == ["swapped", "swapped"]
    assert len(set(map(place_of, found))) == 2


def test_each_leaf_has_the_rack_of_its_own() -> None:
    """Also one of another spelling than the plan's."""
    racked = [one._replace(b=one.b._replace(rack=f"of {one.b.node}")) for one in cables(NODES)]
    plan = PLAN._replace(cables=tuple(racked))
    spare = node("gpu-001", [*(one.far_end for one in NODES[0].ports), far_end("l90.1.2", "40")])
    (found,) = judge([spare, *NODES[1:]], plan).findings
    assert (found.code, dict(found.facts)["far-rack"]) == ("unexpected", "of L90.1.2")


@pytest.mark.parametrize("name", ["L90.7.7", "spine"])
def test_a_wrong_cable_at_a_renamed_leaf_is_the_only_one(name: str) -> None:
    """No cable is moved to a leaf of a name that the fabric has not."""
    nodes = [node(f"gpu-{one:03}", [far_end(name, one) for name in NAMES]) for one in range(1, 17)]
    plan = plan_of(nodes)
    nodes = exchanged(nodes, ("gpu-001", "mlx5_1"), ("gpu-002", "mlx5_1"))
    result = judge(renamed(nodes, {"L90.1.2": name}), plan)
    assert sorted(codes(result)) == ["renamed", "swapped"]
    assert (result.planned, result.as_planned) == (64, 62)
    (found,) = (one for one in result.findings if one.code == "renamed")
    assert found.text == (
        "Correct the name of L90.1.2 (rack B3, unit 40) in the plan or on the switch: 14 of 16 "
        f"cables planned for it are at the same ports of {name}."
    )


def test_a_leaf_of_which_some_agents_have_the_former_name() -> None:
    """Its other cables are as planned."""
    nodes = [node(f"gpu-{one:03}", [far_end(name, one) for name in NAMES]) for one in range(1, 9)]
    same = far_end("L90.1.2", 1).id
    later = [
        replace(one, ports=(*one.ports[:1], two._replace(far_end=end), *one.ports[2:]))
        for one in renamed(nodes[:6], {"L90.1.2": "L90.7.7"})
        if (two := one.ports[1]) and (end := two.far_end) and (end := end._replace(id=same))
    ]
    result = judge([*later, *nodes[6:]], plan_of(nodes))
    assert sorted(codes(result)) == ["renamed", "switch-identity"]
    assert result.as_planned == 32


def test_cables_at_an_unknown_leaf_while_the_planned_one_is_there() -> None:
    """Somebody moved them: that leaf has another identifier."""
    nodes = [node(f"gpu-{one:03}", [far_end(name, one) for name in NAMES]) for one in range(1, 9)]
    moved = renamed(nodes[:6], {"L90.1.2": "L90.7.7"})
    assert codes(judge([*moved, *nodes[6:]], plan_of(nodes))) == ["miscabled"] * 6


def test_exchanged_names_with_a_wrong_cable() -> None:
    nodes = exchanged(NODES, ("gpu-001", "mlx5_1"), ("gpu-002", "mlx5_1"))
    nodes = [*nodes, *(node(f"gpu-{one:03}", [far_end(name, str(one)) for name in NAMES])
                       for one in range(6, 17))]  # fmt: skip
    plan = plan_of([node(one.name, [far_end(name, int(one.name[4:])) for name in NAMES])
                    for one in nodes])  # fmt: skip
    result = judge(renamed(nodes, {"L90.1.2": "L90.1.1", "L90.1.1": "L90.1.2"}), plan)
    assert sorted(codes(result)) == ["renamed", "renamed", "swapped"]


def test_two_leaves_of_the_plan_with_one_name() -> None:
    """The ASICs of a chassis, perhaps."""
    result = judge(renamed(NODES, {"L90.1.2": "chassis", "L90.2.1": "chassis"}), PLAN)
    assert [one.code for one in result.findings if one.code != "claimed"] == ["renamed"] * 2
