"""The odd cables of a group, and the causes of several: cables exchanged.

A cable is odd if it is not on the leaf where the rule of its group has it. Odd cables that have
each other's leaves are one mistake. A port of the right leaf is never odd: only a plan says which
port is right.

A cable may break the rule of its group by design: its column divides the nodes otherwise. A storage
leaf holds 24 nodes where a compute unit has 20. The few nodes that cross the border are no mistake,
though the majority of their group is on another leaf: in the order of names, such a column goes on
with the same leaf where half of the groups end, or more. A cable of it is no mistake on the leaf of
the nodes before or after its group, or at an end of that order. A leaf on which a column has one
node, not at an end, divides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from agent.cabling.cables import cycles
from agent.cabling.seen import SeenEnd
from agent.fleet.pattern.grouping import Count, NodeRow, RuledGroup, is_habit, is_majority
from agent.grouped import grouped

MISSING, MISCABLED = "missing", "miscabled"  # what is odd about a cable
SWAPPED, SHIFTED = "swapped", "shifted"  # what is odd about several
MIN_SHIFTED = 3  # cables; two that changed places are swapped
MAX_LOST = 1 / 2  # of a node's cables: with more it is a spare, or on its way out
MAX_NEVER = 1 / 4  # of a node's cables, or one, that were never there: with more it is a new node


class Odd(NamedTuple):
    """A cable that is not on the leaf where the rule has it."""

    row: NodeRow
    column: int
    code: str  # MISSING or MISCABLED
    wanted: str  # leaf
    majority: Count  # of the nodes that follow the rule
    exchanged: SeenEnd | None = None  # the far end of the cable whose leaf this is

    @property
    def interface(self) -> str:
        return self.row.ports[self.column].interface

    @property
    def leaf(self) -> str | None:
        """The leaf now, or of a missing cable the last leaf."""
        return self.row.leaves[self.column]

    @property
    def was_there(self) -> bool:
        """Return True if the wanted leaf is the last that was seen."""
        return self.leaf == self.wanted

    @property
    def key(self) -> tuple[str, int]:
        """The node and the column: no two cables have the same."""
        return self.row.node.name, self.column


def odd_cables(group: RuledGroup) -> list[Odd]:
    """Return the odd cables of the group's fresh nodes.

    A cable that was on the leaf of the majority and is gone is odd, though the rule may be a
    coincidence. A port that never had a neighbor there is odd in a regular group only, and unless
    so many nodes lack a neighbor there as make a habit.
    """
    odds: list[Odd] = []
    fresh = [row for row in group.rows if row.is_fresh]
    for row in fresh:
        if row.is_whole and row.leaves == group.leaves:
            continue
        for column, port in enumerate(row.ports):
            seen, wanted, count = row.leaves[column], group.leaves[column], group.counts[column]
            if not wanted or port.is_lost:
                continue
            if not port.far_end:
                odds.append(Odd(row, column, MISSING, wanted, count))
            elif seen and seen != wanted and group.is_sure:
                odds.append(Odd(row, column, MISCABLED, wanted, count))
    never = Counter(odd.column for odd in odds if odd.code == MISSING and not odd.was_there)
    return [
        odd
        for odd in odds
        if odd.code != MISSING
        or odd.was_there
        or (group.is_regular and not is_habit(never[odd.column], len(fresh)))
    ]


def without_spares(group: RuledGroup, odds: Sequence[Odd]) -> Iterator[Odd]:
    """Yield the odd cables without those that are missing by design: half-built, or spare."""
    gaps = [odd for odd in odds if odd.code == MISSING]
    lost = Counter(odd.row.node.name for odd in gaps)
    never = Counter(odd.row.node.name for odd in gaps if not odd.was_there)
    cables = len(group.leaves)
    incomplete = {name for name, count in lost.items() if count > max(1, MAX_LOST * cables)}
    incomplete |= {name for name, count in never.items() if count > max(1, MAX_NEVER * cables)}
    present: dict[int, Count] = {}  # the fresh nodes with a neighbor there, by column
    for column in {odd.column for odd in gaps}:
        ports = [row.ports[column] for row in group.rows if row.is_fresh]
        there = [port for port in ports if not port.is_lost]
        present[column] = (sum(1 for port in there if port.far_end), len(there))
    for odd in odds:
        if odd.code != MISSING:
            yield odd
        elif odd.row.node.name not in incomplete and is_majority(*present[odd.column]):
            yield odd._replace(majority=present[odd.column])


def causes(odds: Sequence[Odd]) -> Iterator[tuple[str, Sequence[Odd]]]:
    """Yield the mistakes, each with its code: cables of a node shifted, rings, and cables alone.

    In a ring each cable is on the leaf where the next cable should be. The next cable is the only
    cable of the node that should be there, else the only cable of the fleet that is exchanged with
    this cable's leaf, if no other is the other way round.
    """
    astray = {odd.key: odd for odd in odds if odd.code == MISCABLED}
    of_node = grouped(astray.values(), lambda odd: (odd.row.node.name, odd.wanted))
    of_leaves = grouped(astray.values(), lambda odd: (odd.wanted, odd.leaf))
    after: dict[tuple[str, int], tuple[str, int] | None] = {}
    for key, odd in astray.items():
        near = of_node.get((odd.row.node.name, odd.leaf or ""), [])
        if not near and len(of_leaves[odd.wanted, odd.leaf]) == 1:
            near = of_leaves.get((odd.leaf or "", odd.wanted), [])
        after[key] = near[0].key if len(near) == 1 else None
    in_rings: set[tuple[str, int]] = set()
    for keys in cycles(after):
        in_rings.update(keys)
        ring = []
        for key, before in zip(keys, (keys[-1], *keys[:-1]), strict=True):
            # Each cable belongs where the cable before it in the ring is.
            row, column = astray[before].row, astray[before].column
            ring.append(astray[key]._replace(exchanged=row.ports[column].far_end))
        is_of_node = len({name for name, _ in keys}) == 1
        yield SHIFTED if is_of_node and _is_shifted(ring) else SWAPPED, ring
    for odd in odds:
        if odd.key not in in_rings:
            yield odd.code, [odd]


def _is_shifted(ring: Sequence[Odd]) -> bool:
    """Return True if each of neighboring cables is in the next cable's place, all to one side."""
    columns, cables = [odd.column for odd in ring], len(ring)
    if cables < MIN_SHIFTED or max(columns) - min(columns) >= cables:
        return False
    steps = {(after - before) % cables for before, after in pairwise([*columns, columns[0]])}
    return steps in ({1}, {cables - 1})


