"""Groups of nodes: those that hang on the same leaves, whichever interface on whichever leaf.

A group grows around the commonest ways to be wired. A node joins the group with which it shares
more than half of its cables, counted by leaf; so that a wrong cable, or all cables of a node in
the wrong order, do not part it from its group. With exactly half, as of a pair of legs one of which
is wrong, its neighbors in the order of names decide, if they are in one of the groups only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.pattern.rows import Row

    Leaves = tuple[str | None, ...]

PAIR = 2
MAX_CENTERS = 8  # groups that are compared for one leaf: more than that are no groups


class _Center:
    """The leaves of a group's commonest node."""

    def __init__(self, number: int, leaves: Leaves) -> None:
        self.number = number
        self.leaves = Counter(leaf for leaf in leaves if leaf)

    def shared(self, leaves: Counter[str]) -> int:
        """Return the number of cables that go to the same leaves."""
        own = self.leaves
        return sum(min(count, own[leaf]) for leaf, count in leaves.items())


class _Centers:
    """Assigns wirings to centers."""

    def __init__(self) -> None:
        self.count = 0
        self._of_leaf: dict[str, list[_Center]] = defaultdict(list)

    def nearest(self, leaves: Leaves) -> tuple[list[int], bool]:
        """Return the groups that share the most cables, and whether that is more than half."""
        known = Counter(leaf for leaf in leaves if leaf)
        near = {one.number: one for leaf in known for one in self._of_leaf.get(leaf, ())}
        shares = {number: one.shared(known) for number, one in near.items()}
        most = max(shares.values(), default=0)
        if 2 * most < known.total() or not most:
            return [], False
        return [number for number, share in shares.items() if share == most], (
            2 * most > known.total()
        )

    def add(self, leaves: Leaves) -> int:
        """Return the number of a new group around this wiring."""
        center = _Center(self.count, leaves)
        for leaf in center.leaves:
            if len(self._of_leaf[leaf]) < MAX_CENTERS:
                self._of_leaf[leaf].append(center)
        self.count += 1
        return center.number


def grouped(rows: Iterable[Row], habit: int) -> tuple[list[list[Row]], list[Row]]:
    """Return the groups, and the nodes of which no cable was ever seen.

    A wiring that `habit` nodes share and that is not more than half that of another group is a
    group of its own.
    """
    rows = list(rows)
    places = _places(rows, habit)
    undecided = [places[row.leaves] for row in rows]
    numbers = _by_exchange(undecided, _by_neighbors(undecided))
    found: dict[int | tuple[int, ...], list[Row]] = defaultdict(list)
    unseen = []
    for row, number in zip(rows, numbers, strict=True):
        if number == ():
            unseen.append(row)
        else:
            found[number].append(row)
    return list(found.values()), unseen


def _places(rows: list[Row], habit: int) -> dict[Leaves, int | tuple[int, ...]]:
    """Return the group of each wiring; several if it shares half with each of them."""
    fresh = Counter(row.leaves for row in rows if row.is_fresh)
    fresh.update({row.leaves: 0 for row in rows})
    centers = _Centers()
    return {
        leaves: _place(leaves, centers, is_habit=count >= habit)
        for leaves, count in fresh.most_common()
    }


def _place(leaves: Leaves, centers: _Centers, *, is_habit: bool) -> int | tuple[int, ...]:
    if not any(leaves):
        return ()
    near, is_most = centers.nearest(leaves)
    if is_most:
        return near[0]
    return tuple(near) if near and not is_habit else centers.add(leaves)


def _by_neighbors(places: list[int | tuple[int, ...]]) -> list[int | tuple[int, ...]]:
    """Return the places, those with several settled by the nodes before and after."""
    before = accumulate(places, _last)
    after = [*accumulate(reversed(places), _last)][::-1]
    return [
        _settled(place, {one, other}) if isinstance(place, tuple) else place
        for place, one, other in zip(places, before, after, strict=True)
    ]


def _settled(
    place: tuple[int, ...], neighbors: set[int | tuple[int, ...]]
) -> int | tuple[int, ...]:
    """Return the only group that a neighbor is in, too."""
    common = neighbors.intersection(place)
    return common.pop() if len(common) == 1 else place


def _by_exchange(
    places: list[int | tuple[int, ...]], settled: list[int | tuple[int, ...]]
) -> list[int | tuple[int, ...]]:
    """Settle a node between two groups if just one other was between them: they changed cables.

    That one is in one of the groups, so this one is in the other.
    """
    between: dict[tuple[int, ...], list[int | tuple[int, ...]]] = defaultdict(list)
    for place, number in zip(places, settled, strict=True):
        if isinstance(place, tuple) and len(place) == PAIR:
            between[tuple(sorted(place))].append(number)
    return [
        _exchanged(number, between.get(tuple(sorted(number)), []))
        if isinstance(number, tuple)
        else number
        for number in settled
    ]


def _exchanged(
    place: tuple[int, ...], between: list[int | tuple[int, ...]]
) -> int | tuple[int, ...]:
    """Return the group that the other node of two is not in."""
    others = [one for one in between if isinstance(one, int)]
    if len(between) != PAIR or len(others) != 1:
        return place
    return next(number for number in place if number != others[0])


def _last(one: int | tuple[int, ...], other: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return other if isinstance(other, int) else one
