"""The observed half: the backend ports of a node with the devices at their far ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.findings.names import SeenDevice
from agent.findings.port_names import SeenPort, twin_port
from agent.labels.values import failed_devices, links
from agent.model import LldpNeighbor, Seen

if TYPE_CHECKING:
    from agent.model import Neighbor, Observation

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
    from agent.output.document import is_suspect

    by_interface = {link.interface: link for link in links(observation)}
    ports: dict[str, Port] = {}
    for role in observation.backend:
        link = by_interface.get(role.interface)
        netdev = role.leg or role.port.netdev
        ports[role.interface] = Port(
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
            # without the one that a cable led to before it was moved
            far_ends=tuple(far_end(one) for one in link.neighbors if not one.superseded)
            if link
            else (),
            missing=link.missing if link else None,
            link_layer=role.port.link_layer,
        )
    others: set[str | None] = set()
    for role in observation.ports:
        if not role.backend:
            netdev = role.leg or role.port.netdev
            others |= {role.interface, role.device.name, role.device.pci}
            others |= {netdev.name} if netdev else set()
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    return SeenNode(
        name,
        ports,
        frozenset(filter(None, others)),
        frozenset([*failed_devices(observation), *observation.unbound]),
        frozenset(device.name for device in devices if device.excluded),
    )


def far_end(neighbor: Neighbor) -> FarEnd:
    """Return a neighbor in the form that names are compared in."""
    facts = neighbor.facts
    if isinstance(facts, LldpNeighbor):
        is_mac = facts.chassis_subtype == MAC_SUBTYPE
        chassis = () if is_mac else (facts.chassis_id,)
        names = (facts.system_name,) if facts.system_name else chassis
        device = SeenDevice(neighbor.device, names, macs=(facts.chassis_id,) if is_mac else ())
        texts = dict.fromkeys(filter(None, (neighbor.port_id, neighbor.port_name)))
        port = SeenPort(tuple(texts), facts.port_description)
    else:
        guids = tuple(dict.fromkeys(filter(None, (facts.node_guid, facts.sys_image_guid))))
        names = () if neighbor.device in guids else (neighbor.device,)
        description = facts.node_description or neighbor.last_description
        device = SeenDevice(neighbor.device, names, guids, description=description)
        is_twin = twin_port(facts.node_description)
        port = SeenPort((str(facts.port),), infiniband=True, twin_port=is_twin)
    return FarEnd(neighbor.device, neighbor.port_id, neighbor.port_name, device, port)
