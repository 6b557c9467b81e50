"""Compare the cables of one node: each row of the plan with the far end that its port sees.

A cable ends in one status. It is UNVERIFIABLE, with the reason, wherever the facts or the names do
not suffice: a difference of names, of numbering, or in the plan itself is no wrong cable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from agent.cabling.expected import ExpectedRow
from agent.cabling.finding import NO_END, NO_SPOT, Ends, Move, PortRef, Spot, spot
from agent.cabling.interfaces import NUMBERING, shape
from agent.cabling.names import (
    EXACT,
    INCOMPARABLE,
    SAME,
    Match,
    Off,
    compare_device,
    compare_port,
    device_key,
    label_value,
    likeness,
    same_name,
)
from agent.cabling.plans.columns import FACTS, FAR
from agent.cabling.plans.model import IGNORE, LINK_STATE_ONLY
from agent.cabling.seen import Port, SeenEnd, SeenNode
from agent.grouped import grouped
from agent.reasons import NeighborReason
from agent.text import natural

AS_PLANNED, UNVERIFIABLE, IGNORED = "as-planned", "unverifiable", "ignored"
MISCABLED, WRONG_PORT, MISSING = "miscabled", "wrong-port", "missing"
# The reasons that prove that nobody is at the far end.
GONE = frozenset({NeighborReason.LINK_DOWN, NeighborReason.EXPIRED, NeighborReason.SHUTDOWN})
OTHER_NAMES = "the plan and the fabric name switches differently"
CAGES = "the plan may number the cages of the switch, not its ports (give 3/1 or 5 for cage 3)"
FEW = 64  # cables of a leaf, all of which are compared; of more, those with the port's number
MAX_CANDIDATES = 256  # planned ends that one far end is compared with
_LAST_NUMBER = re.compile(r"(\d+)\D*$", re.ASCII)
T = TypeVar("T")


class ComparedCable(NamedTuple):
    """One cable: its row of the plan, the port with the far end that it sees, and the result."""

    ref: PortRef
    row: ExpectedRow
    port: Port
    status: str
    reason: str | None = None  # of UNVERIFIABLE and MISSING
    far_end: SeenEnd | None = None  # the one that was compared
    device: Match = INCOMPARABLE
    far_port: Match = INCOMPARABLE
    other_spot: Spot = NO_SPOT  # of another switch than the planned one, if the plan has it

    def unverifiable(self, reason: str) -> ComparedCable:
        """Return the cable with its status withdrawn."""
        return self._replace(status=UNVERIFIABLE, reason=reason)

    @property
    def expected(self) -> Ends:
        """Device and port of the plan."""
        return self.row.device, self.row.port

    @property
    def actual(self) -> Ends:
        """Device and port of the far end that was compared."""
        return (self.far_end.device, self.far_end.port) if self.far_end else NO_END

    @property
    def move(self) -> Move:
        """From the far end that it has to the planned one."""
        near, far = spot(self.row.near, self.row.label), spot(self.row.far)
        return Move(self.ref, self.actual, self.expected, near, far, self.present_spot)

    @property
    def stay(self) -> Move:
        """At the far end that it has."""
        return self.move._replace(wanted=self.actual, far_spot=self.present_spot)

    @property
    def facts(self) -> dict[str, object]:
        """The facts of its row, with the place of the far end that it has."""
        there = self.present_spot
        of_far_end = {
            name: getattr(there, field) for name, (side, field) in FACTS.items() if side == FAR
        }
        return self.row.facts | of_far_end

    @property
    def present_spot(self) -> Spot:
        """The place of the far end that it has."""
        return spot(self.row.far) if self.far_end and self.device.equal else self.other_spot

    @property
    def is_wrong(self) -> bool:
        """True if the cable leads elsewhere."""
        return self.status in {MISCABLED, WRONG_PORT}

    def leads_to(self, other: ExpectedRow, off: Off = frozenset()) -> bool:
        """Return True if the cable ends where another row's should."""
        if not (self.far_end and other.device):
            return False
        return compared(self.ref, other, self.port, self.far_end, off).status == AS_PLANNED


