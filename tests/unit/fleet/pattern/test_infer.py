"""The pattern of a fleet: injected faults are found, and nothing else is."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from agent.cabling.seen import SeenEnd
from agent.fleet.model import Fleet as Model
from agent.fleet.model import FleetNode, FleetPort
from agent.fleet.pattern.infer import infer
from tests.support import fleets
from tests.support.fleet_models import Score, far_end, model, score
from tests.support.fleets import Cable, End, Fleet, Shape
from tests.support.small_fleets import cabled

NODES = 96
NO_SCORE = Score(0, 0, 0, 0)


PAIRS = Shape("pairs", 2, 32, lambda node, slot, _: End(node // 32, node % 32 * 2 + slot + 1))


def faulty(shape: Shape, *kinds: str, rate: float = 0.01, seed: int = 0) -> Fleet:
    """Return a fleet with faults, in one of the styles of names."""
    style = fleets.STYLES[seed % len(fleets.STYLES)]
    fleet = Fleet(shape, NODES // shape.group * shape.group, style=style, seed=seed)
    fleet.inject(rate, kinds)
    return fleet


def with_fault(shape: Shape, after: dict[Cable, End | None], size: int = 64) -> Fleet:
    fleet = Fleet(shape, size)
    before = {cable: end for cable in after if (end := fleet.wired(cable))}
    fleet.faults = [fleets.Fault("given", before, after)]
    fleet.ends = dict(after)
    return fleet


def changed(fleet: Model, node: int, slot: int, **facts: Any) -> Model:
    nodes = cabled([*fleet.nodes], fleets.node_name(node), f"mlx5_{slot}", **facts)
    return replace(fleet, nodes=tuple(nodes))


def of_nodes(fleet: Model, node: int, **facts: Any) -> Model:
    nodes = [replace(one, **facts) if at == node else one for at, one in enumerate(fleet.nodes)]
    return replace(fleet, nodes=tuple(nodes))


# What stays within a leaf is no fault here.
FAULTS = [
    (shape, kind)
    for shape in fleets.REGULAR
    for kind in fleets.KINDS
    if shape != fleets.SINGLE_LEAF or kind not in {fleets.SWAP_WITHIN, fleets.SHIFT}
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "kind"), FAULTS, ids=lambda one: one if isinstance(one, str) else one.name
)
def test_few_faults_are_found_and_nothing_else(shape: Shape, kind: str) -> None:
    """Below 1 %: nearly every fault is found, and no finding leads a cable to a wrong leaf."""
    total = NO_SCORE
    for seed in range(6):
        fleet = faulty(shape, kind, rate=0.005, seed=seed)
        total += score(fleet, infer(model(fleet)).findings)
    assert total.faults >= 6
    assert total.precision == 1
    assert total.recall > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("shape", fleets.REGULAR, ids=lambda shape: shape.name)
@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_no_finding_is_wrong_in_a_badly_wired_fleet(shape: Shape, rate: float) -> None:
    """Up to 5 %, all kinds of faults mixed: what is said is true, and half of all is said."""
    total = NO_SCORE
    for seed in range(6):
        fleet = faulty(shape, *fleets.KINDS, rate=rate, seed=seed)
        total += score(fleet, infer(model(fleet)).findings)
    assert total.precision == 1
    assert total.recall > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("shape", [fleets.HALF_BUILT, fleets.TWO_HABITS], ids=lambda one: one.name)
def test_half_built_racks_and_two_crews_are_silent(shape: Shape) -> None:
    """Neither half of the nodes is a majority."""
    for seed in range(24):
        size = 24 + seed % 9 + 32 * (seed % 3)
        assert infer(model(Fleet(shape, size, seed=seed))).findings == ()


def irregular(seed: int) -> Shape:
    """Return a random wiring of few cables onto few leaves, the worst case of a coincidence."""
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    slots, leaves = chance.randint(1, 8), chance.randint(1, 5)
    ports = [*range(1, 400)]
    chance.shuffle(ports)
    is_even = chance.random() < 0.5
    table: dict[tuple[int, int], End] = {}

    def end(node: int, slot: int, _: int) -> End:
        number = node * slots + slot
        port = number + 1 if is_even else ports[number]
        return table.setdefault((node, slot), End(chance.randrange(leaves), port))

    return Shape("irregular", slots, 8, end)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 700), marks=pytest.mark.sweep)]
)
def test_irregular_wiring_is_silent(seeds: range) -> None:
    """Cables plugged at random look like a pattern now and then, but not enough."""
    for seed in seeds:
        found = infer(model(Fleet(irregular(seed), 4 + seed % 44)))
        assert found.findings == (), (seed, found.findings[0].text)


# The wiring of a public dump of a cluster of four leaves with one HCA a node: the nodes of each
# leaf in the order of its ports. A number is that of a compute node, one with `g` that of a GPU
# node, and one with `x` a login, storage or control node. `-` is an uplink.
ZIGZAG = """
18 20 14 16 10 12 6 8 2 4 g1 46 - - - - - - - - - - - - g2 g3 1 3 5 7 9 11 13 15 17 19
- - - - - - - - - - - - g45 47 45 41 42 43 44 g4 g5 g6 g7 g8 g9 g10 g11 g12 g13 g14 g15 g16 g17 \
g18 g19 g20
- - - - - - - - - - - - g41 g42 g43 g44 g21 g22 g23 g24 g25 g26 g27 g28 g29 g30 g31 g32 g33 g34 \
g35 g36 g37 g38 g39 g40
38 40 34 36 30 32 26 28 22 24 x1 x2 - - - - - - - - - - - - x3 x4 21 23 25 27 29 31 33 35 37
"""


def test_a_cluster_plugged_in_a_zigzag_is_silent() -> None:
    """Odd and even nodes on the two halves of a leaf, leftovers of other kinds between them."""
    ends = {
        f"node{name}": SeenEnd(f"leaf{leaf}", f"{port}")
        for leaf, row in enumerate(ZIGZAG.strip().splitlines())
        for port, name in enumerate(row.split(), 1)
        if name != "-"
    }
    nodes = [
        FleetNode(name, time=fleets.NOW, ports=(FleetPort("mlx5_0", far_end=end, last_end=end),))
        for name, end in sorted(ends.items())
    ]
    found = infer(Model(tuple(nodes), "dump", fleets.NOW))
    assert (len(nodes), found.findings) == (95, ())
    assert [group.pattern for group in found.groups] == [None] * 4


def test_faults_in_a_fleet_without_a_pattern_are_not_guessed() -> None:
    """Without a majority there is nothing odd; the group has no pattern, and a note says why."""
    fleet = Fleet(fleets.TWO_HABITS, 128)
    fleet.inject(0.02)
    found = infer(model(fleet))
    assert found.findings == ()
    assert {group.pattern for group in found.groups} == {None}
    assert found.covered == 0
    assert "no pattern" in found.notes[0]


def test_swap_of_rails_without_port_numbers() -> None:
    """The leaves alone tell which two cables of a node changed places."""
    fleet = model(with_fault(fleets.RAIL, {Cable(5, 0): End(6, 6), Cable(5, 6): End(0, 6)}))
    for node, slot in product(range(64), range(8)):
        end = fleet.nodes[node].ports[slot].far_end
        bare = end and end._replace(port_id=None)
        fleet = changed(fleet, node, slot, far_end=bare, last_end=bare)
    (found,) = infer(fleet).findings
    text = "Exchange the far ends of gpu-00005 mlx5_0 and mlx5_6: L90.1.7 and L90.1.1."
    assert found.text == text
    assert found.majority == "31 of 32 nodes of the group have mlx5_0 on L90.1.1"


@pytest.mark.parametrize("plugged", [0, 4])
def test_a_node_in_the_making_is_not_missing(plugged: int) -> None:
    """A spare node has no cables, a new one half of them; one missing cable is a finding."""
    fleet = model(with_fault(fleets.RAIL, {Cable(3, slot): None for slot in range(plugged, 8)}))
    for slot in range(plugged, 8):
        fleet = changed(fleet, 3, slot, last_end=None)
    assert infer(fleet).findings == ()


def test_a_port_without_a_neighbor_belongs_where_the_others_say() -> None:
    """The wanted leaf is known, though the port never had a neighbor; the port is not."""
    fleet = model(with_fault(fleets.RAIL, {Cable(3, 2): None}))
    (found,) = infer(changed(fleet, 3, 2, last_end=None)).findings
    assert found.code == "missing"
    assert found.moves[0].wanted == ("L90.1.3", None)


@pytest.mark.parametrize(("shape", "size"), [(fleets.SINGLE_LEAF, 18), (PAIRS, 96)])
def test_where_no_other_leaf_is_possible(shape: Shape, size: int) -> None:
    """On the only leaf of a fleet, and with both cables on one, a cable is missed all the same."""
    assert infer(model(Fleet(shape, size))).covered == size * shape.slots
    fleet = model(with_fault(shape, {Cable(3, 1): None}, size))
    for seen in (fleet, changed(fleet, 3, 1, last_end=None)):
        (found,) = infer(seen).findings
        assert (found.code, found.expected[0]) == ("missing", "L90.1.1")


def test_a_cable_is_missing_though_its_rule_may_be_a_coincidence() -> None:
    """It was there: ten pairs of legs prove no order of the legs, and need not."""
    fleet = model(with_fault(fleets.DUAL_PLANE, {Cable(3, 1): None}, 10))
    (found,) = infer(fleet).findings
    assert (found.code, found.expected) == ("missing", ("L90.1.2", "4"))
    assert infer(fleet).groups[0].pattern is None
    assert infer(changed(fleet, 3, 1, last_end=None)).findings == ()


def test_a_lost_port_is_no_missing_cable() -> None:
    """It left the bus: that is not about its cable."""
    fleet = model(with_fault(fleets.RAIL, {Cable(3, 2): None}))
    assert infer(changed(fleet, 3, 2, is_lost=True)).findings == ()


def test_stale_labels_are_neither_evidence_nor_reported() -> None:
    """A node whose agent is silent is in a group, and a note counts it."""
    fleet = with_fault(fleets.RAIL, {Cable(3, 2): End(5, 77)}, size=32)
    fleet.silent = {3}
    found = infer(model(fleet))
    assert found.findings == ()
    assert found.covered == 31 * 8
    assert found.notes[0].startswith("1 node without a report")
    for silent in ({*range(4, 32)}, {*range(32)}):
        fleet.silent = silent
        assert infer(model(fleet)).findings == ()


def test_a_switch_is_one_whether_its_identifier_is_known_or_not() -> None:
    """One node's annotation has no room for the row: its label is the same switch."""
    fleet = model(Fleet(fleets.RAIL, 32))
    bare = tuple(
        port._replace(far_end=port.far_end and port.far_end._replace(id=None), last_end=None)
        for port in fleet.nodes[7].ports
    )
    found = infer(of_nodes(fleet, 7, ports=bare))
    assert found.findings == ()
    assert len(found.groups) == 1


