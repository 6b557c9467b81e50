"""A cause is one finding with one ID: with a plan, by the pattern, and in `verify` on the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cabling.judge import verify
from agent.cabling.plan_index import from_plans
from agent.fleet.halves import seen_node
from agent.fleet.judge import judge
from tests.support import fleets
from tests.support.fleet_models import model
from tests.support.fleets import Cable, Fleet
from tests.support.planned_fleets import exchanged, plan_of
from tests.support.small_fleets import cabled, far_end, rack
from tests.support.small_fleets import fleet as small

OF_ONE_NODE = (fleets.SWAP_WITHIN, fleets.SHIFT, fleets.PULLED, fleets.MOVED)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*fleets.KINDS, fleets.LEAF_DOWN, fleets.MIRRORED])
@pytest.mark.parametrize("shape", fleets.REGULAR, ids=lambda shape: shape.name)
def test_with_a_plan_and_without_one(shape: fleets.Shape, kind: str) -> None:
    """One cause is one finding with a plan; where all its cables are off their leaves, the pattern
    finds it, under the same ID.
    """
    plan = plan_of(model(Fleet(shape, 64)).nodes)
    fleet = Fleet(shape, 64, seed=1)
    fleet.inject(0.001, [kind])
    by_pattern = [one.id for one in judge(model(fleet)).findings]
    (by_plan,) = judge(model(fleet), [plan]).findings
    assert (by_plan.code == "mirrored") is (kind == fleets.MIRRORED)
    ends = [
        (before.leaf, after and after.leaf)
        for fault in fleet.faults
        for before, after in zip(fault.before.values(), fault.after.values(), strict=True)
    ]
    if kind == fleets.MIRRORED or all(before == after for before, after in ends):
        assert by_pattern == []
    elif all(before != after for before, after in ends):
        assert by_pattern == [by_plan.id]


@pytest.mark.parametrize("size", [6, 7])
def test_nodes_in_the_reverse_order(size: int) -> None:
    """Of seven the one in the middle keeps its cables."""
    nodes = rack(32, 4)
    last = 3 + size
    turned = [
        replace(one, ports=nodes[last + 2 - number].ports) if 3 <= number < last else one
        for number, one in enumerate(nodes)
    ]
    (found,) = judge(small(turned), [plan_of(nodes)]).findings
    assert (found.code, len(found.moves)) == ("mirrored", 24)
    assert f"the {size} nodes from gpu-004 to gpu-{last:03} are in" in found.text
    assert judge(small(turned)).findings == ()


def test_a_cable_is_missing_in_the_reverse_order() -> None:
    """The other cables are one finding all the same."""
    nodes = rack(8, 4)
    turned = [
        replace(one, ports=other.ports) for one, other in zip(nodes, reversed(nodes), strict=True)
    ]
    gap = cabled(turned, "gpu-003", "mlx5_1", far_end=None, gbps=0.0)
    found = judge(small(gap), [plan_of(nodes)]).findings
    counts = [(one.code, len(one.ports)) for one in found]
    assert sorted(counts) == [("mirrored", 31), ("missing", 1)]


@pytest.mark.parametrize("kind", OF_ONE_NODE)
def test_on_the_node(kind: str) -> None:
    plan = plan_of(model(Fleet(fleets.RAIL, 64)).nodes)
    fleet = Fleet(fleets.RAIL, 64)
    fleet.inject(0.001, [kind])
    nodes = model(fleet)
    (found,) = judge(nodes, [plan]).findings
    (node,) = (one for one in nodes.nodes if one.name in found.nodes)
    (alone,) = verify(from_plans([plan], [node.name]), seen_node(node)).findings
    assert alone.id == found.id


def test_a_wrong_port() -> None:
    """Only a plan says which port of the right leaf is right."""
    nodes = cabled(rack(16), "gpu-003", "mlx5_1", far_end=far_end("leaf01", "swp60"))
    (found,) = judge(small(nodes), [plan_of(rack(16))]).findings
    assert found.code == "wrong-port"
    assert judge(small(nodes)).findings == ()


def test_a_slow_port() -> None:
    """Slower than at the other nodes of its group, and than the plan's rate."""
    nodes = cabled(rack(8, 4), "gpu-003", "mlx5_1", gbps=200.0)
    plan = plan_of(rack(8, 4))
    rated = plan._replace(cables=tuple(one._replace(rate_gbps=400.0) for one in plan.cables))
    node = next(one for one in nodes if one.name == "gpu-003")
    (alone,) = verify(from_plans([rated], [node.name]), seen_node(node)).findings
    for plans in ([plan], [rated], []):
        (found,) = judge(small(nodes), plans).findings
        assert (found.code, found.id) == ("slow", alone.id)


