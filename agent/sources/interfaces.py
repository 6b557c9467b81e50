"""Interfaces: the names, legs and rates of ports, under which they appear in labels.

An interface is a port or, if the port is bonded, one leg of it. Its name is {device} or, if several
ports of the device have the same role, {device}-{port}; a leg adds its netdev. Examples: ibp0,
mlx5_0-3, mlx5_bond_0-eth2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.model import PortRole, natural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.model import Netdev, RdmaDevice, RdmaPort

    PortKey = tuple[str, int]  # name of the device, number of the port
    Reasons = Mapping[PortKey, str]  # why the port is ignored

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
STANDBY = frozenset({"backup", "down"})  # states of a bond member that carries no traffic


class DevicePort(NamedTuple):
    """A port and its device."""

    device: RdmaDevice
    port: RdmaPort

    @property
    def key(self) -> PortKey:
        """The key of the port in Reasons."""
        return self.device.name, self.port.number


def had_labels(device: RdmaDevice, previous: Collection[str]) -> bool:
    """Return True if the device, or one of its ports (`{device}-{port}`), had labels."""
    return any(is_of_device(interface, device.name) for interface in previous)


def is_of_device(interface: str, device: str) -> bool:
    """Return True for the interface of a device's only port, or of one of its ports or legs."""
    return interface == device or interface.startswith(f"{device}-")


def device_ports(devices: Iterable[RdmaDevice]) -> list[DevicePort]:
    """Return every port of every device."""
    return [DevicePort(device, port) for device in devices for port in device.ports]


def port_roles(
    one: DevicePort, devices: Sequence[RdmaDevice], ignored: Reasons, backend_reason: str
) -> Iterable[PortRole]:
    """Yield the role of a port, or of each leg of a bonded port.

    A port that `ignored` lacks is a backend port, for `backend_reason`.
    """
    reason = ignored.get(one.key)
    name = _name(one, ignored)
    for leg in legs(one, devices):
        yield PortRole(
            interface=f"{name}-{leg.name}" if leg else name,
            device=one.device,
            port=one.port,
            leg=leg,
            backend=reason is None,
            reason=reason or backend_reason,
            counted_gbps=0.0 if reason else _counted_gbps(one.port, leg),
        )


def _name(one: DevicePort, ignored: Reasons) -> str:
    """Return {device}, or {device}-{port} if several ports of the device have the port's role."""
    device = one.device.name
    is_ignored = [(device, sibling.number) in ignored for sibling in one.device.ports]
    if is_ignored.count(one.key in ignored) == 1:
        return device
    return f"{device}-{one.port.number}"


def legs(one: DevicePort, devices: Iterable[RdmaDevice]) -> Sequence[Netdev | None]:
    """Return the legs of a bonded port in natural order; (None,) for any other port.

    A bond whose members are RDMA devices of their own does not make any of them a bonded device.
    """
    members = one.port.legs
    if not members or any(_has_a_leg(other, one) for other in devices):
        return (None,)
    return sorted(members, key=lambda leg: natural(leg.name))


def _has_a_leg(other: RdmaDevice, one: DevicePort) -> bool:
    """Return True if a leg of the port is a netdev of another device."""
    return other.name != one.device.name and any(leg.name in other.netdevs for leg in one.port.legs)


def _counted_gbps(port: RdmaPort, leg: Netdev | None) -> float | None:
    """Return the Gb/s that the port or leg adds to the node's speed; None if unknown.

    0 unless the port is ACTIVE and, for a leg, the bond uses it.
    """
    if port.state is None:
        return None
    if port.state != IN_USE or (leg and _is_standby(leg)):
        return 0.0
    return nominal_gbps(leg or port.netdev, port)


def _is_standby(leg: Netdev) -> bool:
    """Return True if the bond does not use the leg."""
    return (leg.bond_state or leg.operstate) in STANDBY


def nominal_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """Return the rate of the port's netdev where it is known, else that of the port.

    `rate` of an Ethernet port may be nominal: soft-RoCE (rxe) reports 2.5 Gb/s.
    """
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
