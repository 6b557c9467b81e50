"""Host data ports: DROPS, the rules by which a port is none.

Each rule returns the reason why it drops a port, or None. The first reason is shown in the table
and the JSON document of `probe`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.sources.interfaces import device_ports
from agent.sources.netdev import is_representor
from agent.sources.smi import smi_parent, socket_direct_twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.model import RdmaDevice, RdmaPort
    from agent.sources.interfaces import DevicePort, Reasons

    Devices = Sequence[RdmaDevice]
    Drop = Callable[[RdmaDevice, RdmaPort, Devices], str | None]


def dropped(devices: Devices) -> Reasons:
    """Return the ports that are not host data ports."""
    reasons = ((one.key, first_reason(DROPS, one, devices)) for one in device_ports(devices))
    return {key: reason for key, reason in reasons if reason}


def first_reason(drops: Iterable[Drop], one: DevicePort, devices: Devices) -> str | None:
    """Return the reason of the first of these rules that drops the port."""
    reasons = (drop(one.device, one.port, devices) for drop in drops)
    return next(filter(None, reasons), None)


def _virtual_function(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    if device.virtual_function:
        return "SR-IOV virtual function: its physical function counts"
    return None


def _smi_device(device: RdmaDevice, _port: RdmaPort, devices: Devices) -> str | None:
    parent = smi_parent(device, devices)
    return f"SMI sub-device of {parent.name}" if parent else None


def _nvswitch_management(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    if device.nvswitch_management:
        return "NVSwitch management function (SW_MNG in its VPD)"
    return None


def _socket_direct_twin(device: RdmaDevice, port: RdmaPort, devices: Devices) -> str | None:
    if twin := socket_direct_twin(device, port, devices):
        first = f"{twin.name} ({twin.pci or 'PCI address unknown'})"
        return f"second PCI function of the Socket-Direct card of {first}: one cable"
    return None


def _iwarp(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    return "iWARP (node type RNIC)" if device.node_type == "RNIC" else None


def _omni_path(device: RdmaDevice, _port: RdmaPort, _devices: Devices) -> str | None:
    return "Omni-Path (driver hfi1)" if device.driver == "hfi1" else None


def _other_link_layer(_device: RdmaDevice, port: RdmaPort, _devices: Devices) -> str | None:
    if port.link_layer in {"InfiniBand", "Ethernet"}:
        return None
    return f"link layer {port.link_layer or 'unknown'}: neither InfiniBand nor Ethernet"


def _representor(_device: RdmaDevice, port: RdmaPort, _devices: Devices) -> str | None:
    """A port of the embedded switch (switchdev mode): its traffic passes the uplink, too."""
    if _has_representor(port) and port.netdev:
        name = port.netdev.phys_port_name
        return f"representor of a VF or SF (phys_port_name {name}): its uplink counts"
    return None


def _no_netdev_beside_siblings(device: RdmaDevice, port: RdmaPort, _devices: Devices) -> str | None:
    """A plane of a multi-plane HCA that carries no data of its own."""
    if port.link_layer != "Ethernet" or port.netdev:
        return None
    if any(sibling.netdev and not _has_representor(sibling) for sibling in device.ports):
        return "no netdev, beside ports that have one: no data port"
    return None


def _has_representor(port: RdmaPort) -> bool:
    return port.netdev is not None and is_representor(port.netdev.phys_port_name)


# The rules about a port of a data device; they apply to devices that --backend-device names, too.
DATALESS: tuple[Drop, ...] = (_representor, _no_netdev_beside_siblings)
DROPS: tuple[Drop, ...] = (
    _virtual_function,
    _smi_device,
    _nvswitch_management,
    _socket_direct_twin,
    _iwarp,
    _omni_path,
    _other_link_layer,
    *DATALESS,
)
