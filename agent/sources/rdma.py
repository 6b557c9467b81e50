"""The RDMA source: the devices and ports in /sys/class/infiniband, and their netdevs.

The class directory is missing, empty or populated. Missing and empty mean "no RDMA hardware" only
if no InfiniBand controller is on the PCI bus, since the class is empty while a driver reloads, too.
Each device is read by a worker of its own (agent/sysfs/worker.py); a device that fails or blocks
does not affect the others.

The text formats are parsed in agent/sysfs/parse.py; the role of a port is decided in
agent/sources/backend.py.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import Unavailable
from agent.model import Absent, Failed, Problem, RdmaDevice, RdmaPort, Reading, Seen
from agent.sources.netdev import port_netdevs, read_netdev
from agent.sources.pci import PCI, given_to_vm, is_infiniband
from agent.sysfs import parse as kernel
from agent.sysfs.reader import PAGE, TABLE, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.host import Host
    from agent.model import Netdev, PortRole
    from agent.sysfs.reader import Root

    Constants = dict[tuple[str, str], Any]  # by PCI address and attribute

T = TypeVar("T")

SOURCE = "rdma"
CLASS = "sys/class/infiniband"
# In the PCI VPD of the functions that manage the NVSwitches of an HGX board.
SWITCH_MANAGEMENT = b"SW_MNG"
ROUTES = (
    ("proc/net/route", kernel.ipv4_default_netdevs),
    ("proc/net/ipv6_route", kernel.ipv6_default_netdevs),
)


def read(host: Host, _ports: tuple[PortRole, ...] = ()) -> Reading[tuple[RdmaDevice, ...]]:
    """Read all devices of the class."""
    reader = Reader(host.root, SOURCE)
    try:
        names = reader.names(CLASS)
        if not names:
            if not reader.problems:
                host.readers.keep(())
            return Reading(_without_devices(reader, names), tuple(reader.problems))
        routed = _default_route_netdevs(reader)
    except Unavailable as error:
        return Reading(Failed(str(error)), tuple(reader.problems))
    devices, problems = _read_devices(host, names, routed or frozenset())
    return Reading(_outcome(devices, routed), (*reader.problems, *problems))


def _outcome(
    devices: tuple[RdmaDevice, ...], routed: frozenset[str] | None
) -> Seen[tuple[RdmaDevice, ...]] | Failed:
    """Return the devices, or Failed if the backend cannot be chosen among them."""
    link_layers = {port.link_layer for device in devices for port in device.ports}
    is_ethernet_only = "Ethernet" in link_layers and "InfiniBand" not in link_layers
    if routed is None and is_ethernet_only:
        return Failed("the routing tables cannot be read, so the front end is unknown")
    if not any(map(_has_facts, devices)):
        return Failed(f"no device in /{CLASS} can be read")
    return Seen(devices)


def _has_facts(device: RdmaDevice) -> bool:
    """Return False for a dangling link of the class directory, which has no facts at all."""
    return bool(
        device.excluded or device.failure or device.ports or device.node_type or device.driver
    )


def _without_devices(reader: Reader, names: list[str] | None) -> Absent | Failed:
    """Return Absent if there is no RDMA hardware, Failed if that is not certain.

    `names` is None if the class directory is missing, and [] if it is empty.
    """
    state = "is empty" if names == [] else "is not there"
    if reader.problems:
        return Failed(f"/{CLASS} could not be listed")
    if not reader.names("sys/class/net"):
        return Failed("/sys/class/net is missing or empty, too: is /sys mounted there?")
    before = len(reader.problems)
    controllers = [
        pci
        for pci in reader.names(PCI) or ()
        if is_infiniband(reader, pci) and not given_to_vm(reader, pci)
    ]
    if controllers:
        return Failed(
            f"/{CLASS} {state} while the PCI bus has InfiniBand controllers"
            f" ({controllers[0]} first): is their driver loaded?"
        )
    if len(reader.problems) > before:
        return Failed(f"/{CLASS} {state}, and the PCI bus could not be read completely")
    return Absent(f"no RDMA device: /{CLASS} {state}")


def _default_route_netdevs(reader: Reader) -> frozenset[str] | None:
    """Read the netdevs of the default routes; None if a table exists and cannot be read."""
    found: set[str] = set()
    before = len(reader.problems)
    for path, parse in ROUTES:
        found |= reader.value(path, parse, TABLE) or set()
    if any(problem.error for problem in reader.problems[before:]):
        return None
    return frozenset(found - {"lo"})


def _read_devices(
    host: Host, names: list[str], routed: frozenset[str]
) -> tuple[tuple[RdmaDevice, ...], list[Problem]]:
    """Read the named devices; nothing below the folder of an excluded one is read."""
    excluded = {name for name in names if any(fnmatchcase(name, glob) for glob in host.excluded)}
    jobs = {
        name: partial(_read_device, host.root, host.readers.constants(name), routed, name)
        for name in names
        if name not in excluded
    }
    results = host.readers.read(jobs, host.deadline)
    devices: list[RdmaDevice] = []
    problems: list[Problem] = []
    for name in names:
        if name in excluded:
            devices.append(RdmaDevice(name, excluded=True))
            continue
        device, more = results.get(name) or _blocked(name)
        devices.append(device)
        problems.extend(more)
    return tuple(devices), problems


def _read_device(
    root: Root, constants: Constants, routed: frozenset[str], name: str
) -> tuple[RdmaDevice, list[Problem]]:
    """Read one device, in the thread of its worker."""
    reader = Reader(root, SOURCE)
    try:
        device = _device(reader, name, constants, routed)
        # The facts of a device that was removed during the read are incomplete.
        if device.ports and reader.names(f"{CLASS}/{name}/ports") is None:
            return RdmaDevice(name, failure="it vanished while it was read"), reader.problems
    except Unavailable:
        return _blocked(name)
    return device, reader.problems


def _blocked(name: str) -> tuple[RdmaDevice, list[Problem]]:
    """Return a device whose reads block; facts that were read before the block are dropped."""
    text = "a read blocked in the kernel: no fact of this device is known"
    problem = Problem(SOURCE, f"/{CLASS}/{name}", "ETIMEDOUT", text)
    return RdmaDevice(name, failure="blocks"), [problem]


def _device(reader: Reader, name: str, constants: Constants, routed: frozenset[str]) -> RdmaDevice:
    base = f"{CLASS}/{name}"
    numbers, failure = _port_numbers(reader, base)
    link_layers = {
        number: reader.value(f"{base}/ports/{number}/link_layer", kernel.link_layer)
        for number in numbers
    }
    pci, driver = _function(reader, base)
    once = partial(_once, constants, pci)
    management = _nvswitch_management(reader, base, link_layers, once)
    netdevs = tuple(reader.names(f"{base}/device/net") or _parent(reader, base))
    interfaces = _interfaces(reader, base, link_layers, netdevs, pci)
    ports = []
    for number, link_layer in link_layers.items():
        network = read_netdev(reader, name, interfaces[number], link_layer, routed)
        path = f"{base}/ports/{number}"
        ports.append(_port(reader, path, link_layer, network, counters=management is False))
    before = len(reader.problems)
    hca_type = once("hca_type", lambda: reader.text(f"{base}/hca_type"))
    board_id = once("board_id", lambda: reader.text(f"{base}/board_id"))
    if len(reader.problems) > before and "Ethernet" in link_layers.values():
        # Without its kind it would be a group of its own (agent/sources/backend.py).
        failure, ports = "its kind cannot be read", []
    return RdmaDevice(
        name,
        failure=failure,
        pci=pci,
        driver=driver,
        virtual_function=reader.link(f"{base}/device/physfn") is not None,
        nvswitch_management=management,
        node_type=reader.value(f"{base}/node_type", kernel.enumeration),
        node_guid=reader.value(f"{base}/node_guid", kernel.guid),
        sys_image_guid=reader.value(f"{base}/sys_image_guid", kernel.guid),
        hca_type=hca_type,
        board_id=board_id,
        fw_ver=reader.text(f"{base}/fw_ver"),
        numa_node=reader.value(f"{base}/device/numa_node", kernel.known),
        netdevs=netdevs,
        ports=tuple(ports),
    )


def _once(
    constants: Constants, pci: str | None, attribute: str, read: Callable[[], T | None]
) -> T | None:
    """Return an attribute of a PCI function that does not change; read it if it is not known.

    None, the value of a failed read, is not kept; neither is anything without a PCI address.
    """
    if pci is None:
        return read()
    value: T | None = constants.get((pci, attribute))
    if value is None:
        value = read()
    if value is not None:
        constants[pci, attribute] = value
    return value


def _interfaces(
    reader: Reader,
    base: str,
    link_layers: dict[int, str | None],
    netdevs: tuple[str, ...],
    pci: str | None,
) -> dict[int, str | None]:
    """Return the name of each port's netdev, by port number.

    A PCI function without a netdev has lent it to a pod. Its GIDs still name that netdev, which is
    not the one of the same name in this network namespace.
    """
    if pci and not netdevs:
        return dict.fromkeys(link_layers)
    return port_netdevs(reader, base, link_layers, netdevs)


def _parent(reader: Reader, base: str) -> Iterable[str]:
    """Read `parent`: the netdev of a software device (rxe, siw), which has no PCI function."""
    name = reader.value(f"{base}/parent", kernel.netdev_name)
    return [name] if name else []


def _port_numbers(reader: Reader, base: str) -> tuple[list[int], str | None]:
    """Read the port numbers of a device (1 to 255, IBTA vol. 1, 14.2.5.3), and why that failed.

    A device without a `ports` directory has not failed: scif0 never has one, and a device that was
    just removed has none either.
    """
    before = len(reader.problems)
    names = reader.names(f"{base}/ports")
    if names is None and len(reader.problems) > before:
        return [], "its ports cannot be listed"
    if names is None:
        text = "not there: a device without data ports, or a copied tree that lost its links"
        reader.report(f"{base}/ports", text)
    numbers = []
    for name in names or ():
        if name.isdecimal() and str(int(name[:4])) == name and 0 < int(name) < 256:
            numbers.append(int(name))
        else:
            reader.report(f"{base}/ports/{name}", "not a port number from 1 to 255; left out")
    return numbers, None


def _function(reader: Reader, base: str) -> tuple[str | None, str | None]:
    """Read PCI address and driver, from `device/uevent` if a copied tree has lost its links."""
    pci = kernel.pci_address(reader.link(base) or "")
    pci = pci or kernel.pci_address(reader.link(f"{base}/device") or "")
    driver = (reader.link(f"{base}/device/driver") or "").rpartition("/")[2]
    if pci and driver:
        return pci, driver
    facts = reader.value(f"{base}/device/uevent", kernel.uevent) or {}
    return pci or kernel.pci_address(facts.get("PCI_SLOT_NAME", "")), driver or facts.get("DRIVER")


def _nvswitch_management(
    reader: Reader,
    base: str,
    link_layers: dict[int, str | None],
    once: Callable[[str, Callable[[], bool | None]], bool | None],
) -> bool | None:
    """Return True if the device manages NVSwitches; None if its VPD cannot be read.

    The VPD (PCI Local Bus Specification 3.0, appendix I) of such a function contains SW_MNG. Only
    devices that may be InfiniBand are read: the others cannot be one, and reading a VPD is slow.
    """
    if not {"InfiniBand", None} & set(link_layers.values()):
        return False
    before = len(reader.problems)
    management = once("vpd", lambda: _has_switch_management(reader, f"{base}/device/vpd"))
    has_failed = len(reader.problems) > before
    return None if has_failed else bool(management)


def _has_switch_management(reader: Reader, path: str) -> bool | None:
    vpd = reader.data(path, PAGE)
    return None if vpd is None else SWITCH_MANAGEMENT in vpd


def _port(
    reader: Reader,
    path: str,
    link_layer: str | None,
    network: tuple[Netdev | None, tuple[Netdev, ...]],
    *,
    counters: bool,
) -> RdmaPort:
    """Read the port at `path`.

    `counters` is False for a device that manages NVSwitches, or may: each read of its counters
    fails with EINVAL and logs to the kernel log.
    """
    rate_text = reader.text(f"{path}/rate")
    has_smi = reader.value(f"{path}/has_smi", kernel.number)
    link_downed = f"{path}/counters/link_downed"
    return RdmaPort(
        int(path.rpartition("/")[2]),
        link_layer=link_layer,
        state=reader.value(f"{path}/state", kernel.enumeration),
        phys_state=reader.value(f"{path}/phys_state", kernel.enumeration),
        rate_text=rate_text,
        rate_gbps=reader.parsed(f"{path}/rate", rate_text, kernel.rate),
        port_guid=reader.value(f"{path}/gids/0", kernel.gid_guid),
        has_smi=None if has_smi is None else bool(has_smi),
        link_downed=reader.value(link_downed, kernel.counter) if counters else None,
        netdev=network[0],
        legs=network[1],
    )
