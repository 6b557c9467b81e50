"""The last neighbor of each backend port: the present one, else what the annotation remembers.

Rules:
- Identity is the address of the PCI function, and what the interface's name adds to that of the
  device (`-3`, `-eth2`): a device that was renumbered keeps its last neighbor.
- A last neighbor stays without limit while its port has none, or cannot be read. It goes with the
  interface, and comes back with one that left the bus.
- A neighbor is the same device as before if its identifier or its name is the same.
- A switch whose name changed has the new one for its ports that are down, too. Switches that share
  a Chassis ID, as virtual ones do, keep their own names.
- A last neighbor of another fabric than the port's link layer does not count.
- Anyone with access to the Node can edit the annotation. At the start of an agent its neighbors
  count only if they make up the published label: all of them if that is a hash, else each one whose
  name it contains.
- The node was moved if no neighbor that is seen is the same device as before. What is remembered
  of its other ports is forgotten then, but not while one of them may have its neighbor still.
- A new agent may lack a last neighbor that the published label contains: the annotation had no room
  for it, or is gone. The label stays then while a port is without one, in the first case without
  limit, unless another port has another neighbor than before.
- The same holds for an annotation that does not make up the published label.
- On a Node without the label, nothing is published in the first SETTLE_TIME while a port that may
  have a neighbor has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent.ids import GUID, HASH
from agent.kube.annotation import Annotation, Interfaces, LabeledInterface
from agent.kube.interfaces import neighbors_of
from agent.kube.managed_fields import Keys
from agent.labels import encode
from agent.labels.leaf_group import device_of, group_of
from agent.labels.values import failed_devices, links
from agent.model import Failed, LastNeighbor, LastNeighbors, Observation, PortRole
from agent.reasons import HoldReason
from agent.sources.roles import is_of_device

Neighbors = Mapping[str, LastNeighbor]  # by interface

SETTLE_TIME = 65.0  # seconds; a switch sends an LLDP frame every 30 s (IEEE Std 802.1AB)


class NeighborMemory:
    """Finds the last neighbors of one node in each observation."""

    def __init__(self) -> None:
        # What was remembered when the first neighbor was another one, until a move is decided.
        self._doubted: Neighbors = {}
        self._gap: HoldReason | None = None  # why the published label may have more
        self._settles_at = -math.inf
        self._is_early = False

    def seed(
        self,
        annotation: Annotation | None,
        owned: Mapping[str, str],
        keys: Keys,
        settles_at: float = -math.inf,
    ) -> Annotation | None:
        """Start from the annotation and the owned labels of the Node.

        Returns the annotation without the last neighbors that do not count.
        """
        published = owned.get(keys.leaf_group)
        self._doubted, self._gap = {}, _gap(annotation, published) if published else None
        self._settles_at = -math.inf if published else settles_at
        return _trusted(annotation, published) if annotation and published else annotation

    def apply(
        self, observation: Observation, annotation: Annotation | None, now: float = math.inf
    ) -> Observation:
        """Return the observation with the last neighbors, given the Node's annotation."""
        seen, remembered = neighbors_of(observation), _remembered(observation, annotation)
        before = {name: self._doubted.get(name, last) for name, last in remembered.items()}
        compared = [_is_same(seen[name], before[name]) for name in seen.keys() & before.keys()]
        is_elsewhere = bool(compared) and not any(compared)
        absent = _absent(observation)
        is_undecided = is_elsewhere and not before.keys() <= seen.keys() | absent
        self._doubted = before if is_undecided else {}
        kept = {} if is_elsewhere and not is_undecided else remembered
        of = {**_renamed(kept, before, seen), **seen}
        lacking = _lacking(observation, of)
        hold = self._hold(lacking, is_same=all(compared))
        early = self._is_early = not hold and now < self._settles_at and not lacking <= absent
        was = {name: one for name, one in remembered.items() if _is_replaced(one, seen.get(name))}
        last = LastNeighbors(of, HoldReason.NO_NEIGHBOR if early else hold, early, was)
        return replace(observation, last_neighbors=last)

    def next_end(self) -> float:
        """Return the time at which a new agent does not wait for neighbors any more."""
        return self._settles_at if self._is_early else math.inf

    def _hold(self, lacking: Collection[str], *, is_same: bool) -> HoldReason | None:
        """Return why last neighbors may be missing or outdated; None if they are not."""
        if self._doubted:
            return HoldReason.MAY_HAVE_MOVED
        if not lacking:
            self._gap = None
        return self._gap if is_same else None


def _gap(annotation: Annotation | None, published: str) -> HoldReason | None:
    """Return why an annotation may lack a part of the published label; None if it does not."""
    if annotation and annotation.dropped:
        return HoldReason.NOT_REMEMBERED
    is_whole = annotation and _group(annotation) == published
    return None if is_whole else HoldReason.NO_NEIGHBOR


def _group(annotation: Annotation) -> str:
    """Return the label that the last neighbors of an annotation make up."""
    last = (row.neighbor for row in annotation.interfaces)
    return encode.value(group_of(filter(None, (device_of(one) for one in last if one))))


