"""Two devices of one cable, as the subnet management interface (SMI) shows them.

- A multi-plane HCA has an SMI sub-device, through which the subnet manager reaches the planes.
- A Socket-Direct card has two PCI functions, of which one has SMI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.model import RdmaDevice, RdmaPort

    Devices = Collection[RdmaDevice]

SMI_NAME = "smi"  # begins the name that mlx5_ib gives an SMI sub-device


def is_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """Return True if `device` is the SMI sub-device of `parent`, a multi-plane HCA.

    Both have the same PCI function and port GUID; the sub-device is the one with SMI or, where
    has_smi does not distinguish them, the one whose name begins with "smi".
    """
    if not _is_same_function(device, parent) or not _share_a_port(device, parent):
        return False
    return _is_named_smi_of(device, parent) or _has_the_smi_of(device, parent)


def smi_parent(device: RdmaDevice, devices: Devices) -> RdmaDevice | None:
    """Return the device whose SMI sub-device this one is; None if it is no SMI sub-device."""
    return next((parent for parent in devices if is_smi_of(device, parent)), None)


def smi_child(device: RdmaDevice, devices: Devices) -> RdmaDevice | None:
    """Return the SMI sub-device of this device; None if it has none."""
    return next((child for child in devices if is_smi_of(child, device)), None)


def socket_direct_twin(device: RdmaDevice, port: RdmaPort, devices: Devices) -> RdmaDevice | None:
    """Return the other function of a Socket-Direct card, if this one is that without SMI.

    Its sys_image_guid is that of a device with SMI at another PCI address, which is not the SMI
    sub-device of a multi-plane HCA.
    """
    if port.link_layer != "InfiniBand" or port.has_smi is not False:
        return None
    others = (other for other in devices if _is_other_function(device, other))
    return next((other for other in others if _has_smi_of_its_own(other, devices)), None)


def _is_same_function(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True for two devices of one PCI function."""
    return device.name != other.name and device.pci is not None and device.pci == other.pci


def _is_other_function(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True for two PCI functions of one card."""
    guid = device.sys_image_guid
    return bool(guid) and other.sys_image_guid == guid and other.pci != device.pci


def _is_named_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """Return True if the name of `device` alone begins with "smi"."""
    return device.name.startswith(SMI_NAME) and not parent.name.startswith(SMI_NAME)


def _has_the_smi_of(device: RdmaDevice, parent: RdmaDevice) -> bool:
    """Return True if `device` has SMI, and `parent` has a port without."""
    return _has_smi(device) and any(port.has_smi is False for port in parent.ports)


def _has_smi_of_its_own(device: RdmaDevice, devices: Devices) -> bool:
    """Return True if the device has SMI and is not the SMI sub-device of another."""
    return _has_smi(device) and smi_parent(device, devices) is None


def _has_smi(device: RdmaDevice) -> bool:
    return any(port.has_smi for port in device.ports)


def _share_a_port(device: RdmaDevice, other: RdmaDevice) -> bool:
    """Return True if a port of each has the same, known GUID."""
    guids = {port.port_guid for port in device.ports} - {None}
    return not guids.isdisjoint(port.port_guid for port in other.ports)
