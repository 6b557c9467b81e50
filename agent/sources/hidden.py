"""Devices that cannot be judged while another one is unread: they have failed with it.

Two devices may lead to one cable (agent/sources/smi.py), and the facts of both decide which of them
counts. Example: the parent of smi0 cannot be read, so nothing shows that smi0 is its SMI
sub-device; it must not become a backend port. One whose parent can be read is judged by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.sources.smi import SMI_NAME, smi_child, smi_parent, socket_direct_twin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.model import RdmaDevice

    Devices = Sequence[RdmaDevice]


def with_hidden(devices: Devices) -> tuple[RdmaDevice, ...]:
    """Return the devices; those that depend on a failed one have failed, too."""
    failed = [device for device in devices if device.failure]
    return tuple(_judged(device, devices, failed) for device in devices)


def _judged(device: RdmaDevice, devices: Devices, failed: Devices) -> RdmaDevice:
    other = _hides(device, devices, failed)
    if device.failure or other is None or smi_parent(device, devices):
        return device
    return replace(device, failure=f"it may be a part of {other.name}, which failed", ports=())


def _hides(device: RdmaDevice, devices: Devices, failed: Devices) -> RdmaDevice | None:
    """Return the failed device on which the role of this one depends; None if on none."""
    return next(
        (
            other
            for other in failed
            if _may_share_function(device, other) or _may_be_twins(device, other, devices)
        ),
        None,
    )


def _may_share_function(device: RdmaDevice, failed: RdmaDevice) -> bool:
    """Return True for two devices of one PCI function.

    Where that of the failed one was never read, the name of an SMI sub-device decides.
    """
    if failed.pci is None:
        return device.name.startswith(SMI_NAME)
    return device.pci == failed.pci


def _may_be_twins(device: RdmaDevice, failed: RdmaDevice, devices: Devices) -> bool:
    """Return True if `device` may be the second function of the Socket-Direct card of `failed`.

    It has no SMI of any kind. The GUID that the functions of a card share decides, where it is
    known of the failed one.
    """
    if failed.sys_image_guid is not None and failed.sys_image_guid != device.sys_image_guid:
        return False
    return any(
        port.link_layer == "InfiniBand"
        and port.has_smi is False
        and smi_child(device, devices) is None
        and socket_direct_twin(device, port, devices) is None
        for port in device.ports
    )
