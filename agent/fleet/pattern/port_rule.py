"""The port of each cable on its leaf: a place of the node, plus an offset of the interface.

    rail-optimized   the same port on each leaf      place 5: 5 5 5 5   offsets 0 0 0 0
    single leaf      neighboring ports               place 17: 17-20    offsets 0 1 2 3
    dual-plane       the same port on both leaves    place 9: 9 9       offsets 0 0

The places of a group's nodes lie on a line if neighbors in the order of names have neighboring
ports. The line decides where a node's own cables do not say which of them is wrong. A node whose
cables agree is where it is, on the line or not: then the node was moved and no cable.
"""

from __future__ import annotations

from collections import Counter
from math import comb
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.evidence import RIVALS, is_coincidence, is_habit, is_majority
from agent.fleet.pattern.leaf_rule import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.pattern.leaf_rule import LeafRule
    from agent.fleet.pattern.rows import Row

    Offsets = tuple[int | None, ...]
    Seats = list[int | None]  # the port of each column on the right leaf

MAX_CABLES = 8  # of a node that are evidence: more need no more than these


class PortRule(NamedTuple):
    """The offset of each column; None where the ports follow no rule."""

    offsets: Offsets
    counts: tuple[Count, ...]  # the cables on that port, of those on the right leaf
    votes: tuple[tuple[int, ...], ...]  # for each row, its place by each of its cables


def port_rule(rows: Sequence[Row], rule: LeafRule) -> PortRule | None:
    """Return the rule of a group, None if its ports follow none."""
    if not any(rule.leaves):
        return None
    seats = [_seats(row, rule) for row in rows]
    offsets = _offsets([one for one, row in zip(seats, rows, strict=True) if row.is_fresh])
    votes = [_votes(one, offsets) for one in seats]
    fresh = [
        (one, vote)
        for one, vote, row in zip(seats, votes, rows, strict=True)
        if row.is_fresh and len(vote) > 1
    ]
    placed = sum(1 for _, vote in fresh if place(vote) is not None)
    ports = len({vote[0] for _, vote in fresh})
    if is_coincidence(placed, len(fresh), _alternatives(len(offsets) - offsets.count(None), ports)):
        return None
    counts, judged = _judged(fresh, offsets)
    return PortRule(judged, counts, tuple(votes))


def _alternatives(cables: int, ports: int) -> float:
    """Return one to how many more than half of a node's cables agree by chance."""
    if cables < 2 or not ports:
        return 1.0
    most = min(cables // 2 + 1, MAX_CABLES)
    return float(ports) ** (most - 1) / comb(cables, most)


def place(votes: Sequence[int]) -> int | None:
    """Return the place on which more than half of a node's cables agree, at least two."""
    if not votes:
        return None
    found, count = Counter(votes).most_common(1)[0]
    return found if count > 1 and 2 * count > len(votes) else None


def _seats(row: Row, rule: LeafRule) -> Seats:
    if row.leaves == rule.leaves:
        return [*row.numbers]
    return [
        number if leaf and leaf == wanted else None
        for number, leaf, wanted in zip(row.numbers, row.leaves, rule.leaves, strict=True)
    ]


def _offsets(seats: list[Seats]) -> Offsets:
    """Return the offsets from the column by which most columns have one."""
    columns = [*zip(*seats, strict=True)]
    best: Offsets = (None,) * len(columns)
    for reference in columns:
        found = tuple(_offset(reference, column) for column in columns)
        if found.count(None) < best.count(None):
            best = found
        if 2 * best.count(None) < len(best):
            break
    return best if len(best) - best.count(None) > 1 else (None,) * len(columns)


def _offset(reference: Iterable[int | None], column: Iterable[int | None]) -> int | None:
    """Return the commonest distance of two columns, if half of the nodes have it."""
    counted = Counter(
        [
            other - one
            for one, other in zip(reference, column, strict=True)
            if one is not None and other is not None
        ]
    )
    if not counted:
        return None
    distance, count = counted.most_common(1)[0]
    return distance if count >= RIVALS and 2 * count >= counted.total() else None


def _votes(seats: Seats, offsets: Offsets) -> tuple[int, ...]:
    return tuple(
        [
            seat - offset
            for seat, offset in zip(seats, offsets, strict=True)
            if seat is not None and offset is not None
        ]
    )


def _judged(
    fresh: Sequence[tuple[Seats, tuple[int, ...]]], offsets: Offsets
) -> tuple[tuple[Count, ...], Offsets]:
    """Return the counts of each column, and the offsets of those that a majority follows."""
    placed = [(seats, where) for seats, votes in fresh if (where := place(votes)) is not None]
    columns = [_distances(placed, *pair) for pair in enumerate(offsets)]
    counts = tuple(Count(column[0], column.total()) for column in columns)
    return counts, tuple(
        offset if _is_ruled(column) else None
        for offset, column in zip(offsets, columns, strict=True)
    )


def _distances(placed: Iterable[tuple[Seats, int]], index: int, offset: int | None) -> Counter[int]:
    """Count how far the cables of a column are from where they should be."""
    if offset is None:
        return Counter()
    return Counter(
        [seat - where - offset for seats, where in placed if (seat := seats[index]) is not None]
    )


def _is_ruled(distances: Counter[int]) -> bool:
    """Return True if most cables are where they should be, and no others are off alike."""
    count = Count(distances[0], distances.total())
    rivals = max((number for off, number in distances.items() if off), default=0)
    return is_majority(*count) and not is_habit(rivals, count.n)
