"""Receive LLDP frames for an observation, and return the neighbors of its netdevs.

agent/lldp/neighbors.py evaluates the frames over time. A netdev without a neighbor has a
NeighborReason: that of the table, or, if nothing can be received on it, the reason for that. A
link that is down is visible without reception, so it comes first. A TTL that ends while nothing can
be received proves nothing, and proves nothing later.
"""

from __future__ import annotations

import math
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
Listen = Callable[[Links], Received]  # raises Unavailable
Clock = Callable[[], float]
# the reason why no frame reaches a netdev, such as firmware that consumes them; None: unknown
SilenceQuery = Callable[[str], NeighborReason | None]
LldpQuery = Callable[[Collection[Netdev], Clock, SilenceQuery], "Reception"]

SOURCE = "lldp"
# No frame arrived, or none that could be decoded
NO_FRAME = frozenset({NeighborReason.SILENT, NeighborReason.EXPIRED})
NO_LINK = frozenset({"down", "lowerlayerdown", "notpresent"})  # RFC 2863, ifOperStatus


class Reception(NamedTuple):
    """The neighbors of the netdevs of one observation, and the frames received for it."""

    neighbors: Mapping[str, tuple[Sender, ...]]  # by netdev, the selected one first
    missing: Mapping[str, NeighborReason]  # by netdev; of use for a netdev without neighbors
    problems: tuple[Problem, ...] = ()
    frames: tuple[Frame, ...] = ()
    errors: Mapping[str, str] = {}  # netdev -> error of its packet socket


class LldpNeighbors:
    """The LLDP neighbors of netdevs; see Host.lldp_neighbors.

    `table` keeps them from one observation to the next. `problem` is the text of the problem of a
    netdev on which nothing is received, around the error. `woke_at` returns the time at which the
    process last ran again after it had not run for a time.
    """

    def __init__(
        self,
        listen: Listen,
        table: NeighborTable | None = None,
        *,
        problem: str = "no packet socket for LLDP: {}",
        woke_at: Clock = lambda: -math.inf,
    ) -> None:
        self.listen = listen
        self._table = table or NeighborTable()
        self._problem = problem
        self._woke_at = woke_at

    def __call__(
        self,
        netdevs: Collection[Netdev],
        clock: Clock,
        silence: SilenceQuery = lambda _netdev: None,
    ) -> Reception:
        """Receive; return the neighbors by `clock`, which is read before and after reception.

        `silence` is called for netdevs without a neighbor.
        """
        table, now = self._table, clock()
        for netdev in netdevs:
            up, changes = _has_link(netdev), netdev.carrier_changes
            table.set_link(netdev.name, now, up=up, changes=changes)
        links = {netdev.name: _has_link(netdev) for netdev in netdevs}
        frames: list[Frame] = []
        errors: dict[str, str] = {}
        try:
            frames, without = self.listen(links)
        except Unavailable as error:
            permitted = not isinstance(error.__cause__, PermissionError)
            reason = NeighborReason.UNAVAILABLE if permitted else NeighborReason.NOT_PERMITTED
            reasons = dict.fromkeys(links, reason)
            problems = [Problem(SOURCE, SOURCE, None, str(error))]
        else:
            # a socket that is being opened has received nothing yet, which is no error
            errors = {name: text for name, text in without.items() if text is not None}
            reasons = dict.fromkeys(without, NeighborReason.SILENT)
            reasons |= dict.fromkeys(errors, NeighborReason.UNAVAILABLE)
            problems = [
                Problem(SOURCE, name, None, self._problem.format(text))
                for name, text in errors.items()
            ]
        # this host's MAC addresses, which a NIC's firmware may announce
        own = frozenset(address for netdev in netdevs for address in netdev.addresses)
        for frame in frames:
            try:
                table.receive(frame, own)
            except Malformed as error:
                table.refuse(frame, str(error))
                problems.append(_refused(frame.netdev, str(error)))
        now = clock()
        table.woke(self._woke_at())
        neighbors, missing = {}, {}
        for name in (netdev.name for netdev in netdevs):
            table.expire(name, now)
            neighbors[name] = table.neighbors(name)
            missing[name], fault = self._missing(name, now, reasons.get(name), silence)
            problems += [_refused(name, fault)] if fault else []
        once = tuple(dict.fromkeys(problems))
        return Reception(neighbors, missing, once, tuple(frames), errors)

    def _missing(
        self, name: str, now: float, socket: NeighborReason | None, silence: SilenceQuery
    ) -> tuple[NeighborReason, str]:
        """Return the reason why a netdev has no neighbor, and why its frames are refused.

        `socket` is the reason for which its socket receives nothing.
        """
        table, reason, fault = self._table, self._table.missing(name), ""
        if reason is NeighborReason.LINK_DOWN:
            return reason, ""
        obstacle = socket
        if (obstacle or reason) in NO_FRAME and not table.neighbors(name):
            fault = table.refused(name, now)
            obstacle = NeighborReason.MALFORMED if fault else obstacle or silence(name)
        if obstacle:
            table.unheard(name)
        return obstacle or reason, fault


def _refused(netdev: str, fault: str) -> Problem:
    return Problem(SOURCE, netdev, None, f"malformed LLDP frame: {fault}")


def not_listened(netdevs: Iterable[Netdev]) -> Reception:
    """Return the reception of an observation without LLDP."""
    off, down = NeighborReason.NOT_LISTENED, NeighborReason.LINK_DOWN
    return Reception({}, {netdev.name: off if _has_link(netdev) else down for netdev in netdevs})


def _has_link(netdev: Netdev) -> bool:
    return netdev.operstate not in NO_LINK