def check(node: str, row: ExpectedRow, port: Port, off: Off = frozenset()) -> ComparedCable:
    """Compare one row with its port: with each neighbor, until one is as planned."""
    ref = PortRef(node, port.interface)
    if port.far_ends and not (row.mark or port.is_down) and (row.device or row.ports):
        results = []
        for far_end in port.far_ends:
            results.append(compared(ref, row, port, far_end, off))
            if results[-1].status == AS_PLANNED:
                return results[-1]
        return results[0]
    cable = ComparedCable(ref, row, port, AS_PLANNED)
    if row.mark == IGNORE:
        return cable._replace(status=IGNORED)
    if port.is_down:
        return cable._replace(status=MISSING, reason=NeighborReason.LINK_DOWN)
    if row.mark == LINK_STATE_ONLY or not (row.device or row.ports):
        unread = "the state of the port could not be read"
        return cable.unverifiable(unread) if port.state is None else cable
    reason = port.missing or NeighborReason.NOT_RECORDED
    return cable._replace(status=MISSING if reason in GONE else UNVERIFIABLE, reason=reason)


def compared(
    ref: PortRef, row: ExpectedRow, port: Port, far_end: SeenEnd, off: Off
) -> ComparedCable:
    """Return a cable compared with a far end, as if it had this row."""
    ports = row.ports
    device = compare_device(row.device, far_end, off) if row.device else SAME
    at_port = compare_port(ports, far_end, off) if ports else SAME
    status, reason = AS_PLANNED, None
    if device.equal is False:
        status = MISCABLED
    elif device.equal is None:
        status = UNVERIFIABLE
        reason = f"the plan says {row.device}, the far end says only {far_end.device}"
    elif at_port.equal is False:
        status = WRONG_PORT
    elif at_port.equal is None:
        status = UNVERIFIABLE
        reason = f"the far end calls its port {far_end.port}, the plan {row.port}"
    return ComparedCable(ref, row, port, status, reason, far_end, device, at_port)


def check_all(
    rows: Iterable[ExpectedRow],
    node: SeenNode,
    numbered: Collection[str],
    devices: Iterable[str],
    off: Off = frozenset(),
) -> list[ComparedCable]:
    """Compare all rows; withdraw the results that names or numbers do not support.

    `numbered` are the interfaces found by PCI order, none of which counts if more than half of them
    are wrong; `devices` are the switches of the whole plan.
    """
    results = [
        check(node.name, row, node.ports[row.interface], off)
        for row in rows
        if row.interface in node.ports
    ]
    results = _without_cages(_without_other_names(results, devices, off))
    by_number = [cable for cable in results if cable.ref.interface in numbered and cable.far_end]
    if 2 * sum(cable.is_wrong for cable in by_number) > len(by_number):
        results = [
            cable.unverifiable(NUMBERING) if cable.ref.interface in numbered else cable
            for cable in results
        ]
    return _without_ambiguous(results, off)


def _without_other_names(
    results: list[ComparedCable], devices: Iterable[str], off: Off
) -> list[ComparedCable]:
    """Withdraw all results if no switch is known, and their names are of another form."""
    if any(cable.device.equal and cable.far_end for cable in results):
        return results
    named = [
        (cable.far_end.device, cable.row.device)
        for cable in results
        if cable.far_end and cable.device.equal is not None
    ]
    if not named:
        return results
    seen = {device for device, _ in named}
    known = {*devices, *(device for _, device in named if device)}
    if shapes(seen) & shapes(known) or any(
        same_name(name, other, off) for name in seen for other in known
    ):
        return results
    return [cable.unverifiable(OTHER_NAMES) if cable.is_wrong else cable for cable in results]


def shapes(names: Iterable[str]) -> set[str]:
    """Return the forms of names, of a fully qualified one also that of its host."""
    encoded = [label_value(name) for name in names]
    return {shape(form) for name in encoded for form in (name, name.partition(".")[0])}


def _without_cages(results: list[ComparedCable]) -> list[ComparedCable]:
    """Withdraw wrong ports of twin-port switches if the plan numbers their cages.

    It does if most of its numbers are those of the cages of the ports that are seen; port 1 is in
    cage 1, and proves nothing.
    """
    if not any(cable.far_end and cable.far_end.twin_port for cable in results):
        return results
    # Those with a bare number for a port of the right InfiniBand switch.
    by_number = [
        cable
        for cable in results
        if cable.row.device
        and cable.far_end
        and cable.far_end.infiniband
        and cable.device.equal
        and (cable.row.port or "").isdecimal()
    ]
    telling = [cable for cable in by_number if cable.status == WRONG_PORT or not _is_cage(cable)]
    if 2 * sum(map(_is_cage, telling)) <= len(telling):
        return results
    plain = {cable.ref for cable in by_number if cable.status == WRONG_PORT}
    return [cable.unverifiable(CAGES) if cable.ref in plain else cable for cable in results]


