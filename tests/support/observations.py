"""Observations with given backend interfaces, and surroundings without a node, for the checks of
`bwagent doctor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.check import Surroundings
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


Folders = Mapping[str, list[str]]


def around(
    seen: Observation | None = None,
    folders: Folders | None = None,
    files: Mapping[str, str] | None = None,
    **changes: Any,
) -> Surroundings:
    """Return surroundings with these folders and files, where nothing has a fault."""
    there, texts = folders or {}, files or {}
    plain = Surroundings(
        seen or observation(),
        names=lambda path: list(there.get(path, [])),
        text=texts.get,
        device_fault=lambda _path: None,
        lldp_fault=lambda _netdev: None,
        private_flags=lambda _netdev: {},
    )
    return replace(plain, **changes)
