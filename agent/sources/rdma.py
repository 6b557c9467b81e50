"""The RDMA source: the devices and ports in /sys/class/infiniband, and their netdevs.

The class directory is missing, empty or populated. Missing and empty mean "no RDMA hardware" only
if no InfiniBand controller is on the PCI bus, since the class is empty while a driver reloads, too.
Each device is read by a worker of its own (agent/sysfs/worker.py); a device that fails or blocks
does not affect the others.

A device has failed if a read on which the role of a port depends (`Reader.decisive`) fails: a rule
without its input must not pass for a rule that does not apply. It has no ports then.

Whether a device looks like a function that manages NVSwitches is known once all are read
(agent/sources/cards.py). Only then is its VPD read, and of an InfiniBand device that does not look
like one the counters: a device of which that is not known yet is read a second time.

agent/sources/roles.py decides the role of a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import Unavailable
from agent.host import Host
from agent.ids import is_named
from agent.model import Absent, Failed, PortRole, Problem, RdmaDevice, RdmaPort, Reading, Seen
from agent.sources.cards import nvswitch_pattern, with_hidden
from agent.sources.interfaces import RoleEvidence
from agent.sources.netdev import ByPort, legs_of, port_netdevs, read_netdev
from agent.sources.pci import given_to_vm
from agent.sources.roles import CLOUD_DRIVERS, ethernet_data_ports
from agent.sysfs import parse
from agent.sysfs.bus import DEVICES as PCI
from agent.sysfs.bus import INFINIBAND_CLASSES, read_bus, read_ids
from agent.sysfs.front_end import (
    Routed,
    ambiguous_layers,
    is_guest,
    namespace_fault,
    read_front_end,
)
from agent.sysfs.reader import PAGE, Reader, Root
from agent.sysfs.worker import DeviceReaders
from agent.text import visible

if TYPE_CHECKING:  # it imports the sources
    from agent.sources.observe import Memories

SOURCE = "rdma"
CLASS = "sys/class/infiniband"
MAX_PSID = 64  # characters; they have 13
NO_PORTS = "not there: a device without data ports, or a copied tree that lost its links"
# In the PCI VPD of the functions that manage the NVSwitches of an HGX board.
SWITCH_MANAGEMENT = b"SW_MNG"
# Drivers of NICs, and the module that makes RDMA devices of them. Other NICs, such as those of
# ice, are often there without RDMA; those of Broadcom without GPUs.
RDMA_MODULES = {
    "mlx5_core": "mlx5_ib",
    "mlx4_core": "mlx4_ib",
    "ionic": "ionic_rdma",
    "bnxt_en": "bnxt_re",
}
OFTEN_WITHOUT = {"bnxt_en"}  # RDMA, on a node without GPUs
# Drivers of RDMA devices whose netdev may be on another PCI function: erdma, and vmw_pvrdma, which
# has function 0 of its slot, a vmxnet3 (drivers/infiniband/hw/vmw_pvrdma/pvrdma_main.c).
NETDEV_ELSEWHERE = CLOUD_DRIVERS | {"vmw_pvrdma"}
EXTRA = " (Ubuntu: apt-get install linux-modules-extra-$(uname -r))"  # the package of mlx5_ib

T = TypeVar("T")
DeviceReading = tuple[RdmaDevice, list[Problem]]
Readings = dict[str, DeviceReading]
# By PCI address and attribute. The last PCI address itself is at `LAST_PCI`.
Constants = dict[tuple[str, str], Any]
LAST_PCI = "", "pci"
PATTERN = "", "pattern"  # True if the device looks like an NVSwitch management function


def read(
    host: Host, _ports: tuple[PortRole, ...], memories: Memories
) -> Reading[tuple[RdmaDevice, ...]]:
    """Read all devices of the class."""
    reader = Reader(host.root, SOURCE)
    problems = reader.problems
    outcome: Seen[tuple[RdmaDevice, ...]] | Absent | Failed
    try:
        names = reader.names(CLASS)
        if names:
            bus = read_bus(reader, memories.bus)
            memories.front_end = read_front_end(reader, host.routes, has_gpus=bool(bus.gpus))
            if memories.is_guest is None:  # /proc/cpuinfo is long, and slow to make
                memories.is_guest = is_guest(reader)
            memories.ambiguous = ambiguous_layers(host.kernel, is_guest=bool(memories.is_guest))
            readings = _read_devices(host, names, memories)
            devices = with_hidden([device for device, _ in readings], memories.ambiguous)
            outcome = _outcome(host, reader, devices, memories)
            problems += [problem for _, more in readings for problem in more]
        else:
            if not problems:
                memories.readers.keep(())  # ends the workers of former devices
            outcome = _without_devices(reader, names, memories)
    except Unavailable as error:
        outcome = Failed(str(error))
    return Reading(outcome, tuple(problems))


def _outcome(
    host: Host, reader: Reader, devices: tuple[RdmaDevice, ...], memories: Memories
) -> Seen[tuple[RdmaDevice, ...]] | Failed:
    """Return the devices; Failed if none can be read, or no place on the bus is known."""
    bus, front_end = memories.bus.bus, memories.front_end
    evidence = RoleEvidence(devices, bus, front_end, ambiguous=memories.ambiguous)
    data_ports = [] if host.backend else ethernet_data_ports(evidence)
    if data_ports:
        try:
            fault = namespace_fault(reader, data_ports, front_end.netdevs)
        except Unavailable as error:
            fault = str(error)
        # A copied tree may lack the folder of a netdev that the device names.
        if front_end.unknown and any(map(evidence.carries_route, devices)):
            front_end = front_end._replace(unknown=None)
        memories.front_end = front_end._replace(unknown=fault or front_end.unknown)
    if bus.failure and not host.backend:
        return Failed(f"the place of no NIC is known: {bus.failure}")
    # A dangling link of the class directory has no facts at all.
    for device in devices:
        if device.excluded or device.failure or device.ports or device.node_type or device.driver:
            return Seen(devices)
    return Failed(f"no device in /{CLASS} can be read")


def module_of(driver: str) -> str:
    """Return the module that makes RDMA devices of the NICs of a driver, and its package."""
    module = RDMA_MODULES[driver]
    return module + (EXTRA if module == "mlx5_ib" else "")


def _without_devices(
    reader: Reader, names: list[str] | None, memories: Memories
) -> Absent | Failed:
    """Return Absent if there is no RDMA hardware, Failed if that is not certain."""
    state = "is empty" if names == [] else "is not there"
    if reader.problems:
        return Failed(f"/{CLASS} could not be listed")
    if not reader.names("sys/class/net"):
        return Failed("/sys/class/net is missing or empty, too: is /sys mounted there?")
    before = len(reader.problems)
    for pci in reader.names(PCI) or ():  # of the bus nothing but the classes decides
        code = reader.value(f"{PCI}/{pci}/class", parse.number)
        if code and code >> 8 in INFINIBAND_CLASSES and not given_to_vm(reader, pci):
            return Failed(
                f"/{CLASS} {state} while the PCI bus has InfiniBand controllers"
                f" ({pci} first): is their driver loaded?"
            )
    if len(reader.problems) > before:
        return Failed(f"/{CLASS} {state}, and the PCI bus could not be read completely")
    bus = read_bus(reader, memories.bus)
    links = (reader.link(f"{PCI}/{nic.address}/driver") or "" for nic in bus.nics)
    drivers = {link.rpartition("/")[2] for link in links}
    for driver in sorted(drivers & RDMA_MODULES.keys() - (set() if bus.gpus else OFTEN_WITHOUT)):
        reader.report(CLASS, f"NICs of {driver} without RDMA: modprobe {module_of(driver)}")
    return Absent(f"no RDMA device: /{CLASS} {state}")


def _read_devices(host: Host, names: list[str], memories: Memories) -> list[DeviceReading]:
    """Read the named devices; nothing below the folder of an excluded device is read."""
    readers = memories.readers
    excluded = _excluded(host, names, memories)
    jobs = {
        name: partial(_read_device, host, readers.constants(name), memories.front_end.netdevs, name)
        for name in names
        if name not in excluded
    }
    readings = _read_all(host, readers, jobs)
    # Note which devices look like NVSwitch management functions, and read on where that is new. One
    # that is known to manage NVSwitches looks like it for as long as it is there.
    devices = [device for device, _ in readings.values()]
    pattern, more = nvswitch_pattern(devices), dict[str, Callable[[], DeviceReading]]()
    for device in devices:
        constants = readers.constants(device.name)
        is_like = device.name in pattern or device.nvswitch_management is True
        if device.ports and constants.get(PATTERN) is not is_like:
            if is_like or PATTERN in constants:
                more[device.name] = jobs[device.name]
            elif any(port.link_layer != "Ethernet" for port in device.ports):
                more[device.name] = partial(_with_counters, host, constants, readings[device.name])
            constants[PATTERN] = is_like
    if more:
        for name, (device, _) in readings.items():
            if device.failure or name in readers.old:  # newer facts may be there by now
                more[name] = jobs[name]
            more.setdefault(name, partial(readings.__getitem__, name))
        readers.refresh()
        readings = _read_all(host, readers, more)
    readings |= {name: (device, []) for name, device in excluded.items()}
    return [readings[name] for name in names]


def _read_all(
    host: Host, readers: DeviceReaders, jobs: Mapping[str, Callable[[], DeviceReading]]
) -> Readings:
    readings = readers.read(jobs, host.deadline)
    for name in jobs.keys() - readings.keys():  # its read blocks, or there is no thread for it
        if fault := readers.unstarted.get(name):
            problem = Problem(SOURCE, f"/{CLASS}/{name}", "EAGAIN", f"not read: {fault}")
            readings[name] = RdmaDevice(name, failure="has no thread"), [problem]
        else:
            readings[name] = _blocked(host.root, name, readers.constants(name))
    return {name: readings[name] for name in jobs}


def _excluded(host: Host, names: list[str], memories: Memories) -> dict[str, RdmaDevice]:
    """Return the devices, without facts, that a glob of --exclude-device names, by name.

    Their PCI functions, and those of the legs of their bonds, stay excluded while they are on the
    bus, whatever name a device of theirs has. Of a device's folder nothing but the links is read.
    """
    on_bus, excluded = memories.bus.bus.functions, dict[str, RdmaDevice]()
    # Those of a glob that names a PCI function, or its ids, need no device.
    functions = {pci for pci, of in on_bus.items() if is_named(host.excluded, "", pci, of.ids)}
    memories.excluded = (memories.excluded & on_bus.keys()) | functions
    for name in names if host.excluded else ():
        reader = Reader(host.root, SOURCE)
        pci = _linked_pci(reader, name)
        function = on_bus.get(pci or "")
        ids = function.ids if function else None
        if pci not in memories.excluded and not is_named(host.excluded, name, pci, ids):
            continue
        excluded[name] = device = RdmaDevice(name, excluded=True, pci=pci, pci_ids=ids)
        if pci:
            memories.excluded |= {pci}
            with suppress(Unavailable):
                for netdev in reader.names(f"{PCI}/{pci}/net") or ():
                    legs = legs_of(reader, device, netdev).values()
                    memories.excluded |= {leg for leg in legs if leg}
    return excluded


def _read_device(host: Host, constants: Constants, routed: Routed, name: str) -> DeviceReading:
    """Read one device, in the thread of its worker."""
    reader = Reader(host.root, SOURCE)
    try:
        device = _device(reader, name, constants, routed, is_by_name=bool(host.backend))
        if reader.undecided:
            device = device._replace(failure=reader.undecided[0], ports=())
        return _unless_vanished(reader, device), reader.problems
    except Unavailable:
        return _blocked(host.root, name, constants)


def _with_counters(host: Host, constants: Constants, reading: DeviceReading) -> DeviceReading:
    """Read the counters of a device that was not known to have any when it was read."""
    (device, problems), reader = reading, Reader(host.root, SOURCE)
    try:
        ports = [
            port._replace(link_downed=_link_downed(reader, device, port.number))
            for port in device.ports
        ]
        device = _unless_vanished(reader, device._replace(ports=tuple(ports)))
        return device, problems + reader.problems
    except Unavailable:
        return _blocked(host.root, device.name, constants)


def _unless_vanished(reader: Reader, device: RdmaDevice) -> RdmaDevice:
    """Return the device; one that has failed if its ports are gone after the last read."""
    if device.ports and reader.names(f"{CLASS}/{device.name}/ports") is None:
        return RdmaDevice(device.name, failure="it vanished while it was read", pci=device.pci)
    return device


def _blocked(root: Root, name: str, constants: Constants) -> DeviceReading:
    """Return a device whose reads block: its PCI address is all that is known of it.

    An agent with a CPU limit that is too low is late in the same way, on a device that answers.
    """
    text = (
        "not read in time: a read is blocked in the kernel, or a CPU limit throttles the agent "
        "(resources.limits.cpu); no fact of this device is known"
    )
    problem = Problem(SOURCE, f"/{CLASS}/{name}", "ETIMEDOUT", text)
    pci = _known_pci(constants, _linked_pci(Reader(root, SOURCE), name))
    return RdmaDevice(name, failure="blocks", pci=pci), [problem]


# One device, /sys/class/infiniband/{name}


def _device(
    reader: Reader, name: str, constants: Constants, routed: Routed, *, is_by_name: bool
) -> RdmaDevice:
    """Read a device in the order in which the facts need each other.

    `routed` are the netdevs of the best default routes. With `is_by_name` globs of --backend-device
    decide which devices are the backend: what else a card is decides nothing, and may be unread.
    """
    base = f"{CLASS}/{name}"
    of_card = reader if is_by_name else reader.decisive
    pci = _linked_pci(reader, name) or parse.pci_address(_uevent(reader, base, "PCI_SLOT_NAME"))
    function = _known_pci(constants, pci)

    def once(attribute: str, read: Callable[[], T | None]) -> T | None:
        """Return an attribute of the PCI function that does not change; read it if it is unknown.

        None, the value of a failed read, is not kept; neither is anything without a PCI address.
        """
        if function is None:
            return read()
        value: T | None = constants.get((function, attribute))
        if value is None and (value := read()) is not None:
            constants[function, attribute] = value
        return value

    has_failed = pci is None and any(problem.error for problem in reader.problems)
    if has_failed and not _is_sub_function(reader, base):
        # Without a PCI function it would pass for a software device.
        reader.undecided.append(f"/{base} has an unread link")
    layers = _link_layers(reader, base)
    driver = (reader.decisive.link(f"{base}/device/driver") or "").rpartition("/")[2]
    ids = once("ids", lambda: read_ids(reader.decisive, f"{base}/device"))
    subsystem = once("subsystem", lambda: read_ids(of_card, f"{base}/device", subsystem=True))
    # Without PCI ids its text is the kind of an Ethernet device.
    of_kind = of_card if "Ethernet" in layers.values() and ids is None else reader

    def psid() -> str | None:
        # It is compared with others: garbage is escaped.
        text = (of_card.data(f"{base}/board_id") or b"").decode(errors="backslashreplace")
        return visible(text.strip(), MAX_PSID) or None

    def is_virtual() -> bool | None:
        # The kernel removes the link before the function; None is not remembered.
        return reader.decisive.link(f"{base}/device/physfn") is not None or None

    device = RdmaDevice(
        name,
        pci=function,
        pci_ids=ids,
        subsystem=subsystem,
        driver=driver or _uevent(reader, base, "DRIVER") or None,
        virtual_function=bool(once("physfn", is_virtual)),
        sub_function=_is_sub_function(reader, base),
        node_type=of_card.value(f"{base}/node_type", parse.node_type),
        node_guid=reader.value(f"{base}/node_guid", parse.guid),
        # By it the functions of a card are recognized.
        sys_image_guid=once(
            "sys_image_guid", lambda: of_card.value(f"{base}/sys_image_guid", parse.guid)
        ),
        hca_type=once("hca_type", lambda: of_kind.text(f"{base}/hca_type")),
        board_id=once("board_id", psid),
        fw_ver=reader.text(f"{base}/fw_ver"),
        numa_node=reader.value(f"{base}/device/numa_node", parse.known),
    )
    netdevs = reader.decisive.names(f"{base}/device/net")
    if not netdevs:  # that of a software device (rxe, siw) is its parent
        parent = reader.decisive.value(f"{base}/parent", parse.netdev_name)
        netdevs = [parent] if parent else []
    device = device._replace(netdevs=tuple(netdevs))
    is_pattern = bool(constants.get(PATTERN))
    if is_pattern:
        path = f"{base}/device/vpd"
        management = once("vpd", lambda: _has_switch_management(reader, path))
        device = device._replace(nvswitch_pattern=True, nvswitch_management=management)
    # Each read of the counters of a function that manages NVSwitches fails with EINVAL, and logs
    # to the kernel log.
    is_known = PATTERN in constants and not is_pattern
    has_counters = is_known or set(layers.values()) == {"Ethernet"}
    ports = _ports(reader, device, layers, routed, has_counters=has_counters)
    return device._replace(ports=tuple(ports))


def _known_pci(constants: Constants, pci: str | None) -> str | None:
    """Return the PCI address of a device; the last known address if it cannot be read now."""
    if pci:
        constants[LAST_PCI] = pci
    last: str | None = constants.get(LAST_PCI)
    return last


def _linked_pci(reader: Reader, name: str) -> str | None:
    """Read the PCI address of a device from its links, for which sysfs asks no driver."""
    for path in (f"{CLASS}/{name}", f"{CLASS}/{name}/device"):
        try:
            if pci := parse.pci_address(reader.link(path) or ""):
                return pci
        except Unavailable:
            continue
    return None


def _is_sub_function(reader: Reader, base: str) -> bool:
    """Return True for a device on the auxiliary bus, as which its driver names it mlx5_core.sf.4.

    Both links of the device tell it; as a function of its own it would count beside its parent.
    """
    path = reader.link(base) or reader.decisive.link(f"{base}/device") or ""
    return any(".sf." in part for part in path.split("/"))


def _uevent(reader: Reader, base: str, key: str) -> str:
    """Read a value of `device/uevent`, which a copied tree has that lost its links."""
    return (reader.value(f"{base}/device/uevent", parse.uevent) or {}).get(key, "")


def _has_switch_management(reader: Reader, path: str) -> bool | None:
    """Return True if a VPD contains SW_MNG (PCI Local Bus Specification 3.0, appendix I).

    None if it cannot be read: only root may, and a guest may have none. The kernel gives ETIMEDOUT
    for a VPD that the device does not hand over in 125 ms
    (drivers/pci/vpd.c); its other files may be fine.
    """
    try:
        vpd = reader.data(path, PAGE)
    except Unavailable as error:
        reader.report(path, str(error), "ETIMEDOUT")
        return None
    return None if vpd is None else SWITCH_MANAGEMENT in vpd


# Its ports, /sys/class/infiniband/{name}/ports/{number}


def _link_layers(reader: Reader, base: str) -> ByPort:
    """Read the port numbers of a device and the link layer of each port.

    A device without a `ports` directory has not failed: scif0 never has one, and a device that was
    just removed has none either.
    """
    path = f"{base}/ports"
    names = reader.decisive.names(path)
    if names is None:
        reader.report(path, NO_PORTS)
        return {}
    layers = {}
    for name in names:
        # 1 to 255 without leading zeros (IBTA vol. 1, 14.2.5.3)
        if name.isdecimal() and str(int(name[:4])) == name and 0 < int(name) < 256:
            layer = reader.decisive.value(f"{path}/{name}/link_layer", parse.link_layer)
            layers[int(name)] = layer
        else:
            reader.report(f"{path}/{name}", "not a port number from 1 to 255; left out")
    return layers


def _ports(
    reader: Reader, device: RdmaDevice, layers: ByPort, routed: Routed, *, has_counters: bool
) -> Iterator[RdmaPort]:
    """Yield the ports of a device, each with its netdev.

    A PCI function without a netdev has lent it to a pod. Its GIDs still name that netdev, which is
    not the netdev of the same name in this network namespace.
    """
    base = f"{CLASS}/{device.name}"
    netdevs: ByPort = dict.fromkeys(layers)
    if device.netdevs or not device.pci or device.driver in NETDEV_ELSEWHERE:
        netdevs = port_netdevs(reader, base, layers, device.netdevs)
    for number, layer in layers.items():
        netdev, legs = read_netdev(reader, device, netdevs[number], layer, routed)
        path = f"{base}/ports/{number}"
        rate_text = reader.text(f"{path}/rate")
        of_card = reader.decisive if layer == "InfiniBand" else reader
        has_smi = of_card.value(f"{path}/has_smi", parse.number)
        yield RdmaPort(
            number,
            link_layer=layer,
            state=reader.value(f"{path}/state", parse.port_state),
            phys_state=reader.value(f"{path}/phys_state", parse.enumeration),
            rate_text=rate_text,
            rate_gbps=reader.parsed(f"{path}/rate", rate_text, parse.rate),
            port_guid=of_card.value(f"{path}/gids/0", parse.gid_guid),
            has_smi=None if has_smi is None else bool(has_smi),
            link_downed=_link_downed(reader, device, number) if has_counters else None,
            netdev=netdev,
            legs=legs,
        )


def _link_downed(reader: Reader, device: RdmaDevice, number: int) -> int | None:
    return reader.value(f"{CLASS}/{device.name}/ports/{number}/counters/link_downed", parse.counter)
