"""The front end: the Ethernet devices that carry the best default route, so are not the backend.

agent/sources/routes.py reads the netdevs of the best default route; agent/sources/netdev.py follows
them down the bonds, bridges and VLANs to the netdev of a port (`Netdev.default_route`); `front_end`
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.sources.interfaces import had_labels

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.model import RdmaPort
    from agent.sources.interfaces import DevicePort


def front_end(data_ports: Collection[DevicePort], previous: Collection[str] | None) -> set[str]:
    """Return the names of the devices that carry a default route, if any other remains.

    If every device carries one, the node has one network for everything, and none is the front end.
    But if the set of devices is incomplete (`previous`, the interfaces that have labels, is given),
    only the devices that had labels are taken for the backend. Example: of eth0 (default route) and
    a backend NIC that cannot be read, eth0 remains the front end.
    """
    routed = _with_default_route(data_ports)
    if any(one.device.name not in routed for one in data_ports):
        return routed
    if previous is None:
        return set()
    devices = (one.device for one in data_ports if one.device.name in routed)
    return {device.name for device in devices if not had_labels(device, previous)}


def _with_default_route(data_ports: Collection[DevicePort]) -> set[str]:
    return {one.device.name for one in data_ports if _carries_default_route(one.port)}


def _carries_default_route(port: RdmaPort) -> bool:
    return any(netdev.default_route for netdev in (port.netdev, *port.legs) if netdev)