def test_interfaces_are_compared_by_their_address() -> None:
    """One node calls its devices otherwise."""
    fleet = model(with_fault(fleets.RAIL, {Cable(3, 0): End(1, 4), Cable(3, 1): End(0, 4)}))
    ports = fleet.nodes[3].ports
    names = tuple(port._replace(interface=f"ibp{at}s0") for at, port in enumerate(ports))
    (found,) = infer(of_nodes(fleet, 3, ports=names)).findings
    assert [port.interface for port in found.ports] == ["ibp0s0", "ibp1s0"]


def test_a_hole_in_the_rack_moves_nobody() -> None:
    """A node that is away, and a leaf's port that is left free, are no shift."""
    fleet = model(Fleet(fleets.DUAL_PLANE, 64))
    nodes = tuple(node for number, node in enumerate(fleet.nodes) if number not in (5, 6, 40))
    assert infer(replace(fleet, nodes=nodes)).findings == ()


def test_every_node_is_in_one_group() -> None:
    """Also those without ports, without neighbors, and of another generation."""
    fleet = model(faulty(fleets.MIXED, *fleets.KINDS, rate=0.2))
    script = FleetPort("<script>", far_end=far_end(End(1, 2), "sonic"))
    odd = (
        FleetNode("cpu-1", time=fleets.NOW),
        FleetNode("cpu-2", time=fleets.NOW, ports=(FleetPort("mlx5_0"),)),
        FleetNode("cpu-3", time=fleets.NOW, ports=(script,)),
    )
    found = infer(replace(fleet, nodes=fleet.nodes + odd))
    listed = [name for group in found.groups for name in group.nodes]
    assert sorted(listed) == sorted(node.name for node in (*fleet.nodes, *odd))


def test_an_empty_fleet_has_no_pattern() -> None:
    assert infer(Model((), "test", fleets.NOW)) == ((), (), (), 0, 0)


def test_ids_do_not_depend_on_the_order_of_discovery() -> None:
    """A finding keeps its ID when other nodes come and go."""
    fleet = model(with_fault(fleets.RAIL, {Cable(5, 0): End(6, 6), Cable(5, 6): End(0, 6)}))
    (one,) = infer(fleet).findings
    (other,) = infer(replace(fleet, nodes=fleet.nodes[:40])).findings
    assert one.id == other.id


def test_the_patterns_have_names() -> None:
    words = [infer(model(Fleet(shape, 64))).groups[0].pattern for shape in fleets.REGULAR[:4]]
    assert words == [
        "rail-optimized: interface i on leaf i",
        "fat tree: 8 interfaces on 2 leaves",
        "single leaf: all interfaces on one leaf",
        "dual-plane: two interfaces on two leaves",
    ]