def _trusted(annotation: Annotation, published: str) -> Annotation:
    """Return the annotation without the last neighbors that the published label speaks against.

    An annotation that had no room for a part of a hash cannot be checked.
    """
    is_hash = HASH.fullmatch(published) is not None
    if _group(annotation) == published or (is_hash and annotation.dropped):
        return annotation
    kept = (
        row if not is_hash and _is_part(row.neighbor, published) else row._replace(neighbor=None)
        for row in annotation.interfaces
    )
    return replace(annotation, interfaces=tuple(kept))


def _is_part(neighbor: LastNeighbor | None, published: str) -> bool:
    """Return True if a label contains the name of a neighbor, between two `_` or at an end."""
    name = encode.replaced(device_of(neighbor)) if neighbor else ""
    parts = {f"_{name}_", f"_{name.strip(encode.TRIMMED)}_"}
    return any(part in f"_{published}_" for part in parts)


def _renamed(kept: Neighbors, before: Neighbors, seen: Neighbors) -> dict[str, LastNeighbor]:
    """Return the last neighbors that are not seen, those with another name now with the new one."""
    found = {}
    for interface in kept.keys() - seen.keys():
        last = kept[interface]
        names = _names_now(last, before, seen)
        is_renamed = len(names) == 1 and last.name not in names
        found[interface] = last._replace(name=names.pop()) if is_renamed else last
    return found


def _names_now(last: LastNeighbor, before: Neighbors, seen: Neighbors) -> set[str | None]:
    """Return the names of the ports whose neighbor is the one that this neighbor was.

    Of devices that share a Chassis ID those are the ports whose neighbor had the same name before.
    """
    ports = {name for name, one in seen.items() if last.id is not None and one.id == last.id}
    same = {name for name in ports & before.keys() if before[name][:2] == last[:2]}
    is_shared = len({one.name for one in before.values() if one.id == last.id}) > 1
    is_unique = GUID.fullmatch(last.id or "") or not is_shared
    return {seen[name].name for name in (ports if is_unique else same)}


def is_held_without_limit(key: str, observation: Observation, keys: Keys) -> bool:
    """Return True for the leaf group if the annotation had no room for a part of it."""
    last = observation.last_neighbors
    return key == keys.leaf_group and bool(last and last.hold is HoldReason.NOT_REMEMBERED)


def _is_same(one: LastNeighbor, other: LastNeighbor) -> bool:
    return (one.id is not None and one.id == other.id) or device_of(one) == device_of(other)


def _is_replaced(last: LastNeighbor, now: LastNeighbor | None) -> bool:
    """Return True if the cable leads to another device than before, or to another of its ports."""
    if now is None or not device_of(now):
        return False
    ports = last.port_id, now.port_id
    return not _is_same(last, now) or (None not in ports and last.port_id != now.port_id)


def _absent(observation: Observation) -> set[str]:
    """Return the interfaces that have no neighbor for certain."""
    found = (link for link in links(observation) if not link.neighbors and not link.hold)
    return {link.interface for link in found}


def _lacking(observation: Observation, of: Neighbors) -> set[str]:
    """Return the interfaces, and the devices that cannot be read, without a last neighbor."""
    if isinstance(observation.rdma, Failed):
        return {"rdma"}
    backend = {role.interface for role in observation.backend}
    unread = {
        device
        for device in failed_devices(observation)
        if not any(is_of_device(name, device) for name in {*of, *backend})
    }
    return (backend | unread | {*observation.unbound}) - of.keys() - observation.given_up


def _remembered(observation: Observation, annotation: Annotation | None) -> dict[str, LastNeighbor]:
    """Return what the annotation remembers of the interfaces that are there, or may be."""
    if annotation is None:
        return {}
    functions: dict[str, list[LabeledInterface]] = defaultdict(list)
    for row in (*annotation.interfaces, *annotation.lost):  # lost ones are second to present ones
        functions[row.pci].append(row)
    backend = {role.interface: role for role in observation.backend}
    found = {
        name: _of_fabric(_row_of(role, functions.get(role.device.pci or "", ())), role)
        for name, role in backend.items()
    }
    unread = _unread(annotation.interfaces, observation)
    rows = {row.interface: row for row in unread} | found
    last = {name: row.neighbor for name, row in rows.items() if row and row.neighbor}
    return {name: neighbor for name, neighbor in last.items() if device_of(neighbor)}


def _of_fabric(row: LabeledInterface | None, role: PortRole) -> LabeledInterface | None:
    """Return the row of a port, unless its last neighbor is of another fabric than the port is."""
    layer = role.port.link_layer
    if row is None or row.neighbor is None or layer is None:
        return row
    is_infiniband = GUID.fullmatch(row.neighbor.id or "") is not None
    return row if is_infiniband == (layer == "InfiniBand") else None


def _row_of(role: PortRole, rows: Sequence[LabeledInterface]) -> LabeledInterface | None:
    """Return the row of a port among those of its PCI function."""
    suffix = role.interface.removeprefix(role.device.name)
    for row in rows:
        if row.interface == role.interface or (suffix and row.interface.endswith(suffix)):
            return row
    return rows[0] if len(rows) == 1 and not suffix else None


def _unread(rows: Interfaces, observation: Observation) -> list[LabeledInterface]:
    """Return the rows of interfaces whose device is there, or may be, and cannot be read."""
    if isinstance(observation.rdma, Failed):
        return list(rows)
    failed = failed_devices(observation)
    return [
        row
        for row in rows
        if row.interface in observation.unbound
        or any(is_of_device(row.interface, device) for device in failed)
    ]
