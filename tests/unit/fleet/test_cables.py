"""The names of leaves: what is one leaf, and what may be."""

from __future__ import annotations

import pytest

from agent.cabling.finding import place_of
from agent.cabling.names import LeafNames, leaf_key
from tests.support.planned_fleets import (
    cables,
    codes,
    exchanged,
    judge,
    plan_of,
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
