"""LLDP source: the neighbors of each Ethernet backend port.

Frames are received on the netdev of a port, or on the leg of its bond; agent/lldp/reception.py
returns the neighbors that they show. A port without a neighbor has a NeighborReason, which decides
whether its labels are held. A link that is down, an expired TTL and a shutdown frame prove that the
neighbor is gone. No frame so far, or no way to receive one (no permission, firmware that consumes
LLDP frames, a bridge that takes them, a netdev lent to a pod), proves nothing.

A netdev is lent to a pod if the PCI function is bound to a driver and has none, while the tree has
other netdevs: a network namespace has lo at least. A copied tree without class/net proves nothing.

Both functions of a Socket-Direct card receive the frames of its cable. Two far ends change no role;
they are a problem that is reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.host import Host
from agent.lldp.firmware import consumes_lldp
from agent.model import Absent, Link, LldpNeighbor, Neighbor, PortRole, Problem, Reading, Seen
from agent.reasons import NeighborReason
from agent.sources.cards import socket_direct_twin
from agent.sysfs import parse
from agent.sysfs.front_end import NET, OPEN_VSWITCH
from agent.sysfs.reader import Reader
from agent.text import visible

if TYPE_CHECKING:
    # It decodes frames, which a node without Ethernet backend ports does not load.
    from agent.lldp.reception import Reception
    from agent.sources.observe import Memories  # it imports the sources

Roles = Collection[PortRole]

SOURCE = "lldp"
MAX_TEXT = 64  # characters of a far end's text in a problem
MAX_MASTERS = 4  # above a netdev: a bond, and a bridge above that
# In group_fwd_mask bit N forwards frames to 01:80:c2:00:00:0N; 0E is the nearest bridge.
FORWARDS_LLDP = 1 << 0xE
INTERFACE_NAME, INTERFACE_ALIAS = 5, 1  # Port ID subtypes, IEEE Std 802.1AB-2016, Table 8-3


def read(host: Host, ports: tuple[PortRole, ...], _memories: Memories) -> Reading[tuple[Link, ...]]:
    """Receive LLDP frames and return a Link for each Ethernet backend port."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "Ethernet"]
    if not backend:
        return Reading(Absent("no Ethernet backend port"))
    pairs = list(_socket_direct(ports, backend))
    listened = [*backend, *(second for second, _ in pairs)]
    netdevs = [netdev for role in listened if (netdev := role.netdev)]
    if host.lldp_neighbors is None:
        from agent.lldp.reception import not_listened

        reception = not_listened(netdevs)
    else:
        reception = host.lldp_neighbors(netdevs, host.clock, partial(_deaf, host))
    links = tuple(_link(host, role, reception) for role in backend)
    return Reading(Seen(links), (*reception.problems, *_two_cables(host, pairs, reception)))


def _socket_direct(ports: Roles, backend: Roles) -> Iterator[tuple[PortRole, PortRole]]:
    """Yield the second function of each Socket-Direct card, with the first, which counts."""
    devices = list({role.device.name: role.device for role in ports}.values())
    for role in ports:
        if role.rule == "socket-direct" and role.port.link_layer == "Ethernet":
            twin = socket_direct_twin(role.device, devices)
            same = (other for other in backend if twin and other.device.name == twin.name)
            yield from ((role, first) for first in same if first.port.number == role.port.number)


def _two_cables(
    host: Host, pairs: Collection[tuple[PortRole, PortRole]], reception: Reception
) -> Iterator[Problem]:
    def far_end(role: PortRole) -> tuple[str | None, str | None] | None:
        netdev = role.netdev
        senders = reception.neighbors.get(netdev.name if netdev else "", ())
        neighbors = [named(sender.effective, host.name) for sender in senders[:1]]
        return (neighbors[0].device, neighbors[0].port_id) if neighbors else None

    for second, first in pairs:
        ends = [end for role in (first, second) if (end := far_end(role))]
        if len(set(ends)) == 2:
            here, there = (" ".join(visible(text or "-", MAX_TEXT) for text in end) for end in ends)
            text = (
                f"not counted, as the second function of the card of {first.interface}, but that is"
                f" linked to {here}, and this one to {there}: if these are two cables, name the"
                " backend with --backend-device"
            )
            yield Problem(SOURCE, second.interface, None, text)


def _link(host: Host, role: PortRole, reception: Reception) -> Link:
    """Return the neighbors of a port, or the reason for which it has none."""
    netdev = role.netdev
    name = netdev.name if netdev else None
    if name is None:
        device = role.device
        is_bare = bool(device.pci and device.driver) and not device.netdevs
        try:
            is_lent = is_bare and bool(Reader(host.root, SOURCE).names(NET))
        except Unavailable:
            is_lent = False
        reason = NeighborReason.NO_NETDEV if is_lent else NeighborReason.NETDEV_NOT_RECORDED
    elif senders := reception.neighbors.get(name):
        now = host.clock()
        neighbors = [
            named(sender.effective, host.name)._replace(
                age=round(max(now - sender.received_at, 0.0), 1)
            )
            for sender in senders
        ]
        return Link(role.interface, name, tuple(neighbors))
    else:
        reason = reception.missing[name]
    return Link(role.interface, name, missing=reason, hold=reason.holds)


def _deaf(host: Host, netdev: str) -> NeighborReason | None:
    """Return the reason for which no LLDP frame reaches a socket of this netdev."""
    if consumes_lldp(host.private_flags(netdev)):
        return NeighborReason.BLOCKED_BY_FIRMWARE
    is_taken = not host.all_ethertypes and is_taken_by_bridge(host, netdev)
    return NeighborReason.TAKEN_BY_BRIDGE if is_taken else None


def is_taken_by_bridge(host: Host, netdev: str) -> bool:
    """Return True if a socket for LLDP alone receives nothing on this netdev.

    A port of a Linux bridge passes LLDP frames to sockets unless the bridge, or the port alone, is
    set to forward them (net/bridge/br_input.c, br_handle_frame). Open vSwitch takes all frames.
    """
    reader = Reader(host.root, SOURCE)
    try:
        for _ in range(MAX_MASTERS):
            path = f"{NET}/{netdev}"
            master = (reader.link(f"{path}/master") or "").rpartition("/")[2]
            if not master or master == OPEN_VSWITCH:
                return bool(master)
            masks = f"{path}/brport/group_fwd_mask", f"{NET}/{master}/bridge/group_fwd_mask"
            if any((reader.value(mask, parse.number) or 0) & FORWARDS_LLDP for mask in masks):
                return True
            netdev = master
    except Unavailable:
        pass
    return False


def named(facts: LldpNeighbor, own: str | None) -> Neighbor:
    """Return the neighbor under the names that labels are encoded from; `own` is this host's name.

    A Port Description that names this host is what an operator wrote about the cable, and not the
    name of the switch's port. It does so by the name up to its first dot, as a word: `gpu-17`,
    `gpu-17-eth2`, `to gpu-17.example.com eth2` name the host gpu-17; `gpu-170`, `gpu-17-2` and
    `rack-gpu-17` do not.
    """
    if facts.port_id_subtype in {INTERFACE_NAME, INTERFACE_ALIAS}:
        port_name: str | None = facts.port_id
    else:
        port_name = facts.port_description
        if port_name and own:
            short = re.escape(own.partition(".")[0])
            word = rf"(?<![A-Za-z0-9-]){short}(?![A-Za-z0-9]|-[0-9])"
            if re.search(word, port_name, re.IGNORECASE):
                port_name = None
    return Neighbor(facts.system_name or facts.chassis_id, facts.port_id, port_name, facts)
