"""The odd cables of a group, and the causes of several: cables exchanged.

A cable is odd if it is not where the rules of its group have it. Odd cables that have each other's
places are one mistake.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from agent.findings.finding import grouped
from agent.fleet.pattern.evidence import is_habit, is_majority
from agent.fleet.pattern.grouping import Count, LeafRule, Row
from agent.fleet.pattern.ports import Line, PortRule, Seen, line_of, modulo, place
from agent.verify.cables import cycles

MISSING, LEAF, PORT = "missing", "leaf", "port"  # what is odd about a cable
SWAPPED, SHIFTED, ALONE = "swapped", "shifted", "alone"  # causes
MIN_SHIFTED = 3  # cables; two that changed places are swapped
MIN_ALIKE = 3  # other cables of a node on ports of one number: this rail begins there, too
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
    def offset(self) -> int | None:
        """The number of ports from the wanted one to the present one."""
        if not self.actual or self.actual.number is None or self.wanted.number is None:
            return None
        return self.actual.number - self.wanted.number

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
    for ring in rings:
        is_of_node = len({odd.row.node.name for odd in ring}) == 1
        yield Cause(SHIFTED if is_of_node and _is_shifted(ring) else SWAPPED, tuple(ring))
    done = {odd.key for ring in rings for odd in ring}
    alone = [odd for odd in odds if odd.key not in done]
    taken = _taken(groups, odds)
    actual = {odd.actual for odd in alone if odd.actual}
    wrong_ports = [odd for odd in alone if odd.wrong == PORT]
    by_design = _by_design(groups, odds, wrong_ports)
    for odd in alone:
        is_taken = odd.wanted in taken
        if odd.wrong == PORT and (is_taken or odd.wanted in actual):
            continue  # no place to go
        if odd.key in by_design:
            continue
        wanted = Seat(odd.wanted.leaf, None) if is_taken else odd.wanted
        yield Cause(ALONE, (odd._replace(wanted=wanted),))


def _by_design(
    groups: Sequence[Ruled], odds: Iterable[Odd], alone: Iterable[Odd]
) -> set[tuple[str, int]]:
    """Return the cables on wrong ports that a fabric without faults may have there, by their keys.

    A row of cables: several of an interface are as far from their ports as each other.

    A rail that wraps round at a number of its own. It is none if all other cables of the node,
    three at least, have the wanted number.
    """
    of_node = {row.node.name: number for number, group in enumerate(groups) for row in group.rows}

    def rail(odd: Odd) -> tuple[int, int]:
        return of_node[odd.row.node.name], odd.column

    wrong = grouped(odds, rail)
    found: set[tuple[str, int]] = set()
    for (number, column), same in grouped(alone, rail).items():
        offsets = Counter(odd.offset for odd in same)
        names = {odd.row.node.name for odd in wrong[number, column]}
        for odd in same:
            others = [port for one, port in enumerate(odd.row.numbers) if one != column]
            is_alike = len(others) >= MIN_ALIKE and {*others} == {odd.wanted.number}
            if offsets[odd.offset] > 1 or (
                not is_alike and _may_wrap(groups[number], column, names - {odd.row.node.name})
            ):
                found.add(odd.key)
    return found


def _may_wrap(group: Ruled, column: int, wrong: AbstractSet[str]) -> bool:
    """Return True if the ports of a rail, but for wrong ones, may be a progression modulo a number.

    From node to node the port then grows by one of two numbers that are farther apart than the
    first and the last port. The nodes are in the order of their names, or of their places, which
    begins at any of them if they wrap.
    """
    modulus = group.port_rule.modulus if group.port_rule else 0
    seats = [
        (place, port)
        for row, place in zip(group.rows, group.places, strict=True)
        if place is not None
        and row.is_fresh
        and row.leaves[column] == group.leaf_rule.leaves[column]
        and row.node.name not in wrong
        and (port := row.numbers[column]) is not None
    ]
    ports = [port for _, port in seats]
    grown = _growth(seats, modulus)
    beginnings: list[int | None] = [None]
    if 2 * grown.total() < len(seats):
        seats.sort()
        grown = _growth([*seats, *(seats[:1] if modulus else [])], modulus)
        beginnings += grown if modulus else []
    for beginning in beginnings:
        steps = [step for step, count in grown.items() if step != beginning or count > 1]
        if len(steps) < 2 or (
            len(steps) == 2 and abs(steps[0] - steps[1]) > max(ports) - min(ports)
        ):
            return True
    return False


def _growth(seats: Sequence[tuple[int, int]], modulus: int) -> Counter[int]:
    """Count the numbers by which the port grows with a place that grows by the usual number."""
    steps: dict[int, Counter[int]] = defaultdict(Counter)
    for (before, port), (after, next_port) in pairwise(seats):
        steps[modulo(after - before, modulus)][next_port - port] += 1
    return max(steps.values(), key=Counter.total, default=Counter())


def _is_shifted(ring: Sequence[Odd]) -> bool:
    """Return True if each of neighboring cables is in the next one's place, all to one side."""
    columns, cables = [odd.column for odd in ring], len(ring)
    if cables < MIN_SHIFTED or max(columns) - min(columns) >= cables:
        return False
    steps = {(after - before) % cables for before, after in pairwise([*columns, columns[0]])}
    return steps in ({1}, {cables - 1})


def _rings(odds: Sequence[Odd]) -> list[list[Odd]]:
    """Return the rings, in which each cable is on the port that the next one should be on.

    Wanted places are exact to the port there.
    """
    # the cables by their wanted places; those without a wanted port by node and leaf, and by leaves
    exact = grouped(odds, lambda odd: odd.wanted)
    of_leaves = [(odd, odd.actual.leaf) for odd in odds if odd.wanted.number is None and odd.actual]
    of_node = grouped(of_leaves, lambda one: (one[0].row.node.name, one[0].wanted.leaf))
    of_leaf = grouped(of_leaves, lambda one: (one[0].wanted.leaf, one[1]))
    after: dict[tuple[str, int], tuple[str, int] | None] = {}
    for odd in odds:
        if not odd.actual:
            continue
        leaf, wanted = odd.actual.leaf, odd.wanted.leaf
        found = exact.get(odd.actual, []) if odd.actual.number is not None else []
        found = found or [one for one, _ in of_node.get((odd.row.node.name, leaf), ())]
        if not found and len(of_leaf.get((wanted, leaf), ())) == 1:
            found = [one for one, _ in of_leaf.get((leaf, wanted), ())]
        after[odd.key] = found[0].key if len(found) == 1 else None  # the only one that may
    of_key = {odd.key: odd for odd in odds}
    rings = []
    for keys in cycles(after):
        ring = [of_key[key] for key in keys]
        places = dict(zip([*keys[1:], keys[0]], [odd.actual for odd in ring], strict=True))
        rings.append([odd._replace(wanted=places[odd.key] or odd.wanted) for odd in ring])
    return rings


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
