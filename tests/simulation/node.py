"""The true state of the simulated node: its devices, and the faults that hide them.

Invariant: this module has nothing of the agent. The simulated I/O (sysfs.py, world.py) and the
oracle both read it, and a scenario changes it first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HERE, UNBOUND, GONE, LENT = "here", "unbound", "gone", "lent"
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
    state: str = "ACTIVE"
    where: str = HERE
    downs: int = 0  # reasons why its link is down
    sick: int = 0  # faults that hide all of it
    murky: int = 0  # faults that hide a part of it
    silent: int = 0  # faults that stop its switch's LLDP frames or SMP replies
    nameless: int = 0  # faults that stop its switch's replies with NodeDescription
    factory: int = 0  # faults that replace its switch's NodeDescription by factory text
    busy: bool = False  # a fault of some duration is in progress

    @property
    def up(self) -> bool:
        return self.downs == 0

    @property
    def shown(self) -> bool:
        """True if the class lists the device."""
        return self.where in (HERE, LENT)

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
    busless: int = 0  # faults that hide the PCI bus
    classless: int = 0  # faults that hide the RDMA class
    smp_trouble: int = 0  # faults that prevent SMP queries
    front: Hca | None = None  # the NIC with the default route, which is no backend
    names: set[str] = field(default_factory=set)  # all names that interfaces ever had

    def __post_init__(self) -> None:
        self.names |= {hca.name for hca in self.hcas}

    @property
    def infiniband(self) -> bool:
        return any(hca.infiniband for hca in self.hcas)

    @property
    def unseen(self) -> bool:
        """True if no RDMA device can be read."""
        return bool(self.blind or self.classless)

    def all(self) -> list[Hca]:
        """Return all devices, the front-end NIC included."""
        return [*self.hcas, *([self.front] if self.front else [])]
