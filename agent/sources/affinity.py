"""The distance between NICs and GPUs, from their paths on the PCI bus alone.

The words are those of `nvidia-smi topo` and NCCL: PIX has at most one PCIe switch between, PXB
several, PHB the host bridge, NODE and SYS nothing but the CPU. Near is PIX or PXB: both functions
are below one PCI bridge. A guest whose bus is flat, a Grace CPU whose GPUs have root ports of their
own, and a ConnectX-8 with Data Direct have no NIC near a GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from agent.sysfs.bus import Bus, Function

MIN_GPUS = 2
NEAR = frozenset({"PIX", "PXB"})  # distances with a PCI bridge above both
NEAR_SHARE = 3, 4  # of the GPUs must have a NIC near for affinity to decide


class Beside(NamedTuple):
    """The GPU that is nearest to a NIC, and how near; None is unknown."""

    gpu: str | None = None
    distance: str | None = None  # "PIX" | "PXB" | "PHB" | "NODE" | "SYS"

    @property
    def is_near(self) -> bool:
        """True if a PCI bridge is above both."""
        return self.distance in NEAR


NOWHERE = Beside()


def beside(bus: Bus, address: str | None, numa_node: int | None = None) -> Beside:
    """Return the nearest GPU of a function; of several the one at the lowest address."""
    nic = bus.functions.get(address or "")
    if nic is None or nic.bridges is None:
        return NOWHERE
    gpus = bus.gpus
    found = [(one, _distance(nic, one)) for one in gpus]
    for distance in ("PIX", "PXB", "PHB"):
        near = sorted(one.address for one, how in found if how == distance)
        if near:
            return Beside(near[0], distance)
    if not gpus or numa_node is None:
        return NOWHERE
    return Beside(None, "NODE" if numa_node in {one.numa_node for one in gpus} else "SYS")


def _distance(nic: Function, gpu: Function) -> str | None:
    """Return PIX, PXB or PHB; None if nothing but the CPU is between."""
    if nic.address == gpu.address:  # a GPU with ports of its own (Gaudi)
        return "PIX"
    if nic.bridges is None or gpu.bridges is None or nic.host_bridge != gpu.host_bridge:
        return None
    common = len([one for one in nic.bridges if one in gpu.bridges])
    if not common:
        return "PHB"
    # Below the upstream port of one switch each has a downstream port.
    is_one_switch = max(len(nic.bridges), len(gpu.bridges)) - common <= 1
    return "PIX" if is_one_switch else "PXB"


def has_decisive_gpus(bus: Bus, addresses: Collection[str]) -> bool:
    """Return True if three quarters of two or more GPUs have a NIC near.

    `addresses` are functions that count as NICs whatever their class: those with RDMA devices. All
    others count bound or not, so that a dead HCA does not change the answer.
    """
    gpus = bus.gpus
    nics = [one for one in bus.functions.values() if one.is_nic or one.address in addresses]
    served = sum(any(_distance(nic, gpu) in NEAR for nic in nics) for gpu in gpus)
    part, whole = NEAR_SHARE
    return len(gpus) >= MIN_GPUS and served * whole >= len(gpus) * part


def are_at_same_place(one: Function | None, others: Iterable[Function | None]) -> bool:
    """Return True if a function has the PCI ids of one of the others, and its bridges theirs.

    So a NIC keeps its role when its GPU falls off the bus. Ids that are not known are not equal.
    """
    if one is None or one.ids is None or not one.bridge_ids or None in one.bridge_ids:
        return False
    place = one.ids, one.bridge_ids
    return any(other and (other.ids, other.bridge_ids) == place for other in others)
