"""The far end of a cable, from the labels of an interface and its row in the annotation.

Anyone with access to a Node can edit its annotation, and a label may be newer than it. So the
annotation's unaltered name, identifier and port are used only where encoding them gives the label's
value; otherwise the label's text stands alone.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.model import INFINIBAND, FarEnd
from agent.infiniband.node_description import switch_name
from agent.labels import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.model import FleetNode, FleetPort
    from agent.model import LastNeighbor

MAX_CACHED = 1 << 16  # texts; the switches of a large fleet and their ports

_value = lru_cache(MAX_CACHED)(encode.value)
_switch_name = lru_cache(MAX_CACHED)(switch_name)


class EndLabels(NamedTuple):
    """The labels `neighbors.current.{if}.*` of one interface; None: there is none."""

    device: str | None = None
    port_id: str | None = None
    port_name: str | None = None

    @property
    def missing(self) -> str | None:
        """The label that `run` writes with the others, and that is not there."""
        if self.device is None:
            return "device"
        return "port-id" if self.port_id is None else None


NO_END = EndLabels()


def far_end(labels: EndLabels, neighbor: LastNeighbor | None, flavor: str | None) -> FarEnd | None:
    """Return the far end that the labels name; None without a device label.

    The neighbor counts if the label is that of its name or of its identifier, and its unaltered
    port ID if it has the label's value.
    """
    if labels.device is None:
        return None
    name = _name(neighbor, flavor)
    if neighbor is None or labels.device not in (_value(name or ""), _value(neighbor.id or "")):
        return FarEnd(labels.device, labels.port_id, labels.port_name)
    port_id, raw = labels.port_id, neighbor.port_id
    if port_id and raw and port_id == (_value(raw) or encode.hashed(raw)):
        port_id = raw
    return FarEnd(labels.device, port_id, labels.port_name, neighbor.id, name)


def last_end(neighbor: LastNeighbor | None, flavor: str | None) -> FarEnd | None:
    """Return the far end that the annotation names, with the label that it would have."""
    if neighbor is None:
        return None
    name = _name(neighbor, flavor)
    label = _value(name or "") or _value(neighbor.id or "")
    if not label:
        return None
    return FarEnd(label, neighbor.port_id, None, neighbor.id, name)


def _name(neighbor: LastNeighbor | None, flavor: str | None) -> str | None:
    """Return the switch's name alone: of an InfiniBand NodeDescription, or the System Name."""
    if neighbor and neighbor.name and flavor == INFINIBAND:
        return _switch_name(neighbor.name)
    return neighbor.name if neighbor else None


def identified(nodes: Iterable[FleetNode]) -> dict[str, FarEnd]:
    """Return the far end whose identifier and name belong to a label, by that label.

    One label may have several switches, two of one name: it is left out.
    """
    found = defaultdict[str, dict[str, FarEnd]](dict)
    for port in (port for node in nodes for port in node.ports):
        if port.far_end and port.far_end.id is not None:
            found[port.far_end.label].setdefault(port.far_end.id, port.far_end)
    return {label: next(iter(ends.values())) for label, ends in found.items() if len(ends) == 1}


def with_identity(port: FleetPort, known: dict[str, FarEnd]) -> FleetPort:
    """Return the port whose far end has the identifier that other ports know for its label.

    Without it one switch would be two: by its identifier, and by its label.
    """
    end = port.far_end
    if end is None or end.id is not None or end.label not in known:
        return port
    other = known[end.label]
    return port._replace(far_end=end._replace(id=other.id, name=other.name))
