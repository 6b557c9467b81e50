"""The RDMA source: the devices and ports in /sys/class/infiniband, and their netdevs.

The class directory is missing, empty or populated. Missing and empty mean "no RDMA hardware" only
if no InfiniBand controller is on the PCI bus, since the class is empty while a driver reloads, too.
Each device is read by a worker of its own (agent/sysfs/worker.py); a device that fails or blocks
does not affect the others.

agent/sources/rdma_device.py reads a device; agent/sources/roles.py decides the role of a port.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.model import Absent, Failed, Problem, RdmaDevice, Reading, Seen
from agent.reasons import HoldReason
from agent.sources.pci import infiniband_controllers
from agent.sources.rdma_device import CLASS, known_pci, linked_pci, read_device
from agent.sources.roles import ethernet_data_ports, with_hidden
from agent.sources.routes import namespace_fault, read_default_routes
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host import Host
    from agent.model import PortRole
    from agent.sources.rdma_device import Constants
    from agent.sources.routes import DefaultRoutes, Routed
    from agent.sysfs.reader import Root

    Devices = tuple[RdmaDevice, ...]
    DeviceReading = tuple[RdmaDevice, list[Problem]]

SOURCE = "rdma"


def read(host: Host, _ports: tuple[PortRole, ...] = ()) -> Reading[Devices]:
    """Read all devices of the class."""
    reader = Reader(host.root, SOURCE)
    try:
        names = reader.names(CLASS)
        if not names:
            return _read_no_devices(host, reader, names)
        routes = read_default_routes(reader)
        readings = _read_devices(host, names, routes.netdevs)
        devices = with_hidden([device for device, _ in readings])
        outcome = _front_end_unknown(host, reader, devices, routes) or _outcome(devices)
    except Unavailable as error:
        return Reading(Failed(str(error)), tuple(reader.problems))
    problems = [problem for _, more in readings for problem in more]
    return Reading(outcome, (*reader.problems, *problems))


def _outcome(devices: Devices) -> Seen[Devices] | Failed:
    """Return the devices, or Failed if none of them can be read."""
    if not any(map(_has_facts, devices)):
        return Failed(f"no device in /{CLASS} can be read")
    return Seen(devices)


def _front_end_unknown(
    host: Host, reader: Reader, devices: Devices, routes: DefaultRoutes
) -> Failed | None:
    """Return Failed if the backend depends on the front end, and the front end is not known.

    It does on a node without InfiniBand, unless --backend-device names the backend.
    """
    data_ports = () if host.backend else ethernet_data_ports(devices)
    if not data_ports:
        return None
    reader.problems += routes.hints
    fault = routes.failure or namespace_fault(reader, data_ports, routes.netdevs)
    reason = HoldReason.FRONT_END_UNKNOWN
    return Failed(f"{reason}: {fault}", hold=reason) if fault else None


def _has_facts(device: RdmaDevice) -> bool:
    """Return False for a dangling link of the class directory, which has no facts at all."""
    return bool(
        device.excluded or device.failure or device.ports or device.node_type or device.driver
    )


def _read_no_devices(host: Host, reader: Reader, names: list[str] | None) -> Reading[Devices]:
    """Return the reading of a class without devices, and end the workers of former ones."""
    if not reader.problems:
        host.readers.keep(())
    state = "is empty" if names == [] else "is not there"
    return Reading(_without_devices(reader, state), tuple(reader.problems))


def _without_devices(reader: Reader, state: str) -> Absent | Failed:
    """Return Absent if there is no RDMA hardware, Failed if that is not certain."""
    if reader.problems:
        return Failed(f"/{CLASS} could not be listed")
    if not reader.names("sys/class/net"):
        return Failed("/sys/class/net is missing or empty, too: is /sys mounted there?")
    before = len(reader.problems)
    if controllers := infiniband_controllers(reader):
        return Failed(
            f"/{CLASS} {state} while the PCI bus has InfiniBand controllers"
            f" ({controllers[0]} first): is their driver loaded?"
        )
    if len(reader.problems) > before:
        return Failed(f"/{CLASS} {state}, and the PCI bus could not be read completely")
    return Absent(f"no RDMA device: /{CLASS} {state}")


def _read_devices(host: Host, names: list[str], routed: Routed) -> list[DeviceReading]:
    """Read the named devices; nothing below the folder of an excluded one is read."""
    jobs = {name: _job(host, routed, name) for name in names if not _is_excluded(host, name)}
    results = host.readers.read(jobs, host.deadline)
    return [
        results.get(name) or _late(host, name) if name in jobs else _excluded(name)
        for name in names
    ]


def _is_excluded(host: Host, name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in host.excluded)


def _excluded(name: str) -> DeviceReading:
    return RdmaDevice(name, excluded=True), []


def _job(host: Host, routed: Routed, name: str) -> Callable[[], DeviceReading]:
    """Return the task of a device's worker."""
    return partial(_read_device, host.root, host.readers.constants(name), routed, name)


def _read_device(root: Root, constants: Constants, routed: Routed, name: str) -> DeviceReading:
    """Read one device, in the thread of its worker."""
    reader = Reader(root, SOURCE)
    try:
        device = read_device(reader, name, constants, routed)
        if _has_vanished(reader, device):
            device = RdmaDevice(name, failure="it vanished while it was read", pci=device.pci)
    except Unavailable:
        return _blocked(root, name, constants)
    return device, reader.problems


def _has_vanished(reader: Reader, device: RdmaDevice) -> bool:
    """Return True if the device was removed during the read, so that its facts are incomplete."""
    return bool(device.ports) and reader.names(f"{CLASS}/{device.name}/ports") is None


def _late(host: Host, name: str) -> DeviceReading:
    """Return a device without facts: its read blocks, or there is no thread for it."""
    if fault := host.readers.unstarted.get(name):
        problem = Problem(SOURCE, f"/{CLASS}/{name}", "EAGAIN", f"not read: {fault}")
        return RdmaDevice(name, failure="has no thread"), [problem]
    return _blocked(host.root, name, host.readers.constants(name))


def _blocked(root: Root, name: str, constants: Constants) -> DeviceReading:
    """Return a device whose reads block: its PCI address is all that is known of it."""
    text = "a read blocked in the kernel: no fact of this device is known"
    problem = Problem(SOURCE, f"/{CLASS}/{name}", "ETIMEDOUT", text)
    pci = known_pci(constants, linked_pci(Reader(root, SOURCE), name))
    return RdmaDevice(name, failure="blocks", pci=pci), [problem]
