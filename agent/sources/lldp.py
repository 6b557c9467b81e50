"""The LLDP source: who is at the far end of each Ethernet backend port.

Frames come in by the netdev of the port, or of the leg of its bond; what they mean over time is in agent/lldp/neighbors.py.
A netdev without a neighbour has its reason, and that decides whether the labels published last stay: nobody can be
heard (no permission, firmware that keeps LLDP to itself, a netdev lent to a pod), or nobody has spoken yet, is no proof
that nobody is there; a link that is down, a TTL that ran out and a goodbye are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import Malformed, Unavailable
from agent.model import Absent, Link, Neighbor, Problem, Reading, Seen
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.host import Host
    from agent.lldp.frame import Frame
    from agent.lldp.neighbors import Sender
    from agent.model import LldpNeighbor, Netdev, PortRole

SOURCE = "lldp"
NO_LINK = frozenset({"down", "lowerlayerdown", "notpresent"})  # RFC 2863, ifOperStatus
GONE = frozenset({"link-down", "expired", "shutdown"})  # nobody is there
PERMANENT_ADDRESS = "bonding_slave/perm_hwaddr"  # drivers/net/bonding/bond_sysfs_slave.c
INTERFACE_NAME, INTERFACE_ALIAS = 5, 1  # Port ID subtypes, IEEE Std 802.1AB-2016, Table 8-3


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Take in the frames that have come, and say who is where."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "Ethernet"]
    if not backend:
        return Reading(Absent("no Ethernet backend port"))
    netdevs = {
        role.interface: netdev for role in backend if (netdev := role.leg or role.port.netdev)
    }
    links_up = {netdev.name: netdev.operstate not in NO_LINK for netdev in netdevs.values()}
    for netdev in netdevs.values():
        host.neighbors.link(
            netdev.name, host.clock(), up=links_up[netdev.name], changes=netdev.carrier_changes
        )
    deaf, problems = _listen(host, links_up)
    links = tuple(
        _link(host, role.interface, netdevs.get(role.interface), deaf, host.clock())
        for role in backend
    )
    return Reading(Seen(links), tuple(problems))


def _listen(host: Host, netdevs: dict[str, bool]) -> tuple[dict[str, str], list[Problem]]:
    """Feed the table; which netdevs cannot be heard, by the word why, and what was wrong."""
    if host.frames is None:
        return dict.fromkeys(netdevs, "not-listened"), []
    try:
        frames, refused = host.frames(netdevs)
    except Unavailable as error:
        word = "not-permitted" if isinstance(error.__cause__, PermissionError) else "unavailable"
        return dict.fromkeys(netdevs, word), [Problem(SOURCE, SOURCE, None, str(error))]
    problems = [
        Problem(SOURCE, netdev, None, f"cannot be listened to: {text}")
        for netdev, text in refused.items()
    ]
    own = _own_addresses(Reader(host.root, SOURCE), netdevs)
    problems += dict.fromkeys(problem for frame in frames if (problem := _hear(host, frame, own)))
    return dict.fromkeys(refused, "unavailable"), problems


def _own_addresses(reader: Reader, netdevs: Iterable[str]) -> set[str]:
    """The MAC addresses of the netdevs themselves: a NIC's firmware may announce the NIC.

    The leg of a bond carries the bond's address, while its firmware knows the one it was made with.
    """
    found = set()
    for netdev in netdevs:
        with suppress(Unavailable):
            found |= {
                reader.text(f"sys/class/net/{netdev}/{file}")
                for file in ("address", PERMANENT_ADDRESS)
            }
    return {address.lower() for address in found if address}


def _hear(host: Host, frame: Frame, own: set[str]) -> Problem | None:
    try:
        host.neighbors.hear(frame, own)
    except Malformed as error:
        return Problem(SOURCE, frame.netdev, None, f"a frame makes no sense: {error}")
    return None


def _link(
    host: Host, interface: str, netdev: Netdev | None, deaf: dict[str, str], now: float
) -> Link:
    if netdev is None:  # lent to a pod, which has it in its own network namespace
        return Link(interface, None, missing="no-netdev", hold=True)
    heard, missing = host.neighbors.at(netdev.name, now)
    if heard:
        return Link(interface, netdev.name, tuple(_neighbor(one, now) for one in heard))
    if missing != "link-down":  # which needs no ears
        missing = deaf.get(netdev.name, missing)
    if missing == "silent" and _blocked(host.private_flags(netdev.name)):
        missing = "blocked-by-firmware"
    return Link(interface, netdev.name, missing=missing, hold=missing not in GONE)


def _blocked(flags: dict[str, bool]) -> bool:
    """Firmware that eats LLDP frames: i40e says so by `disable-fw-lldp` off, ice by `fw-lldp-agent` on."""
    return flags.get("disable-fw-lldp") is False or flags.get("fw-lldp-agent") is True


def _neighbor(heard: Sender, now: float) -> Neighbor:
    told = heard.known
    return Neighbor(
        device=told.system_name or told.chassis_id,
        port_id=told.port_id,
        port_name=_port_name(told),
        facts=told,
        age=round(max(now - heard.last, 0.0), 1),
    )


def _port_name(told: LldpNeighbor) -> str | None:
    """The Port ID where it is a name, else the Port Description."""
    return (
        told.port_id
        if told.port_id_subtype in {INTERFACE_NAME, INTERFACE_ALIAS}
        else told.port_description
    )
