"""Receive LLDP frames for an observation, and return the neighbors of its netdevs.

agent/lldp/neighbors.py evaluates the frames over time. A netdev without a neighbor has a
NeighborReason: that of the table, or, if nothing can be received on it, the reason for that. A
link that is down is visible without reception, so it comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from agent.errors import Malformed, Unavailable
from agent.lldp.frame import Frame
from agent.lldp.neighbors import NeighborTable, Sender
from agent.model import Netdev, Problem
from agent.reasons import NeighborReason

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
        self._problem = problem

    def __call__(self, netdevs: Collection[Netdev], clock: Clock) -> Reception:
        """Receive; return the neighbors by `clock`, which is read before and after reception."""
        table, now = self._table, clock()
        for netdev in netdevs:
            up, changes = _has_link(netdev), netdev.carrier_changes
            table.set_link(netdev.name, now, up=up, changes=changes)
        frames, errors, reasons, problems = self._received(netdevs)
        # this host's MAC addresses, which a NIC's firmware may announce
        own = frozenset(address for netdev in netdevs for address in netdev.addresses)
        for frame in frames:
            try:
                table.receive(frame, own)
            except Malformed as error:
                problems.append(
                    Problem(SOURCE, frame.netdev, None, f"malformed LLDP frame: {error}")
                )
        now = clock()
        neighbors, missing = {}, {}
        for name in (netdev.name for netdev in netdevs):
            table.expire(name, now)
            neighbors[name], missing[name] = table.neighbors(name), table.missing(name)
            if missing[name] is not NeighborReason.LINK_DOWN:
                missing[name] = reasons.get(name, missing[name])
        once = tuple(dict.fromkeys(problems))
        return Reception(neighbors, missing, once, tuple(frames), errors)

    def _received(
        self, netdevs: Collection[Netdev]
    ) -> tuple[list[Frame], dict[str, str], dict[str, NeighborReason], list[Problem]]:
        """Return frames, errors of sockets, reasons where nothing is received, and problems.

        A socket that is being opened has received nothing yet, which is no error.
        """
        links = {netdev.name: _has_link(netdev) for netdev in netdevs}
        try:
            frames, missing = self.receive(links)
        except Unavailable as error:
            permitted = not isinstance(error.__cause__, PermissionError)
            reason = NeighborReason.UNAVAILABLE if permitted else NeighborReason.NOT_PERMITTED
            problem = Problem(SOURCE, SOURCE, None, str(error))
            return [], {}, dict.fromkeys(links, reason), [problem]
        errors = {name: text for name, text in missing.items() if text is not None}
        reasons = dict.fromkeys(missing, NeighborReason.SILENT)
        reasons |= dict.fromkeys(errors, NeighborReason.UNAVAILABLE)
        problems = [
            Problem(SOURCE, name, None, self._problem.format(text)) for name, text in errors.items()
        ]
        return frames, errors, reasons, problems


def not_listened(netdevs: Iterable[Netdev]) -> Reception:
    """Return the reception of an observation without LLDP."""
    silent, down = NeighborReason.NOT_LISTENED, NeighborReason.LINK_DOWN
    return Reception({}, {one.name: silent if _has_link(one) else down for one in netdevs})


def _has_link(netdev: Netdev) -> bool:
    return netdev.operstate not in NO_LINK
