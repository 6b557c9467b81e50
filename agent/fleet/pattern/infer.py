"""The pattern of a fleet without a plan, and the cables that break it.

    grouping   nodes with the same interfaces that hang on the same leaves, and their leaf rule
    causes     the cables that do not follow it, those that are one mistake, and those that are none

A fleet may be wired without a pattern, and a wrong finding sends somebody to a data hall in vain.
So each rule must be that of a majority and no coincidence, or it is none (grouping).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.cabling.finding import NO_END, RANK, Finding, Move, PortRef, finding
from agent.fleet import silent, whole_causes
from agent.fleet.model import Fleet, Group, current, place_text
from agent.fleet.pattern.causes import (
    MISCABLED,
    MISSING,
    SHIFTED,
    SWAPPED,
    Odd,
    by_design,
    causes,
    odd_cables,
    without_spares,
)
from agent.fleet.pattern.grouping import (
    RIVALS,
    NodeRow,
    RuledGroup,
    confidence,
    grouped,
    ruled,
    tables,
)
from agent.text import listed, many, natural

NO_NEIGHBORS = "no neighbors"
SMALL = "other nodes"


class Pattern(NamedTuple):
    """The wiring of a fleet, and the exceptions to it."""

    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()  # every node is in exactly one
    notes: tuple[str, ...] = ()  # one line each: why there is no pattern, or no evidence
    covered: int = 0  # cables of fresh nodes that a rule is about
    regular: int = 0  # of these, the cables that follow it


def infer(fleet: Fleet) -> Pattern:
    """Return the pattern of a fleet."""
    groups: list[RuledGroup] = []
    unseen: list[NodeRow] = []
    odds: list[list[Odd]] = []  # of each group
    designed: set[tuple[str, int]] = set()
    for rows in tables(fleet):
        members, nothing = grouped(rows)
        of_rows = ruled(members)
        of_table = [*map(odd_cables, of_rows)]
        astray = {odd.column for some in of_table for odd in some if odd.code == MISCABLED}
        if astray:
            designed.update(by_design(rows, of_rows, astray))
        groups += of_rows
        odds += of_table
        unseen += nothing
    names = {
        leaf: end.device
        for group in groups
        for row in group.rows
        for leaf, port in zip(row.leaves, row.ports, strict=True)
        if leaf and (end := current(port))
    }
    fresh = [node for node in fleet.nodes if silent.cause(node, fleet.now) is None]
    lost = whole_causes.without_plan(fresh)
    findings, odd, never = _findings(groups, odds, names, lost, designed)
    covered = never + sum(
        1
        for group in groups
        if group.is_regular
        for row in group.rows
        if row.is_fresh
        for leaf, rule in zip(row.leaves, group.leaves, strict=True)
        if leaf and rule
    )
    shown, notes = _groups_of(groups, unseen, names)
    return Pattern(findings, shown, notes, covered, covered - odd - never)


def _findings(
    groups: Sequence[RuledGroup],
    odds: Sequence[Sequence[Odd]],
    names: Mapping[str, str],
    lost: Sequence[Finding],
    designed: Collection[tuple[str, int]],
) -> tuple[tuple[Finding, ...], int, int]:
    """Return the findings in the order in which they are listed, and the number of odd cables.

    `odds` are those of each group, `lost` the leaves and nodes without a link, whose ports are odd
    no more, `designed` the cables that are no mistake by themselves (causes). Counted are the odd
    cables of regular groups; last the number of missing ones that never had a neighbor, which are
    not among these.
    """
    dead = {tuple(port) for cause in lost if cause.code == "leaf-down" for port in cause.ports}
    left: list[Odd] = []
    for group, some in zip(groups, odds, strict=True):
        alive = [odd for odd in some if (odd.row.node.name, odd.interface) not in dead]
        left += without_spares(group, alive)
    explained = {port for cause in lost for port in cause.ports}
    findings, by_border = [*lost], 0
    for code, same in causes(left):
        if code == MISCABLED and same[0].key in designed:
            by_border += 1
            continue
        mistake = _of_cause(code, same, names)
        if code != MISSING or not explained.issuperset(mistake.ports):
            findings.append(mistake)
    findings.sort(key=lambda each: (RANK[each.code], *map(natural, each.ports[0]), each.id))
    odd = -by_border
    for group, some in zip(groups, odds, strict=True):
        odd += group.is_regular * sum(1 for cable in some if cable.leaf)
    never = sum(1 for cable in left if not cable.leaf)
    return tuple(findings), odd, never


# in words


def _of_cause(code: str, odds: Sequence[Odd], names: Mapping[str, str]) -> Finding:
    """Return the finding of one mistake.

    The wanted port is that of the cable whose place it is, or of a missing cable the last port.
    """
    moves = []
    for odd in odds:
        port = odd.row.ports[odd.column]
        end, place = port.far_end, odd.exchanged
        if odd.code == MISSING and odd.was_there:
            place = port.last_end
        wanted = names[odd.wanted], place.port if place else None
        actual = (end.device, end.port) if end else NO_END
        moves.append(Move(PortRef(odd.row.node.name, odd.interface), actual, wanted))
    weakest = min(odds, key=lambda odd: confidence(*odd.majority))
    (m, n), rail = weakest.majority, weakest.interface
    have = f"a neighbor on {rail}," if weakest.code == MISSING else rail
    return finding(
        code,
        [move.port for move in moves],
        _sentence(code, moves),
        moves=tuple(moves),
        confidence=round(confidence(m, n), 3),
        majority=f"{m} of {n} nodes of the group have {have} on {names[weakest.wanted]}",
        expected=moves[0].wanted,
        actual=moves[0].actual,
    )


def _sentence(code: str, moves: Sequence[Move]) -> str:
    near = [move.port.text for move in moves]
    seen = [place_text(*move.actual) for move in moves]
    wanted = [place_text(*move.wanted) for move in moves]
    if code == SWAPPED and len(moves) == 2:
        first, other = (move.port for move in moves)
        second = other.interface if first.node == other.node else near[1]
        return f"Exchange the far ends of {near[0]} and {second}: {seen[0]} and {seen[1]}."
    if code in (SWAPPED, SHIFTED):
        steps = [f"{name} to {end}" for name, end in zip(near, wanted, strict=True)]
        what = "in a ring" if code == SWAPPED else "back, they are shifted"
        return f"Move the far ends of {len(moves)} cables {what}: {listed(steps)}."
    if code == MISSING:
        return f"Check the cable of {near[0]}: no neighbor; it belongs to {wanted[0]}."
    return f"Move the far end of {near[0]} from {seen[0]} to {wanted[0]}."


def _groups_of(
    all_groups: Sequence[RuledGroup], unseen: Sequence[NodeRow], names: Mapping[str, str]
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Return every node in one group, and the notes: why there is no pattern, or no evidence.

    Groups that are too small for a majority form a single group.
    """
    large = [group for group in all_groups if _is_large(group)]
    small = [row for group in all_groups if not _is_large(group) for row in group.rows]
    groups = []
    for group in large:
        ruled = [leaf for leaf in group.leaves if leaf]
        seen = ruled or [leaf for row in group.rows for leaf in row.leaves if leaf]
        used = tuple(dict.fromkeys(seen))
        known = sorted({names[leaf] for leaf in used}, key=natural)
        title = known[0] if len(known) == 1 else f"{known[0]} - {known[-1]}"
        members = tuple(row.node.name for row in group.rows)
        pattern = _pattern(group) if group.is_regular else None
        groups.append(Group(title, members, used, pattern))
    groups.sort(key=lambda group: natural(group.nodes[0]))
    for name, rows in ((SMALL, small), (NO_NEIGHBORS, unseen)):
        if rows:
            nodes = sorted((row.node.name for row in rows), key=natural)
            groups.append(Group(name, tuple(nodes), (), None))
    return tuple(groups), tuple(_notes(large, small, unseen))


