"""The leaf group of a node: the leaves that it hangs on, whether their ports are up now or not.

Each backend port counts with the neighbor that it has, else with the last one that it had
(agent/kube/last_neighbors.py); a switch whose name changed has the new one for all of its ports.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from agent.labels import encode
from agent.labels.values import (
    Value,
    device_text,
    identifier,
    joined,
    link_layers,
    links,
    sources_of,
)
from agent.model import natural
from agent.reasons import HoldReason
from agent.sources.ib import node_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.labels.values import Values
    from agent.model import LastNeighbor, Neighbor, Observation

    Names = Mapping[str, set[str]]  # by identifier

_GUID = re.compile(r"[0-9a-f]{16}")  # of an InfiniBand node; no Chassis ID looks like one


def leaf_group(observation: Observation) -> Values:
    """Yield the distinct last neighbor devices in natural order, joined with `_`."""
    sources = sources_of(link_layers(observation))
    if observation.disabled.issuperset(sources):
        return
    if observation.off.issuperset(sources):
        yield Value(None, hold=HoldReason.SOURCE_OFF)
        return
    leaves = sorted(last_devices(observation).values(), key=natural)
    text, last = "_".join(dict.fromkeys(leaves)), observation.last_neighbors
    if last is None:
        yield from joined(observation, [text] if text else [])
    elif text or last.hold:
        yield Value(None if last.is_early else text or None, hold=last.hold)


def last_devices(observation: Observation) -> dict[str, str]:
    """Return the device that each interface is connected to, or was last."""
    seen = {link.interface: link.neighbors[0] for link in links(observation) if link.neighbors}
    found = {interface: device_text(neighbor)[0] for interface, neighbor in seen.items()}
    names, last = _names(seen.values()), observation.last_neighbors
    for interface, neighbor in last.of.items() if last else ():
        if interface not in found:
            found[interface] = _present_name(neighbor, names)
    return found


def device_of(neighbor: LastNeighbor) -> str:
    """Return the text that a last neighbor was labeled by; "" if nothing is known of it."""
    guid, name = neighbor.id or "", neighbor.name or ""
    text = node_label(guid, name) if _GUID.fullmatch(guid) else name
    return text if encode.value(text) else guid


def _names(neighbors: Iterable[Neighbor]) -> Names:
    """Return the names that the neighbors have now, by identifier: two may share one."""
    names: dict[str, set[str]] = defaultdict(set)
    for neighbor in neighbors:
        names[identifier(neighbor)[1]].add(device_text(neighbor)[0])
    return names


def _present_name(neighbor: LastNeighbor, names: Names) -> str:
    """Return the name of a last neighbor, the new one if it was renamed."""
    name, now = device_of(neighbor), names.get(neighbor.id or "", set())
    return name if name in now or len(now) != 1 else next(iter(now))
