"""The simulated node as it truly is: what its devices do, and which of them can be looked into.

The law of this module: it knows nothing of the agent. The stand-ins of the doors are made of it
(sysfs.py, world.py), and so is the oracle's judgement; whatever happens in a scenario happens here
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HERE, UNBOUND, GONE, LENT = "here", "unbound", "gone", "lent"
ZERO = "0" * 32


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the far end of a cable, in raw words: what becomes labels."""

    device: str
    port: str
    port_name: str | None
    mac: bytes  # the source of its LLDP frames
    ttl: int = 120


@dataclass(slots=True)
class Hca:
    """One port of one PCI function, under the name that it has now."""

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
    silent: int = 0  # faults that keep its switch from speaking, or from answering
    busy: bool = False  # something that takes its time is happening to it

    @property
    def up(self) -> bool:
        return self.downs == 0

    @property
    def shown(self) -> bool:
        """Its folder stands in the class."""
        return self.where in (HERE, LENT)

    @property
    def counted(self) -> int:
        """What it adds to the node's speed."""
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
    """A machine."""

    hcas: list[Hca]
    gpus: Gpus
    boot: int = 1
    blind: int = 0  # faults that hide the whole tree
    bootless: int = 0  # faults that hide which boot this is
    busless: int = 0  # faults that hide the PCI bus
    classless: int = 0  # faults that hide the RDMA devices
    smp_trouble: int = 0  # faults that keep all questions from being asked
    front: Hca | None = None  # the NIC with the default route, which is no backend
    names: set[str] = field(default_factory=set)  # all that interfaces were ever called

    def __post_init__(self) -> None:
        self.names |= {hca.name for hca in self.hcas}

    @property
    def infiniband(self) -> bool:
        return any(hca.infiniband for hca in self.hcas)

    @property
    def unseen(self) -> bool:
        """Nothing can be said of any RDMA device."""
        return bool(self.blind or self.classless)

    def all(self) -> list[Hca]:
        """The front end, too."""
        return [*self.hcas, *([self.front] if self.front else [])]
