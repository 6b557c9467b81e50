"""Odd cables that are one mistake: cables that have each other's places."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.odd import PORT, Seat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.fleet.pattern.odd import Odd

MIN_SHIFTED = 3  # cables; two that changed places are swapped

SWAPPED, SHIFTED, ALONE = "swapped", "shifted", "alone"


class Cause(NamedTuple):
    """A mistake; the wanted place of each cable is where another one is, if that is known."""

    kind: str
    odds: tuple[Odd, ...]


def causes(odds: Sequence[Odd], taken: set[Seat]) -> Iterator[Cause]:
    """Yield the mistakes; `taken` are the ports with cables that follow the rules.

    A cable alone whose port is taken by one that follows the rules cannot go there: its leaf is
    wrong all the same, its port is not.
    """
    rings = _rings(odds)
    within: dict[str, list[list[Odd]]] = defaultdict(list)
    for ring in rings:
        names = {odd.row.node.name for odd in ring}
        within["" if len(names) > 1 else min(names)].append(ring)
    for name, found in within.items():
        yield from _of_node(found) if name else (Cause(SWAPPED, tuple(ring)) for ring in found)
    done = {_key(odd) for ring in rings for odd in ring}
    yield from _alone([odd for odd in odds if _key(odd) not in done], taken)


def _of_node(rings: list[list[Odd]]) -> Iterator[Cause]:
    """Yield the mistakes on one node: its cables shifted, or rings of them."""
    odds = sorted((odd for ring in rings for odd in ring), key=lambda odd: odd.column)
    if _is_shifted(odds):
        yield Cause(SHIFTED, tuple(odds))
    else:
        yield from (Cause(SWAPPED, tuple(ring)) for ring in rings)


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
    """Return the rings, in which each cable is on the port that the next one should be on."""
    following = _Following(odds)
    rings, seen = [], set()
    for odd in odds:
        ring, one = [], odd
        while one and _key(one) not in seen:
            seen.add(_key(one))
            ring.append(one)
            one = following[one]  # type: ignore[assignment]
        if one and one in ring:
            rings.append(_exact(ring[ring.index(one) :], following))
    return rings


def _exact(ring: list[Odd], following: _Following) -> list[Odd]:
    """Return a ring with wanted places that are exact to the port."""
    places = {_key(owner): odd.actual for odd in ring if (owner := following[odd])}
    return [odd._replace(wanted=places[_key(odd)] or odd.wanted) for odd in ring]


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
        if odd.actual.number is not None and (found := self._exact.get(odd.actual)):
            return _only(found)
        leaf = odd.actual.leaf
        if found := self._of_node.get((odd.row.node.name, leaf)):
            return _only(found)
        back = self._of_leaf.get((odd.wanted.leaf, leaf), [])
        return _only(self._of_leaf.get((leaf, odd.wanted.leaf), [])) if _only(back) else None


def _only(found: list[Odd]) -> Odd | None:
    return found[0] if len(found) == 1 else None


def _key(odd: Odd) -> tuple[str, int]:
    return odd.row.node.name, odd.column


def _alone(odds: Sequence[Odd], taken: set[Seat]) -> Iterator[Cause]:
    """Yield the cables that are in no ring."""
    actual = {odd.actual for odd in odds if odd.actual}
    for odd in odds:
        is_taken = odd.wanted in taken
        if odd.wrong == PORT and (is_taken or odd.by_line or odd.wanted in actual):
            continue  # no place to go, or a row of cables that avoids a port
        if is_taken:
            yield Cause(ALONE, (odd._replace(wanted=Seat(odd.wanted.leaf, None)),))
        else:
            yield Cause(ALONE, (odd,))
