"""Compare the cables of one node: each row of the plan with the far end that its port sees.

A row ends in one status. It is UNVERIFIABLE, with the reason, wherever the facts or the names do
not suffice: a difference of names, of numbering, or in the plan itself is no wrong cable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent.findings.finding import NO_END
from agent.findings.names import (
    EXACT,
    INCOMPARABLE,
    SAME,
    Match,
    compare_device,
    device_key,
    label_value,
    same_name,
)
from agent.findings.port_names import compare_port
from agent.plans.model import IGNORE, LINK_STATE_ONLY
from agent.reasons import NeighborReason
from agent.verify.interfaces import shape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.findings.finding import Ends
    from agent.verify.expected import Row
    from agent.verify.seen import FarEnd, Port

    Off = frozenset[str]

T = TypeVar("T")
AS_PLANNED, UNVERIFIABLE, IGNORED = "as-planned", "unverifiable", "ignored"
MISCABLED, WRONG_PORT, MISSING = "miscabled", "wrong-port", "missing"
# The reasons that prove that nobody is at the far end.
GONE = frozenset({NeighborReason.LINK_DOWN, NeighborReason.EXPIRED, NeighborReason.SHUTDOWN})
OTHER_NAMES = "the plan and the fabric name switches differently"
CAGES = "the plan may number the cages of the switch, not its ports (give 3/1 or 5 for cage 3)"
NUMBERING = "numbering unknown, give --hca-map"


class Checked(NamedTuple):
    """The result for one row."""

    row: Row
    port: Port
    status: str
    reason: str | None = None  # of UNVERIFIABLE and MISSING
    far_end: FarEnd | None = None  # the far end that was compared
    device: Match = INCOMPARABLE
    far_port: Match = INCOMPARABLE

    def unverifiable(self, reason: str) -> Checked:
        """Return the result with its status withdrawn."""
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
    def is_wrong(self) -> bool:
        """True if the cable leads elsewhere."""
        return self.status in {MISCABLED, WRONG_PORT}


def check(row: Row, port: Port, off: Off = frozenset()) -> Checked:
    """Compare one row with its port."""
    if row.mark == IGNORE:
        return Checked(row, port, IGNORED)
    if port.is_down:
        return Checked(row, port, MISSING, NeighborReason.LINK_DOWN)
    if row.mark == LINK_STATE_ONLY or not (row.device or row.ports):
        return _of_link_state(row, port)
    return _of_far_ends(row, port, off) if port.far_ends else _without_neighbor(row, port)


def _without_neighbor(row: Row, port: Port) -> Checked:
    reason = port.missing or NeighborReason.NOT_RECORDED
    return Checked(row, port, MISSING if reason in GONE else UNVERIFIABLE, reason)


def _of_far_ends(row: Row, port: Port, off: Off) -> Checked:
    """Compare a row with each neighbor; return the first that is as planned, if there is one."""
    results = [_compared(row, port, far_end, off) for far_end in port.far_ends]
    return next((one for one in results if one.status == AS_PLANNED), results[0])


def _of_link_state(row: Row, port: Port) -> Checked:
    if port.state is None:
        return Checked(row, port, UNVERIFIABLE, "the state of the port could not be read")
    return Checked(row, port, AS_PLANNED)


def _compared(row: Row, port: Port, far_end: FarEnd, off: Off) -> Checked:
    device = compare_device(row.device, far_end.seen_device, off) if row.device else SAME
    ports = row.ports
    far_port = compare_port(ports, far_end.seen_port, off) if ports else SAME
    status, reason = _status(row, far_end, device, far_port)
    return Checked(row, port, status, reason, far_end, device, far_port)


def _status(row: Row, far_end: FarEnd, device: Match, port: Match) -> tuple[str, str | None]:
    if device.equal is False:
        return MISCABLED, None
    if device.equal is None:
        return UNVERIFIABLE, f"the plan says {row.device}, the far end says only {far_end.device}"
    if port.equal is False:
        return WRONG_PORT, None
    if port.equal is None:
        return UNVERIFIABLE, f"the far end calls its port {far_end.port}, the plan {row.port}"
    return AS_PLANNED, None


def check_all(
    rows: Sequence[Row],
    ports: dict[str, Port],
    numbered: Collection[str],
    devices: Iterable[str],
    off: Off = frozenset(),
) -> list[Checked]:
    """Compare all rows; withdraw the results that names or numbers do not support.

    `numbered` are the interfaces found by PCI order, `devices` the switches of the whole plan.
    """
    results = [check(row, ports[row.interface], off) for row in rows if row.interface in ports]
    results = _without_other_names(results, devices, off)
    results = _without_numbering(_without_cages(results), numbered)
    return _without_ambiguous(results, off)


def _without_other_names(results: list[Checked], devices: Iterable[str], off: Off) -> list[Checked]:
    """Withdraw all results if no switch is known, and their names are of another form."""
    if any(one.device.equal and one.far_end for one in results):
        return results
    compared = [one for one in results if one.device.equal is not None and one.far_end]
    if not compared:
        return results
    seen = {one.far_end.device for one in compared if one.far_end}
    known = {*devices, *(one.row.device for one in compared if one.row.device)}
    if any_like(seen, known, off):
        return results
    return [one.unverifiable(OTHER_NAMES) if one.is_wrong else one for one in results]


def any_like(seen: Iterable[str], known: Collection[str], off: Off = frozenset()) -> bool:
    """Return True if a name that is seen has the form of a known one, or is equal to it."""
    seen = list(seen)
    return bool(shapes(seen) & shapes(known)) or _any_equal(seen, known, off)


def shapes(names: Iterable[str]) -> set[str]:
    """Return the forms of names, of a fully qualified one also that of its host."""
    encoded = [label_value(name) for name in names]
    return {shape(form) for name in encoded for form in (name, name.partition(".")[0])}


def _any_equal(seen: Iterable[str], known: Collection[str], off: Off) -> bool:
    return any(same_name(one, other, off) for one in seen for other in known)


def _without_numbering(results: list[Checked], numbered: Collection[str]) -> list[Checked]:
    """Withdraw the results of PCI order if more than half of them are wrong."""
    if not numbered:
        return results
    by_number = [one for one in results if one.port.interface in numbered and one.far_end]
    wrong = sum(one.is_wrong for one in by_number)
    if 2 * wrong <= len(by_number):
        return results
    return [
        one.unverifiable(NUMBERING) if one.port.interface in numbered else one for one in results
    ]


def _without_cages(results: list[Checked]) -> list[Checked]:
    """Withdraw wrong ports of twin-port switches if the plan numbers their cages.

    It does if most of its numbers are those of the cages of the ports that are seen; port 1 is in
    cage 1, and proves nothing.
    """
    if not any(map(_is_twin, results)):
        return results
    by_number = [one for one in results if one.row.device and _has_plain_number(one)]
    telling = [one for one in by_number if one.status == WRONG_PORT or not _is_cage(one)]
    if 2 * sum(map(_is_cage, telling)) <= len(telling):
        return results
    plain = {one.port.interface for one in by_number}
    return [
        one.unverifiable(CAGES) if one.status == WRONG_PORT and one.port.interface in plain else one
        for one in results
    ]


def _has_plain_number(one: Checked) -> bool:
    """Return True if the plan has a bare number for a port of the right InfiniBand switch."""
    is_infiniband = one.far_end is not None and one.far_end.seen_port.infiniband
    return is_infiniband and bool(one.device.equal) and (one.row.port or "").isdecimal()


def _is_twin(one: Checked) -> bool:
    return bool(one.far_end and one.far_end.seen_port.twin_port)


def _is_cage(one: Checked) -> bool:
    seen = one.far_end.port_id if one.far_end else ""
    return _is_twin(one) and seen.isdecimal() and (int(seen) + 1) // 2 == int(one.row.port or "")


class _Index:
    """The results by device, so that few of them are compared with one far end."""

    def __init__(self, results: Iterable[Checked]) -> None:
        self._by_key: dict[str | None, list[Checked]] = {}
        for one in results:
            self._by_key.setdefault(device_key(one.row.device or ""), []).append(one)

    def candidates(self, far_end: FarEnd) -> list[Checked]:
        """Return the results whose planned device may be the far end's."""
        names = (far_end.device, *far_end.seen_device.names)
        keys = {None, *map(device_key, names)}
        return [one for key in keys for one in self._by_key.get(key, ())]


