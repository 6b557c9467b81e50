"""The observed half of a Node, from its labels and annotation, for agent.verify.judge.verify.

A Node does not say why a port has no neighbor. One that counts nothing is DOWN; of any other the
reason is not known: a source that fails for longer than its hold removes the label, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.findings.finding import PortRef
from agent.findings.names import SeenDevice, guid, leaf_key, mac
from agent.findings.port_names import SeenPort
from agent.fleet.model import INFINIBAND
from agent.verify.seen import DOWN, FarEnd, Port, SeenNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.fleet.model import FarEnd as FleetEnd
    from agent.fleet.model import FleetNode, FleetPort

NO_LABEL = "the Node has no neighbor label of this port"
ACTIVE = "ACTIVE"
MAX_CACHED = 1 << 16  # devices and ports


def seen_node(node: FleetNode) -> SeenNode:
    """Return the observed half without the ports that left the bus."""
    ports = {port.interface: _port(port, node) for port in node.ports if not port.is_lost}
    return SeenNode(node.name, ports)


def _port(port: FleetPort, node: FleetNode) -> Port:
    device, number, leg = _parts(port.interface)
    end = port.far_end
    return Port(
        port.interface,
        device,
        number,
        leg,
        port.pci,
        _state(port),
        rate_gbps=port.gbps,
        far_ends=(_far_end(end, node.flavor),) if end else (),
        missing=None if end else NO_LABEL,
        link_layer="InfiniBand" if node.flavor == INFINIBAND else None,
    )


def _state(port: FleetPort) -> str | None:
    if port.far_end or port.gbps:
        return ACTIVE
    return DOWN if port.gbps == 0 else None


def with_names(
    node: FleetNode, names: Mapping[str, str], of_ports: Mapping[PortRef, str]
) -> FleetNode:
    """Return a node with a plan's names for the switches at ports, or of the keys of names."""
    ports = tuple(_named(port, node.name, names, of_ports) for port in node.ports)
    return node if ports == node.ports else replace(node, ports=ports)


def _named(
    port: FleetPort, node: str, names: Mapping[str, str], of_ports: Mapping[PortRef, str]
) -> FleetPort:
    end = port.far_end
    if not end:
        return port
    name = of_ports.get(PortRef(node, port.interface)) or names.get(leaf_key(end.device))
    return port._replace(far_end=end._replace(label=name, name=name)) if name else port


def names_of(port: FleetPort) -> list[str]:
    """Return the names by which an operator may call a port: interface, device, PCI address."""
    device, _, leg = _parts(port.interface)
    return [*filter(None, (port.interface, device, leg, port.pci))]


@lru_cache(MAX_CACHED)
def _parts(interface: str) -> tuple[str, int, str | None]:
    """Return RDMA device, port number and leg: of `mlx5_0-3`, and of `mlx5_bond_0-eth2`."""
    device, dash, tail = interface.partition("-")
    if not dash:
        return interface, 1, None
    return (device, int(tail), None) if tail.isdecimal() and len(tail) < 4 else (device, 1, tail)


def _far_end(end: FleetEnd, flavor: str | None) -> FarEnd:
    port_id = end.port_id or ""
    is_infiniband = flavor == INFINIBAND
    device = _seen_device(end.label, end.name, end.id)
    port = _seen_port(end.port_id, end.port_name, is_infiniband)
    return FarEnd(end.device, port_id, end.port_name, device, port)


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
    return SeenPort(tuple(dict.fromkeys(filter(None, (port_id, name)))), infiniband=is_infiniband)
