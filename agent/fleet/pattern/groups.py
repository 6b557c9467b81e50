"""The groups of a fleet for people: names, leaves in rail order, pattern in words, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.judged import Group
from agent.fleet.pattern.evidence import RIVALS
from agent.fleet.verdict import many
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.pattern.odd import Ruled
    from agent.fleet.pattern.rows import Row
    from agent.fleet.pattern.words import Ports

NO_NEIGHBORS = "no neighbors"
SMALL = "other nodes"
PAIR = 2


def groups_of(
    found: Sequence[Ruled], unseen: Sequence[Row], ports: Ports
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Return every node in one group, and the notes.

    Groups that are too small for a majority are one together.
    """
    large = [group for group in found if _is_large(group)]
    small = [row for group in found if not _is_large(group) for row in group.rows]
    groups = [_group(group, ports) for group in large]
    groups.sort(key=lambda group: natural(group.nodes[0]))
    groups += [
        Group(name, _nodes(rows), (), None)
        for name, rows in ((SMALL, small), (NO_NEIGHBORS, unseen))
        if rows
    ]
    return tuple(groups), tuple(_notes(large, small, unseen, found))


def _is_large(group: Ruled) -> bool:
    return group.is_regular or len(group.rows) > RIVALS


def _nodes(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(sorted((row.node.name for row in rows), key=natural))


def _group(group: Ruled, ports: Ports) -> Group:
    ruled = [leaf for leaf in group.leaf_rule.leaves if leaf]
    seen = ruled or [leaf for row in group.rows for leaf in row.leaves if leaf]
    leaves = tuple(dict.fromkeys(seen))
    names = sorted({ports.name(leaf) for leaf in leaves}, key=natural)
    name = names[0] if len(names) == 1 else f"{names[0]} - {names[-1]}"
    nodes = tuple(row.node.name for row in group.rows)
    return Group(name, nodes, leaves, _words(group, ruled) if group.is_regular else None)


def _words(group: Ruled, ruled: Sequence[str]) -> str:
    """Return the pattern in words."""
    leaves = {*ruled}
    if len(leaves) == 1:
        shape = "single leaf: all interfaces on one leaf"
    elif len(leaves) == len(ruled) == PAIR:
        shape = "dual-plane: two interfaces on two leaves"
    elif len(leaves) == len(ruled):
        shape = "rail-optimized: interface i on leaf i"
    else:
        shape = f"fat tree: {len(ruled)} interfaces on {len(leaves)} leaves"
    offsets = (
        {offset for offset in group.port_rule.offsets if offset is not None}
        if group.port_rule
        else set()
    )
    port = (
        ", one port number for each node"
        if len(offsets) == 1
        else ", neighboring ports for each node"
    )
    line = ", in the order of names" if group.line else ""
    return shape + (port if offsets else "") + line


def _notes(
    large: Sequence[Ruled], small: Sequence[Row], unseen: Sequence[Row], found: Sequence[Ruled]
) -> Iterable[str]:
    """Yield why cables are not judged."""
    rows = [*(row for group in found for row in group.rows), *unseen]
    if silent := sum(1 for row in rows if not row.is_fresh):
        yield f"{_count(silent)} without a report of the last two hours: no evidence, not judged."
    irregular = [group for group in large if not group.is_regular and _fresh(group)]
    if irregular:
        nodes = sum(map(_fresh, irregular))
        yield (
            f"{_count(nodes)} in {many(len(irregular), 'group')}: no pattern, as no majority of"
            " them has an interface on one leaf, or their agreement may be a coincidence."
        )
    if few := sum(row.is_fresh for row in small):
        yield f"{_count(few)} with too few others on the same leaves for a majority."
    if unseen:
        yield f"{_count(len(unseen))} never had a neighbor."


def _fresh(group: Ruled) -> int:
    return sum(row.is_fresh for row in group.rows)


def _count(nodes: int) -> str:
    return many(nodes, "node")
