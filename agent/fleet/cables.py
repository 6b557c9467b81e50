"""The compared cables of all nodes, and the words for their ends."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.finding import Move, PortRef
from agent.infiniband.node_description import switch_name
from agent.verify.cables import device_key
from agent.verify.finding import MAX_NAMES
from agent.verify.names import guid, mac

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """Return a text that all names of one leaf share: an address in any notation, or a name."""
    plain = switch_name(name) or name
    return device_key(plain) or guid(plain) or mac(plain) or plain.casefold()


def port_text(port: PortRef) -> str:
    """Return `gpu-017 mlx5_3`."""
    return f"{port.node} {port.interface}"


def end_text(end: Ends) -> str:
    """Return `leaf07 port 12`."""
    device, port = end
    return " ".join(filter(None, (device or "the switch", f"port {port}" if port else None)))


def first_of(texts: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return the first texts, and the number of the others."""
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"
