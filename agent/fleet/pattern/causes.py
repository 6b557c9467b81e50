"""The odd cables of a group, and the causes of several: cables exchanged.

A cable is odd if it is not where the rules of its group have it. Odd cables that have each other's
places are one mistake.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.evidence import is_habit, is_majority
from agent.fleet.pattern.ports import line_of, modulo, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.fleet.pattern.grouping import Count, LeafRule, Row
    from agent.fleet.pattern.ports import Line, PortRule, Seen

MISSING, LEAF, PORT = "missing", "leaf", "port"  # what is odd about a cable
SWAPPED, SHIFTED, ALONE = "swapped", "shifted", "alone"  # causes
MIN_SHIFTED = 3  # cables; two that changed places are swapped
MAX_LOST = 1 / 2  # of a node's cables: with more it is a spare, or on its way out
MAX_NEVER = 1 / 4  # of a node's cables, or one, that were never there: with more it is a new node


class Seat(NamedTuple):
    """A port of a leaf."""

    leaf: str
    number: int | None  # None: not known


class Odd(NamedTuple):
    """A cable that is not where the rules have it."""

    row: Row
    column: int
    wrong: str  # MISSING, LEAF or PORT
    actual: Seat | None
    wanted: Seat
    majority: Count  # of the nodes that follow the rule
    by_line: bool = False  # the port by the order of the nodes, not by the node's other cables

    @property
    def interface(self) -> str:
        """The name of the interface on its node."""
        return self.row.ports[self.column].interface

    @property
    def was_there(self) -> bool:
        """Return True if the wanted leaf is the last that was seen."""
        return self.row.leaves[self.column] == self.wanted.leaf

    @property
    def key(self) -> tuple[str, int]:
        """The node and the column: no two cables have the same."""
        return self.row.node.name, self.column


class Cause(NamedTuple):
    """A mistake; the wanted place of each cable is where another one is, if that is known."""

    kind: str
    odds: tuple[Odd, ...]


class Ruled(NamedTuple):
    """A group and its rules."""

    rows: Sequence[Row]
    leaf_rule: LeafRule
    port_rule: PortRule | None
    line: Line | None
    places: tuple[int | None, ...]  # of each node, by its own cables or else the line
    ports: Seen
    strays: Mapping[str, set[int]]  # by leaf: the ports of cables on the right leaf, on a wrong one

    @property
    def is_regular(self) -> bool:
        """Return True if a rule is no coincidence."""
        return any(self.leaf_rule.leaves) and bool(self.leaf_rule.is_sure or self.port_rule)

    def number(self, rank: int, column: int) -> int | None:
        """Return the port that a cable should be on; None if no rule says, or it has none such."""
        where, rule = self.places[rank], self.port_rule
        offset, leaf = rule.offsets[column] if rule else None, self.leaf_rule.leaves[column]
        if not rule or where is None or offset is None or not leaf:
            return None
        strays = self.strays.get(leaf, set())
        return self.ports.port(leaf, where + offset, rule.modulus, strays)


def ruled(
    rows: Sequence[Row], leaf_rule: LeafRule, port_rule: PortRule | None, ports: Seen
) -> Ruled:
    """Return a group with the line of its nodes.

    The place of a node whose cables do not agree is on the line, if any of them is.
    """
    if not port_rule:
        return Ruled(rows, leaf_rule, None, None, (None,) * len(rows), ports, {})
    own = [
        place(vote) if row.is_fresh else None
        for row, vote in zip(rows, port_rule.votes, strict=True)
    ]
    line = line_of([row.node.name for row in rows], own, port_rule.modulus)
    places = list(own)
    for rank, (row, vote) in enumerate(zip(rows, port_rule.votes, strict=True)):
        is_agreed = vote and vote.count(vote[0]) == len(row.ports) > 1
        if row.is_fresh and not is_agreed:
            found = [own[rank], _place_in_another_order(row, leaf_rule, port_rule)]
            on_line = line.places[rank] if line else None
            is_on_line = on_line in found or (found == [None, None] and on_line in vote)
            if on_line is not None and is_on_line:
                places[rank] = on_line
            else:
                places[rank] = next((where for where in found if where is not None), None)
    strays = _strays(rows, leaf_rule, port_rule, places)
    return Ruled(rows, leaf_rule, port_rule, line, tuple(places), ports, strays)


def _strays(
    rows: Sequence[Row], leaf_rule: LeafRule, rule: PortRule, places: Sequence[int | None]
) -> dict[str, set[int]]:
    """Return the ports of each leaf on which a cable is that the rules have on another port."""
    found: dict[str, set[int]] = defaultdict(set)
    for row, vote, where in zip(rows, rule.votes, places, strict=True):
        if not row.is_fresh or where is None or {where}.issuperset(vote):
            continue
        seats = zip(row.leaves, row.numbers, leaf_rule.leaves, rule.offsets, strict=True)
        for seen, number, leaf, offset in seats:
            if not leaf or seen != leaf or number is None or offset is None:
                continue
            if modulo(number - where - offset, rule.modulus):
                found[leaf].add(number)
    return found


def _place_in_another_order(row: Row, leaf_rule: LeafRule, port_rule: PortRule) -> int | None:
    """Return the place at which all cables of a node are on its ports, be it in another order."""
    numbers = [number for number in row.numbers if number is not None]
    offsets = [offset for offset in port_rule.offsets if offset is not None]
    leaves = leaf_rule.leaves
    if not len(numbers) == len(offsets) == len(row.ports) or None in leaves:
        return None
    modulus = port_rule.modulus
    seats = Counter(
        (leaf, modulo(number, modulus)) for leaf, number in zip(row.leaves, numbers, strict=True)
    )
    for leaf, offset in zip(leaves, offsets, strict=True):
        where = modulo(numbers[0] - offset, modulus)
        if leaf == row.leaves[0] and seats == Counter(
            (leaf, modulo(where + offset, modulus))
            for leaf, offset in zip(leaves, offsets, strict=True)
        ):
            return where
    return None


def odd_cables(group: Ruled) -> list[Odd]:
    """Return the odd cables of the group's fresh nodes.

    Ports that never had a neighbor are left out where as many nodes lack one there as make a habit.
    """
    if not group.is_regular:
        return []
    leaves = group.leaf_rule.leaves
    votes = group.port_rule.votes if group.port_rule else [()] * len(group.rows)
    found: list[Odd] = []
    for rank, (row, vote) in enumerate(zip(group.rows, votes, strict=True)):
        is_even = row.is_whole and row.leaves == leaves and len({*vote}) <= 1
        if row.is_fresh and not is_even:
            found += [odd for column in range(len(row.ports)) if (odd := _odd(group, rank, column))]
    fresh = sum(1 for row in group.rows if row.is_fresh)
    never = Counter(odd.column for odd in found if odd.wrong == MISSING and not odd.was_there)
    return [
        odd
        for odd in found
        if odd.wrong != MISSING or odd.was_there or not is_habit(never[odd.column], fresh)
    ]


def _odd(group: Ruled, rank: int, column: int) -> Odd | None:
    """Return what is odd about a cable; a wrong port with the count of the rule that it breaks."""
    row, leaf = group.rows[rank], group.leaf_rule.leaves[column]
    port = row.ports[column]
    if not leaf or port.is_lost:
        return None
    wanted = Seat(leaf, group.number(rank, column))
    seen, number = row.leaves[column], row.numbers[column]
    count = group.leaf_rule.counts[column]
    if not port.far_end:
        return Odd(row, column, MISSING, None, wanted, count)
    if seen != leaf and group.leaf_rule.is_sure:
        return Odd(row, column, LEAF, Seat(seen, number), wanted, count) if seen else None
    rule = group.port_rule
    if not rule or seen != leaf or number is None or wanted.number in {None, number}:
        return None
    by_line = place(rule.votes[rank]) is None
    count = group.line.agreed if by_line and group.line else rule.counts[column]
    return Odd(row, column, PORT, Seat(leaf, number), wanted, count, by_line)


def without_spares(group: Ruled, odds: Sequence[Odd]) -> Iterator[Odd]:
    """Yield the odd cables without those that are missing by design: half-built, or spare."""
    gaps = [odd for odd in odds if odd.wrong == MISSING]
    lost = Counter(odd.row.node.name for odd in gaps)
    never = Counter(odd.row.node.name for odd in gaps if not odd.was_there)
    cables = len(group.leaf_rule.leaves)
    incomplete = {name for name, count in lost.items() if count > max(1, MAX_LOST * cables)}
    incomplete |= {name for name, count in never.items() if count > max(1, MAX_NEVER * cables)}
    present: dict[int, Count] = {}  # the fresh nodes with a neighbor there, by column
    for column in {odd.column for odd in gaps}:
        ports = [row.ports[column] for row in group.rows if row.is_fresh]
        there = [port for port in ports if not port.is_lost]
        present[column] = (sum(1 for port in there if port.far_end), len(there))
    for odd in odds:
        if odd.wrong != MISSING:
            yield odd
        elif odd.row.node.name not in incomplete and is_majority(*present[odd.column]):
            yield odd._replace(majority=present[odd.column])


def causes(groups: Sequence[Ruled], odds: Sequence[Odd]) -> Iterator[Cause]:
    """Yield the mistakes: cables of a node shifted, rings of cables, and cables alone.

    A cable alone whose port is taken by one that follows the rules cannot go there: its leaf is
    wrong all the same, its port is not.
    """
    rings = _rings(odds)
    within: dict[str, list[list[Odd]]] = defaultdict(list)
    for ring in rings:
        names = {odd.row.node.name for odd in ring}
        within["" if len(names) > 1 else min(names)].append(ring)
    for name, found in within.items():
        shifted = sorted((odd for ring in found for odd in ring), key=lambda odd: odd.column)
        if name and _is_shifted(shifted):
            yield Cause(SHIFTED, tuple(shifted))
        else:
            yield from (Cause(SWAPPED, tuple(ring)) for ring in found)
    done = {odd.key for ring in rings for odd in ring}
    alone = [odd for odd in odds if odd.key not in done]
    taken = _taken(groups, odds)
    actual = {odd.actual for odd in alone if odd.actual}
    for odd in alone:
        is_taken = odd.wanted in taken
        if odd.wrong == PORT and (is_taken or odd.by_line or odd.wanted in actual):
            continue  # no place to go, or a row of cables that avoids a port
        wanted = Seat(odd.wanted.leaf, None) if is_taken else odd.wanted
        yield Cause(ALONE, (odd._replace(wanted=wanted),))


def _is_shifted(odds: Sequence[Odd]) -> bool:
    """Return True if each of neighboring cables is in the next one's place, all to one side."""
    columns = [odd.column for odd in odds]
    if len(odds) < MIN_SHIFTED or columns[-1] - columns[0] >= len(odds):
        return False
    owner = {odd.wanted: number for number, odd in enumerate(odds)}
    steps = {
        (owner[odd.actual] - number) % len(odds) for number, odd in enumerate(odds) if odd.actual
    }
    return steps in ({1}, {len(odds) - 1})


