"""The true state of the simulated node: its devices, and the faults that hide them.

Invariant: this module has nothing of the agent. The simulated I/O (sysfs.py, world.py) and the
laws both read it, and a scenario changes it first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HERE, UNBOUND, GONE, LENT = "here", "unbound", "gone", "lent"
# Devices that are no host data ports, and so never backend ports.
SWITCH_MANAGEMENT, VIRTUAL, SUB_DEVICE = "SW_MNG", "virtual function", "SMI sub-device"
ZERO = "0" * 32


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a cable, with raw names."""

    device: str
    port: str
    port_name: str | None
    mac: bytes  # the source of its LLDP frames
    ttl: int = 120

    @property
    def guid(self) -> str:
        """Its node GUID."""
        return self.mac.hex().rjust(16, "0")


@dataclass(slots=True)
class Hca:
    """One port of one PCI function, under its present name."""

    name: str
    pci: str
    infiniband: bool
    gbps: int
    netdev: str | None
    peer: Peer
    backend: bool = True
    drop: str | None = None  # why it is no host data port, if it is none
    parent: Hca | None = None  # the HCA whose PCI function and port an SMI sub-device has
    state: str = "ACTIVE"
    where: str = HERE
    has_left: bool = False  # its PCI function was off the bus once
    carrier: int = 1  # how often its netdev's carrier has changed
    downs: int = 0  # reasons why its link is down
    sick: int = 0  # faults that hide all of it
    murky: int = 0  # faults that hide a part of it
    silent: int = 0  # faults that stop its switch's LLDP frames or SMP replies
    nameless: int = 0  # faults that stop its switch's replies with NodeDescription
    factory: int = 0  # faults that replace its switch's NodeDescription by factory text
    busy: bool = False  # a fault of some duration is in progress
    guests: tuple[Peer, ...] = ()  # what else speaks LLDP at the far end
    bond: str = ""  # the netdev of the bond that it has, over the netdevs of its members
    members: tuple[Hca, ...] = ()
    leader: Hca | None = None  # the HCA in whose bond it is: it has no RDMA device then
    serial: int = 0  # of the card in the slot
    bridged: int = 0  # bridges that take its LLDP frames

    @property
    def up(self) -> bool:
        return self.parent.up if self.parent else self.downs == 0

    @property
    def shown(self) -> bool:
        """True if the class lists the device."""
        return (self.parent or self).where in (HERE, LENT) and self.leader is None

    @property
    def truth(self) -> tuple[object, ...]:
        """What is so, whatever hides it."""
        return (
            self.name, self.pci, self.infiniband, self.gbps, self.netdev, self.peer, self.state,
            self.where, self.up, self.silent > 0, self.nameless > 0, self.factory > 0, self.guests,
            self.leader is None, self.serial, self.bridged > 0,
        )  # fmt: skip

    @property
    def counted(self) -> int:
        """The rate that the port adds to the node's speed, in Gb/s."""
        return self.gbps if self.up and self.state == "ACTIVE" else 0


@dataclass(slots=True)
class Gpus:
    """The GPUs and their place in the fabric."""

    count: int
    cluster: str = "9c6f5af353bf49b5a436b66766c413c3"
    clique: int = 4026
    state: int = 3  # completed
    status: int = 0  # success
    odd: bool = False  # the last one is elsewhere
    unloaded: int = 0  # faults that take the driver away
    unreachable: int = 0  # faults that keep NVML from being asked

    @property
    def identity(self) -> str:
        """`<ClusterUUID>.<CliqueID>`."""
        digits = self.cluster
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return f"{'-'.join(parts)}.{self.clique}"


@dataclass(slots=True)
class Node:
    """The machine."""

    hcas: list[Hca]
    gpus: Gpus
    boot: int = 1
    blind: int = 0  # faults that hide the whole tree
    bootless: int = 0  # faults that hide which boot this is
    busless: int = 0  # faults that hide the PCI bus
    is_bus_read: bool = True  # by the agent that runs: the bus does not change while it is hidden
    classless: int = 0  # faults that hide the RDMA class
    smp_trouble: int = 0  # faults that prevent SMP queries
    by_sa: bool = False  # its ports refuse SMPs; the subnet administrator answers
    sa_trouble: str = ""  # why it does not: "away" or "busy"
    lids: int = 0  # how often the subnet manager has assigned others
    front: Hca | None = None  # the NIC with the default route, which is no backend
    dropped: list[Hca] = field(default_factory=list)  # devices that are no host data ports
    soft: str = ""  # the netdev of a software device, rxe0
    names: set[str] = field(default_factory=set)  # all names that interfaces ever had

    def __post_init__(self) -> None:
        self.names |= {hca.name for hca in self.hcas}

    @property
    def infiniband(self) -> bool:
        return any(hca.infiniband for hca in self.hcas)

    @property
    def unseen(self) -> bool:
        """True if no RDMA device can be read."""
        is_placeless = self.busless and not self.is_bus_read
        return bool(self.blind or self.classless or is_placeless)

    @property
    def others(self) -> list[Hca]:
        """Return the devices that are no backend: the front end, and those that are dropped."""
        return [*([self.front] if self.front else []), *self.dropped]

    @property
    def clouded(self) -> bool:
        """True if a device that is no backend cannot be read, so that it may be one."""
        return any(hca.sick or hca.murky for hca in self.others)

    @property
    def truth(self) -> tuple[object, ...]:
        """What is so of the whole node, whatever hides it."""
        gpus = self.gpus
        place = gpus.cluster, gpus.clique, gpus.state, gpus.status, gpus.odd, gpus.unloaded > 0
        return self.boot, self.lids, self.soft, place, *(hca.truth for hca in self.all())

    @staticmethod
    def speakers(hca: Hca) -> list[Peer]:
        """Return all whose LLDP frames arrive at a port."""
        if hca.infiniband or not hca.up or hca.where != HERE or hca.bridged:
            return []
        return [*([] if hca.silent else [hca.peer]), *hca.guests]

    def lid(self, hca: Hca) -> int:
        """Return the LID of a port; its switch has the next one."""
        return 1000 + 2 * (1000 * self.lids + int(hca.pci[5:7], 16))

    def sub_device(self, parent: Hca) -> Hca | None:
        return next((hca for hca in self.dropped if hca.parent is parent), None)

    def all(self) -> list[Hca]:
        """Return all devices, the front end and those that are dropped included."""
        return [*self.hcas, *self.others]
