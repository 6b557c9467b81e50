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

from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.host import Host
from agent.ids import is_of_device
from agent.model import PortRole, RdmaDevice
from agent.sources.cards import MIN_PATTERN
from agent.sources.interfaces import Labeled
from agent.sysfs import parse
from agent.sysfs.bus import DEVICES as PCI
from agent.sysfs.bus import INFINIBAND_CLASSES
from agent.sysfs.reader import UNSET, Reader, Root
from agent.sysfs.worker import DeviceReaders

if TYPE_CHECKING:  # it imports the sources
    from agent.sources.observe import Memories

SOURCE = "rdma"
PCIE = "pcie"  # the source of problems with PCIe paths
DEVICES = "sys/devices"


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


def bonded_functions(devices: Iterable[RdmaDevice]) -> frozenset[str]:
    """Return the functions that are read as the legs of another device's bond."""
    return frozenset(
        leg.function
        for device in devices
        for port in device.ports
        for leg in port.legs
        if leg.function and leg.function != device.pci
    )


def unbound(
    host: Host, devices: Collection[RdmaDevice], labeled: Labeled, memories: "Memories"
) -> frozenset[str]:
    """Return the functions on the bus that may be the backend's, and have no RDMA device.

    They are those of labeled interfaces, and the InfiniBand controllers: without VFs, without those
    that --exclude-device names, and without those of a card with more than a data card has, which
    look like NVSwitch management functions.
    """
    nics = memories.bus.bus.nics
    infiniband = [nic for nic in nics if nic.code in INFINIBAND_CLASSES and not nic.is_virtual]
    of_card = Counter(nic.card for nic in infiniband)
    functions = {nic.address for nic in infiniband if of_card[nic.card] < MIN_PATTERN}
    # A failed or excluded device may have no address, so its name decides.
    here = _there(devices)
    for interface, address in labeled.items():
        if address and not any(is_of_device(interface, device.name) for device in here):
            functions.add(address)
    return _without_device(host, functions, devices, memories)


def unbound_alike(
    host: Host, ports: Iterable[PortRole], devices: Collection[RdmaDevice], memories: "Memories"
) -> frozenset[str]:
    """Return the NICs of the backend's PCI ids that have no RDMA device."""
    models = {role.device.pci_ids for role in ports if role.backend} - {None}
    nics = memories.bus.bus.nics
    alike = {nic.address for nic in nics if nic.ids in models and not nic.is_virtual}
    return _without_device(host, alike, devices, memories)


def _there(devices: Iterable[RdmaDevice]) -> list[RdmaDevice]:
    """Return the devices but those without ports, which have just been unbound."""
    return [device for device in devices if device.ports or device.failure or device.excluded]


def _without_device(
    host: Host, functions: set[str], devices: Collection[RdmaDevice], memories: "Memories"
) -> frozenset[str]:
    """Return those of the functions that are on the bus and have no device, nor share one."""
    others = {device.pci for device in _there(devices)} | bonded_functions(devices)
    left = functions - others - memories.excluded
    return frozenset(address for address in left if place(host, address) is Place.BUS)


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
    idle thread ends.
    """
    addresses = {role.device.name: role.device.pci for role in ports if role.backend}
    jobs = {name: partial(_read_path, host.root, pci) for name, pci in addresses.items() if pci}
    readers = readers or host.device_readers()
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
        functions = []
        for address in parse.pci_addresses(folder):
            base = f"{folder.partition(address)[0]}{address}"
            function = PcieFunction(
                address,
                reader.value(f"{base}/vendor", parse.number),
                reader.value(f"{base}/current_link_speed", parse.link_speed, quiet=UNSET),
                reader.value(f"{base}/max_link_speed", parse.link_speed, quiet=UNSET),
                reader.value(f"{base}/current_link_width", parse.link_width, quiet=UNSET),
                reader.value(f"{base}/max_link_width", parse.link_width, quiet=UNSET),
            )
            functions.append(function)
    except Unavailable:
        return ()
    return tuple(functions)
