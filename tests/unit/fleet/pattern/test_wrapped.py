"""Ports that wrap round the end of a leaf: a fabric without faults is silent, faults are found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.fleet.model import FleetNode
from agent.fleet.pattern.infer import infer
from tests.support import fleets
from tests.support.fleet_models import Score, model, score
from tests.support.fleets import Cable, End, Fleet, Shape
from tests.support.small_fleets import cabled, far_end, fleet, node, rack


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


OTHERS = (2, 3, 4, 7, 11, 16, 31)
STRIDES = (1, 5, *OTHERS)
SWEEP = pytest.mark.sweep


@pytest.mark.parametrize("stride", STRIDES)
def test_a_fabric_without_faults_is_silent(stride: int) -> None:
    """64 nodes of eight rails, on every port of 16 leaves."""
    found = infer(model(Fleet(staggered(stride), 64)))
    assert found.findings == ()
    assert found.covered == found.regular == 512


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[Shape, int]:
    """Draw a fabric that is a permutation of ports, and its number of nodes."""
    modulus = draw(st.integers(4, 64))
    step = draw(st.integers(1, modulus - 1).filter(lambda step: gcd(step, modulus) == 1))
    offsets = draw(st.lists(st.integers(0, modulus - 1), min_size=2, max_size=9))
    group = draw(st.integers(1, modulus))
    return wrapped(modulus, step, offsets, group), draw(st.integers(1, 3 * group))


@pytest.mark.slow
@settings(max_examples=120)
@given(fabrics(), st.sampled_from(fleets.STYLES))
def test_any_permutation_of_ports_is_silent(drawn: tuple[Shape, int], style: str) -> None:
    """Any modulus and step, an offset for each rail, groups of any size."""
    shape, size = drawn
    assert infer(model(Fleet(shape, size, style=style))).findings == ()


class Rail(NamedTuple):
    """Node k of a rack is on port `(step * k + first) % modulus + 1`."""

    modulus: int
    step: int
    first: int


def racks(sizes: Sequence[int], rails: Sequence[Sequence[Rail]]) -> Shape:
    """Return the fabric of these racks, each with its rails on leaves of its own."""
    places = [(rack, node) for rack, size in enumerate(sizes) for node in range(size)]
    slots = len(rails[0])

    def end(node: int, slot: int, _: int) -> End:
        rack, place = places[node]
        rail = rails[rack][slot]
        return End(rack * slots + slot, (rail.step * place + rail.first) % rail.modulus + 1)

    return Shape("racks", slots, max(sizes), end)


def random_racks(seed: int) -> Fleet:
    """Return racks that wrap at different numbers; by seed, how their rails are alike."""
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    slots, stride = chance.choice((2, 3, 4, 8)), chance.randint(0, 7)
    first = [chance.randrange(64) for _ in range(slots)]
    sizes, rails = [], []
    for _ in range(chance.randint(1, 6)):
        modulus = chance.randint(5, 64)
        steps = [step for step in range(1, modulus) if gcd(step, modulus) == 1]
        step, whole = chance.choice(steps), chance.random() < 0.6
        kinds = [
            [Rail(modulus, 1, stride * rail) for rail in range(slots)],
            [Rail(modulus, 1, first[rail]) for rail in range(slots)],
            [Rail(modulus, step, chance.randrange(modulus)) for _ in range(slots)],
            [Rail(modulus, chance.choice(steps), first[rail]) for rail in range(slots)],
        ]
        rails.append(kinds[seed % len(kinds)])
        sizes.append(modulus if whole else chance.randint(modulus // 2, modulus))
    return Fleet(racks(sizes, rails), sum(sizes), style=fleets.STYLES[seed // 4 % 4], seed=seed)


@st.composite
def racks_of_rails(draw: st.DrawFn) -> Fleet:
    """Draw racks in which each rail has a modulus and an offset of its own, and perhaps a step."""
    slots = draw(st.sampled_from([2, 3, 4, 8]))
    sizes, rails = [], []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(4, 40))
        few = draw(st.lists(st.integers(size, size + draw(st.sampled_from([3, 40]))), min_size=2))
        step = draw(st.sampled_from([1, 1, 1, 2, 3, 5, 7]))
        moduli = [draw(st.sampled_from(few)) for _ in range(slots)]
        rails.append(
            [
                Rail(modulus, step if gcd(step, modulus) == 1 else 1, draw(st.integers(0, modulus)))
                for modulus in moduli
            ]
        )
        sizes.append(size)
    return Fleet(racks(sizes, rails), sum(sizes), style=draw(st.sampled_from(fleets.STYLES)))


@pytest.mark.slow
@settings(max_examples=80)
@given(racks_of_rails())
def test_rails_of_a_rack_that_wrap_at_different_numbers_are_silent(fleet: Fleet) -> None:
    """One cable beyond the wrap of its rail is no wrong port, nor one that only does not wrap."""
    assert infer(model(fleet)).findings == ()


@pytest.mark.slow
@settings(max_examples=40)
@given(racks_of_rails(), st.integers(0, 99))
def test_faults_among_rails_that_wrap_at_different_numbers_are_the_only_findings(
    fleet: Fleet, seed: int
) -> None:
    """A crossed pair on a rail does not hide its wrap."""
    faulty = Fleet(fleet.shape, fleet.size, style=fleet.style, seed=seed)
    faulty.inject(0.02)
    assert score(faulty, infer(model(faulty)).findings).wrong == 0


WRAPS = [
    ((33, 18), [[(49, 33), (37, 29), (34, 25), (36, 21)], [(26, 15), (34, 33), (18, 9), (18, 17)]]),
    ((21,), [[(26, 5), (26, 17), (26, 8), (28, 26), (28, 8), (26, 19), (26, 0), (26, 2)]]),
    ((15,), [[(15, 13), (17, 1), (17, 7), (15, 14), (15, 9), (17, 10), (15, 12), (15, 13)]]),
]


@pytest.mark.parametrize(("sizes", "rails"), WRAPS)
def test_one_cable_beyond_the_wrap_of_its_rail(
    sizes: tuple[int, ...], rails: list[list[tuple[int, int]]]
) -> None:
    """The first node of a rack, the last one, and one on a rail that does not wrap."""
    shape = racks(sizes, [[Rail(modulus, 1, first) for modulus, first in rack] for rack in rails])
    assert infer(model(Fleet(shape, sum(sizes)))).findings == ()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(0, 1 << 32))
def test_racks_that_wrap_at_different_numbers_are_silent(seed: int) -> None:
    """Any modulus of a rack, any stride of a rail, any offset; racks that are full, and not."""
    assert infer(model(random_racks(seed))).findings == ()


@pytest.mark.slow
def test_faults_in_racks_that_wrap_at_different_numbers_are_the_only_findings() -> None:
    """At 1 % nine of ten are found, nothing else is said, and the moves restore the fabric."""
    total = Score(0, 0, 0, 0, 0)
    for seed in range(0, 96, 4):
        fleet = random_racks(seed)
        if fleet.shape.slots > 2 and fleet.size > 32:
            fleet.inject(0.01)
            total += score(fleet, infer(model(fleet)).findings)
    assert total.precision == 1
    assert total.recall >= 0.9
    assert total.restored >= 0.99 * total.found


@pytest.mark.slow
@pytest.mark.parametrize("stride", [0, 1, 5])
@pytest.mark.parametrize("rails", [2, 4, 8])
def test_a_cable_on_a_free_port_is_found(stride: int, rails: int) -> None:
    """In racks of 24 nodes on leaves of 32 ports nine of ten, though the rails wrap."""
    found = 0
    for seed in range(20):
        chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        fleet = Fleet(wrapped(32, 1, [stride * rail for rail in range(rails)], 24), 72)
        cable = Cable(chance.randrange(72), chance.randrange(rails))
        before = fleet.wired(cable)
        assert before
        taken = {fleet.wired(Cable(node, cable.slot)) for node in range(72)}
        ends = [one for port in range(1, 65) if (one := End(before.leaf, port)) not in taken]
        fleet.ends = {cable: chance.choice(ends)}
        fleet.faults = [fleets.Fault("wrong port", {cable: before}, {**fleet.ends})]
        result = score(fleet, infer(model(fleet)).findings)
        assert result.wrong == 0
        found += result.restored
    assert found >= 18


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_row_of_cables_that_avoids_ports_is_no_mistake(nodes: int) -> None:
    """The last nodes of a rack are some ports further on one rail; one node alone is wrong."""
    for row in (nodes, 1):
        fleet = Fleet(fleets.RAIL, 32)
        fleet.ends = {Cable(31 - one, 3): End(3, 36 - one) for one in range(row)}
        found = [one.code for one in infer(model(fleet)).findings]
        assert found == (["wrong-port"] if row == 1 else [])


@pytest.mark.slow
@settings(max_examples=60)
@given(fabrics(), st.sampled_from([0.005, 0.02, 0.05]), st.integers(0, 99))
def test_faults_in_any_permutation_are_the_only_findings(
    drawn: tuple[Shape, int], rate: float, seed: int
) -> None:
    """What is said of a fabric with faults is true of one of them."""
    fleet = Fleet(*drawn, style=fleets.STYLES[seed % 4], seed=seed)
    fleet.inject(rate)
    assert score(fleet, infer(model(fleet)).findings).wrong == 0


@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("stride", [1, 5, *(pytest.param(one, marks=SWEEP) for one in OTHERS)])
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "sizes",
    [[32] * 9, [*range(24, 33)], pytest.param([*range(21, 91)], marks=SWEEP), [*range(21, 41)]],
)
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
