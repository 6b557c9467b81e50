"""One habit is one finding."""

from __future__ import annotations

import pytest

from agent.fleet.judge import judge
from tests.support import fleets, planned_fleets, small_fleets
from tests.support.fleet_models import model
from tests.support.fleets import Cable, Fleet
from tests.support.planned_fleets import exchanged, plan_of


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


@pytest.mark.slow
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
    """Whichever nodes have it."""
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
    """The same with a plan."""
    nodes = planned = small_fleets.rack(32, 8)
    for number in range(1, 33, 4):
        name = f"gpu-{number:03}"
        nodes = exchanged(nodes, (name, "mlx5_2"), (name, "mlx5_3"))
    found = planned_fleets.only(planned_fleets.judge(nodes, plan_of(planned)))
    assert (found.code, found.severity, len(found.nodes)) == ("swapped", "warning", 8)
