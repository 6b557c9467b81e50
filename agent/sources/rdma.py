"""The RDMA source: every device and port below /sys/class/infiniband, and the netdevs behind them.

The class directory has three states. It is missing, it is empty, or it is populated; the first two mean "no RDMA
hardware" only when no InfiniBand controller is on the PCI bus either, for a driver that reloads looks the same.
Devices are read one by one, each with a deadline of its own, and a device that fails costs its own facts only.

What a kernel file's text means is in agent/sysfs/parse.py, what a port is used for in agent/sources/backend.py.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.model import Absent, Failed, Problem, RdmaDevice, RdmaPort, Reading, Seen
from agent.sources import netdev
from agent.sources.pci import PCI, is_infiniband
from agent.sysfs import parse as kernel
from agent.sysfs.reader import PAGE, TABLE, Reader
from agent.sysfs.worker import run_each

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.host import Host
    from agent.model import Netdev, PortRole

SOURCE = "rdma"
CLASS = "sys/class/infiniband"
SWITCH_MANAGEMENT = (
    b"SW_MNG"  # in the PCI VPD of the functions that manage an HGX board's NVSwitches
)


def read(host: Host, _ports: tuple[PortRole, ...] = ()) -> Reading[tuple[RdmaDevice, ...]]:
    """Read the whole class."""
    reader = Reader(host.root, SOURCE)
    try:
        names = reader.names(CLASS)
        if not names:
            return Reading(_nobody_home(reader, names), tuple(reader.problems))
        routed = _default_route_netdevs(reader)
    except Unavailable as error:
        return Reading(Failed(str(error)), tuple(reader.problems))
    devices, problems = _read_devices(host, names, routed or frozenset())
    link_layers = {port.link_layer for device in devices for port in device.ports}
    if routed is None and "Ethernet" in link_layers and "InfiniBand" not in link_layers:
        return Reading(
            Failed("no routing table can be read, and so no front end told"),
            (*reader.problems, *problems),
        )
    if not any(map(_is_there, devices)):
        return Reading(
            Failed(f"none of the devices in /{CLASS} can be looked into"),
            (*reader.problems, *problems),
        )
    return Reading(Seen(devices), (*reader.problems, *problems))


def _is_there(device: RdmaDevice) -> bool:
    """Something is known of it, be it that it is sick; a link that leads nowhere has nothing."""
    return bool(
        device.excluded or device.failure or device.ports or device.node_type or device.driver
    )


def _nobody_home(reader: Reader, names: list[str] | None) -> Absent | Failed:
    """Tell "no RDMA hardware" from a class that is missing or empty while the driver reloads."""
    state = "is empty" if names == [] else "is not there"
    if reader.problems:
        return Failed(f"/{CLASS} could not be listed")
    if not reader.names("sys/class/net"):
        return Failed("/sys/class/net is missing or empty, too: is /sys mounted there?")
    before = len(reader.problems)
    waiting = [pci for pci in reader.names(PCI) or () if _waits_for_its_driver(reader, pci)]
    if waiting:
        return Failed(
            f"/{CLASS} {state} while InfiniBand controllers are on the bus, {waiting[0]} first: no driver yet?"
        )
    if len(reader.problems) > before:
        return Failed(f"/{CLASS} {state}, and the PCI bus could not be read in full")
    return Absent(f"no RDMA device: /{CLASS} {state}")


def _waits_for_its_driver(reader: Reader, pci: str) -> bool:
    """An InfiniBand controller that is not given to a virtual machine."""
    return is_infiniband(reader, pci) and not (reader.link(f"{PCI}/{pci}/driver") or "").endswith(
        "/vfio-pci"
    )


def _default_route_netdevs(reader: Reader) -> frozenset[str] | None:
    """The netdevs that `/proc/net/route` and `/proc/net/ipv6_route` send the rest of the world through.

    None: a table that is there cannot be read.
    """
    found: set[str] = set()
    before = len(reader.problems)
    for path, parse in (
        ("proc/net/route", kernel.ipv4_default_netdevs),
        ("proc/net/ipv6_route", kernel.ipv6_default_netdevs),
    ):
        found |= reader.value(path, parse, TABLE) or set()
    return (
        None
        if any(problem.error for problem in reader.problems[before:])
        else frozenset(found - {"lo"})
    )


def _read_devices(
    host: Host, names: list[str], routed: frozenset[str]
) -> tuple[tuple[RdmaDevice, ...], list[Problem]]:
    excluded = {name for name in names if any(fnmatchcase(name, glob) for glob in host.excluded)}
    work = partial(_read_device, host, routed)
    results = run_each(work, [name for name in names if name not in excluded], host.deadline)
    devices, problems = [], []
    for name in names:
        if name in excluded:
            devices.append(RdmaDevice(name, excluded=True))
            continue
        device, stumbles = results.get(name) or _too_late(name)
        devices.append(device)
        problems.extend(stumbles)
    return tuple(devices), problems


def _read_device(host: Host, routed: frozenset[str], name: str) -> tuple[RdmaDevice, list[Problem]]:
    reader = Reader(host.root, SOURCE)
    try:
        device = _device(reader, name, routed)
        # One that vanished while it was read shows half of what it is.
        if device.ports and reader.names(f"{CLASS}/{name}/ports") is None:
            return RdmaDevice(name, failure="it vanished while it was read"), reader.problems
    except Unavailable:
        return _too_late(name)
    return device, reader.problems


def _too_late(name: str) -> tuple[RdmaDevice, list[Problem]]:
    """A device that blocks; whatever was read of it before may be stale and is dropped."""
    text = "a read blocked in the kernel: no fact of this device is known"
    return RdmaDevice(name, failure="blocks"), [
        Problem(SOURCE, f"/{CLASS}/{name}", "ETIMEDOUT", text)
    ]


def _device(reader: Reader, name: str, routed: frozenset[str]) -> RdmaDevice:
    base = f"{CLASS}/{name}"
    numbers, failure = _port_numbers(reader, base)
    link_layers = {
        number: reader.value(f"{base}/ports/{number}/link_layer", kernel.link_layer)
        for number in numbers
    }
    pci, driver = _function(reader, base)
    management = _nvswitch_management(reader, base, link_layers)
    netdevs = tuple(reader.names(f"{base}/device/net") or _parent(reader, base))
    # A PCI function without a netdev here has lent it to a pod; its GIDs may still name it, and ours of the same name.
    lent = bool(pci) and not netdevs
    interfaces = (
        dict.fromkeys(link_layers) if lent else netdev.names(reader, base, link_layers, netdevs)
    )
    ports = tuple(
        _port(
            reader,
            f"{base}/ports/{number}",
            link_layer,
            netdev.facts(reader, name, interfaces[number], link_layer, routed),
            counters=management is False,
        )
        for number, link_layer in link_layers.items()
    )
    before = len(reader.problems)
    hca_type, board_id = reader.text(f"{base}/hca_type"), reader.text(f"{base}/board_id")
    if len(reader.problems) > before and "Ethernet" in link_layers.values():
        # It would stand in a group of its own, and perhaps outvote the others (agent/sources/backend.py).
        failure, ports = "its kind cannot be read", ()
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
        ports=ports,
    )


def _parent(reader: Reader, base: str) -> Iterable[str]:
    """The netdev under a software device (rxe, siw), which has no PCI function and names it in `parent`."""
    return filter(None, [reader.value(f"{base}/parent", kernel.netdev_name)])


def _port_numbers(reader: Reader, base: str) -> tuple[list[int], str | None]:
    """The port numbers of a device (1 to 255, IBTA vol. 1, 14.2.5.3), and why they cannot be listed.

    A device without the folder is no failure: `scif0` is one for good, and one that was just removed is simply gone.
    """
    before = len(reader.problems)
    names = reader.names(f"{base}/ports")
    if names is None and len(reader.problems) > before:
        return [], "its ports cannot be listed"
    if names is None:
        reader.report(
            f"{base}/ports",
            "not there: a device without data ports, or a copied tree that lost its links",
        )
    numbers = []
    for name in names or ():
        if name.isdecimal() and str(int(name[:4])) == name and 0 < int(name) < 256:
            numbers.append(int(name))
        else:
            reader.report(f"{base}/ports/{name}", "no port number from 1 to 255; left out")
    return numbers, None


def _function(reader: Reader, base: str) -> tuple[str | None, str | None]:
    """PCI address and driver; from `device/uevent` where a copied tree has lost its links."""
    pci = kernel.pci_address(reader.link(base) or "") or kernel.pci_address(
        reader.link(f"{base}/device") or ""
    )
    driver = (reader.link(f"{base}/device/driver") or "").rpartition("/")[2]
    if pci and driver:
        return pci, driver
    facts = reader.value(f"{base}/device/uevent", kernel.uevent) or {}
    return pci or kernel.pci_address(facts.get("PCI_SLOT_NAME", "")), driver or facts.get("DRIVER")


def _nvswitch_management(
    reader: Reader, base: str, link_layers: dict[int, str | None]
) -> bool | None:
    """Whether the VPD (PCI Local Bus Specification 3.0, appendix I) names an NVSwitch-management function.

    Such functions look like InfiniBand HCAs, so only what may be one is asked: reading a VPD is slow. None: not
    readable.
    """
    if not {"InfiniBand", None} & set(link_layers.values()):
        return False
    before = len(reader.problems)
    vpd = reader.data(f"{base}/device/vpd", PAGE)
    if vpd is None:
        return None if len(reader.problems) > before else False
    return SWITCH_MANAGEMENT in vpd


def _port(
    reader: Reader,
    path: str,
    link_layer: str | None,
    network: tuple[Netdev | None, tuple[Netdev, ...]],
    *,
    counters: bool,
) -> RdmaPort:
    rate_text = reader.text(f"{path}/rate")
    has_smi = reader.value(f"{path}/has_smi", kernel.number)
    return RdmaPort(
        int(path.rpartition("/")[2]),
        link_layer=link_layer,
        state=reader.value(f"{path}/state", kernel.enumeration),
        phys_state=reader.value(f"{path}/phys_state", kernel.enumeration),
        rate_text=rate_text,
        rate_gbps=reader.parsed(f"{path}/rate", rate_text, kernel.rate),
        port_guid=reader.value(f"{path}/gids/0", kernel.gid_guid),
        has_smi=None if has_smi is None else bool(has_smi),
        # The counters of an NVSwitch-management function answer EINVAL and write to the kernel log on every read.
        link_downed=reader.value(f"{path}/counters/link_downed", kernel.counter)
        if counters
        else None,
        netdev=network[0],
        legs=network[1],
    )
