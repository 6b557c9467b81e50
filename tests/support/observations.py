"""Observations with given backend interfaces."""

from __future__ import annotations

from typing import Any

from agent.model import Absent, Observation, PortRole, RdmaDevice, RdmaPort, Seen
from tests.support.nodes import BOOT, NOW

PORT = RdmaPort(1, "InfiniBand", "ACTIVE", "LinkUp", None, 400.0, None, None, None, None, ())
NOTHING: Seen[tuple[Any, ...]] = Seen(())


def observation(*interfaces: tuple[str, str | None], **changes: Any) -> Observation:
    """Return a full observation with these backend interfaces: (interface, PCI address)."""
    ports = tuple(
        PortRole(
            name, RdmaDevice(name, pci=pci), PORT, None, backend=True, reason="", counted_gbps=400.0
        )
        for name, pci in interfaces
    )
    whole = Observation(
        NOW + 0.9, "n1", BOOT, ports, NOTHING, NOTHING, Absent("no InfiniBand"), Absent("no GPU")
    )
    return whole._replace(**changes)
