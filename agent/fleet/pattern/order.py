"""The line on which the places of a group's nodes lie, in the order of their names."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.evidence import RIVALS, is_coincidence, is_majority

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Place = int | None

_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$", re.ASCII)
MIN_MIRRORED = 4  # nodes in the reverse order; two or three may have each other's names


class Line(NamedTuple):
    """Node number `rank` of the group has the place `first` + `step` * rank."""

    places: tuple[int, ...]  # of each node
    shape: tuple[int, int] | None  # (first, step) by rank; None: by the number in the name
    m: int  # nodes that lie on it
    n: int


def line(names: Sequence[str], places: Sequence[Place]) -> Line | None:
    """Return the line of most nodes, by rank or by the number in their names; None without one."""
    ranks = [*range(len(names))]
    numbers = [int(found[1]) if (found := _LAST_NUMBER.search(name)) else None for name in names]
    lines = [_line(ranks, places)]
    known = [number for number in numbers if number is not None]
    if len(known) == len(names):
        lines.append(_line(known, places, by_rank=False))
    best = max(lines, key=lambda one: one.m if one else 0)
    if not best or not is_majority(best.m, best.n) or is_coincidence(best.m, best.n, best.n):
        return None
    return best


def along(shape: tuple[int, int], places: Sequence[Place]) -> Line:
    """Return the line of another group, and how many nodes of this one lie on it."""
    first, step = shape
    return _counted(tuple(first + step * rank for rank in range(len(places))), places, shape)


def mirrored(wanted: Line, places: Sequence[Place]) -> list[range]:
    """Return the runs of nodes whose places are in the reverse order."""
    inverse = {place: rank for rank, place in enumerate(wanted.places)}
    runs: list[range] = []
    for rank, place in enumerate(places):
        last = inverse.get(place, rank) if place is not None else rank
        run = range(rank, last + 1)
        is_new = not runs or rank >= runs[-1].stop
        if len(run) >= MIN_MIRRORED and is_new and _is_mirrored(run, wanted, places):
            runs.append(run)
    return runs


def _is_mirrored(run: range, wanted: Line, places: Sequence[Place]) -> bool:
    pairs = zip(run, reversed(run), strict=True)
    return all(places[one] == wanted.places[other] for one, other in pairs)


def _line(ranks: Sequence[int], places: Sequence[Place], *, by_rank: bool = True) -> Line | None:
    """Return the line with the commonest step."""
    known = [(rank, place) for rank, place in zip(ranks, places, strict=True) if place is not None]
    step = _commonest(
        (other - one) // (after - before)
        for (before, one), (after, other) in pairwise(known)
        if after > before and (other - one) % (after - before) == 0
    )
    first = _commonest(place - (step or 0) * rank for rank, place in known)
    if not step or first is None:
        return None
    shape = (first, step) if by_rank else None
    return _counted(tuple(first + step * rank for rank in ranks), places, shape)


def _counted(
    wanted: tuple[int, ...], places: Sequence[Place], shape: tuple[int, int] | None
) -> Line:
    known = [(one, other) for one, other in zip(wanted, places, strict=True) if other is not None]
    return Line(wanted, shape, sum(1 for one, other in known if one == other), len(known))


def _commonest(numbers: Iterable[int]) -> int | None:
    counted = Counter(numbers)
    if counted.total() < RIVALS:
        return None
    return counted.most_common(1)[0][0]
