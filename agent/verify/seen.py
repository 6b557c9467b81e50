"""The observed half: the backend ports of a node with the devices at their far ends."""

from __future__ import annotations

from typing import NamedTuple

from agent.findings.names import SeenDevice
from agent.findings.port_names import SeenPort, twin_port
from agent.memory import Known
from agent.model import LldpNeighbor, Neighbor, Observation, Seen
from agent.sources.interfaces import is_unread

MAC_SUBTYPE = 4  # Chassis ID subtype "MAC address", IEEE Std 802.1AB-2016, Table 8-2
DOWN = "DOWN"


class SeenEnd(NamedTuple):
    """The switch port at the far end of a cable, as a node observes it, or as its labels have it.

    `switch` is equal for two ports of one switch; names are for people.
    """

    label: str  # of a Node the value of its label: encoded, perhaps hashed; else the label's text
    port_id: str | None = None  # raw, but for that of a label that the annotation does not explain
    port_name: str | None = None
    id: str | None = None  # of a Node: switch node GUID (16 hex digits) or LLDP Chassis ID
    name: str | None = None  # the name alone (`L90.1.3` of a NodeDescription), or the System Name
    seen_device: SeenDevice = SeenDevice("")  # its description of itself, to be compared
    seen_port: SeenPort = SeenPort(())

    @property
    def device(self) -> str:
        """The name to show: unaltered if it is known, else that of the label."""
        return self.name or self.label

    @property
    def switch(self) -> str:
        """The identity of the switch."""
        return self.id or self.label

    @property
    def port(self) -> str | None:
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
    far_ends: tuple[SeenEnd, ...] = ()  # the selected one first
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
    speed_gbps: float | None = None  # the sum in the label of a Node; None: not known


def seen_node(observation: Observation, known: Known, name: str) -> SeenNode:
    """Return the observed half of an observation."""
    from agent.output.document import is_suspect

    by_interface = {link.interface: link for link in observation.links}
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
            far_ends=tuple(map(far_end, link.neighbors)) if link else (),
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
    unread = [device.name for device in devices if is_unread(device)]
    unread += [fact.interface for fact in known.unbound]
    return SeenNode(
        name,
        ports,
        frozenset(filter(None, others)),
        frozenset(unread),
        frozenset(device.name for device in devices if device.excluded),
    )


def far_end(neighbor: Neighbor) -> SeenEnd:
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
    ids = neighbor.port_id, neighbor.port_name
    return SeenEnd(neighbor.device, *ids, seen_device=device, seen_port=port)
