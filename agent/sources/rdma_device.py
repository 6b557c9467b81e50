"""One RDMA device, `/sys/class/infiniband/{device}`: what its files contain.

It is read in the order in which the facts need each other: port numbers and link layers, PCI
function, ports, kind, and the attributes on which no other read depends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agent.errors import Unavailable
from agent.model import RdmaDevice
from agent.sources.netdev import port_netdevs, read_netdev
from agent.sources.rdma_port import link_layers, port_numbers, read_port
from agent.sysfs import parse as kernel
from agent.sysfs.reader import PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.model import RdmaPort
    from agent.sources.rdma_port import LinkLayers
    from agent.sources.routes import Routed
    from agent.sysfs.reader import Reader

    # By PCI address and attribute. The last PCI address itself is at `LAST_PCI`.
    Constants = dict[tuple[str, str], Any]

T = TypeVar("T")

CLASS = "sys/class/infiniband"
# In the PCI VPD of the functions that manage the NVSwitches of an HGX board.
SWITCH_MANAGEMENT = b"SW_MNG"
LAST_PCI = "", "pci"
UNPRIVILEGED = frozenset({"EACCES", "EPERM"})  # of a VPD, which only root may read


class _Function(NamedTuple):
    """The PCI function of a device; a software device has none."""

    pci: str | None
    driver: str | None
    nvswitch_management: bool | None
    vpd_unread: bool
    netdevs: tuple[str, ...]


class _Kind(NamedTuple):
    """The kind of a NIC (agent/sources/kinds.py)."""

    hca_type: str | None
    board_id: str | None


class _Once(NamedTuple):
    """The attributes of a PCI function that do not change, known from earlier reads."""

    constants: Constants
    pci: str | None

    def get(self, attribute: str, read: Callable[[], T | None]) -> T | None:
        """Return an attribute; read it if it is not known.

        None, the value of a failed read, is not kept; neither is anything without a PCI address.
        """
        if self.pci is None:
            return read()
        key = self.pci, attribute
        value: T | None = self.constants.get(key)
        if value is None and (value := read()) is not None:
            self.constants[key] = value
        return value

    def known(self, attribute: str) -> Any:
        """Return an attribute that was read before; None if it was not."""
        return self.constants.get((self.pci or "", attribute))


def read_device(reader: Reader, name: str, constants: Constants, routed: Routed) -> RdmaDevice:
    """Read one device.

    `constants` has the attributes known from earlier reads; `routed` are the netdevs of the default
    routes. A device has failed if a read on which the role of a port depends fails: a rule without
    its input must not pass for one that does not apply. It has no ports then.
    """
    once = _Once(constants, known_pci(constants, _pci(reader, name)))
    device = _device(reader, name, once, routed)
    if not reader.undecided:
        return device
    guid = device.sys_image_guid or once.known("sys_image_guid")
    return replace(device, failure=reader.undecided[0], ports=(), sys_image_guid=guid)


def known_pci(constants: Constants, pci: str | None) -> str | None:
    """Return the PCI address of a device; the last one known if it cannot be read now."""
    if pci:
        constants[LAST_PCI] = pci
    found: str | None = constants.get(LAST_PCI)
    return found


def linked_pci(reader: Reader, name: str) -> str | None:
    """Read the PCI address of a device from its links, for which sysfs asks no driver."""
    base = f"{CLASS}/{name}"
    return _linked_pci(reader, base) or _linked_pci(reader, f"{base}/device")


def _pci(reader: Reader, name: str) -> str | None:
    """Read the PCI address of a device, from its uevent if a copied tree has lost its links."""
    if pci := linked_pci(reader, name):
        return pci
    return kernel.pci_address(_uevent(reader, f"{CLASS}/{name}").get("PCI_SLOT_NAME", ""))


def _device(reader: Reader, name: str, once: _Once, routed: Routed) -> RdmaDevice:
    base = f"{CLASS}/{name}"
    layers = link_layers(reader, base, port_numbers(reader, base))
    function = _function(reader, base, layers, once)
    kind = _kind(reader, base, layers, once)
    return RdmaDevice(
        name,
        pci=function.pci,
        driver=function.driver,
        virtual_function=reader.decisive.link(f"{base}/device/physfn") is not None,
        nvswitch_management=function.nvswitch_management,
        vpd_unread=function.vpd_unread,
        node_type=reader.decisive.value(f"{base}/node_type", kernel.enumeration),
        node_guid=reader.value(f"{base}/node_guid", kernel.guid),
        sys_image_guid=_sys_image_guid(reader, base, layers, once),
        hca_type=kind.hca_type,
        board_id=kind.board_id,
        fw_ver=reader.text(f"{base}/fw_ver"),
        numa_node=reader.value(f"{base}/device/numa_node", kernel.known),
        netdevs=function.netdevs,
        ports=_ports(reader, name, function, layers, routed),
    )


def _sys_image_guid(reader: Reader, base: str, layers: LinkLayers, once: _Once) -> str | None:
    """Read the GUID that the functions of one card share, which agent/sources/smi.py compares."""
    deciding = reader.decisive if _may_be_infiniband(layers) else reader
    path = f"{base}/sys_image_guid"
    return once.get("sys_image_guid", lambda: deciding.value(path, kernel.guid))


def _function(reader: Reader, base: str, layers: LinkLayers, once: _Once) -> _Function:
    management, is_unread = _nvswitch_management(reader, base, layers, once)
    netdevs = _netdevs(reader, base)
    return _Function(once.pci, _driver(reader, base), management, is_unread, netdevs)


def _driver(reader: Reader, base: str) -> str | None:
    """Read the driver's name, from `device/uevent` if a copied tree has lost its links."""
    target = reader.decisive.link(f"{base}/device/driver") or ""
    return target.rpartition("/")[2] or _uevent(reader, base).get("DRIVER")