def _without_ambiguous(results: list[Checked], off: Off) -> list[Checked]:
    """Withdraw an equality by tolerance that holds for two rows of different far ends."""
    if not any(map(_is_tolerant, results)):
        return results
    index = _Index(results)
    return [_refused(one, index, off) if _is_tolerant(one) else one for one in results]


def _is_tolerant(one: Checked) -> bool:
    if one.status != AS_PLANNED or not one.far_end:
        return False
    return not one.device.by == one.far_port.by == EXACT


def _refused(one: Checked, index: _Index, off: Off) -> Checked:
    if not one.far_end:
        return one
    for other in index.candidates(one.far_end):
        if other.row.far_end != one.row.far_end:
            match = _compared(other.row, one.port, one.far_end, off)
            if match.status == AS_PLANNED:
                return one.unverifiable(f"{one.row.place} and {other.row.place} both name its port")
    return one


def leads_to(one: Checked, other: Row, off: Off = frozenset()) -> bool:
    """Return True if a cable ends where another row's should."""
    if not (one.far_end and other.device):
        return False
    return _compared(other, one.port, one.far_end, off).status == AS_PLANNED


def rings(results: Sequence[Checked], off: Off = frozenset()) -> list[list[Checked]]:
    """Return the groups of cables that changed places among each other, each in its order."""
    wrong = {one.port.interface: one for one in results if one.is_wrong}
    if not wrong:
        return []
    index = _Index(wrong.values())
    follows = {name: _holder(one, index, off) for name, one in wrong.items()}
    found: list[list[Checked]] = []
    done: set[str] = set()
    for name in wrong:
        ring = [] if name in done else ring_from(name, follows)
        if ring:
            done.update(ring)
            found.append([wrong[member] for member in ring])
    return found


def _holder(one: Checked, index: _Index, off: Off) -> str | None:
    """Return the interface whose far end this cable has; None unless exactly one."""
    found = [
        other.port.interface
        for other in (index.candidates(one.far_end) if one.far_end else ())
        if other is not one and leads_to(one, other.row, off)
    ]
    return found[0] if len(found) == 1 else None


def ring_from(start: T, follows: Mapping[T, T | None]) -> list[T]:
    """Return the interfaces from `start` back to it; none if they do not lead back."""
    ring, name = dict.fromkeys([start]), follows.get(start)
    while name is not None and name not in ring:
        ring[name] = None
        name = follows.get(name)
    return [*ring] if name == start else []
