"""LLDP source: the neighbors of each Ethernet backend port.

Frames are received on the netdev of a port, or on the leg of its bond; agent/lldp/reception.py
returns the neighbors that they show. A port without a neighbor has a NeighborReason, which decides
whether its labels are held. A link that is down, an expired TTL and a shutdown frame prove that the
neighbor is gone. No frame so far, or no way to receive one (no permission, firmware that consumes
LLDP frames, a netdev lent to a pod), proves nothing.

A netdev is lent to a pod if the PCI function is bound to a driver and has none, while the tree has
other netdevs: a network namespace has lo at least. A copied tree without class/net proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.lldp.reception import not_listened
from agent.model import Absent, Link, Neighbor, Reading, Seen
from agent.reasons import NeighborReason
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.host import Host
    from agent.lldp.neighbors import Sender
    from agent.lldp.reception import Reception
    from agent.model import LldpNeighbor, Netdev, PortRole, RdmaDevice

SOURCE = "lldp"
NET = "sys/class/net"
INTERFACE_NAME, INTERFACE_ALIAS = 5, 1  # Port ID subtypes, IEEE Std 802.1AB-2016, Table 8-3


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Receive LLDP frames and return a Link for each Ethernet backend port."""
    backend = list(filter(_is_ethernet_backend, ports))
    if not backend:
        return Reading(Absent("no Ethernet backend port"))
    netdevs = [netdev for role in backend if (netdev := _netdev(role))]
    reception = _reception(host, netdevs)
    links = tuple(_link(host, role, reception) for role in backend)
    return Reading(Seen(links), reception.problems)


def _is_ethernet_backend(role: PortRole) -> bool:
    return role.backend and role.port.link_layer == "Ethernet"


def _netdev(role: PortRole) -> Netdev | None:
    """Return the netdev of a port; None if it has none in this tree."""
    return role.leg or role.port.netdev


def _reception(host: Host, netdevs: Collection[Netdev]) -> Reception:
    if host.lldp_neighbors is None:
        return not_listened(netdevs)
    return host.lldp_neighbors(netdevs, host.clock)


def _link(host: Host, role: PortRole, reception: Reception) -> Link:
    """Return the neighbors of a port, or the reason for which it has none."""
    netdev = _netdev(role)
    if netdev is None:
        return _without_neighbor(role.interface, None, _reason_without_netdev(host, role.device))
    if senders := reception.neighbors.get(netdev.name):
        return Link(role.interface, netdev.name, _neighbors(senders, host.clock()))
    reason = _reason(host, netdev.name, reception.missing[netdev.name])
    return _without_neighbor(role.interface, netdev.name, reason)


def _reason_without_netdev(host: Host, device: RdmaDevice) -> NeighborReason:
    is_bare = bool(device.pci and device.driver) and not device.netdevs
    is_lent = is_bare and _has_netdevs(host)
    return NeighborReason.NO_NETDEV if is_lent else NeighborReason.NETDEV_NOT_RECORDED


def _has_netdevs(host: Host) -> bool:
    """Return True if /sys/class/net lists any netdev."""
    try:
        return bool(Reader(host.root, SOURCE).names(NET))
    except Unavailable:
        return False


def _reason(host: Host, netdev: str, reason: NeighborReason) -> NeighborReason:
    """Return a more precise reason for a netdev without frames, if its driver has it."""
    if reason is NeighborReason.SILENT and _consumes_lldp(host.private_flags(netdev)):
        return NeighborReason.BLOCKED_BY_FIRMWARE
    return reason


def _without_neighbor(interface: str, netdev: str | None, reason: NeighborReason) -> Link:
    return Link(interface, netdev, missing=reason, hold=reason.holds)


def _consumes_lldp(flags: dict[str, bool]) -> bool:
    """Return True if NIC firmware consumes LLDP frames, by the private flags of i40e and ice."""
    return flags.get("disable-fw-lldp") is False or flags.get("fw-lldp-agent") is True


def _neighbors(senders: Collection[Sender], now: float) -> tuple[Neighbor, ...]:
    """Return the neighbors; a present one supersedes those of before the link came up."""
    present = [one for one in senders if one.confirmed and now <= one.expires_at]
    link_ups = max((one.link_ups for one in present), default=None)
    return tuple(_neighbor(one, now, superseded=_is_former(one, now, link_ups)) for one in senders)


def _is_former(sender: Sender, now: float, link_ups: int | None) -> bool:
    """Return True if a sender is kept for its grace only; None: no other is present."""
    return link_ups is not None and (sender.link_ups < link_ups or now > sender.expires_at)


def _neighbor(sender: Sender, now: float, *, superseded: bool) -> Neighbor:
    facts = sender.effective
    return Neighbor(
        device=facts.system_name or facts.chassis_id,
        port_id=facts.port_id,
        port_name=_port_name(facts),
        facts=facts,
        age=round(max(now - sender.received_at, 0.0), 1),
        superseded=superseded,
    )


def _port_name(facts: LldpNeighbor) -> str | None:
    """Return the Port ID if it is a name, else the Port Description."""
    if facts.port_id_subtype in {INTERFACE_NAME, INTERFACE_ALIAS}:
        return facts.port_id
    return facts.port_description
