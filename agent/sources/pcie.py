"""The PCIe path of a NIC: link speed and width of each function from the root port to the NIC.

Read by `capture` and for `verify` only, each device by a thread of its own: the attributes are
reads of the configuration space.

Files: Documentation/ABI/testing/sysfs-bus-pci, {current,max}_link_{speed,width}.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.host import Host
    from agent.model import PortRole
    from agent.sysfs.reader import Root
    from agent.sysfs.worker import DeviceReaders

SOURCE = "pcie"
PCI, DEVICES = "sys/bus/pci/devices", "sys/devices"


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

    Who reads again passes `readers`, in which a device that blocks keeps its one thread; those of
    all others end.
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


def functions_on_bus(host: Host) -> frozenset[str]:
    """Return the PCI functions on the bus; empty if it cannot be read."""
    try:
        return frozenset(Reader(host.root, SOURCE).names(PCI) or ())
    except Unavailable:
        return frozenset()


def _read_path(root: Root, pci: str) -> PciePath:
    """Read the functions of a path, in the thread of a worker."""
    reader = Reader(root, SOURCE)
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
