"""One RDMA device, `/sys/class/infiniband/{device}`: what its files contain.

It is read in the order in which the facts need each other: port numbers and link layers, PCI
function, ports, kind, and the attributes on which no other read depends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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

    Constants = dict[tuple[str, str], Any]  # by PCI address and attribute

T = TypeVar("T")

CLASS = "sys/class/infiniband"
# In the PCI VPD of the functions that manage the NVSwitches of an HGX board.
SWITCH_MANAGEMENT = b"SW_MNG"


class _Function(NamedTuple):
    """The PCI function of a device; a software device has none."""

    pci: str | None
    driver: str | None
    nvswitch_management: bool | None
    netdevs: tuple[str, ...]


class _Kind(NamedTuple):
    """The kind of a NIC (agent/sources/kinds.py)."""

    hca_type: str | None
    board_id: str | None
    is_unread: bool  # a read of it failed


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


def read_device(reader: Reader, name: str, constants: Constants, routed: Routed) -> RdmaDevice:
    """Read one device.

    `constants` has the attributes known from earlier reads; `routed` are the netdevs of the default
    routes.
    """
    base = f"{CLASS}/{name}"
    numbers = port_numbers(reader, base)
    layers = link_layers(reader, base, numbers or ())
    function = _function(reader, base, layers, constants)
    ports = _ports(reader, name, function, layers, routed)
    kind = _kind(reader, base, _Once(constants, function.pci))
    failure = _failure(numbers, layers, kind)
    return RdmaDevice(
        name,
        failure=failure,
        pci=function.pci,
        driver=function.driver,
        virtual_function=reader.link(f"{base}/device/physfn") is not None,
        nvswitch_management=function.nvswitch_management,
        node_type=reader.value(f"{base}/node_type", kernel.enumeration),
        node_guid=reader.value(f"{base}/node_guid", kernel.guid),
        sys_image_guid=reader.value(f"{base}/sys_image_guid", kernel.guid),
        hca_type=kind.hca_type,
        board_id=kind.board_id,
        fw_ver=reader.text(f"{base}/fw_ver"),
        numa_node=reader.value(f"{base}/device/numa_node", kernel.known),
        netdevs=function.netdevs,
        ports=() if failure else ports,
    )


def _failure(numbers: list[int] | None, layers: LinkLayers, kind: _Kind) -> str | None:
    """Return the reason why a device has failed, though others of its files could be read.

    An Ethernet device whose kind cannot be read would be a kind of its own.
    """
    if numbers is None:
        return "its ports cannot be listed"
    if kind.is_unread and "Ethernet" in layers.values():
        return "its kind cannot be read"
    return None


def _function(reader: Reader, base: str, layers: LinkLayers, constants: Constants) -> _Function:
    pci, driver = _address_and_driver(reader, base)
    once = _Once(constants, pci)
    management = _nvswitch_management(reader, base, layers, once)
    return _Function(pci, driver, management, _netdevs(reader, base))


def _address_and_driver(reader: Reader, base: str) -> tuple[str | None, str | None]:
    """Read PCI address and driver, from `device/uevent` if a copied tree has lost its links."""
    pci = _linked_pci(reader, base) or _linked_pci(reader, f"{base}/device")
    driver = (reader.link(f"{base}/device/driver") or "").rpartition("/")[2]
    if pci and driver:
        return pci, driver
    facts = reader.value(f"{base}/device/uevent", kernel.uevent) or {}
    return pci or kernel.pci_address(facts.get("PCI_SLOT_NAME", "")), driver or facts.get("DRIVER")


def _linked_pci(reader: Reader, path: str) -> str | None:
    """Read the PCI address in the target of a link."""
    return kernel.pci_address(reader.link(path) or "")


def _nvswitch_management(reader: Reader, base: str, layers: LinkLayers, once: _Once) -> bool | None:
    """Return True if the device manages NVSwitches; None if its VPD cannot be read.

    The VPD (PCI Local Bus Specification 3.0, appendix I) of such a function contains SW_MNG. Only
    devices that may be InfiniBand are read: the others cannot be one, and reading a VPD is slow.
    """
    if not _may_be_infiniband(layers):
        return False
    before = len(reader.problems)
    management = once.get("vpd", lambda: _has_switch_management(reader, f"{base}/device/vpd"))
    return None if len(reader.problems) > before else bool(management)


def _may_be_infiniband(layers: LinkLayers) -> bool:
    """Return True if a port is InfiniBand, or its link layer could not be read."""
    return not {"InfiniBand", None}.isdisjoint(layers.values())


def _has_switch_management(reader: Reader, path: str) -> bool | None:
    vpd = reader.data(path, PAGE)
    return None if vpd is None else SWITCH_MANAGEMENT in vpd


def _netdevs(reader: Reader, base: str) -> tuple[str, ...]:
    """Read the netdevs of the PCI function, or of a device without one its parent."""
    return tuple(reader.names(f"{base}/device/net") or _parent(reader, base))


def _parent(reader: Reader, base: str) -> Iterable[str]:
    """Read `parent`: the netdev of a software device (rxe, siw), which has no PCI function."""
    name = reader.value(f"{base}/parent", kernel.netdev_name)
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


def _kind(reader: Reader, base: str, once: _Once) -> _Kind:
    before = len(reader.problems)
    hca_type = once.get("hca_type", lambda: reader.text(f"{base}/hca_type"))
    board_id = once.get("board_id", lambda: reader.text(f"{base}/board_id"))
    return _Kind(hca_type, board_id, is_unread=len(reader.problems) > before)
