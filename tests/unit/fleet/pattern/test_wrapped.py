"""Ports that wrap round the end of a leaf: a fabric without faults is silent, faults are found."""

from __future__ import annotations

import random
from math import gcd
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.fleet.pattern.infer import infer
from tests.support import fleets
from tests.support.fleet_models import Score, model, score
from tests.support.fleets import End, Fleet, Shape
from tests.support.small_fleets import cabled, far_end, fleet, node, rack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

    from agent.fleet.model import FleetNode


def wrapped(modulus: int, step: int, offsets: Sequence[int], group: int = 0) -> Shape:
    """Return the fabric in which rail j of node k is on port `(step * k + offsets[j]) % modulus`.

    Each rail of a group is on a leaf of its own; a group has `modulus` nodes, if not fewer.
    """
    slots, nodes = len(offsets), group or modulus

    def end(node: int, slot: int, _: int) -> End:
        port = (step * (node % nodes) + offsets[slot]) % modulus + 1
        return End(node // nodes * slots + slot, port)

    return Shape("wrapped", slots, nodes, end)


def staggered(stride: int) -> Shape:
    """Return the fabric of eight rails, each of which begins `stride` ports after the last."""
    return wrapped(32, 1, [stride * rail for rail in range(8)])


STRIDES = (1, 2, 3, 4, 5, 7, 11, 16, 31)


@pytest.mark.parametrize("stride", STRIDES)
def test_a_fabric_without_faults_is_silent(stride: int) -> None:
    """128 nodes of eight rails, on every port of 32 leaves."""
    found = infer(model(Fleet(staggered(stride), 128)))
    assert found.findings == ()
    assert found.covered == found.regular == 1024


@st.composite
def fabrics(draw: DrawFn) -> tuple[Shape, int]:
    """Draw a fabric that is a permutation of ports, and its number of nodes."""
    modulus = draw(st.integers(4, 64))
    step = draw(st.integers(1, modulus - 1).filter(lambda step: gcd(step, modulus) == 1))
    offsets = draw(st.lists(st.integers(0, modulus - 1), min_size=2, max_size=9))
    group = draw(st.integers(1, modulus))
    return wrapped(modulus, step, offsets, group), draw(st.integers(1, 3 * group))


@settings(max_examples=400)
@given(fabrics(), st.sampled_from(fleets.STYLES))
def test_any_permutation_of_ports_is_silent(drawn: tuple[Shape, int], style: str) -> None:
    """Any modulus and step, an offset for each rail, groups of any size."""
    shape, size = drawn
    assert infer(model(Fleet(shape, size, style=style))).findings == ()


@settings(max_examples=150)
@given(fabrics(), st.sampled_from([0.005, 0.02, 0.05]), st.integers(0, 99))
def test_faults_in_any_permutation_are_the_only_findings(
    drawn: tuple[Shape, int], rate: float, seed: int
) -> None:
    """What is said of a fabric with faults is true of one of them."""
    fleet = Fleet(*drawn, style=fleets.STYLES[seed % 4], seed=seed)
    fleet.inject(rate)
    assert score(fleet, infer(model(fleet)).findings).wrong == 0


@pytest.mark.parametrize("seed", range(60))
def test_rails_that_are_permuted_apart_are_silent(seed: int) -> None:
    """Each rail has an order of its own: any, or the reverse, or the exchange of neighbors."""
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    size = chance.choice((8, 16, 18, 32))
    rails: list[list[int]] = []
    for _ in range(chance.choice((2, 4, 8))):
        ports = [*range(size)]
        kind = chance.randrange(4)
        if kind == 0:
            chance.shuffle(ports)
        elif kind == 1:
            ports.reverse()
        elif kind == 2:
            ports = [port ^ 1 for port in ports]
        rails.append(ports)
    slots = len(rails)

    def end(node: int, slot: int, _: int) -> End:
        return End(node // size * slots + slot, rails[slot][node % size] + 1)

    assert infer(model(Fleet(Shape("permuted", slots, size, end), 4 * size))).findings == ()


@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("stride", STRIDES)
def test_faults_are_found_and_nothing_else(stride: int, rate: float) -> None:
    """Of all kinds: no wrong finding, no port that the leaf lacks, nine of ten faults found."""
    total = Score(0, 0, 0, 0, 0)
    for seed in range(6):
        fleet = Fleet(staggered(stride), 128, style=fleets.STYLES[seed % 4], seed=seed)
        fleet.inject(rate)
        found = infer(model(fleet)).findings
        total += score(fleet, found)
        wanted = [move.wanted for one in found if one.code == "wrong-port" for move in one.moves]
        assert all(port for _, port in wanted)
    assert total.precision == 1
    assert total.recall >= (0.9 if rate < 0.05 else 0.7)
    assert total.restored == total.found


def test_a_port_beyond_the_last_is_not_wanted() -> None:
    """Two planes, one a port ahead: the cable of the last node wraps, which is too few to say so.

    One node does not tell a wrap from a wrong cable; a port that no leaf of the fleet shows is not
    wanted.
    """
    for offsets in ([0, 1], [1, 0], [0, 31], [3, 5]):
        assert infer(model(Fleet(wrapped(32, 1, offsets), 96))).findings == ()


def wrong_ports(nodes: list[FleetNode], name: str, leaf: str, port: str) -> list[str]:
    """Move the cable of the node's interface mlx5_1, return the findings: codes and moves."""
    end = far_end(leaf, port)
    found = infer(fleet(cabled(nodes, name, "mlx5_1", far_end=end, last_end=end))).findings
    return [f"{one.code} {move.wanted[1]}" for one in found for move in one.moves]


@pytest.mark.parametrize("port", ["beside", "far"])
@pytest.mark.parametrize("rails", [4, 8])
@pytest.mark.parametrize("size", [6, 7, 8, 9, 12])
def test_a_wrong_port_is_found_in_a_small_group(size: int, rails: int, port: str) -> None:
    """Its leaf lacks a port and has one too many: 5 of 7 ports are those of its neighbors."""
    number = size + 1 if port == "beside" else 40
    for one in range(1, size + 1):
        found = wrong_ports(rack(size, rails), f"gpu-{one:03}", "leaf01", f"swp{number}")
        assert found == [f"wrong-port swp{one}"]


def test_two_wrong_ports_are_found_on_a_leaf_of_eight() -> None:
    """6 of 8 are a majority."""
    end = far_end("leaf01", "swp41")
    nodes = cabled(rack(8, 4), "gpu-002", "mlx5_1", far_end=end, last_end=end)
    found = wrong_ports(nodes, "gpu-005", "leaf01", "swp40")
    assert found == ["wrong-port swp2", "wrong-port swp5"]


@pytest.mark.parametrize("size", [6, 8])
def test_a_wrong_port_is_found_in_small_groups_that_wrap(size: int) -> None:
    """Three racks of eight rails; each rail begins a port after the last."""
    leaves = [f"leaf{number:02}" for number in range(24)]
    nodes = [
        node(
            f"gpu-{one:03}",
            [
                far_end(leaves[one // size * 8 + rail], f"swp{(one + rail) % size + 1}")
                for rail in range(8)
            ],
        )
        for one in range(3 * size)
    ]
    assert infer(fleet(nodes)).findings == ()
    for one in range(size):
        right = (one + 1) % size + 1
        beyond = f"swp{5 * size + right + 1}"
        assert wrong_ports(nodes, f"gpu-{one:03}", "leaf01", beyond) == [f"wrong-port swp{right}"]


@pytest.mark.parametrize("sizes", [[32] * 9, [*range(24, 33)], [*range(21, 91)]])
def test_racks_of_other_sizes_hide_no_wrong_port(sizes: list[int]) -> None:
    """72 leaves with more ports come first; 70 that are all of different sizes."""
    rails = 8 if len(sizes) < 10 else 2
    others = [
        node(
            f"a-{number:02}-{one:02}",
            [far_end(f"big{number:02}-{rail}", f"swp{one + 1}") for rail in range(rails)],
        )
        for number, size in enumerate(sizes)
        for one in range(size)
    ]
    assert wrong_ports([*others, *rack(16, 8)], "gpu-005", "leaf01", "swp30") == ["wrong-port swp5"]
