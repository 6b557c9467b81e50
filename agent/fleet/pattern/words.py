"""The pattern for people: the sentence of each finding, the groups in words, and the notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.findings.finding import NO_END, Ends, Finding, Move, PortRef, finding
from agent.fleet.model import Group
from agent.fleet.pattern.causes import LEAF, MISSING, SHIFTED, SWAPPED, Cause, Odd, Ruled, Seat
from agent.fleet.pattern.evidence import RIVALS, confidence
from agent.fleet.pattern.grouping import Row, current
from agent.fleet.pattern.ports import PortNumbers
from agent.model import natural
from agent.text import listed, many
from agent.verify.seen import SeenEnd

ALONE = {LEAF: "miscabled", MISSING: "missing"}
NO_NEIGHBORS = "no neighbors"
SMALL = "other nodes"


class Ports:
    """The names of the ports of leaves."""

    def __init__(self, groups: Iterable[Ruled], numbers: PortNumbers) -> None:
        """Keep the groups; they are searched when the first name is wanted."""
        self._groups = groups
        self._numbers = numbers
        self._ends: dict[str, SeenEnd] = {}

    def names(self, seat: Seat | None) -> Ends:
        """Return the device and the port of a seat."""
        if not seat:
            return NO_END
        end = self._end(seat.leaf)
        return end.device, None if seat.number is None else self._numbers.text(end, seat.number)

    def name(self, leaf: str) -> str:
        """Return the name of a leaf."""
        return self._end(leaf).device

    def _end(self, leaf: str) -> SeenEnd:
        """Return a port of a leaf."""
        if not self._ends:
            seen = [
                (leaf, end)
                for group in self._groups
                for row in group.rows
                for leaf, port in zip(row.leaves, row.ports, strict=True)
                if leaf and (end := current(port))
            ]
            # One that is named as most ports of its leaf goes before any other.
            self._ends = dict(seen) | dict(one for one in seen if self._numbers[one[1]] is not None)
        return self._ends[leaf]


def of_cause(cause: Cause, ports: Ports) -> Finding:
    """Return the finding of one mistake."""
    moves = []
    for odd in cause.odds:
        port, wanted = odd.row.ports[odd.column], ports.names(odd.wanted)
        last, end = port.last_end, port.far_end
        if odd.wrong == MISSING and odd.was_there and last and not wanted[1]:
            wanted = (wanted[0], last.port)
        actual = (end.device, end.port) if end else NO_END
        moves.append(Move(PortRef(odd.row.node.name, odd.interface), actual, wanted))
    first = cause.odds[0]
    code = cause.kind if cause.kind in (SWAPPED, SHIFTED) else ALONE.get(first.wrong, "wrong-port")
    weakest = min(cause.odds, key=lambda odd: confidence(*odd.majority))
    return finding(
        code,
        [move.port for move in moves],
        _sentence(code, moves),
        moves=tuple(moves),
        confidence=round(confidence(*weakest.majority), 3),
        majority=_majority(weakest, ports),
        expected=moves[0].wanted,
        actual=moves[0].actual,
    )


def _sentence(code: str, moves: Sequence[Move]) -> str:
    one, near = moves[0], [f"{move.port.node} {move.port.interface}" for move in moves]
    if code == SWAPPED and len(moves) == 2:
        other = moves[1]
        second = other.port.interface if one.port.node == other.port.node else near[1]
        ends = f"{_end(one.actual)} and {_end(other.actual)}"
        return f"Exchange the far ends of {near[0]} and {second}: {ends}."
    if code in (SWAPPED, SHIFTED):
        steps = [f"{name} to {_end(move.wanted)}" for name, move in zip(near, moves, strict=True)]
        what = "in a ring" if code == SWAPPED else "back, they are shifted"
        return f"Move the far ends of {len(moves)} cables {what}: {listed(steps)}."
    if code == "missing":
        return f"Check the cable of {near[0]}: no neighbor; it belongs to {_end(one.wanted)}."
    return f"Move the far end of {near[0]} from {_end(one.actual)} to {_end(one.wanted)}."


def _end(end: Ends) -> str:
    device, port = end
    return f"{device}/{port}" if port else f"{device}"


def _majority(odd: Odd, ports: Ports) -> str:
    """Return what the majority is made of."""
    m, n = odd.majority
    of = f"{m} of {n} nodes of the group"
    leaf = ports.name(odd.wanted.leaf)
    if odd.wrong == MISSING:
        return f"{of} have a neighbor on {odd.interface}, on {leaf}"
    if odd.wrong == LEAF:
        return f"{of} have {odd.interface} on {leaf}"
    if odd.by_line:
        return f"{of} have neighboring ports, in the order of their names"
    return f"{of} have {odd.interface} on the port of {leaf} that their other cables suggest"


def of_mirrored(group: Ruled, run: range, ports: Ports) -> Finding:
    """Return the finding of nodes in the reverse order of their line."""
    moves = []
    on_line_group = group._replace(places=group.line.places) if group.line else group
    for rank in run:
        row = group.rows[rank]
        for column, port in enumerate(row.ports):
            leaf, wanted = group.leaf_rule.leaves[column], on_line_group.number(rank, column)
            if not leaf or row.leaves[column] != leaf or not port.far_end:
                continue
            if wanted not in {None, row.numbers[column]}:
                actual = (port.far_end.device, port.far_end.port)
                names = ports.names(Seat(leaf, wanted))
                moves.append(Move(PortRef(row.node.name, port.interface), actual, names))
    first, last = (group.rows[rank].node.name for rank in (run[0], run[-1]))
    on_line, all_nodes = group.line.agreed if group.line else (0, 0)
    return finding(
        "mirrored",
        [move.port for move in moves],
        in_reverse(len(run), first, last),
        moves=tuple(moves),
        confidence=round(confidence(on_line, all_nodes), 3),
        majority=f"{on_line} of {all_nodes} nodes have neighboring ports in the order of names",
        expected=moves[0].wanted,
        actual=moves[0].actual,
    )


def in_reverse(nodes: int, first: str, last: str) -> str:
    """Return the sentence of so many nodes in the reverse order."""
    return (
        f"The cables of the {nodes} nodes from {first} to {last} are in the reverse order: exchange"
        " those of the first and the last, the second and the last but one, and so on."
    )


def groups_of(
    found: Sequence[Ruled], unseen: Sequence[Row], ports: Ports
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Return every node in one group, and the notes: why there is no pattern, or no evidence.

    Groups that are too small for a majority are one together.
    """
    large = [group for group in found if _is_large(group)]
    small = [row for group in found if not _is_large(group) for row in group.rows]
    groups = []
    for group in large:
        ruled = [leaf for leaf in group.leaf_rule.leaves if leaf]
        seen = ruled or [leaf for row in group.rows for leaf in row.leaves if leaf]
        leaves = tuple(dict.fromkeys(seen))
        names = sorted({ports.name(leaf) for leaf in leaves}, key=natural)
        title = names[0] if len(names) == 1 else f"{names[0]} - {names[-1]}"
        members = tuple(row.node.name for row in group.rows)
        pattern = _pattern(group) if group.is_regular else None
        groups.append(Group(title, members, leaves, pattern))
    groups.sort(key=lambda one: natural(one.nodes[0]))
    for name, rows in ((SMALL, small), (NO_NEIGHBORS, unseen)):
        if rows:
            nodes = sorted((row.node.name for row in rows), key=natural)
            groups.append(Group(name, tuple(nodes), (), None))
    return tuple(groups), tuple(_notes(large, small, unseen))


def _is_large(group: Ruled) -> bool:
    return group.is_regular or len(group.rows) > RIVALS


def _pattern(group: Ruled) -> str:
    """Return the pattern in words."""
    ruled = [leaf for leaf in group.leaf_rule.leaves if leaf]
    leaves = {*ruled}
    if len(leaves) == 1:
        shape = "single leaf: all interfaces on one leaf"
    elif len(leaves) == len(ruled) == 2:
        shape = "dual-plane: two interfaces on two leaves"
    elif len(leaves) == len(ruled):
        shape = "rail-optimized: interface i on leaf i"
    else:
        shape = f"fat tree: {len(ruled)} interfaces on {len(leaves)} leaves"
    offsets = {*group.port_rule.offsets} - {None} if group.port_rule else set()
    if offsets:
        shape += ", one port number" if len(offsets) == 1 else ", neighboring ports"
        shape += " for each node"
    return shape + (", in the order of names" if group.line else "")


def _notes(large: Sequence[Ruled], small: Sequence[Row], unseen: Sequence[Row]) -> Iterator[str]:
    """Yield why cables are not judged."""
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
