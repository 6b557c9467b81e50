"""The leaf of each interface of a group: the majority for each column."""

from __future__ import annotations

from collections import Counter
from math import factorial, prod
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.pattern.evidence import (
    AMONG_OTHERS,
    NO_COINCIDENCE,
    is_crew,
    is_habit,
    is_majority,
    surprise,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.pattern.rows import Row

    Leaves = tuple[str | None, ...]

PAIR = 2


class Count(NamedTuple):
    """`m` of `n` nodes agree."""

    m: int
    n: int


class LeafRule(NamedTuple):
    """The leaf of each column; None where no majority has it."""

    leaves: Leaves
    counts: tuple[Count, ...]  # the nodes on that leaf, of those that are on any
    bits: float  # how unlikely it is that nodes wired at random agree so well
    is_sure: bool  # no coincidence


def leaf_rule(rows: Sequence[Row], all_leaves: int) -> LeafRule:
    """Return the rule of a group, by its fresh nodes; `all_leaves` is the fleet's number."""
    wirings = Counter(row.leaves for row in rows if row.is_fresh)
    if not wirings:
        return _no_rule(len(rows[0].ports))
    columns = [_column(column) for column in zip(*_repeated(wirings), strict=True)]
    leaves = tuple(leaf for leaf, _ in columns)
    followers = sum(count for wiring, count in wirings.items() if follows(wiring, leaves))
    ways = _alternatives(leaves, all_leaves)
    is_most = 2 * leaves.count(None) < len(leaves) and not _has_rival(wirings, leaves)
    bits = surprise(followers, wirings.total(), ways) if is_most else 0.0
    return LeafRule(leaves, tuple(count for _, count in columns), bits, bits >= NO_COINCIDENCE)


def _no_rule(columns: int) -> LeafRule:
    return LeafRule((None,) * columns, (Count(0, 0),) * columns, 0.0, is_sure=False)


def with_others(rules: Sequence[LeafRule]) -> list[LeafRule]:
    """Return the rules; where most groups of a table are regular, one more needs less proof."""
    judged = [rule for rule in rules if any(rule.leaves)]
    if not is_majority(sum(1 for rule in judged if rule.is_sure), len(judged)):
        return [*rules]
    return [rule._replace(is_sure=rule.bits >= AMONG_OTHERS) for rule in rules]


def follows(wiring: Leaves, leaves: Leaves) -> bool:
    """Return True if every known cable is as the rule has it, and more than half are known."""
    if wiring == leaves:
        return True
    ruled = [(one, leaf) for one, leaf in zip(wiring, leaves, strict=True) if leaf]
    known = [(one, leaf) for one, leaf in ruled if one]
    return 2 * len(known) > len(ruled) and all(one == leaf for one, leaf in known)


def _has_rival(wirings: Counter[Leaves], leaves: Leaves) -> bool:
    """Return True if others are wired alike, and otherwise than the rule has it: another crew."""
    total = wirings.total()
    return any(
        is_crew(count, total) and 2 * _followed(wiring, leaves) < len(leaves) - wiring.count(None)
        for wiring, count in wirings.items()
        if wiring != leaves
    )


def _followed(wiring: Leaves, leaves: Leaves) -> int:
    return sum(1 for one, leaf in zip(wiring, leaves, strict=True) if one and one == leaf)


def _repeated(wirings: Counter[Leaves]) -> Iterable[Leaves]:
    return wirings.elements()


def _column(leaves: Iterable[str | None]) -> tuple[str | None, Count]:
    """Return the leaf of a column, None without a majority, and its count."""
    counted = Counter(leaves)
    counted.pop(None, None)
    (leaf, most), *others = counted.most_common(2) or [(None, 0)]
    count = Count(most, counted.total())
    rivals = others[0][1] if others else 0
    is_ruled = is_majority(*count) and not is_habit(rivals, count.n)
    return (leaf if is_ruled else None), count


def _alternatives(leaves: Leaves, all_leaves: int) -> int:
    """Return in how many ways at least a node of this group might be wired.

    Its cables in any order, and one of them on another leaf of the fleet; not of two cables, which
    would not be half in the group.
    """
    ruled = Counter(leaf for leaf in leaves if leaf)
    cables = ruled.total()
    orders = factorial(cables) // prod(map(factorial, ruled.values()))
    return orders + (cables * (all_leaves - 1) if cables > PAIR else 0)
