"""What an observation and the annotation before make the annotation say of interfaces.

A fact that cannot be read now is the one of the previous row of the same interface and PCI address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.ids import GUID
from agent.kube.annotation import (
    Annotation,
    Interfaces,
    LabeledInterface,
    Report,
    interface_facts,
)
from agent.kube.facts import TEXT, is_word, read
from agent.kube.managed_fields import Keys
from agent.labels.counts import LastCount, Published
from agent.labels.values import links
from agent.model import Failed, LastNeighbor, LldpNeighbor, Neighbor, Observation, Seen, natural
from agent.sources import NAMES
from agent.sources.roles import is_of_device


def annotate(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None = None
) -> Annotation:
    """Return the annotation for these labels, of any size.

    Time, boot ID, verdict and the facts of interfaces that cannot be read now come from `previous`.
    """
    previous = previous or Annotation(None, None)
    known = {keys.interface(key) for key in labels} | {*observation.unbound}
    lost = _lost_rows(observation, previous)
    gone = {one.identity for one in lost}
    rows = _rows(observation, known, previous.interfaces)
    boot_id = observation.boot_id
    now = Report(int(observation.time), boot_id if is_word(boot_id) else None)
    # Full: no source failed and none is switched off.
    outcomes = [getattr(observation, name) for name in NAMES]
    is_full = not observation.off and not any(isinstance(one, Failed) for one in outcomes)
    last = now if is_full else Report(previous.time, previous.boot_id)
    return Annotation(
        last.time,
        last.boot_id,
        tuple(row for row in rows if row.identity not in gone),
        lost=lost,
        verdict=previous.verdict,
        partial=None if is_full else now,
    )


def _rows(observation: Observation, known: set[str | None], previous: Interfaces) -> Interfaces:
    """Return a row for each backend interface, in natural order.

    Previous rows stay for interfaces that are `known` or may still exist, with the counts that are
    held.
    """
    before = {row.interface: row for row in previous}
    last = observation.last_neighbors
    neighbors = neighbors_of(observation) if last is None else last.of
    held = {one.interface: one.gbps for one in observation.held_counts}
    found = {
        name: row._replace(counted_gbps=held.get(name, row.counted_gbps))
        for name, row in before.items()
        if name in known or name in held or _may_exist(name, observation)
    }
    for role in observation.backend:
        facts = interface_facts(
            {
                "interface": role.interface,
                "pci": role.device.pci,
                "port_guid": role.port.port_guid,
                "node_guid": role.device.node_guid,
                "counted_gbps": role.counted_gbps,
            }
        )
        if not {"interface", "pci"} <= facts.keys():
            continue
        row, guid = before.get(role.interface), role.port.port_guid
        # Another HCA may have the place of the one in the row.
        is_another = row and guid and row.port_guid and guid != row.port_guid
        if row is None or row.pci != facts["pci"] or is_another:
            row = LabeledInterface(role.interface, facts["pci"])
        neighbor = neighbors.get(role.interface)
        # `last` lacks a neighbor of the row that does not count.
        if neighbor or last is not None:
            facts["neighbor"] = neighbor
        found[role.interface] = row._replace(**facts)
    ordered = [found[name] for name in sorted(found, key=natural)]
    if "rdma" in observation.off:  # no label has a sum of the counts
        ordered = [row._replace(counted_gbps=None) for row in ordered]
    return tuple(ordered)


def _may_exist(interface: str, observation: Observation) -> bool:
    """Return True if the device of an interface may exist although it could not be read."""
    if isinstance(observation.rdma, Seen):
        failed = [device.name for device in observation.rdma.value if device.failure]
        return any(is_of_device(interface, name) for name in failed)
    return isinstance(observation.rdma, Failed)


def _lost_rows(observation: Observation, previous: Annotation) -> Interfaces:
    """Return the rows of the lost ports.

    If the observation has none because the Node was not read, the previous ones stay.
    """
    if observation.lost is None:
        return previous.lost
    known = {row.identity: row for row in (*previous.interfaces, *previous.lost)}
    rows = []
    for one in observation.lost:
        row = LabeledInterface(one.interface, one.pci, one.port_guid)
        rows.append(known.get(row.identity, row)._replace(since=one.since))
    return tuple(rows)


def neighbors_of(observation: Observation) -> dict[str, LastNeighbor]:
    """Return the selected neighbor of each link that has one."""
    found = [link for link in links(observation) if link.neighbors]
    return {link.interface: _last_neighbor(link.neighbors[0]) for link in found}


def _last_neighbor(neighbor: Neighbor) -> LastNeighbor:
    """Return the neighbor without the texts that cannot be written."""
    facts = neighbor.facts
    texts: tuple[str | None, ...]
    if not isinstance(facts, LldpNeighbor):
        description = neighbor.last_description or facts.node_description
        texts = (facts.node_guid, description, str(facts.port))
    elif GUID.fullmatch(facts.chassis_id):
        # A Chassis ID that looks like the node GUID of an InfiniBand switch is no identifier.
        texts = (None, facts.system_name or facts.chassis_id, facts.port_id)
    else:
        texts = (facts.chassis_id, facts.system_name, facts.port_id)
    schema = dict.fromkeys(LastNeighbor._fields, TEXT)
    known, _ = read(dict(zip(LastNeighbor._fields, texts, strict=True)), schema)
    return LastNeighbor(**known)


def published_counts(
    annotation: Annotation | None, labels: Mapping[str, str], keys: Keys
) -> Published | None:
    """Return what the interfaces counted last, by the annotation; None if it does not have that."""
    rows = annotation.interfaces if annotation else ()
    last = {
        row.interface: LastCount(row.counted_gbps, row.pci)
        for row in rows
        if row.counted_gbps is not None
    }
    if annotation is None or not last:
        return None
    return Published(last, annotation.boot_id, labels.get(keys.speed), keys.annotation)
