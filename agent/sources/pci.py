"""Devices that are gone while their PCI function is not: the driver reloads, or could not start.

The law of this module: a label goes when the hardware does. Whoever was labelled is known by the address of its PCI
function, so a device that came back under another name is not missed, and one whose function was pulled out or given
to a virtual machine (vfio-pci) is truly away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.model import Absent, Failed, Problem, Seen
from agent.sysfs import parse as kernel
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.host import Host
    from agent.model import RdmaDevice

SOURCE = "rdma"
PCI = "sys/bus/pci/devices"
INFINIBAND_CONTROLLERS = frozenset(
    {0x0207, 0x0C06}
)  # include/linux/pci_ids.h: PCI_CLASS_{NETWORK,SERIAL}_INFINIBAND


def unbound(
    host: Host, rdma: Seen[Any] | Absent | Failed, labelled: Mapping[str, str]
) -> tuple[tuple[str, ...], list[Problem]]:
    """Of the `labelled` interfaces (name to PCI address) those whose device should be there, and a word about each.

    A class that could not be read at all says nothing of anybody.
    """
    if isinstance(rdma, Failed):
        return (), []
    devices: tuple[RdmaDevice, ...] = rdma.value if isinstance(rdma, Seen) else ()
    found = {
        name: pci
        for name, pci in labelled.items()
        if not _is_there(name, pci, devices) and _is_ours(host, pci)
    }
    text = "no RDMA device, though its PCI function {} is on the bus: is its driver loading?"
    return tuple(found), [
        Problem(SOURCE, name, None, text.format(pci)) for name, pci in found.items()
    ]


def any_infiniband(host: Host, functions: Iterable[str]) -> bool:
    """One of these functions is an InfiniBand controller."""
    reader = Reader(host.root, SOURCE)
    try:
        return any(is_infiniband(reader, pci) for pci in functions)
    except Unavailable:  # what blocks may be one
        return True


def is_infiniband(reader: Reader, pci: str) -> bool:
    """The function is an InfiniBand controller, by its class."""
    code = reader.value(f"{PCI}/{pci}/class", kernel.number)
    return code is not None and code >> 8 in INFINIBAND_CONTROLLERS


def _is_there(interface: str, pci: str, devices: Iterable[RdmaDevice]) -> bool:
    """The device is, be it sick or excluded and so without an address; one that is listed without a port is not."""
    return any(
        pci == one.pci or interface == one.name or interface.startswith(f"{one.name}-")
        for one in devices
        if one.ports or one.failure or one.excluded
    )


def _is_ours(host: Host, pci: str) -> bool:
    """The function is on the bus, and no virtual machine has it."""
    reader = Reader(host.root, SOURCE)
    try:
        if reader.link(f"{PCI}/{pci}") is None:
            return bool(reader.problems)
        return not (reader.link(f"{PCI}/{pci}/driver") or "").endswith("/vfio-pci")
    except Unavailable:  # what blocks is there
        return True
