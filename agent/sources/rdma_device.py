"""One RDMA device, `/sys/class/infiniband/{device}`: what its files contain.

A device is read in the order in which the facts need each other: ports and link layers, PCI
function, NVSwitch management, netdevs, ports, kind, and the attributes that nothing depends on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agent.model import RdmaDevice
from agent.sources.netdev import port_netdevs, read_netdev
from agent.sources.rdma_port import link_layers, port_numbers, read_port
from agent.sysfs import parse as kernel
from agent.sysfs.reader import PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.model import RdmaPort
    from agent.sources.front_end import Routed
    from agent.sources.rdma_port import LinkLayers
    from agent.sysfs.reader import Reader

    Constants = dict[tuple[str, str], Any]  # by PCI address and attribute

T = TypeVar("T")

CLASS = "sys/class/infiniband"
# In the PCI VPD of the functions that manage the NVSwitches of an HGX board.
SWITCH_MANAGEMENT = b"SW_MNG"


def read_device(reader: Reader, name: str, constants: Constants, routed: Routed) -> RdmaDevice:
    """Read one device.

    `constants` has the attributes known from earlier reads; `routed` are the netdevs of the default
    routes.
    """
    base = f"{CLASS}/{name}"
    numbers = port_numbers(reader, base)
    layers = link_layers(reader, base, numbers or ())
    pci, driver = _function(reader, base)
    once = _Once(constants, pci)
    device = RdmaDevice(
        name,
        failure="its ports cannot be listed" if numbers is None else None,
        pci=pci,
        driver=driver,
        nvswitch_management=_nvswitch_management(reader, base, layers, once),
        netdevs=_netdevs(reader, base),
    )
    device = replace(device, ports=_ports(reader, device, layers, routed))
    return _with_attributes(reader, _with_kind(reader, device, once))


def _function(reader: Reader, base: str) -> tuple[str | None, str | None]:
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
    reader: Reader, device: RdmaDevice, layers: LinkLayers, routed: Routed
) -> tuple[RdmaPort, ...]:
    """Read the ports of a device, each with its netdev."""
    names = _port_netdevs(reader, device, layers)
    counters = device.nvswitch_management is False
    ports = []
    for number, layer in layers.items():
        network = read_netdev(reader, device.name, names[number], layer, routed)
        path = f"{CLASS}/{device.name}/ports/{number}"
        ports.append(read_port(reader, path, layer, network, counters=counters))
    return tuple(ports)


def _port_netdevs(reader: Reader, device: RdmaDevice, layers: LinkLayers) -> dict[int, str | None]:
    """Return the name of each port's netdev, by port number.

    A PCI function without a netdev has lent it to a pod. Its GIDs still name that netdev, which is
    not the one of the same name in this network namespace.
    """
    if device.pci and not device.netdevs:
        return dict.fromkeys(layers)
    return port_netdevs(reader, f"{CLASS}/{device.name}", layers, device.netdevs)


def _with_kind(reader: Reader, device: RdmaDevice, once: _Once) -> RdmaDevice:
    """Add the kind of the device; an Ethernet device whose kind cannot be read has failed.

    It would be a kind of its own otherwise (agent/sources/kinds.py).
    """
    base = f"{CLASS}/{device.name}"
    before = len(reader.problems)
    device = replace(
        device,
        hca_type=once.get("hca_type", lambda: reader.text(f"{base}/hca_type")),
        board_id=once.get("board_id", lambda: reader.text(f"{base}/board_id")),
    )
    if _is_ethernet(device) and len(reader.problems) > before:
        return replace(device, failure="its kind cannot be read", ports=())
    return device


def _is_ethernet(device: RdmaDevice) -> bool:
    return any(port.link_layer == "Ethernet" for port in device.ports)


def _with_attributes(reader: Reader, device: RdmaDevice) -> RdmaDevice:
    """Add the attributes on which no other read depends."""
    base = f"{CLASS}/{device.name}"
    return replace(
        device,
        virtual_function=reader.link(f"{base}/device/physfn") is not None,
        node_type=reader.value(f"{base}/node_type", kernel.enumeration),
        node_guid=reader.value(f"{base}/node_guid", kernel.guid),
        sys_image_guid=reader.value(f"{base}/sys_image_guid", kernel.guid),
        fw_ver=reader.text(f"{base}/fw_ver"),
        numa_node=reader.value(f"{base}/device/numa_node", kernel.known),
    )