def _rings(odds: Sequence[Odd]) -> list[list[Odd]]:
    """Return the rings, in which each cable is on the port that the next one should be on.

    Wanted places are exact to the port there.
    """
    following = _Following(odds)
    rings, seen = [], set()
    for odd in odds:
        chain: list[Odd] = []
        one: Odd | None = odd
        while one and one.key not in seen:
            seen.add(one.key)
            chain.append(one)
            one = following[one]
        if one and one in chain:
            ring = chain[chain.index(one) :]
            places = {owner.key: odd.actual for odd in ring if (owner := following[odd])}
            rings.append([odd._replace(wanted=places[odd.key] or odd.wanted) for odd in ring])
    return rings


class _Following:
    """The odd cable that should be where another one is."""

    def __init__(self, odds: Iterable[Odd]) -> None:
        self._exact: dict[Seat, list[Odd]] = defaultdict(list)
        self._of_node: dict[tuple[str, str], list[Odd]] = defaultdict(list)
        self._of_leaf: dict[tuple[str, str | None], list[Odd]] = defaultdict(list)
        for odd in odds:
            self._exact[odd.wanted].append(odd)
            if odd.wanted.number is None and odd.actual:
                self._of_node[odd.row.node.name, odd.wanted.leaf].append(odd)
                self._of_leaf[odd.wanted.leaf, odd.actual.leaf].append(odd)

    def __getitem__(self, odd: Odd) -> Odd | None:
        """Return the only one; None if there is none, or several are possible."""
        if not odd.actual:
            return None
        leaf = odd.actual.leaf
        found = self._exact.get(odd.actual) if odd.actual.number is not None else None
        found = found or self._of_node.get((odd.row.node.name, leaf))
        if not found and len(self._of_leaf.get((odd.wanted.leaf, leaf), ())) == 1:
            found = self._of_leaf.get((leaf, odd.wanted.leaf))
        return found[0] if found and len(found) == 1 else None


def _taken(groups: Iterable[Ruled], odds: Sequence[Odd]) -> set[Seat]:
    """Return the wanted ports that have a cable that follows the rules."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for odd in odds:
        if odd.wanted.number is not None:
            wanted[odd.wanted.leaf].add(odd.wanted.number)
    used = {
        Seat(leaf, number)
        for group in groups
        if not wanted.keys().isdisjoint(group.leaf_rule.leaves)
        for row in group.rows
        if row.is_fresh
        for leaf, number, port in zip(row.leaves, row.numbers, row.ports, strict=True)
        if leaf in wanted and number in wanted[leaf] and port.far_end
    }
    return used - {odd.actual for odd in odds if odd.actual}
