"""The pattern for people: the sentence of each finding, the groups in words, and the notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.cabling.finding import NO_END, Finding, Move, PortRef, finding
from agent.fleet.model import Group, current, place_text
from agent.fleet.pattern.causes import MISSING, SHIFTED, SWAPPED, Odd
from agent.fleet.pattern.evidence import RIVALS, confidence
from agent.fleet.pattern.grouping import NodeRow, RuledGroup
from agent.text import listed, many, natural

NO_NEIGHBORS = "no neighbors"
SMALL = "other nodes"


def names_of(groups: Iterable[RuledGroup]) -> dict[str, str]:
    """Return the name of each leaf."""
    return {
        leaf: end.device
        for group in groups
        for row in group.rows
        for leaf, port in zip(row.leaves, row.ports, strict=True)
        if leaf and (end := current(port))
    }


def of_cause(code: str, odds: Sequence[Odd], names: Mapping[str, str]) -> Finding:
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
    return finding(
        code,
        [move.port for move in moves],
        _sentence(code, moves),
        moves=tuple(moves),
        confidence=round(confidence(*weakest.majority), 3),
        majority=_majority(weakest, names),
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


def _majority(odd: Odd, names: Mapping[str, str]) -> str:
    m, n = odd.majority
    have = f"a neighbor on {odd.interface}," if odd.code == MISSING else odd.interface
    return f"{m} of {n} nodes of the group have {have} on {names[odd.wanted]}"


def groups_of(
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
