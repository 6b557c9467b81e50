"""Ports: the facts that their roles are decided by, and the interfaces that they are.

An interface is a port or, if the port is bonded, one leg of it. Its name is {device} or, if several
ports of the device have the same role, {device}-{port}; a leg adds its netdev. Examples: ibp0,
mlx5_0-3, mlx5_bond_0-eth2.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agent.ids import is_of_device
from agent.model import Netdev, PortRole, RdmaDevice, RdmaPort
from agent.sources.cards import Devices
from agent.sysfs.bus import EMPTY, Bus
from agent.sysfs.front_end import NOT_RECORDED, FrontEnd
from agent.text import natural

IN_USE = "ACTIVE"  # the only port state that counts (IBTA vol. 1, 14.2.5.6, PortState 4)
STANDBY = frozenset({"backup", "down"})  # states of a bond member that carries no traffic

PortKey = tuple[str, int]  # name of the device, number of the port
PortPlace = tuple[str, int]  # address of its PCI function, else its device; number of the port
# Of each interface that has labels the address of its PCI function
Labeled = Mapping[str, str | None]


class DevicePort(NamedTuple):
    """A port and its device."""

    device: RdmaDevice
    port: RdmaPort

    @property
    def key(self) -> PortKey:
        """The key of the port."""
        return self.device.name, self.port.number

    @property
    def place(self) -> PortPlace:
        """The place of the port, under whatever name."""
        return self.device.pci or self.device.name, self.port.number


class RoleVerdict(NamedTuple):
    """The rule that decided the role of a port, and the evidence in words."""

    rule: str
    text: str
    backend: bool = False

    def __str__(self) -> str:
        return f"{'backend' if self.backend else 'no backend'} ({self.text})"


class RoleEvidence(NamedTuple):
    """The facts that roles depend on, gathered once for each decision."""

    devices: Devices
    bus: Bus = EMPTY
    front_end: FrontEnd = NOT_RECORDED
    labeled: Labeled = MappingProxyType({})
    excluded: frozenset[str] = frozenset()  # PCI functions that --exclude-device names
    # those that may be the backend's and have no RDMA device (agent/sources/pci.py)
    unbound: frozenset[str] = frozenset()
    ambiguous: frozenset[str] = frozenset()  # link layers (agent/sysfs/front_end.py)

    @property
    def ports(self) -> list[DevicePort]:
        """All ports that were read."""
        return [DevicePort(device, port) for device in self.devices for port in device.ports]

    def carries_route(self, device: RdmaDevice) -> bool:
        """Return True if the best default route is on a netdev of the device, or of a VF of it."""
        is_seen = any(netdev.default_route for port in device.ports for netdev in port.netdevs)
        return is_seen or self.front_end.carries_route(device)


Verdicts = Mapping[PortKey, RoleVerdict]


def roles_of(evidence: RoleEvidence, verdicts: Verdicts) -> tuple[PortRole, ...]:
    """Return the role of every port and leg that was read, by the verdicts on the ports."""
    roles = []
    for device, port in evidence.ports:
        verdict = verdicts[device.name, port.number]
        # A device of which several ports have this role names them by their numbers.
        name = device.name
        siblings = [verdicts[name, sibling.number].backend for sibling in device.ports]
        if siblings.count(verdict.backend) > 1:
            name = f"{name}-{port.number}"
        nearest = evidence.bus.beside(device.pci, device.numa_node)
        roles += [
            PortRole(
                interface=f"{name}-{leg.name}" if leg else name,
                device=device,
                port=port,
                leg=leg,
                backend=verdict.backend,
                reason=verdict.text,
                counted_gbps=gbps_in_use(port, leg) if verdict.backend else 0.0,
                rule=verdict.rule,
                gpu=nearest.gpu,
                distance=nearest.distance,
            )
            for leg in legs_of(DevicePort(device, port), evidence.devices)
        ]
    return tuple(roles)


def is_unread(device: RdmaDevice) -> bool:
    """Return True if the device may belong to the backend, but its link layer is unknown."""
    return bool(device.failure) or any(port.link_layer is None for port in device.ports)


def had_labels(device: RdmaDevice, labeled: Labeled) -> bool:
    """Return True if the device, or one of its ports or legs, had labels.

    Names change, so the address of its PCI function decides where it is known.
    """
    return any(
        device.pci == pci if device.pci and pci else is_of_device(interface, device.name)
        for interface, pci in labeled.items()
    )


def legs_of(device_port: DevicePort, devices: Devices) -> Sequence[Netdev | None]:
    """Return the legs of a bonded port in natural order; (None,) for any other port.

    A bond whose members are RDMA devices of their own does not make any of them a bonded device.
    """
    names = {leg.name for leg in device_port.port.legs}
    others = (other for other in devices if other.name != device_port.device.name)
    if not names or any(not names.isdisjoint(other.netdevs) for other in others):
        return (None,)
    return sorted(device_port.port.legs, key=lambda leg: natural(leg.name))


def gbps_in_use(port: RdmaPort, leg: Netdev | None) -> float | None:
    """Return the Gb/s that the port or leg adds to the node's speed; None if unknown.

    0 unless the port is ACTIVE and, for a leg, the bond uses it.
    """
    if port.state is None:
        return None
    if port.state != IN_USE or (leg and (leg.bond_state or leg.operstate) in STANDBY):
        return 0.0
    return kernel_gbps(leg or port.netdev, port)


def rate_of(role: PortRole) -> float:
    """Return the Gb/s of a port or leg, whatever its role; 0 if unknown."""
    return kernel_gbps(role.netdev, role.port) or 0.0


def kernel_gbps(netdev: Netdev | None, port: RdmaPort) -> float | None:
    """Return the kernel's rate of the port's netdev where it is known, else that of the port.

    `rate` of an Ethernet port may be nominal: soft-RoCE (rxe) reports 2.5 Gb/s.
    """
    if port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        return netdev.speed_mbps / 1000
    return port.rate_gbps
