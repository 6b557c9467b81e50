"""Receive LLDP frames for an observation, and return the neighbors of its netdevs.

agent/lldp/neighbors.py evaluates the frames over time. A netdev without a neighbor has a
NeighborReason: that of the table, or, if nothing can be received on it, the reason for that. A
link that is down is visible without reception, so it comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed, Unavailable
from agent.lldp.neighbors import NeighborTable
from agent.model import Problem
from agent.reasons import NeighborReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from agent.lldp.frame import Frame
    from agent.lldp.neighbors import Sender
    from agent.model import Netdev

    Links = Mapping[str, bool]  # netdev -> True if it has a link
    # the frames received, and per netdev without a packet socket the error, or None while it is
    # being opened
    Received = tuple[list[Frame], Mapping[str, str | None]]
    Receive = Callable[[Links], Received]  # raises Unavailable
    Clock = Callable[[], float]
    LldpQuery = Callable[[Collection[Netdev], Clock], "Reception"]

SOURCE = "lldp"
NO_LINK = frozenset({"down", "lowerlayerdown", "notpresent"})  # RFC 2863, ifOperStatus


class Reception(NamedTuple):
    """The neighbors of the netdevs of one observation, and the frames received for it."""

    neighbors: Mapping[str, tuple[Sender, ...]]  # by netdev, the selected one first
    missing: Mapping[str, NeighborReason]  # by netdev; of use for one without neighbors
    problems: tuple[Problem, ...] = ()
    frames: tuple[Frame, ...] = ()
    errors: Mapping[str, str] = {}  # netdev -> error of its packet socket


class _Input(NamedTuple):
    """The result of one call of `receive`."""

    frames: list[Frame]
    errors: dict[str, str]  # as in Reception
    reasons: dict[str, NeighborReason]  # of the netdevs on which nothing is received
    problems: list[Problem]


class LldpNeighbors:
    """The LLDP neighbors of netdevs; see Host.lldp_neighbors.

    `table` keeps them from one observation to the next. `problem` is the text of the problem of a
    netdev on which nothing is received, around the error.
    """

    def __init__(
        self,
        receive: Receive,
        table: NeighborTable | None = None,
        *,
        problem: str = "no packet socket for LLDP: {}",
    ) -> None:
        self.receive = receive
        self._table = table or NeighborTable()
        self._problem_text = problem

    def __call__(self, netdevs: Collection[Netdev], clock: Clock) -> Reception:
        """Receive; return the neighbors by `clock`, which is read before and after reception."""
        self._set_links(netdevs, clock())
        received = _received(self.receive, _links(netdevs), self._problem_text)
        malformed = self._take_in(received.frames, _addresses(netdevs))
        self._expire(netdevs, clock())
        return Reception(
            {netdev.name: self._table.neighbors(netdev.name) for netdev in netdevs},
            {netdev.name: self._missing(netdev.name, received.reasons) for netdev in netdevs},
            (*received.problems, *malformed),
            tuple(received.frames),
            received.errors,
        )

    def _set_links(self, netdevs: Iterable[Netdev], now: float) -> None:
        for netdev in netdevs:
            up, changes = _has_link(netdev), netdev.carrier_changes
            self._table.set_link(netdev.name, now, up=up, changes=changes)

    def _take_in(self, frames: Iterable[Frame], own: Collection[str]) -> Iterable[Problem]:
        """Update the table; return the problems of malformed frames, each once."""
        problems = (self._problem(frame, own) for frame in frames)
        return dict.fromkeys(filter(None, problems))

    def _problem(self, frame: Frame, own: Collection[str]) -> Problem | None:
        try:
            self._table.receive(frame, own)
        except Malformed as error:
            return Problem(SOURCE, frame.netdev, None, f"malformed LLDP frame: {error}")
        return None

    def _expire(self, netdevs: Iterable[Netdev], now: float) -> None:
        for netdev in netdevs:
            self._table.expire(netdev.name, now)

    def _missing(self, name: str, reasons: Mapping[str, NeighborReason]) -> NeighborReason:
        reason = self._table.missing(name)
        return reason if reason is NeighborReason.LINK_DOWN else reasons.get(name, reason)


def not_listened(netdevs: Iterable[Netdev]) -> Reception:
    """Return the reception of an observation without LLDP."""
    return Reception({}, {netdev.name: _reason_not_listened(netdev) for netdev in netdevs})


def _reason_not_listened(netdev: Netdev) -> NeighborReason:
    return NeighborReason.NOT_LISTENED if _has_link(netdev) else NeighborReason.LINK_DOWN


def _has_link(netdev: Netdev) -> bool:
    return netdev.operstate not in NO_LINK


def _links(netdevs: Iterable[Netdev]) -> Links:
    return {netdev.name: _has_link(netdev) for netdev in netdevs}


def _addresses(netdevs: Iterable[Netdev]) -> frozenset[str]:
    """Return this host's MAC addresses, which a NIC's firmware may announce."""
    return frozenset(address for netdev in netdevs for address in netdev.addresses)


def _received(receive: Receive, links: Links, problem: str) -> _Input:
    try:
        frames, missing = receive(links)
    except Unavailable as error:
        return _nothing_received(links, error)
    errors = {netdev: text for netdev, text in missing.items() if text is not None}
    return _Input(frames, errors, _reasons(missing), _problems(errors, problem))


def _nothing_received(links: Links, error: Unavailable) -> _Input:
    permitted = not isinstance(error.__cause__, PermissionError)
    reason = NeighborReason.UNAVAILABLE if permitted else NeighborReason.NOT_PERMITTED
    problem = Problem(SOURCE, SOURCE, None, str(error))
    return _Input([], {}, dict.fromkeys(links, reason), [problem])


def _reasons(missing: Mapping[str, str | None]) -> dict[str, NeighborReason]:
    """Return the reasons of netdevs without a socket; one being opened received nothing yet."""
    return {
        netdev: NeighborReason.SILENT if text is None else NeighborReason.UNAVAILABLE
        for netdev, text in missing.items()
    }


def _problems(errors: Mapping[str, str], problem: str) -> list[Problem]:
    return [Problem(SOURCE, netdev, None, problem.format(text)) for netdev, text in errors.items()]
