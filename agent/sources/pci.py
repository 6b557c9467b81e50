"""Missing RDMA devices whose PCI function is still on the bus.

While a driver reloads or fails to start, the RDMA device is missing but its PCI function remains.
A labeled interface is identified by the address of its PCI function, so a device that returns under
another name is not missing. A function that was removed, or assigned to a virtual machine
(vfio-pci), is absent.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.model import Absent, Failed, Problem, Seen
from agent.sysfs import parse as kernel
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.host import Host
    from agent.model import RdmaDevice

    Devices = Iterable[RdmaDevice]
    Labeled = Mapping[str, str]  # interface -> address of its PCI function

SOURCE = "rdma"
PCI = "sys/bus/pci/devices"
# include/linux/pci_ids.h: PCI_CLASS_NETWORK_INFINIBAND, PCI_CLASS_SERIAL_INFINIBAND
INFINIBAND_CONTROLLERS = frozenset({0x0207, 0x0C06})


def unbound(
    host: Host, rdma: Seen[Any] | Absent | Failed, labeled: Labeled
) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the labeled interfaces without a device whose PCI function is on the bus.

    Each interface returned has a Problem. None is returned if the RDMA source failed, since nothing
    is known of any device then.
    """
    if isinstance(rdma, Failed):
        return (), []
    devices = rdma.value if isinstance(rdma, Seen) else ()
    missing = _without_device(labeled, devices)
    found = tuple(name for name in missing if _is_on_bus(host, labeled[name]))
    return found, [_no_device(name, labeled[name]) for name in found]


def _without_device(labeled: Labeled, devices: Devices) -> list[str]:
    return [name for name, pci in labeled.items() if not _has_device(name, pci, devices)]


def _no_device(interface: str, pci: str) -> Problem:
    text = f"no RDMA device, though its PCI function {pci} is on the bus: is its driver loading?"
    return Problem(SOURCE, interface, None, text)


def any_infiniband(host: Host, functions: Iterable[str]) -> bool:
    """Return True if one of these PCI functions is, or may be, an InfiniBand controller."""
    reader = Reader(host.root, SOURCE)
    try:
        return any(is_infiniband(reader, pci) for pci in functions)
    except Unavailable:  # a function whose class cannot be read may be one
        return True


def infiniband_controllers(reader: Reader) -> list[str]:
    """Return the InfiniBand controllers on the bus that are not given to a virtual machine."""
    return [
        pci
        for pci in reader.names(PCI) or ()
        if is_infiniband(reader, pci) and not given_to_vm(reader, pci)
    ]


def is_infiniband(reader: Reader, pci: str) -> bool:
    """Return True if the PCI class of the function is that of an InfiniBand controller."""
    code = reader.value(f"{PCI}/{pci}/class", kernel.number)
    return code is not None and code >> 8 in INFINIBAND_CONTROLLERS


def given_to_vm(reader: Reader, pci: str) -> bool:
    """Return True if the function is bound to vfio-pci, for a virtual machine."""
    driver = reader.link(f"{PCI}/{pci}/driver") or ""
    return driver.endswith("/vfio-pci")


def _has_device(interface: str, pci: str, devices: Devices) -> bool:
    """Return True if a device has this PCI address or this interface's name."""
    return any(
        pci == device.pci or _is_named_after(interface, device)
        for device in devices
        if _counts(device)
    )


def _is_named_after(interface: str, device: RdmaDevice) -> bool:
    """Return True for the device's own name, and for those of its ports and legs.

    A device that failed or is excluded has no address, so its name decides.
    """
    return interface == device.name or interface.startswith(f"{device.name}-")


def _counts(device: RdmaDevice) -> bool:
    """Return False for a device without ports, which has just been unbound."""
    return bool(device.ports or device.failure or device.excluded)


def _is_on_bus(host: Host, pci: str) -> bool:
    """Return True if the function is on the bus and not given to a virtual machine."""
    return place(host, pci) is Place.BUS


class Place(Enum):
    """Where a PCI function is."""

    BUS = "on the bus"
    VM = "given to a virtual machine"
    GONE = "gone from the bus"


def place(host: Host, pci: str) -> Place:
    """Return where a function is.

    BUS as well if the bus cannot be read: nothing is removed because of a failed read.
    """
    reader = Reader(host.root, SOURCE)
    try:
        if reader.link(f"{PCI}/{pci}") is None:
            return Place.BUS if reader.problems else Place.GONE
        return Place.VM if given_to_vm(reader, pci) else Place.BUS
    except Unavailable:
        return Place.BUS
