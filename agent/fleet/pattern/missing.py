"""Ports without a neighbor: of a leaf that lost them all, of a node, or of a node in the making."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.evidence import RIVALS, is_majority
from agent.fleet.pattern.odd import MISSING, present

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.fleet.pattern.odd import Odd, Ruled

NEARLY_ALL = 7 / 8  # of the ports of a leaf
MAX_LOST = 1 / 2  # of a node's cables: with more it is a spare, or on its way out
MAX_NEVER = 1 / 4  # of a node's cables, or one, that were never there: with more it is a new node


class Down(NamedTuple):
    """A leaf that lost all its ports, or nearly all."""

    odds: tuple[Odd, ...]
    total: int  # its ports that had a neighbor


def leaves_down(groups: Sequence[Ruled], odds: Iterable[Odd]) -> list[Down]:
    """Return the leaves that are down."""
    lost: dict[str, list[Odd]] = defaultdict(list)
    for odd in odds:
        if odd.wrong == MISSING and odd.was_there:
            lost[odd.wanted.leaf].append(odd)
    many = {leaf: found for leaf, found in lost.items() if len(found) >= RIVALS}
    totals = _totals(groups, many.keys()) if many else Counter()
    return [
        Down(tuple(found), totals[leaf])
        for leaf, found in many.items()
        if len(found) >= NEARLY_ALL * totals[leaf]
    ]


def _totals(groups: Iterable[Ruled], leaves: Iterable[str]) -> Counter[str]:
    """Return how many ports each leaf has, or had last."""
    wanted = {*leaves}
    return Counter(
        leaf
        for group in groups
        if not wanted.isdisjoint(group.leaf_rule.leaves)
        for row in group.rows
        if row.is_fresh
        for leaf in row.leaves
        if leaf in wanted
    )


def missing(group: Ruled, odds: Sequence[Odd]) -> Iterator[Odd]:
    """Yield the odd cables without those that are missing by design: half-built, or spare."""
    gaps = [odd for odd in odds if odd.wrong == MISSING]
    lost = Counter(odd.row.node.name for odd in gaps)
    never = Counter(odd.row.node.name for odd in gaps if not odd.was_there)
    cables = len(group.leaf_rule.leaves)
    incomplete = {name for name, count in lost.items() if count > max(1, MAX_LOST * cables)}
    incomplete |= {name for name, count in never.items() if count > max(1, MAX_NEVER * cables)}
    counts = {odd.column: present(group, odd.column) for odd in gaps}
    for odd in odds:
        if odd.wrong != MISSING:
            yield odd
        elif odd.row.node.name not in incomplete and is_majority(*counts[odd.column]):
            yield odd._replace(majority=counts[odd.column])
