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

from collections.abc import Collection

from agent.errors import Unavailable
from agent.host import Host
from agent.lldp.neighbors import Sender
from agent.lldp.reception import Reception, not_listened
from agent.model import Absent, Link, Neighbor, PortRole, RdmaDevice, Reading, Seen
from agent.reasons import NeighborReason
from agent.sysfs.reader import Reader

SOURCE = "lldp"
NET = "sys/class/net"
INTERFACE_NAME, INTERFACE_ALIAS = 5, 1  # Port ID subtypes, IEEE Std 802.1AB-2016, Table 8-3


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Receive LLDP frames and return a Link for each Ethernet backend port."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "Ethernet"]
    if not backend:
        return Reading(Absent("no Ethernet backend port"))
    netdevs = [netdev for role in backend if (netdev := role.leg or role.port.netdev)]
    if host.lldp_neighbors is None:
        reception = not_listened(netdevs)
    else:
        reception = host.lldp_neighbors(netdevs, host.clock)
    links = tuple(_link(host, role, reception) for role in backend)
    return Reading(Seen(links), reception.problems)


def _link(host: Host, role: PortRole, reception: Reception) -> Link:
    """Return the neighbors of a port, or the reason for which it has none."""
    netdev = role.leg or role.port.netdev
    name = netdev.name if netdev else None
    if name is None:
        reason = _reason_without_netdev(host, role.device)
    elif senders := reception.neighbors.get(name):
        return Link(role.interface, name, _neighbors(senders, host.clock()))
    else:
        reason = reception.missing[name]
        if reason is NeighborReason.SILENT and _consumes_lldp(host.private_flags(name)):
            reason = NeighborReason.BLOCKED_BY_FIRMWARE
    return Link(role.interface, name, missing=reason, hold=reason.holds)


def _reason_without_netdev(host: Host, device: RdmaDevice) -> NeighborReason:
    """Return NO_NETDEV for a netdev that is lent to a pod."""
    is_bare = bool(device.pci and device.driver) and not device.netdevs
    try:
        is_lent = is_bare and bool(Reader(host.root, SOURCE).names(NET))
    except Unavailable:
        is_lent = False
    return NeighborReason.NO_NETDEV if is_lent else NeighborReason.NETDEV_NOT_RECORDED


def _consumes_lldp(flags: dict[str, bool]) -> bool:
    """Return True if NIC firmware consumes LLDP frames, by the private flags of i40e and ice."""
    return flags.get("disable-fw-lldp") is False or flags.get("fw-lldp-agent") is True


def _neighbors(senders: Collection[Sender], now: float) -> tuple[Neighbor, ...]:
    """Return the neighbors; a present one supersedes those of before the link came up.

    It supersedes as well one that has expired, and is kept for its grace only.
    """
    present = [one for one in senders if one.confirmed and now <= one.expires_at]
    link_ups = max((one.link_ups for one in present), default=0)
    return tuple(
        _neighbor(
            one,
            now,
            superseded=bool(present) and (one.link_ups < link_ups or now > one.expires_at),
        )
        for one in senders
    )


def _neighbor(sender: Sender, now: float, *, superseded: bool) -> Neighbor:
    facts = sender.effective
    is_named = facts.port_id_subtype in {INTERFACE_NAME, INTERFACE_ALIAS}
    return Neighbor(
        device=facts.system_name or facts.chassis_id,
        port_id=facts.port_id,
        port_name=facts.port_id if is_named else facts.port_description,
        facts=facts,
        age=round(max(now - sender.received_at, 0.0), 1),
        superseded=superseded,
    )
