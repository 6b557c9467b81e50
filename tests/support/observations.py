"""Observations with given backend interfaces."""

from __future__ import annotations

from typing import Any

from agent.model import Absent, Netdev, Observation, PortRole, RdmaDevice, RdmaPort, Seen
from tests.support.nodes import BOOT, NOW

PORT = RdmaPort(1, "InfiniBand", "ACTIVE", "LinkUp", None, 400.0, None, None, None, None, ())
NOTHING: Seen[tuple[Any, ...]] = Seen(())


def role(  # noqa: PLR0913 - the properties of a port
    name: str,
    port: RdmaPort = PORT,
    leg: Netdev | None = None,
    *,
    backend: bool = True,
    gbps: float | None = 400.0,
    device: str = "",
    pci: str | None = None,
) -> PortRole:
    """Return the role of a port, the only one of its device."""
    whole = RdmaDevice(device or name, pci=pci, ports=(port,))
    return PortRole(name, whole, port, leg, backend, "", gbps)


def observation(*interfaces: tuple[str, str | None], **changes: Any) -> Observation:
    """Return a full observation with these backend interfaces: (interface, PCI address)."""
    ports = tuple(role(name, pci=pci) for name, pci in interfaces)
    whole = Observation(
        NOW + 0.9, "n1", BOOT, ports, NOTHING, NOTHING, Absent("no InfiniBand"), Absent("no GPU")
    )
    return whole._replace(**changes)
