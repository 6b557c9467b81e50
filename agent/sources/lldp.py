"""LLDP source: the neighbors of each Ethernet backend port.

Frames are received on the netdev of a port, or on the leg of its bond; agent/lldp/neighbors.py
evaluates them over time. A port without a neighbor has a NeighborReason, which decides whether its
labels are held. A link that is down, an expired TTL and a shutdown frame prove that the neighbor is
gone. No frame so far, or no way to receive one (no permission, firmware that consumes LLDP frames,
a netdev lent to a pod), proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed, Unavailable
from agent.model import Absent, Link, Neighbor, NeighborReason, Problem, Reading, Seen

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.host import Host
    from agent.lldp.frame import Frame
    from agent.lldp.neighbors import Sender
    from agent.model import LldpNeighbor, Netdev, PortRole

SOURCE = "lldp"
NO_LINK = frozenset({"down", "lowerlayerdown", "notpresent"})  # RFC 2863, ifOperStatus
INTERFACE_NAME, INTERFACE_ALIAS = 5, 1  # Port ID subtypes, IEEE Std 802.1AB-2016, Table 8-3


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Take in the frames received and return a Link for each Ethernet backend port."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "Ethernet"]
    if not backend:
        return Reading(Absent("no Ethernet backend port"))
    netdevs = {
        role.interface: netdev for role in backend if (netdev := role.leg or role.port.netdev)
    }
    links_up = {netdev.name: netdev.operstate not in NO_LINK for netdev in netdevs.values()}
    for netdev in netdevs.values():
        host.neighbors.set_link(
            netdev.name, host.clock(), up=links_up[netdev.name], changes=netdev.carrier_changes
        )
    # A NIC's firmware may announce the NIC.
    own = frozenset(address for netdev in netdevs.values() for address in netdev.addresses)
    not_received, problems = _receive(host, links_up, own)
    links = tuple(
        _link(host, role.interface, netdevs.get(role.interface), not_received) for role in backend
    )
    return Reading(Seen(links), tuple(problems))


def _receive(
    host: Host, netdevs: Mapping[str, bool], own: Collection[str]
) -> tuple[dict[str, NeighborReason], list[Problem]]:
    """Update the neighbor table; return the reasons of the netdevs without reception.

    `own` are the MAC addresses of this host's backend netdevs, whose frames are ignored.
    """
    if host.frames is None:
        return dict.fromkeys(netdevs, NeighborReason.NOT_LISTENED), []
    try:
        frames, missing = host.frames(netdevs)
    except Unavailable as error:
        permitted = not isinstance(error.__cause__, PermissionError)
        reason = NeighborReason.UNAVAILABLE if permitted else NeighborReason.NOT_PERMITTED
        return dict.fromkeys(netdevs, reason), [Problem(SOURCE, SOURCE, None, str(error))]
    problems = [
        Problem(SOURCE, netdev, None, f"no packet socket for LLDP: {text}")
        for netdev, text in missing.items()
        if text is not None
    ]
    problems += dict.fromkeys(filter(None, (_take_in(host, frame, own) for frame in frames)))
    # A socket that is being opened has received nothing yet.
    reasons = {
        netdev: NeighborReason.SILENT if text is None else NeighborReason.UNAVAILABLE
        for netdev, text in missing.items()
    }
    return reasons, problems


def _take_in(host: Host, frame: Frame, own: Collection[str]) -> Problem | None:
    try:
        host.neighbors.receive(frame, own)
    except Malformed as error:
        return Problem(SOURCE, frame.netdev, None, f"malformed LLDP frame: {error}")
    return None


def _link(
    host: Host,
    interface: str,
    netdev: Netdev | None,
    not_received: Mapping[str, NeighborReason],
) -> Link:
    """Return the neighbors of a port, or its reason; `netdev` is None if it was lent to a pod.

    A pod has the netdev in its own network namespace.
    """
    if netdev is None:
        return _without_neighbor(interface, None, NeighborReason.NO_NETDEV)
    now = host.clock()
    host.neighbors.expire(netdev.name, now)
    senders = host.neighbors.neighbors(netdev.name)
    if senders:
        return Link(interface, netdev.name, tuple(_neighbor(sender, now) for sender in senders))
    reason = host.neighbors.missing(netdev.name)
    if reason is not NeighborReason.LINK_DOWN:  # which sysfs shows without reception
        reason = not_received.get(netdev.name, reason)
    if reason is NeighborReason.SILENT and _consumes_lldp(host.private_flags(netdev.name)):
        reason = NeighborReason.BLOCKED_BY_FIRMWARE
    return _without_neighbor(interface, netdev.name, reason)


def _without_neighbor(interface: str, netdev: str | None, reason: NeighborReason) -> Link:
    return Link(interface, netdev, missing=reason, hold=reason.holds)


def _consumes_lldp(flags: dict[str, bool]) -> bool:
    """Return True if NIC firmware consumes LLDP frames, by the private flags of i40e and ice."""
    return flags.get("disable-fw-lldp") is False or flags.get("fw-lldp-agent") is True


def _neighbor(sender: Sender, now: float) -> Neighbor:
    facts = sender.effective
    return Neighbor(
        device=facts.system_name or facts.chassis_id,
        port_id=facts.port_id,
        port_name=_port_name(facts),
        facts=facts,
        age=round(max(now - sender.received_at, 0.0), 1),
    )


def _port_name(facts: LldpNeighbor) -> str | None:
    """Return the Port ID if it is a name, else the Port Description."""
    if facts.port_id_subtype in {INTERFACE_NAME, INTERFACE_ALIAS}:
        return facts.port_id
    return facts.port_description
