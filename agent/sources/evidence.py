"""What roles are decided by: the ports of a node and the facts around them, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agent.model import RdmaDevice, RdmaPort
from agent.sources.cards import Devices
from agent.sysfs.bus import EMPTY, Bus
from agent.sysfs.front_end import NOT_RECORDED, FrontEnd

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
