"""The observed half of a Node, from its labels and annotation, for agent.cabling.judge.verify.

A Node does not say why a port has no neighbor. A port that counts nothing is DOWN; of any other the
reason is not known: a source that fails for longer than its hold removes the label, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from agent.cabling.finding import PortRef
from agent.cabling.names import SeenDevice, SeenPort, guid, leaf_key, mac
from agent.cabling.seen import DOWN, Port, SeenEnd, SeenNode
from agent.fleet.model import INFINIBAND, FleetNode, FleetPort

NO_LABEL = "the Node has no neighbor label of this port"
ACTIVE = "ACTIVE"
MAX_CACHED = 1 << 16  # devices and ports


def seen_node(node: FleetNode) -> SeenNode:
    """Return the observed half without the ports that left the bus."""
    ports: dict[str, Port] = {}
    is_infiniband = node.flavor == INFINIBAND
    for port in node.ports:
        if port.is_lost:
            continue
        device, number, leg = _parts(port.interface)
        end, state = port.far_end or port.station, DOWN if port.gbps == 0 else None
        far_ends: tuple[SeenEnd, ...] = ()
        if end:
            seen = _seen_device(end.label, end.name, end.id)
            of_port = _seen_port(end.port_id, end.port_name, is_infiniband)
            port_id = end.port_id or ""
            far_end = SeenEnd(end.label, port_id, end.port_name, end.id, end.name, seen, of_port)
            far_ends = (far_end,)
        ports[port.interface] = Port(
            port.interface,
            device,
            number,
            port.netdev or leg,
            port.pci,
            ACTIVE if end or port.gbps else state,
            rate_gbps=port.gbps,
            far_ends=far_ends,
            missing=None if end else NO_LABEL,
            link_layer="InfiniBand" if is_infiniband else None,
        )
    lost = {port.interface: port.pci for port in node.ports if port.is_lost and port.pci}
    return SeenNode(node.name, ports, former=lost, speed_gbps=node.speed_gbps)


def with_names(
    node: FleetNode, names: Mapping[str, str], of_ports: Mapping[PortRef, str]
) -> FleetNode:
    """Return a node with a plan's names for the switches at ports, or of the keys of names."""
    ports = []
    for port in node.ports:
        end = port.far_end
        if end:
            of_port = of_ports.get(PortRef(node.name, port.interface))
            if name := of_port or names.get(leaf_key(end.device)):
                end = end._replace(label=name, name=name)
        ports.append(port._replace(far_end=end))
    return replace(node, ports=tuple(ports))


def names_of(port: FleetPort) -> list[str]:
    """Return the names of a port for an operator: interface, device, netdev, PCI address."""
    device, _, leg = _parts(port.interface)
    return [*filter(None, (port.interface, device, port.netdev or leg, port.pci))]


@lru_cache(MAX_CACHED)
def _parts(interface: str) -> tuple[str, int, str | None]:
    """Return RDMA device, port number and leg: of `mlx5_0-3`, and of `mlx5_bond_0-eth2`."""
    device, dash, tail = interface.partition("-")
    if not dash:
        return interface, 1, None
    return (device, int(tail), None) if tail.isdecimal() and len(tail) < 4 else (device, 1, tail)


@lru_cache(MAX_CACHED)
def _seen_device(label: str, name: str | None, identity: str | None) -> SeenDevice:
    """Return the names and addresses of a switch; its label alone is a name, or an address."""
    addresses = [text for text in (identity, label) if text]
    guids = dict.fromkeys(filter(None, map(guid, addresses)))
    macs = dict.fromkeys(filter(None, map(mac, addresses)))
    is_address = bool(guid(label) or mac(label))
    names = (name,) if name else () if is_address else (label,)
    return SeenDevice(name or label, names, tuple(guids), tuple(macs))


@lru_cache(MAX_CACHED)
def _seen_port(port_id: str | None, name: str | None, is_infiniband: bool) -> SeenPort:
    """Return the names of a port of a switch."""
    return SeenPort(tuple(dict.fromkeys(filter(None, (port_id, name)))), infiniband=is_infiniband)