def _uevent(reader: Reader, base: str) -> dict[str, str]:
    return reader.value(f"{base}/device/uevent", kernel.uevent) or {}


def _linked_pci(reader: Reader, path: str) -> str | None:
    """Read the PCI address in the target of a link; None if the link cannot be read."""
    try:
        return kernel.pci_address(reader.link(path) or "")
    except Unavailable:
        return None


def _nvswitch_management(
    reader: Reader, base: str, layers: LinkLayers, once: _Once
) -> tuple[bool | None, bool]:
    """Return True if the device manages NVSwitches, and whether its VPD cannot be read.

    The VPD (PCI Local Bus Specification 3.0, appendix I) of such a function contains SW_MNG. Only
    devices that may be InfiniBand are read: the others cannot be one, and reading a VPD is slow.
    None for a VPD that cannot be read; one that needs privileges does not count as unread.
    """
    if not _may_be_infiniband(layers):
        return False, False
    before = len(reader.problems)
    path = f"{base}/device/vpd"
    management = once.get("vpd", lambda: _has_switch_management(reader, path))
    errors = {problem.error for problem in reader.problems[before:]}
    return (None if errors else bool(management)), not errors <= UNPRIVILEGED


def _may_be_infiniband(layers: LinkLayers) -> bool:
    """Return True if a port is InfiniBand, or its link layer could not be read."""
    return not {"InfiniBand", None}.isdisjoint(layers.values())


def _has_switch_management(reader: Reader, path: str) -> bool | None:
    """Return True if a VPD contains SW_MNG.

    The kernel gives ETIMEDOUT for a VPD that the device does not hand over in 125 ms
    (drivers/pci/vpd.c); its other files may be fine.
    """
    try:
        vpd = reader.data(path, PAGE)
    except Unavailable as error:
        reader.report(path, str(error), "ETIMEDOUT")
        return None
    return None if vpd is None else SWITCH_MANAGEMENT in vpd


def _netdevs(reader: Reader, base: str) -> tuple[str, ...]:
    """Read the netdevs of the PCI function, or of a device without one its parent."""
    return tuple(reader.decisive.names(f"{base}/device/net") or _parent(reader, base))


def _parent(reader: Reader, base: str) -> Iterable[str]:
    """Read `parent`: the netdev of a software device (rxe, siw), which has no PCI function."""
    name = reader.decisive.value(f"{base}/parent", kernel.netdev_name)
    return [name] if name else []


def _ports(
    reader: Reader, name: str, function: _Function, layers: LinkLayers, routed: Routed
) -> tuple[RdmaPort, ...]:
    """Read the ports of a device, each with its netdev."""
    base = f"{CLASS}/{name}"
    netdevs = _port_netdevs(reader, base, function, layers)
    counters = function.nvswitch_management is False
    ports = []
    for number, layer in layers.items():
        network = read_netdev(reader, name, netdevs[number], layer, routed)
        ports.append(read_port(reader, f"{base}/ports/{number}", layer, network, counters=counters))
    return tuple(ports)


def _port_netdevs(
    reader: Reader, base: str, function: _Function, layers: LinkLayers
) -> dict[int, str | None]:
    """Return the name of each port's netdev, by port number.

    A PCI function without a netdev has lent it to a pod. Its GIDs still name that netdev, which is
    not the one of the same name in this network namespace.
    """
    if function.pci and not function.netdevs:
        return dict.fromkeys(layers)
    return port_netdevs(reader, base, layers, function.netdevs)


def _kind(reader: Reader, base: str, layers: LinkLayers, once: _Once) -> _Kind:
    """Read the kind of a NIC; without it an Ethernet device would be a kind of its own."""
    deciding = reader.decisive if "Ethernet" in layers.values() else reader
    hca_type = once.get("hca_type", lambda: deciding.text(f"{base}/hca_type"))
    board_id = once.get("board_id", lambda: deciding.text(f"{base}/board_id"))
    return _Kind(hca_type, board_id)