# A habit: the same cables exchanged, or shifted, in the same way on several nodes.


def one_of_each_rack(pairs: list[tuple[int, int]], racks: int = 8) -> Fleet:
    """Return racks in which the third node has these cables exchanged."""
    fleet = Fleet(fleets.RAIL, 32 * racks)
    for node in range(2, fleet.size, 32):
        for one, other in pairs:
            ends = fleet.wired(Cable(node, one)), fleet.wired(Cable(node, other))
            fleet.ends |= {Cable(node, one): ends[1], Cable(node, other): ends[0]}
    return fleet


@pytest.mark.parametrize("pairs", [[(2, 3)], [(0, 1), (2, 3), (4, 5), (6, 7)]])
def test_the_same_permutation_in_each_rack_is_one_finding(pairs: list[tuple[int, int]]) -> None:
    """A warning, as it looks like a design; its moves are those of all nodes."""
    (found,) = judge(model(one_of_each_rack(pairs))).findings
    names = ", ".join(f"mlx5_{one} and mlx5_{other}" for one, other in pairs)
    assert (found.code, found.severity, len(found.nodes)) == ("swapped", "warning", 8)
    assert found.text.startswith("8 nodes (gpu-00002, gpu-00034, ")
    assert f") have the cables of {names} exchanged the same way: " in found.text
    assert len(found.moves) == len(found.ports) == 2 * 8 * len(pairs)


def shifted(cables: int, step: int, racks: int = 4) -> Fleet:
    """Return racks in which so many cables of the third node are shifted."""
    fleet = Fleet(fleets.RAIL, 32 * racks)
    for node in range(2, fleet.size, 32):
        for slot in range(cables):
            fleet.ends[Cable(node, slot)] = fleet.wired(Cable(node, (slot + step) % cables))
    return fleet


@pytest.mark.parametrize("cables", [3, 8])
@pytest.mark.parametrize("step", [1, -1])
def test_the_same_shift_in_each_rack_is_one_finding(cables: int, step: int) -> None:
    """With a plan and without one, under the same ID."""
    fleet = shifted(cables, step)
    plan = plan_of(model(Fleet(fleets.RAIL, fleet.size)).nodes)
    (found,) = judge(model(fleet)).findings
    (planned,) = judge(model(fleet), [plan]).findings
    assert (found.code, found.severity, len(found.nodes)) == ("swapped", "warning", 4)
    assert planned.id == found.id


def test_its_id_is_that_of_the_habit() -> None:
    (few,) = judge(model(one_of_each_rack([(2, 3)], 6))).findings
    (many,) = judge(model(one_of_each_rack([(2, 3)]))).findings
    assert few.id == many.id


def test_accidents_are_findings_of_their_own() -> None:
    """Three nodes are no habit; nor are two legs, which can be exchanged in one way only."""
    assert len(judge(model(one_of_each_rack([(2, 3)], 3))).findings) == 3
    assert len(judge(model(shifted(8, 1, 3))).findings) == 3
    for shape, size, rate in ((fleets.DUAL_PLANE, 512, 0.02), (fleets.RAIL, 128, 0.02)):
        fleet = Fleet(shape, size)
        fleet.inject(rate, [fleets.SWAP_WITHIN])
        found = judge(model(fleet)).findings
        assert len(found) > 8
        assert all(len(one.nodes) == 1 for one in found)


def test_a_habit_against_a_plan_is_one_finding() -> None:
    nodes = planned = rack(32, 8)
    for number in range(1, 33, 4):
        name = f"gpu-{number:03}"
        nodes = exchanged(nodes, (name, "mlx5_2"), (name, "mlx5_3"))
    (found,) = judge(small(nodes), [plan_of(planned)]).findings
    assert (found.code, found.severity, len(found.nodes)) == ("swapped", "warning", 8)
