"""The names of leaves in plans, and the words for both ends of a cable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import PortRef
from agent.findings.names import leaf_key, likeness, same_name, unpadded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.findings.finding import Ends


class Leaves:
    """The names that plans have for leaves."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_key = {leaf_key(name): name for name in names}
        self._alike: dict[str, list[str]] = {}
        for name in self._by_key.values():
            self._alike.setdefault(likeness(name), []).append(name)

    def like(self, name: str) -> list[str]:
        """Return the leaf of this name, else all that differ in domain and leading zeros only."""
        if found := self._by_key.get(leaf_key(name)):
            return [found]
        alike = self._alike.get(likeness(name), ())
        return [one for one in alike if same_name(unpadded(one), unpadded(name))]


def port_text(port: PortRef) -> str:
    """Return `gpu-017 mlx5_3`."""
    return f"{port.node} {port.interface}"


def end_text(end: Ends) -> str:
    """Return `leaf07 port 12`."""
    device, port = end
    return " ".join(filter(None, (device or "the switch", f"port {port}" if port else None)))
