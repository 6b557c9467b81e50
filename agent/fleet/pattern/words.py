"""The findings of a pattern: the sentence, the moves, the confidence and the majority of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import NO_END, Move, PortRef, finding
from agent.fleet.pattern.causes import SHIFTED, SWAPPED
from agent.fleet.pattern.evidence import confidence
from agent.fleet.pattern.odd import LEAF, MISSING, Seat
from agent.fleet.pattern.rows import current
from agent.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.findings.finding import Ends, Finding
    from agent.fleet.model import FarEnd
    from agent.fleet.pattern.causes import Cause
    from agent.fleet.pattern.missing import Down
    from agent.fleet.pattern.odd import Odd, Ruled
    from agent.fleet.pattern.port_numbers import PortNumbers

ALONE = {LEAF: "miscabled", MISSING: "missing"}


class Ports:
    """The names of the ports of leaves."""

    def __init__(self, groups: Iterable[Ruled], numbers: PortNumbers) -> None:
        """Keep the groups; they are searched when the first name is wanted."""
        self._groups = groups
        self._numbers = numbers
        self._ends: dict[str, FarEnd] = {}

    def names(self, seat: Seat | None) -> Ends:
        """Return the device and the port of a seat."""
        if not seat:
            return NO_END
        end = self._end(seat.leaf)
        return end.device, None if seat.number is None else self._numbers.text(end, seat.number)

    def name(self, leaf: str) -> str:
        """Return the name of a leaf."""
        return self._end(leaf).device

    def _end(self, leaf: str) -> FarEnd:
        """Return a port of a leaf."""
        self._ends = self._ends or {
            leaf: end
            for group in self._groups
            for row in group.rows
            for leaf, port in zip(row.leaves, row.ports, strict=True)
            if leaf and (end := current(port))
        }
        return self._ends[leaf]


def of_cause(cause: Cause, ports: Ports) -> Finding:
    """Return the finding of one mistake."""
    moves = tuple(_move(odd, ports) for odd in cause.odds)
    first = cause.odds[0]
    code = cause.kind if cause.kind in (SWAPPED, SHIFTED) else ALONE.get(first.wrong, "wrong-port")
    weakest = min(cause.odds, key=lambda odd: confidence(*odd.majority))
    return finding(
        code,
        [move.port for move in moves],
        _sentence(code, moves),
        moves=moves,
        confidence=round(confidence(*weakest.majority), 3),
        majority=_majority(weakest, ports),
        expected=moves[0].wanted,
        actual=moves[0].actual,
    )


def _move(odd: Odd, ports: Ports) -> Move:
    port = odd.row.ports[odd.column]
    wanted = ports.names(odd.wanted)
    last = port.last_end
    if odd.wrong == MISSING and odd.was_there and last and not wanted[1]:
        wanted = (wanted[0], last.port)
    actual = (port.far_end.device, port.far_end.port) if port.far_end else NO_END
    return Move(PortRef(odd.row.node.name, odd.interface), actual, wanted)


def _sentence(code: str, moves: Sequence[Move]) -> str:
    one = moves[0]
    if code == SWAPPED and len(moves) == 2:
        ends = f"{_end(one.actual)} and {_end(moves[1].actual)}"
        return (
            f"Swap the far ends of {_near(one.port)} and {_near(moves[1].port, one.port)}: {ends}."
        )
    if code in (SWAPPED, SHIFTED):
        steps = [f"{_near(move.port)} to {_end(move.wanted)}" for move in moves]
        what = "in a ring" if code == SWAPPED else "back, they are shifted"
        return f"Move the far ends of {len(moves)} cables {what}: {listed(steps)}."
    if code == "missing":
        return (
            f"Check the cable of {_near(one.port)}: no neighbor; it belongs to {_end(one.wanted)}."
        )
    return f"Move the far end of {_near(one.port)} from {_end(one.actual)} to {_end(one.wanted)}."


def _near(port: PortRef, other: PortRef | None = None) -> str:
    """Return the interface with its node, unless another port of it was just named."""
    return port.interface if other and other.node == port.node else f"{port.node} {port.interface}"


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


def of_down(down: Down, ports: Ports) -> Finding:
    """Return the finding of a leaf that is down."""
    leaf = down.odds[0].wanted.leaf
    lost, name = len(down.odds), ports.name(leaf)
    moves = [_move(odd, ports) for odd in down.odds]
    return finding(
        "leaf-down",
        [move.port for move in moves],
        f"Check {name}: {lost} of its {down.total} ports to this fleet have no neighbor any more.",
        key=[leaf],
        confidence=round(confidence(lost, down.total), 3),
        majority=f"{lost} of {down.total} ports were on {name} and have no neighbor now",
        expected=(name, None),
    )


def of_mirrored(group: Ruled, run: range, ports: Ports) -> Finding:
    """Return the finding of nodes in the reverse order."""
    moves = tuple(_mirror_moves(group, run, ports))
    first, last = (group.rows[rank].node.name for rank in (run[0], run[-1]))
    on_line = (group.line.m, group.line.n) if group.line else (0, 0)
    return finding(
        "mirrored",
        [move.port for move in moves],
        f"The cables of the {len(run)} nodes from {first} to {last} are in the reverse order:"
        " exchange those of the first and the last, the second and the last but one, and so on.",
        moves=moves,
        confidence=round(confidence(*on_line), 3),
        majority=f"{on_line[0]} of {on_line[1]} nodes have neighboring ports in the order of names",
        expected=moves[0].wanted,
        actual=moves[0].actual,
    )


def _mirror_moves(group: Ruled, run: range, ports: Ports) -> Iterator[Move]:
    line, rule = group.line, group.port_rule
    for rank in run:
        row = group.rows[rank]
        for column, port in enumerate(row.ports):
            offset = rule.offsets[column] if rule else None
            leaf = group.leaf_rule.leaves[column]
            if not line or offset is None or not leaf or row.leaves[column] != leaf:
                continue
            wanted = line.places[rank] + offset
            if port.far_end and wanted != row.numbers[column]:
                actual = (port.far_end.device, port.far_end.port)
                names = ports.names(Seat(leaf, wanted))
                yield Move(PortRef(row.node.name, port.interface), actual, names)
