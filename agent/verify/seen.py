"""The observed half: the backend ports of a node with the devices at their far ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.findings.names import SeenDevice
from agent.findings.port_names import SeenPort, twin_port
from agent.labels.values import failed_devices, links
from agent.model import IbNeighbor, LldpNeighbor, Seen

if TYPE_CHECKING:
    from agent.model import Link, Neighbor, Observation, PortRole

MAC_SUBTYPE = 4  # Chassis ID subtype "MAC address", IEEE Std 802.1AB-2016, Table 8-2
DOWN = "DOWN"


class FarEnd(NamedTuple):
    """One neighbor of a port: its label texts, and its description of itself."""

    device: str
    port_id: str
    port_name: str | None
    seen_device: SeenDevice
    seen_port: SeenPort

    @property
    def port(self) -> str:
        """The port's name, else its ID."""
        return self.port_name or self.port_id


class Port(NamedTuple):
    """One backend interface."""

    interface: str
    device: str = ""  # the RDMA device
    number: int = 1
    netdev: str | None = None
    pci: str | None = None
    state: str | None = None
    phys_state: str | None = None
    rate_gbps: float | None = None  # what it counts; 0: not ACTIVE, or the standby leg of a bond
    is_suspect: bool = False  # the kernel may not know the speed
    kind: tuple[str | None, str | None] = (None, None)  # hca_type, board_id
    far_ends: tuple[FarEnd, ...] = ()  # the selected one first
    missing: str | None = None  # why there is none, a NeighborReason
    link_layer: str | None = None

    @property
    def is_down(self) -> bool:
        """True if the port has no link."""
        return self.state == DOWN


class SeenNode(NamedTuple):
    """The observed half of one node."""

    name: str
    ports: dict[str, Port]  # by interface, in the order of the observation
    others: frozenset[str] = frozenset()  # names of devices and netdevs that are no backend
    unread: frozenset[str] = frozenset()  # RDMA devices that could not be read, or have no driver
    excluded: frozenset[str] = frozenset()  # RDMA devices that --exclude-device names


def seen_node(observation: Observation, name: str) -> SeenNode:
    """Return the observed half of an observation."""
    by_interface = {link.interface: link for link in links(observation)}
    ports = [_port(role, by_interface.get(role.interface)) for role in observation.backend]
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    return SeenNode(
        name,
        {port.interface: port for port in ports},
        _others(observation),
        frozenset([*failed_devices(observation), *observation.unbound]),
        frozenset(device.name for device in devices if device.excluded),
    )


def _others(observation: Observation) -> frozenset[str]:
    """Return the names of the ports that are no backend: devices, netdevs, PCI addresses."""
    names: set[str | None] = set()
    for role in observation.ports:
        if not role.backend:
            netdev = role.leg or role.port.netdev
            names |= {role.interface, role.device.name, role.device.pci}
            names |= {netdev.name} if netdev else set()
    return frozenset(filter(None, names))


def _port(role: PortRole, link: Link | None) -> Port:
    from agent.output.document import is_suspect

    netdev = role.leg or role.port.netdev
    return Port(
        interface=role.interface,
        device=role.device.name,
        number=role.port.number,
        netdev=netdev.name if netdev else None,
        pci=role.device.pci,
        state=role.port.state,
        phys_state=role.port.phys_state,
        rate_gbps=role.counted_gbps,
        is_suspect=is_suspect(role),
        kind=(role.device.hca_type, role.device.board_id),
        far_ends=_far_ends(link) if link else (),
        missing=link.missing if link else None,
        link_layer=role.port.link_layer,
    )


def _far_ends(link: Link) -> tuple[FarEnd, ...]:
    """Return the neighbors without the one that a cable led to before it was moved."""
    return tuple(far_end(one) for one in link.neighbors if not one.superseded)


def far_end(neighbor: Neighbor) -> FarEnd:
    """Return a neighbor in the form that names are compared in."""
    facts = neighbor.facts
    if isinstance(facts, LldpNeighbor):
        device, port = _lldp_device(neighbor, facts), _lldp_port(neighbor, facts)
    else:
        device, port = _ib_device(neighbor, facts), _ib_port(facts)
    return FarEnd(neighbor.device, neighbor.port_id, neighbor.port_name, device, port)


def _lldp_device(neighbor: Neighbor, facts: LldpNeighbor) -> SeenDevice:
    is_mac = facts.chassis_subtype == MAC_SUBTYPE
    chassis = () if is_mac else (facts.chassis_id,)
    names = (facts.system_name,) if facts.system_name else chassis
    return SeenDevice(neighbor.device, names, macs=(facts.chassis_id,) if is_mac else ())


def _lldp_port(neighbor: Neighbor, facts: LldpNeighbor) -> SeenPort:
    texts = dict.fromkeys(filter(None, (neighbor.port_id, neighbor.port_name)))
    return SeenPort(tuple(texts), facts.port_description)


def _ib_device(neighbor: Neighbor, facts: IbNeighbor) -> SeenDevice:
    guids = tuple(dict.fromkeys(filter(None, (facts.node_guid, facts.sys_image_guid))))
    names = () if neighbor.device in guids else (neighbor.device,)
    return SeenDevice(neighbor.device, names, guids, description=_description(neighbor, facts))


def _description(neighbor: Neighbor, facts: IbNeighbor) -> str | None:
    return facts.node_description or neighbor.last_description


def _ib_port(facts: IbNeighbor) -> SeenPort:
    is_twin = twin_port(facts.node_description)
    return SeenPort((str(facts.port),), infiniband=True, twin_port=is_twin)
