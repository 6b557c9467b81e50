"""The observed half: the backend ports of a node with the devices at their far ends.

It is a typed view of the node document, the part of `probe -o json` that agent/output/document.py
makes of an observation; agent/fleet/halves.py makes it of a Node's labels and annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agent.cabling.names import twin_port
from agent.facts import parse_time
from agent.grouped import grouped
from agent.reasons import BadLink
from agent.text import Json

MAC_SUBTYPE = 4  # Chassis ID subtype "MAC address", IEEE Std 802.1AB-2016, Table 8-2
DOWN = "DOWN"
NO_FORMER: Mapping[str, str] = MappingProxyType({})


class SeenEnd(NamedTuple):
    """The switch port at the far end of a cable, as a node observes it, or as its labels have it.

    `switch` is equal for two ports of one switch; names are for people.
    """

    label: str  # of a Node the value of its label: encoded, perhaps hashed; else the label's text
    port_id: str | None = None  # raw, but for that of a label that the annotation does not explain
    port_name: str | None = None
    id: str | None = None  # of a Node: switch node GUID (16 hex digits) or LLDP Chassis ID
    name: str | None = None  # the name alone (`L90.1.3` of a NodeDescription), or the System Name
    # what a plan is compared with, beside the label or name and the names of the port
    names: tuple[str, ...] = ()  # chosen by people: System Name, the name in a NodeDescription
    guids: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()  # Chassis ID, if it is one
    description: str | None = None  # NodeDescription
    port_description: str | None = None  # may be equal, but proves no difference
    infiniband: bool = False  # its only port name is the LocalPortNum
    twin_port: bool | None = None  # the platform has two ports in each cage; None: not known

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

    @property
    def ports(self) -> tuple[str, ...]:
        """All names of the port."""
        return tuple(filter(None, (self.port_id, self.port_name)))


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
    bad_link: BadLink | None = None

    @property
    def is_down(self) -> bool:
        """True if the port has no link."""
        return self.state == DOWN


class PcieEnd(NamedTuple):
    """A function of a PCIe path, as one end of a link; None is unknown."""

    address: str
    vendor: str | None = None
    speed: float | None = None  # GT/s
    max_speed: float | None = None
    width: int | None = None  # lanes
    max_width: int | None = None


PcieEnds = tuple[PcieEnd, ...]  # the root port first, the NIC last; empty: not known


class SeenNode(NamedTuple):
    """The observed half of one node."""

    name: str
    ports: dict[str, Port]  # by interface, in the order of the observation
    others: frozenset[str] = frozenset()  # names of devices and netdevs that are no backend
    unread: frozenset[str] = frozenset()  # RDMA devices that could not be read, or have no driver
    excluded: frozenset[str] = frozenset()  # RDMA devices that --exclude-device names
    former: Mapping[str, str] = NO_FORMER  # interfaces that left the bus, with their addresses
    paths: Mapping[str, PcieEnds] | None = None  # by the address of the NIC; None: not read
    on_bus: frozenset[str] = frozenset()  # PCI functions; empty: not read
    netdevs: frozenset[str] = frozenset()  # all of the node; empty: not read
    speed_gbps: float | None = None  # the sum in the label of a Node; None: not known


def seen_node(document: Json) -> SeenNode:
    """Return the observed half that a node document has."""
    neighbors = grouped(document["neighbors"], lambda row: row["interface"])
    missing = {row["interface"]: row["reason"] for row in document["missing_neighbors"]}
    ports: dict[str, Port] = {}
    others: set[str | None] = set()
    for row in document["ports"]:
        name = row["interface"]
        if row["role"] != "backend":
            others |= {name, row["device"], row["pci"], row["netdev"]}
        elif row["device"] is not None:  # else the port is absent
            ports[name] = Port(
                interface=name,
                device=row["device"],
                number=row["port"],
                netdev=row["netdev"],
                pci=row["pci"],
                state=row["state"],
                phys_state=row["phys_state"],
                rate_gbps=row["counted_gbps"],
                is_suspect=row["suspect"],
                kind=(row["hca_type"], row["board_id"]),
                far_ends=tuple(map(far_end, neighbors.get(name, ()))),
                missing=missing.get(name),
                link_layer=row["link_layer"],
                bad_link=(bad := row["bad_link"]) and BadLink(bad["end"], parse_time(bad["time"])),
            )
    pcie, lost = document["pcie"], document["lost"]
    return SeenNode(
        document["node"] or "this-node",
        ports,
        frozenset(filter(None, others)),
        unread=frozenset(row["device"] or "" for row in document["unread"]),
        excluded=frozenset(row["device"] for row in document["excluded"]),
        former={row["interface"]: row["pci"] for row in lost if row["interface"] and row["pci"]},
        paths=None if pcie is None else {row["pci"]: tuple(map(_end, row["path"])) for row in pcie},
        on_bus=frozenset(document["pci_functions"] or ()),
        netdevs=frozenset(document["netdevs"] or ()),
    )


def _end(row: Json) -> PcieEnd:
    speeds = row["speed_gts"], row["max_speed_gts"]
    return PcieEnd(row["pci"], row["vendor"], *speeds, row["width"], row["max_width"])


def far_end(row: Json) -> SeenEnd:
    """Return a neighbor in the form that names are compared in."""
    label = row["device"]
    ids = row["port_id"], row["port_name"]
    if row["via"] == "lldp":
        chassis, name = row["chassis_id"], row["system_name"]
        is_mac = row["chassis_subtype"] == MAC_SUBTYPE
        names = (name,) if name else () if is_mac else (chassis,)
        macs, description = (chassis,) if is_mac else (), row["port_description"]
        return SeenEnd(label, *ids, names=names, macs=macs, port_description=description)
    guids = tuple(dict.fromkeys(filter(None, (row["node_guid"], row["sys_image_guid"]))))
    return SeenEnd(
        label,
        *ids,
        names=() if label in guids else (label,),
        guids=guids,
        description=row["node_description"] or row["last_description"],
        infiniband=True,
        twin_port=twin_port(row["node_description"]),
    )