class Seat(NamedTuple):
    """A node in the order of names, as one column has it."""

    node: str
    group: int
    leaf: str


def by_design(
    rows: Sequence[NodeRow], groups: Sequence[RuledGroup], columns: Iterable[int]
) -> Iterator[tuple[str, int]]:
    """Yield node and column of the cables that are no mistakes; `rows` in the order of names."""
    of_node = {row.node.name: number for number, group in enumerate(groups) for row in group.rows}
    line = [row for row in rows if row.is_fresh and any(row.leaves)]
    ends = [row.node.name for row in (*line[:1], *line[-1:])]
    for column in columns:
        nodes = Counter(row.leaves[column] for row in line)
        seats = [
            Seat(row.node.name, of_node[row.node.name], leaf)
            for row in line
            if (leaf := row.leaves[column]) and (nodes[leaf] > 1 or row.node.name in ends)
        ]
        borders = [pair for pair in pairwise(seats) if pair[0].group != pair[1].group]
        changes = sum(1 for before, after in borders if before.leaf != after.leaf)
        if borders and 2 * changes <= len(borders):  # few groups end where the leaf changes
            yield from ((node, column) for node in _at_borders(seats))


def _at_borders(line: Sequence[Seat]) -> Iterator[str]:
    """Yield the nodes of each run on one leaf that goes beyond its group, or ends the order."""
    runs = [[*run] for _, run in groupby(line, lambda seat: seat.leaf)]
    for index, run in enumerate(runs):
        is_end = index in (0, len(runs) - 1)
        if is_end or len({seat.group for seat in run}) > 1:
            yield from (seat.node for seat in run)
