"""Port roles: the ports that are the backend network, by the rules of the label contract.

1. A port that is not a host data port is dropped (agent/sources/drops.py).
2. If a remaining port is InfiniBand, the InfiniBand ports are the backend.
3. Otherwise the Ethernet devices with a default route are dropped, unless that leaves none
   (agent/sources/front_end.py). Of the kinds of NICs that remain, one is the backend
   (agent/sources/kinds.py).

With --backend-device, the devices that it names are the backend and the rules do not apply.
Reasons are shown in the table and the JSON document of `probe`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.sources.drops import DATALESS, dropped, first_reason
from agent.sources.front_end import front_end
from agent.sources.interfaces import device_ports, port_roles
from agent.sources.kinds import lead, of_other_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.model import PortRole, RdmaDevice
    from agent.sources.interfaces import DevicePort, Reasons

    Devices = Sequence[RdmaDevice]
    DataPorts = Sequence[DevicePort]


def assign(
    devices: Devices,
    backend_globs: Sequence[str] = (),
    previous: Collection[str] | None = None,
    *,
    infiniband_unbound: bool = False,
) -> tuple[PortRole, ...]:
    """Assign a role to every port of every device that could be read, in natural order.

    `previous` are the interfaces that have labels; given only if a device is missing or could not
    be read, so that the set of devices is incomplete. `infiniband_unbound`: the backend was
    InfiniBand and its driver is not loaded; no Ethernet port takes its place.
    """
    if backend_globs:
        ignored = _not_named(devices, backend_globs)
    else:
        ignored = _ignored(devices, previous, infiniband_unbound)
    roles: list[PortRole] = []
    for one in device_ports(devices):
        reason = _backend_reason(one, is_named=bool(backend_globs))
        roles += port_roles(one, devices, ignored, reason)
    return tuple(roles)


def undecided(devices: Devices) -> str | None:
    """Return why the backend of an Ethernet node cannot be chosen; None if it can.

    The kinds of NICs are counted, and the devices that cannot be read may tip the scales. Example:
    of two NICs of 200G and two of 50G one of the former fails; the latter are no backend for that.
    """
    unread = [device.name for device in devices if device.failure]
    others, _ = _without_front_end(ethernet_data_ports(devices), None)
    if not unread or lead(others) > len(unread):
        return None
    return f"the backend is not known while {', '.join(unread)} cannot be read"


def is_unread(device: RdmaDevice) -> bool:
    """Return True if the device may belong to the backend, but its link layer is unknown."""
    return bool(device.failure) or any(port.link_layer is None for port in device.ports)


def _backend_reason(one: DevicePort, *, is_named: bool) -> str:
    """Return the reason why a port that is not ignored is the backend."""
    return "named by --backend-device" if is_named else f"{one.port.link_layer} data port"


def _not_named(devices: Devices, globs: Sequence[str]) -> Reasons:
    """Return the ports of the devices that no glob matches, and the ports without data."""
    reasons = {}
    for one in device_ports(devices):
        if not _is_named(one.device, globs):
            reasons[one.key] = "not named by --backend-device"
        elif reason := first_reason(DATALESS, one, devices):
            reasons[one.key] = reason
    return reasons


def _is_named(device: RdmaDevice, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(device.name, glob) for glob in globs)


def _ignored(
    devices: Devices, previous: Collection[str] | None, infiniband_unbound: bool
) -> Reasons:
    """Return the ports that are not the backend, by the rules of this module."""
    drops = dropped(devices)
    data_ports = _data_ports(devices, drops)
    if infiniband_unbound or any(map(_is_infiniband, data_ports)):
        return {**drops, **_beside_infiniband(data_ports)}
    return {**drops, **_ethernet_ignored(data_ports, previous)}


def ethernet_data_ports(devices: Devices) -> DataPorts:
    """Return the data ports of a node without InfiniBand ports; none of any other node."""
    data_ports = _data_ports(devices, dropped(devices))
    return [] if any(map(_is_infiniband, data_ports)) else data_ports


def _data_ports(devices: Devices, drops: Reasons) -> DataPorts:
    return [one for one in device_ports(devices) if one.key not in drops]


def _is_infiniband(one: DevicePort) -> bool:
    return one.port.link_layer == "InfiniBand"


def _beside_infiniband(data_ports: DataPorts) -> Reasons:
    """Return the Ethernet ports of a node whose backend is InfiniBand."""
    reason = "Ethernet, and the backend is InfiniBand"
    return {one.key: reason for one in data_ports if not _is_infiniband(one)}


def _ethernet_ignored(data_ports: DataPorts, previous: Collection[str] | None) -> Reasons:
    """Return the Ethernet ports that are not the backend of an Ethernet node.

    Example: of 2 x MT4125 with the default route, 1 x MT4123 and 8 x MT4129, the eight are the
    backend.
    """
    others, routed = _without_front_end(data_ports, previous)
    reason = "front end: carries the default route"
    reasons = {one.key: reason for one in routed}
    return {**reasons, **of_other_kinds(others, previous)}


def _without_front_end(
    data_ports: DataPorts, previous: Collection[str] | None
) -> tuple[DataPorts, DataPorts]:
    """Return the ports that may be the backend, and those of the front end."""
    names = front_end(data_ports, previous)
    others = [one for one in data_ports if one.device.name not in names]
    return others, [one for one in data_ports if one.device.name in names]
