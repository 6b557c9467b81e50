"""A finding has one ID: with a plan, by the pattern, and in `verify` on the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.fleet.judge import judge
from agent.fleet.seen import seen_node
from agent.verify.judge import verify
from agent.verify.plan_index import from_plans
from tests.support import fleets
from tests.support.fleet_models import model
from tests.support.fleets import Fleet
from tests.support.planned_fleets import plan_of
from tests.support.small_fleets import cabled, far_end, rack
from tests.support.small_fleets import fleet as small

OF_ONE_NODE = (fleets.SWAP_WITHIN, fleets.SHIFT, fleets.PULLED, fleets.MOVED)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*fleets.KINDS, fleets.LEAF_DOWN, fleets.MIRRORED])
@pytest.mark.parametrize("shape", fleets.REGULAR, ids=lambda shape: shape.name)
def test_with_a_plan_and_without_one(shape: fleets.Shape, kind: str) -> None:
    """One cause is one finding with a plan; where the pattern finds it, under the same ID."""
    plan = plan_of(model(Fleet(shape, 64)).nodes)
    fleet = Fleet(shape, 64, seed=1)
    fleet.inject(0.001, [kind])
    by_pattern = [one.id for one in judge(model(fleet)).findings]
    (by_plan,) = judge(model(fleet), [plan]).findings
    if kind == fleets.MIRRORED:  # by the pattern of a rack, no more than half of its nodes
        assert by_plan.code == "mirrored"
        assert by_pattern in ([], [by_plan.id])
    else:
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
    (by_pattern,) = judge(small(turned)).findings
    (by_plan,) = judge(small(turned), [plan_of(nodes)]).findings
    for found in (by_pattern, by_plan):
        assert (found.code, len(found.moves)) == ("mirrored", 24)
        assert f"the {size} nodes from gpu-004 to gpu-{last:03} are in" in found.text
    assert by_pattern.id == by_plan.id


def test_a_cable_is_missing_in_the_reverse_order() -> None:
    """The other cables are one finding all the same."""
    nodes = rack(8, 4)
    turned = [
        replace(one, ports=other.ports) for one, other in zip(nodes, reversed(nodes), strict=True)
    ]
    gap = cabled(turned, "gpu-003", "mlx5_1", far_end=None, gbps=0.0)
    found = judge(small(gap), [plan_of(nodes)]).findings
    counts = [(one.code, len(one.ports)) for one in found]
    assert sorted(counts) == [("mirrored", 30), ("missing", 1), ("wrong-port", 1)]


@pytest.mark.parametrize("kind", OF_ONE_NODE)
def test_on_the_node(kind: str) -> None:
    """What concerns one node only."""
    plan = plan_of(model(Fleet(fleets.RAIL, 64)).nodes)
    fleet = Fleet(fleets.RAIL, 64)
    fleet.inject(0.001, [kind])
    nodes = model(fleet)
    (found,) = judge(nodes, [plan]).findings
    (node,) = (one for one in nodes.nodes if one.name in found.nodes)
    (alone,) = verify(from_plans([plan], [node.name]), seen_node(node)).findings
    assert alone.id == found.id


def test_a_wrong_port() -> None:
    """Of the right leaf, with a plan and without one."""
    nodes = cabled(rack(16), "gpu-003", "mlx5_1", far_end=far_end("leaf01", "swp60"))
    (by_plan,), (by_pattern,) = (
        judge(small(nodes), plans).findings for plans in ([plan_of(rack(16))], [])
    )
    assert (by_plan.code, by_plan.id) == (by_pattern.code, by_pattern.id)
    assert by_plan.code == "wrong-port"


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
