"""Receive LLDP frames for an observation, and return the neighbors of its netdevs.

agent/lldp/neighbors.py evaluates the frames over time. A netdev without a neighbor has a
NeighborReason: that of the table, or, if nothing can be received on it, the reason for that. A
link that is down is visible without reception, so it comes first. A TTL that ends while nothing can
be received proves nothing, and proves nothing later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.check import AS_ROOT, Check, Step, Surroundings, absent, missing, there
from agent.errors import Malformed, Unavailable
from agent.grouped import grouped
from agent.lldp.frame import Frame
from agent.lldp.neighbors import NeighborTable, Sender
from agent.model import Netdev, Observation, Problem, Seen, ethernet_netdevs
from agent.reasons import NeighborReason
from agent.text import listed

Links = Mapping[str, bool]  # netdev -> True if it has a link
# the frames received, and per netdev without a packet socket the error, or None while it is
# being opened
Received = tuple[list[Frame], Mapping[str, str | None]]
Receive = Callable[[Links], Received]  # raises Unavailable
Clock = Callable[[], float]
# the reason why no frame reaches a netdev, such as firmware that consumes them; None: unknown
SilenceQuery = Callable[[str], NeighborReason | None]
LldpQuery = Callable[[Collection[Netdev], Clock, SilenceQuery], "Reception"]

SOURCE = "lldp"
PERMISSION = Step.PRIVILEGE, f"{AS_ROOT} (in a Pod: the capability NET_RAW)"
FAULTS = {  # of a packet socket
    "EPERM": PERMISSION,
    "EACCES": PERMISSION,
    "EAFNOSUPPORT": (Step.MODULE, "modprobe af_packet"),
}
# Driver flags by which firmware consumes LLDP frames, with the value for it
FIRMWARE = {"disable-fw-lldp": False, "fw-lldp-agent": True}
MLX5 = "mlx5_core"
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
        receive: Receive,
        table: NeighborTable | None = None,
        *,
        problem: str = "no packet socket for LLDP: {}",
        woke_at: Clock = lambda: -math.inf,
    ) -> None:
        self.receive = receive
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
            frames, without = self.receive(links)
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


def consumes_lldp(flags: Mapping[str, bool]) -> bool:
    """Return True if NIC firmware consumes LLDP frames, by the private flags of i40e and ice."""
    return any(flags.get(flag) is consumes for flag, consumes in FIRMWARE.items())


# The checks of `bwagent doctor`: packet sockets, and NICs that pass the frames on


def hints(observation: Observation) -> Iterator[Problem]:
    """Report ConnectX ports without an LLDP frame: their firmware may keep the frames.

    Only NVIDIA's own tools show whether it does.
    """
    links = observation.lldp.value if isinstance(observation.lldp, Seen) else ()
    silent = {link.interface for link in links if link.missing == NeighborReason.SILENT}
    roles = [
        role
        for role in observation.backend
        if role.interface in silent and role.device.driver == MLX5
    ]
    if roles:
        names = listed([role.interface for role in roles])
        text = (
            f"{names} silent: if the switch sends LLDP frames, firmware may keep them:"
            f" mlxconfig -d {roles[0].device.pci} query LLDP_NB_RX_MODE_P1 LLDP_NB_DCBX_P1"
        )
        yield Problem("lldp", "lldp", None, text)


def checks(around: Surroundings) -> Iterator[Check]:
    """Open the packet socket of each Ethernet backend port, and read the flags of its driver."""
    netdevs = ethernet_netdevs(around.observation.backend)
    if not netdevs:
        yield absent("no Ethernet backend port with a network device")
        return
    yield from _sockets(around, netdevs) if around.is_live else _received(around)
    for name in netdevs:
        flags = around.private_flags(name)
        for flag, consumes in FIRMWARE.items():
            if flags.get(flag) is consumes:
                value = "off" if consumes else "on"
                text = f"LLDP frames of {name}, which the NIC's firmware consumes"
                command = f"ethtool --set-priv-flags {name} {flag} {value}"
                yield missing(Step.FIRMWARE, text, command)
    for hint in hints(around.observation):
        yield absent(hint.text)


def _sockets(around: Surroundings, netdevs: list[str]) -> Iterator[Check]:
    """Open the packet sockets."""
    by_fault = grouped(netdevs, around.lldp_fault)
    if opened := by_fault.pop(None, None):
        yield there(f"packet sockets: {len(opened)} of {len(netdevs)}")
    for fault, without in by_fault.items():
        step, command = FAULTS.get(fault or "", (Step.DRIVER, f"ip link show {without[0]}"))
        yield missing(step, f"packet socket of {', '.join(without)}: {fault}", command)


def _received(around: Surroundings) -> Iterator[Check]:
    """Count the ports on which a capture has a neighbor."""
    outcome = around.observation.lldp
    links = outcome.value if isinstance(outcome, Seen) else ()
    answered = sum(bool(link.neighbors) for link in links)
    yield there(f"Ethernet backend ports with a neighbor: {answered} of {len(links)}")
