"""The PCI bus: functions whose RDMA device is missing, and the PCIe path of each NIC.

While a driver reloads or fails to start, the RDMA device is missing but its PCI function remains.
A labeled interface is identified by the address of its PCI function, so a device that returns under
another name is not missing. A function that was removed, or assigned to a virtual machine
(vfio-pci), is absent.

A PCIe path has link speed and width of each function from the root port to the NIC. It is read by
`capture` and for `verify` only, by the readers of RDMA devices: the attributes are reads of the
configuration space.

Files: Documentation/ABI/testing/sysfs-bus-pci, {current,max}_link_{speed,width}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from agent.errors import Unavailable
from agent.host import Host
from agent.model import Absent, Failed, PortRole, Problem, RdmaDevice, Seen
from agent.sources.roles import is_of_device
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET, Reader, Root
from agent.sysfs.worker import DeviceReaders

SOURCE = "rdma"
PCIE = "pcie"  # the source of problems with PCIe paths
PCI, DEVICES = "sys/bus/pci/devices", "sys/devices"
# include/linux/pci_ids.h: PCI_CLASS_NETWORK_INFINIBAND, PCI_CLASS_SERIAL_INFINIBAND
INFINIBAND_CONTROLLERS = frozenset({0x0207, 0x0C06})

Labeled = Mapping[str, str]  # interface -> address of its PCI function


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


def functions_on_bus(host: Host) -> frozenset[str]:
    """Return the PCI functions on the bus; empty if it cannot be read."""
    try:
        return frozenset(Reader(host.root, PCIE).names(PCI) or ())
    except Unavailable:
        return frozenset()


def given_to_vm(reader: Reader, pci: str) -> bool:
    """Return True if the function is bound to vfio-pci, for a virtual machine."""
    driver = reader.link(f"{PCI}/{pci}/driver") or ""
    return driver.endswith("/vfio-pci")


def is_infiniband(reader: Reader, pci: str) -> bool:
    """Return True if the PCI class of the function is that of an InfiniBand controller."""
    code = reader.value(f"{PCI}/{pci}/class", kernel.number)
    return code is not None and code >> 8 in INFINIBAND_CONTROLLERS


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
    found, problems = [], []
    for interface, pci in labeled.items():
        if not _has_device(interface, pci, devices) and place(host, pci) is Place.BUS:
            text = f"no RDMA device, though its PCI function {pci} is on the bus"
            problems.append(Problem(SOURCE, interface, None, f"{text}: is its driver loading?"))
            found.append(interface)
    return tuple(found), problems


def _has_device(interface: str, pci: str, devices: Iterable[RdmaDevice]) -> bool:
    """Return True if a device has this PCI address or this interface's name.

    A device that failed or is excluded has no address, so its name decides. A device without ports
    does not count: it has just been unbound.
    """
    return any(
        pci == device.pci or is_of_device(interface, device.name)
        for device in devices
        if device.ports or device.failure or device.excluded
    )


class PcieFunction(NamedTuple):
    """A NIC, or a bridge above it; None is unknown, or the function is no PCIe device."""

    address: str
    vendor: int | None = None  # vendor
    speed: float | None = None  # current_link_speed, GT/s
    max_speed: float | None = None  # max_link_speed
    width: int | None = None  # current_link_width, lanes
    max_width: int | None = None  # max_link_width


PciePath = tuple[PcieFunction, ...]  # the root port first, the NIC last; empty: not known


def read_paths(
    host: Host, ports: Iterable[PortRole], readers: DeviceReaders | None = None
) -> dict[str, PciePath]:
    """Return the path of each backend NIC by its PCI address; none of a device that blocks.

    Who reads again passes `readers`, in which a device that blocks keeps its one thread; the
    idle one ends.
    """
    addresses = {role.device.name: role.device.pci for role in ports if role.backend}
    jobs = {name: partial(_read_path, host.root, pci) for name, pci in addresses.items() if pci}
    readers = readers or host.readers.fresh()
    readers.refresh()
    try:
        paths = readers.read(jobs, host.deadline)
    finally:
        readers.keep(())
    return {pci: paths.get(name, ()) for name, pci in addresses.items() if pci}


def _read_path(root: Root, pci: str) -> PciePath:
    """Read the functions of a path, in the thread of a worker."""
    reader = Reader(root, PCIE)
    try:
        target = reader.link(f"{PCI}/{pci}") or ""
        folder = f"{DEVICES}/{target.partition('devices/')[2]}"
        return tuple(_function(reader, folder, address) for address in kernel.pci_addresses(folder))
    except Unavailable:
        return ()


def _function(reader: Reader, folder: str, address: str) -> PcieFunction:
    base = f"{folder.partition(address)[0]}{address}"
    return PcieFunction(
        address,
        reader.value(f"{base}/vendor", kernel.number),
        reader.value(f"{base}/current_link_speed", kernel.link_speed, quiet=UNSET),
        reader.value(f"{base}/max_link_speed", kernel.link_speed, quiet=UNSET),
        reader.value(f"{base}/current_link_width", kernel.link_width, quiet=UNSET),
        reader.value(f"{base}/max_link_width", kernel.link_width, quiet=UNSET),
    )