def _is_cage(cable: ComparedCable) -> bool:
    """Return True if the planned number is that of the cage of the port that is seen."""
    number = cable.far_end.port_id or "" if cable.far_end and cable.far_end.twin_port else ""
    return number.isdecimal() and (int(number) + 1) // 2 == int(cable.row.port or "")


def _without_ambiguous(results: list[ComparedCable], off: Off) -> list[ComparedCable]:
    """Withdraw an equality by tolerance that holds for two rows of different far ends."""
    tolerant = {
        cable.ref
        for cable in results
        if cable.status == AS_PLANNED
        and cable.far_end
        and not cable.device.by == cable.far_port.by == EXACT
    }
    if not tolerant:
        return results
    by_key = grouped(results, lambda cable: device_key(cable.row.device or ""))

    def checked(cable: ComparedCable) -> ComparedCable:
        if not cable.far_end or cable.ref not in tolerant:
            return cable
        keys = {None, *map(device_key, (cable.far_end.device, *cable.far_end.names))}
        for other in (row for key in keys for row in by_key.get(key, ())):
            if other.row.far_end != cable.row.far_end and cable.leads_to(other.row, off):
                places = f"{cable.row.place} and {other.row.place}"
                return cable.unverifiable(f"{places} both name its port")
        return cable

    return [checked(cable) for cable in results]


# cables that changed places: each is where the plan has the next one


def cycles(follows: Mapping[T, T | None]) -> list[list[T]]:
    """Return the members that follow each other round, each cycle once."""
    closed: list[list[T]] = []
    done: set[T] = set()
    for start in follows:
        path: dict[T, None] = {}
        member: T | None = start
        while member is not None and member not in done:
            done.add(member)
            path[member] = None
            member = follows.get(member)
        if member is not None and member in path:
            members = [*path]
            closed.append(members[members.index(member) :])
    return closed


class _PlannedEnds:
    """Finds cables by the ends that the plan has for them."""

    def __init__(self, cables: Iterable[ComparedCable]) -> None:
        # by the planned device, and by the last number of the planned port, too
        self._by_device = grouped(cables, lambda cable: likeness(cable.row.device or ""))
        ends = (
            ((device, number), cable)
            for device, same in self._by_device.items()
            for cable in same
            for number in {_number(name) for name in cable.row.ports or ("",)}
        )
        self._by_end = grouped(ends, lambda pair: pair[0])

    def like(self, end: SeenEnd) -> Iterator[ComparedCable]:
        """Yield the cables whose planned end may be this one; likely ones first."""
        names = (end.device, *end.names, *end.guids, *end.macs, end.description or "")
        numbers = sorted({_number(text) for text in (end.port_id, end.port_name) if text})
        for device in dict.fromkeys(map(likeness, names)):
            same = self._by_device.get(device, ())
            # A cage or a split port has another number in the plan than on the switch.
            if len(same) <= FEW or end.twin_port:
                yield from same
            else:
                for number in (*numbers, ""):
                    yield from (cable for _, cable in self._by_end.get((device, number), ()))


def rings(wrong: Sequence[ComparedCable], off: Off = frozenset()) -> list[list[ComparedCable]]:
    """Return the rings among wrong cables of any node, each from its first port on.

    In a ring each cable is at the planned far end of the next one, and of no other.
    """
    planned = _PlannedEnds(wrong)

    def next_of(cable: ComparedCable) -> PortRef | None:
        """Return the one port at whose planned far end a cable is."""
        likely = planned.like(cable.far_end) if cable.far_end else ()
        ports = {
            other.ref
            for other in islice(likely, MAX_CANDIDATES)
            if other is not cable and cable.leads_to(other.row, off)
        }
        return ports.pop() if len(ports) == 1 else None

    by_port = {cable.ref: cable for cable in wrong}
    closed = []
    for members in cycles({cable.ref: next_of(cable) for cable in wrong}):
        start = members.index(min(members, key=lambda port: tuple(map(natural, port))))
        closed.append([by_port[port] for port in (*members[start:], *members[:start])])
    return closed


def _number(text: str) -> str:
    """Return the last number of a port's name."""
    match = _LAST_NUMBER.search(text)
    return match[1].lstrip("0") if match else text.casefold()