def _is_large(group: RuledGroup) -> bool:
    return group.is_regular or len(group.rows) > RIVALS


def _pattern(group: RuledGroup) -> str:
    ruled = [leaf for leaf in group.leaves if leaf]
    leaves = {*ruled}
    if len(leaves) == 1:
        return "single leaf: all interfaces on one leaf"
    if len(leaves) == len(ruled) == 2:
        return "dual-plane: two interfaces on two leaves"
    if len(leaves) == len(ruled):
        return "rail-optimized: interface i on leaf i"
    return f"fat tree: {len(ruled)} interfaces on {len(leaves)} leaves"


def _notes(
    large: Sequence[RuledGroup], small: Sequence[NodeRow], unseen: Sequence[NodeRow]
) -> Iterator[str]:
    rows = [*(row for group in large for row in group.rows), *small, *unseen]
    if silent := sum(1 for row in rows if not row.is_fresh):
        nodes = many(silent, "node")
        yield f"{nodes} without a report of the last two hours: no evidence, not judged."
    irregular = [sum(row.is_fresh for row in group.rows) for group in large if not group.is_regular]
    if fresh := sum(irregular):
        groups = many(len(irregular) - irregular.count(0), "group")
        yield (
            f"{many(fresh, 'node')} in {groups}: no pattern, as no majority of"
            " them has an interface on one leaf, or their agreement may be a coincidence."
        )
    if few := sum(row.is_fresh for row in small):
        yield f"{many(few, 'node')} with too few others on the same leaves for a majority."
    if unseen:
        yield f"{many(len(unseen), 'node')} never had a neighbor."
