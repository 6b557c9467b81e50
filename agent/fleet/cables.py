"""The compared cables of all nodes, and the words for their ends."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.finding import Move, PortRef
from agent.infiniband.node_description import switch_name
from agent.verify.cables import device_key
from agent.verify.names import guid, label_value, mac, same_name, unpadded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.verify.cables import Checked
    from agent.verify.finding import Ends
    from agent.verify.findings import Result


class Cable(NamedTuple):
    """One compared cable of a node."""

    port: PortRef
    checked: Checked

    @property
    def move(self) -> Move:
        """From the far end that it has to the planned one."""
        return Move(self.port, self.checked.actual, self.checked.expected)


def cables_of(results: Iterable[Result]) -> list[Cable]:
    """Return the compared cables of these nodes."""
    return [
        Cable(PortRef(result.node, one.port.interface), one)
        for result in results
        for one in result.cables
    ]


@lru_cache(8192)
def leaf_key(name: str) -> str:
    """Return a text that is one leaf's alone: an address in any notation, or a name in any case."""
    plain = switch_name(name) or name
    return guid(plain) or mac(plain) or label_value(plain).casefold()


@lru_cache(8192)
def likeness(name: str) -> str:
    """Return a text that all names of one leaf share, and perhaps those of other leaves.

    `L90.1.1` and `L90.1.2` have one, because what follows a dot may be a domain.
    """
    plain = switch_name(name) or name
    return device_key(plain) or leaf_key(plain)


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
