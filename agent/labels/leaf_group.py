"""The leaf group of a node: the leaves that it hangs on, whether their ports are up now or not.

Each backend port counts with the neighbor that it has, else with the last one that it had
(agent/kube/last_neighbors.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.ids import GUID
from agent.labels import encode
from agent.labels.values import (
    Value,
    device_text,
    joined,
    link_layers,
    links,
    sources_of,
)
from agent.model import natural
from agent.reasons import HoldReason
from agent.sources.ib import node_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.labels.values import Values
    from agent.model import LastNeighbor, Observation


def leaf_group(observation: Observation) -> Values:
    """Yield the distinct last neighbor devices in natural order, joined with `_`."""
    sources = sources_of(link_layers(observation))
    if observation.disabled.issuperset(sources):
        return
    if observation.off.issuperset(sources):
        yield Value(None, hold=HoldReason.SOURCE_OFF)
        return
    text, last = group_of(last_devices(observation).values()), observation.last_neighbors
    if last is None:
        yield from joined(observation, [text] if text else [])
    elif text or last.hold:
        yield Value(None if last.is_early else text or None, hold=last.hold)


def last_devices(observation: Observation) -> dict[str, str]:
    """Return the device that each interface is connected to, or was last."""
    last = observation.last_neighbors
    remembered = {name: device_of(one) for name, one in last.of.items()} if last else {}
    found = [link for link in links(observation) if link.neighbors]
    return remembered | {link.interface: device_text(link.neighbors[0])[0] for link in found}


def group_of(devices: Iterable[str]) -> str:
    """Return the text of the leaf group that these devices are."""
    return "_".join(sorted(set(devices), key=natural))


def device_of(neighbor: LastNeighbor) -> str:
    """Return the text that a last neighbor was labeled by; "" if nothing is known of it."""
    guid, name = neighbor.id or "", neighbor.name or ""
    text = node_label(guid, name) if GUID.fullmatch(guid) else name
    return text if encode.value(text) else guid
