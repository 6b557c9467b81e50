"""Shapes of a fabric: without faults none of them has a finding, however ports are counted.

A shape gives the leaf of each cable and its place there. The port is the place in strides, modulo a
number of ports, and each leaf begins some ports after the last.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.fleet.pattern.infer import infer
from tests.support import fleets
from tests.support.fleet_models import model
from tests.support.fleets import Cable, End, Fleet, Shape

SIZES = (9, 32, 24, 5, 17, 32, 28)  # of racks


def rails(place: Callable[[int, int, int], int], slots: int = 8) -> Callable[[int, int, int], End]:
    """Return the wiring of racks of 32 nodes with rail i on leaf i, at this place on it."""
    return lambda node, slot, seed: End(node // 32 * slots + slot, place(node, slot, seed) + 1)


def two_crews(node: int, slot: int, _: int) -> End:
    """Three nodes in the order of the rails, three in the reverse order, and so on."""
    return End(node // 32 * 8 + (slot if node // 3 % 2 else 7 - slot), node % 32 + 1)


def four_planes(node: int, slot: int, _: int) -> End:
    """Ports of two cards on four leaves."""
    return End(node // 32 * 4 + slot % 4, node % 32 * 2 + slot // 4 + 1)


def rails_in_pairs(node: int, slot: int, _: int) -> End:
    """Rails 0 and 1 on the first leaf, 2 and 3 on the second."""
    return End(node // 16 * 4 + slot // 2, node % 16 * 2 + slot % 2 + 1)


def any_order(node: int, slot: int, seed: int) -> int:
    """The nodes of a rack in any order; with a seed, another order for each rail."""
    chance = random.Random(repr((node // 32, slot * seed)))  # noqa: S311 - reproducible on purpose
    return chance.sample(range(32), 32)[node % 32]


def racks_of_sizes(node: int, slot: int, _: int) -> End:
    """Racks of different numbers of nodes."""
    rack = 0
    while node >= SIZES[rack % len(SIZES)]:
        node -= SIZES[rack % len(SIZES)]
        rack += 1
    return End(rack * 8 + slot, node + 1)


def interleaved(node: int, slot: int, _: int) -> End:
    """Even nodes on one set of leaves, odd nodes on another."""
    return End((node // 64 * 2 + node % 2) * 8 + slot, node % 64 // 2 + 1)


SHAPES = (
    fleets.RAIL,
    fleets.FAT_TREE,
    fleets.SINGLE_LEAF,
    fleets.DUAL_PLANE,
    fleets.MIXED,
    fleets.HALF_BUILT,
    Shape("two crews", 8, 32, two_crews),
    fleets.IRREGULAR,
    Shape("four planes", 8, 32, four_planes),
    Shape("rails in pairs", 8, 16, rails_in_pairs),
    Shape("one cable a node", 1, 32, rails(lambda node, *_: node % 32, 1)),
    Shape("reverse order", 8, 32, rails(lambda node, *_: 31 - node % 32)),
    Shape("around uplinks", 8, 32, rails(lambda node, *_: node % 32 + node % 32 // 16 * 16)),
    Shape("free ports", 8, 32, rails(lambda node, *_: node % 32 + node % 32 // 8)),
    Shape("zigzag", 8, 32, rails(lambda node, *_: node % 32 // 2 + node % 2 * 16)),
    Shape("twins exchanged", 8, 32, rails(lambda node, slot, _: node % 32 ^ slot % 2)),
    Shape("any order", 8, 32, rails(lambda node, *_: any_order(node, 0, 0))),
    Shape("an order of each rail", 8, 32, rails(lambda node, slot, _: any_order(node, slot, 1))),
    Shape("racks of many sizes", 8, 32, racks_of_sizes),
    Shape("interleaved racks", 8, 32, interleaved),
)


@st.composite
def numbered(draw: st.DrawFn, shape: Shape) -> Fleet:
    """Draw a fleet of the shape with its ports counted in strides, modulo a number of ports."""
    size, seed = draw(st.integers(1, 130)), draw(st.integers(0, 9))
    ends = [shape.end(node, slot, seed) for node in range(size) for slot in range(shape.slots)]
    modulus = max(end.port for end in ends if end) + draw(st.integers(0, 40))
    stride = draw(st.integers(1, modulus).filter(lambda one: gcd(one, modulus) == 1))
    begin = draw(st.integers(0, modulus - 1))

    def end(node: int, slot: int, _: int) -> End | None:
        found = ends[node * shape.slots + slot]
        if found is None:
            return None
        return End(found.leaf, (stride * (found.port - 1) + begin * found.leaf) % modulus + 1)

    style = draw(st.sampled_from(fleets.STYLES))
    return Fleet(shape._replace(end=end), size, style=style, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_fabric_without_faults_is_silent(shape: Shape) -> None:
    """Any stride, modulus and beginning, any number of nodes."""

    @settings(max_examples=15)
    @given(numbered(shape))
    def is_silent(fleet: Fleet) -> None:
        assert infer(model(fleet)).findings == ()

    is_silent()


# Nodes of a unit, its rails with the cables of a node to storage, and units: each pair of values in
# every run, all three together in a sweep.
STORED = [
    pytest.param(unit, *wires, units, marks=[pytest.mark.sweep] if (one + two + three) % 3 else [])
    for one, unit in enumerate((8, 16, 18, 20, 32))
    for two, wires in enumerate(((8, 2), (4, 1), (8, 1)))
    for three, units in enumerate((2, 3, 8))
]


@pytest.mark.parametrize(("unit", "rails", "cables", "units"), STORED)
def test_storage_leaves_that_end_elsewhere_are_no_mistake(
    unit: int, rails: int, cables: int, units: int
) -> None:
    """A storage leaf holds more nodes than a unit: whoever crosses the border does so by design."""
    for leaf in fleets.storage_leaves(unit):
        fleet = Fleet(fleets.with_storage(unit, rails, cables, leaf), unit * units)
        found = infer(model(fleet))
        assert not found.findings, leaf
        assert found.covered == found.regular


def test_a_wrong_cable_to_storage_is_a_mistake() -> None:
    """Of a node in the middle of its unit, and of the first one where most borders are alike."""
    shape = fleets.with_storage(16, 8, 2, 2 * 16)
    fleet = Fleet(shape, 16 * 8)
    fleet.ends[Cable(40, 8)] = End(fleets.STORAGE_LEAVES, 99)
    fleet.ends[Cable(16, 3)] = End(3, 99)  # of the unit before
    codes = {finding.ports[0]: finding.code for finding in infer(model(fleet)).findings}
    assert codes == {("gpu-00016", "mlx5_3"): "miscabled", ("gpu-00040", "mlx5_8"): "miscabled"}
