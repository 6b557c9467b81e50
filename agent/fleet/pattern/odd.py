"""The odd cables of a group: those that are not where the rules of the group have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern import order
from agent.fleet.pattern.evidence import is_habit
from agent.fleet.pattern.leaf_rule import Count
from agent.fleet.pattern.port_rule import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.fleet.pattern.leaf_rule import LeafRule
    from agent.fleet.pattern.order import Line
    from agent.fleet.pattern.port_rule import PortRule
    from agent.fleet.pattern.rows import Row

MISSING, LEAF, PORT = "missing", "leaf", "port"


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


class Ruled(NamedTuple):
    """A group and its rules."""

    rows: Sequence[Row]
    leaf_rule: LeafRule
    port_rule: PortRule | None
    line: Line | None
    places: tuple[int | None, ...]  # of each node, by its own cables or else the line

    @property
    def is_regular(self) -> bool:
        """Return True if a rule is no coincidence."""
        return any(self.leaf_rule.leaves) and bool(self.leaf_rule.is_sure or self.port_rule)


def ruled(rows: Sequence[Row], leaf_rule: LeafRule, port_rule: PortRule | None) -> Ruled:
    """Return a group with the line of its nodes."""
    votes = port_rule.votes if port_rule else [()] * len(rows)
    own = [place(vote) if row.is_fresh else None for row, vote in zip(rows, votes, strict=True)]
    line = order.line([row.node.name for row in rows], own)
    on_line = line.places if line else [None] * len(rows)
    places = list(own)
    for rank, (row, vote) in enumerate(zip(rows, votes, strict=True)):
        if port_rule and row.is_fresh and not _is_agreed(row, vote):
            other = _place_in_another_order(row, leaf_rule.leaves, port_rule.offsets)
            places[rank] = _place([own[rank], other], vote, on_line[rank])
    return Ruled(rows, leaf_rule, port_rule, line, tuple(places))


def _is_agreed(row: Row, votes: Sequence[int]) -> bool:
    return bool(votes) and votes.count(votes[0]) == len(row.ports) > 1


def _place(found: Sequence[int | None], votes: Sequence[int], on_line: int | None) -> int | None:
    """Return the place of a node whose cables do not agree: on the line, if any of them is."""
    if on_line is not None and (on_line in found or (found == [None, None] and on_line in votes)):
        return on_line
    return next((where for where in found if where is not None), None)


def _place_in_another_order(
    row: Row, leaves: Sequence[str | None], offsets: Sequence[int | None]
) -> int | None:
    """Return the place at which all cables of a node are on its ports, be it in another order.

    The sum of the ports is the same in any order.
    """
    numbers = [number for number in row.numbers if number is not None]
    known = [offset for offset in offsets if offset is not None]
    if len(numbers) != len(row.ports) or len(known) != len(row.ports) or None in leaves:
        return None
    found = (sum(numbers) - sum(known)) // len(known)
    wanted = {(leaf, found + offset) for leaf, offset in zip(leaves, known, strict=True)}
    return found if {*zip(row.leaves, numbers, strict=True)} == wanted else None


def odd_cables(group: Ruled) -> Iterator[Odd]:
    """Yield the odd cables of the group's fresh nodes."""
    if not group.is_regular:
        return
    votes = group.port_rule.votes if group.port_rule else [()] * len(group.rows)
    found = []
    for rank, (row, vote) in enumerate(zip(group.rows, votes, strict=True)):
        is_even = row.is_whole and row.leaves == group.leaf_rule.leaves and len({*vote}) <= 1
        if row.is_fresh and not is_even:
            found += [odd for column in range(len(row.ports)) if (odd := _odd(group, rank, column))]
    yield from _without_habits(group, found)


def _odd(group: Ruled, rank: int, column: int) -> Odd | None:
    """Return what is odd about a cable."""
    row, leaf = group.rows[rank], group.leaf_rule.leaves[column]
    port = row.ports[column]
    if not leaf or port.is_lost:
        return None
    wanted = Seat(leaf, _number(group, rank, column))
    seen, number = row.leaves[column], row.numbers[column]
    count = group.leaf_rule.counts[column]
    if not port.far_end:
        return Odd(row, column, MISSING, None, wanted, count)
    if seen != leaf and group.leaf_rule.is_sure:
        return Odd(row, column, LEAF, Seat(seen, number), wanted, count) if seen else None
    if seen == leaf and None not in (number, wanted.number) and number != wanted.number:
        return _wrong_port(group, rank, column, Odd(row, column, PORT, wanted, wanted, count))
    return None


def _wrong_port(group: Ruled, rank: int, column: int, odd: Odd) -> Odd:
    """Return an odd port with the count of the rule that it breaks."""
    by_line = bool(group.port_rule and place(group.port_rule.votes[rank]) is None)
    if by_line and group.line:
        count = Count(group.line.m, group.line.n)
    elif group.port_rule:
        count = group.port_rule.counts[column]
    actual = Seat(odd.wanted.leaf, odd.row.numbers[column])
    return odd._replace(actual=actual, majority=count, by_line=by_line)


def _number(group: Ruled, rank: int, column: int) -> int | None:
    """Return the port that a cable should be on."""
    where = group.places[rank]
    offset = group.port_rule.offsets[column] if group.port_rule else None
    return None if where is None or offset is None else where + offset


def _without_habits(group: Ruled, found: Sequence[Odd]) -> Iterator[Odd]:
    """Leave out the ports without a neighbor of a column in which others lack one, too."""
    missing = [odd for odd in found if odd.wrong == MISSING]
    never = _by_column(odd for odd in missing if not odd.was_there)
    fresh = sum(1 for row in group.rows if row.is_fresh)
    for odd in found:
        if odd.wrong != MISSING or odd.was_there or not is_habit(never[odd.column], fresh):
            yield odd


def _by_column(found: Iterable[Odd]) -> dict[int, int]:
    counted: dict[int, int] = {}
    for odd in found:
        counted[odd.column] = counted.get(odd.column, 0) + 1
    return counted


def present(group: Ruled, column: int) -> Count:
    """Return how many of the fresh nodes have a neighbor there."""
    ports = [row.ports[column] for row in group.rows if row.is_fresh]
    there = [port for port in ports if not port.is_lost]
    return Count(sum(1 for port in there if port.far_end), len(there))
