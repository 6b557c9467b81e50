"""The rows of the annotation: facts of each labeled interface that outlive the agent's process.

    {"interface": "ibp0", "pci": "0000:18:00.0", "port_guid": "a088c20300abcdef",
     "node_guid": "a088c20300abcdee", "counted_gbps": 400.0,
     "neighbor": {"id": "b0cf0e0300d4ee40", "name": "MF0;L90.1.3:MQM9700/U1", "port_id": "3"}}

A row of a port that left the bus has `"since": "2026-11-22T09:30:00Z"`, too: the time at which it
was found missing (agent/kube/lost.py), if that is known.

A fact that is unknown has no key. One that cannot be read now is the one of the previous row of the
same interface and PCI address. A row without a valid interface or PCI address is malformed; any
other malformed fact is dropped, and the row stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed
from agent.ids import GUID, PCI
from agent.labels.values import links
from agent.model import Failed, LastNeighbor, LldpNeighbor, Seen, natural
from agent.sources.roles import is_of_device

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.model import LastNeighbors, Neighbor, Observation, PortRole

    Json = dict[str, Any]

MAX_GBPS = 10_000.0  # of one interface
MAX_TEXT = 1024  # characters of a neighbor's text; a TLV of 511 bytes, in hex, has 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class LabeledInterface(NamedTuple):
    """One row; None is unknown."""

    interface: str  # its name in label keys
    pci: str  # address of its PCI function
    port_guid: str | None = None  # gids/0, lower half
    node_guid: str | None = None  # of the HCA
    counted_gbps: float | None = None  # its part of the speed label
    neighbor: LastNeighbor | None = None


Interfaces = tuple[LabeledInterface, ...]
Identity = tuple[str, str, str | None]  # interface, PCI address, port GUID


class LostInterface(NamedTuple):
    """The last row of an interface that left the bus."""

    row: LabeledInterface
    since: int | None  # time of the first observation without it, seconds since the epoch

    @property
    def interface(self) -> str:
        """Its last name in label keys."""
        return self.row.interface

    @property
    def pci(self) -> str:
        """The last address of its PCI function."""
        return self.row.pci

    @property
    def port_guid(self) -> str | None:
        """`gids/0`, lower half."""
        return self.row.port_guid

    @property
    def identity(self) -> Identity:
        """The fields that identify it; another interface may have its name and address now."""
        return self.row[:3]


Lost = tuple[LostInterface, ...]


def rows(
    observation: Observation, known: Collection[str | None], previous: Interfaces
) -> Interfaces:
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
    for role in observation.ports:
        if role.backend and _is_valid(role):
            was = before.get(role.interface)
            row = _row(role, neighbors.get(role.interface), was)
            found[role.interface] = row if last is None else _with(row, last)
    ordered = [found[name] for name in sorted(found, key=natural)]
    if "rdma" in observation.off:  # no label has a sum of the counts
        ordered = [row._replace(counted_gbps=None) for row in ordered]
    return tuple(ordered)


def lost_rows(observation: Observation, rows: Interfaces, previous: Lost) -> Lost:
    """Return the rows of the lost ports; `rows` and `previous` are those of the annotation before.

    If the observation has none because the Node was not read, the previous ones stay.
    """
    if observation.lost is None:
        return previous
    known = {one[:3]: one for one in (*rows, *(one.row for one in previous))}
    return tuple(
        LostInterface(known.get(one[:3]) or LabeledInterface(*one[:3]), one.since)
        for one in observation.lost
    )


def _may_exist(interface: str, observation: Observation) -> bool:
    """Return True if the device of an interface may exist although it could not be read."""
    if isinstance(observation.rdma, Seen):
        failed = [device.name for device in observation.rdma.value if device.failure]
        return any(is_of_device(interface, name) for name in failed)
    return isinstance(observation.rdma, Failed)


def _is_valid(role: PortRole) -> bool:
    """Return True unless `parse` rejects the interface's row."""
    return bool(_NAME.fullmatch(role.interface) and PCI.fullmatch(role.device.pci or ""))


def _row(
    role: PortRole, neighbor: LastNeighbor | None, previous: LabeledInterface | None
) -> LabeledInterface:
    """Return the row of a backend port; what is unknown now is as in its previous row."""
    row = LabeledInterface(role.interface, role.device.pci or "")
    if previous and previous.pci == row.pci and not _is_another(role, previous):
        row = previous
    seen: Json = {
        "port_guid": role.port.port_guid,
        "node_guid": role.device.node_guid,
        "counted_gbps": role.counted_gbps,
    }
    seen = {name: fact for name, fact in seen.items() if _OPTIONAL[name](fact)}
    return row._replace(neighbor=neighbor or row.neighbor, **seen)


def _is_another(role: PortRole, previous: LabeledInterface) -> bool:
    """Return True if another HCA has the place of the one in the row."""
    guid = role.port.port_guid
    return bool(guid and previous.port_guid) and guid != previous.port_guid


def _with(row: LabeledInterface, last: LastNeighbors) -> LabeledInterface:
    """Return the row with the last neighbor of the port, or without one that does not count."""
    return row._replace(neighbor=last.of.get(row.interface))


def neighbors_of(observation: Observation) -> dict[str, LastNeighbor]:
    """Return the selected neighbor of each link that has one."""
    found = [link for link in links(observation) if link.neighbors]
    return {link.interface: _last_neighbor(link.neighbors[0]) for link in found}


def _last_neighbor(neighbor: Neighbor) -> LastNeighbor:
    """Return the neighbor without the texts that `parse` rejects."""
    facts = neighbor.facts
    if isinstance(facts, LldpNeighbor):
        texts = _lldp_texts(facts)
    else:
        description = neighbor.last_description or facts.node_description
        texts = (facts.node_guid, description, str(facts.port))
    return LastNeighbor(*(text if _is_text(text) else None for text in texts))


def _lldp_texts(facts: LldpNeighbor) -> tuple[str | None, ...]:
    """Return identifier, name and port of an LLDP neighbor.

    A Chassis ID that looks like the node GUID of an InfiniBand switch is no identifier.
    """
    if _is_guid(facts.chassis_id):
        return None, facts.system_name or facts.chassis_id, facts.port_id
    return facts.chassis_id, facts.system_name, facts.port_id


def document(row: LabeledInterface) -> Json:
    """Return the JSON object of a row, without what is unknown."""
    found = row._asdict()
    if row.neighbor:
        found["neighbor"] = _known(row.neighbor._asdict())
    return _known(found)


def _known(facts: Json) -> Json:
    return {name: fact for name, fact in facts.items() if fact is not None}


def parse(row: object) -> tuple[LabeledInterface, list[str]]:
    """Parse a JSON row; returns it and the names of the facts that were dropped.

    Raises Malformed without a valid interface and PCI address.
    """
    facts: Json = row if isinstance(row, dict) else {}
    found: Json = {
        "interface": _word(facts, "interface", _NAME),
        "pci": _word(facts, "pci", PCI),
    }
    dropped = []
    for name, is_valid in _OPTIONAL.items():
        value = facts.get(name)
        if value is not None and is_valid(value):
            found[name] = _value(value)
        elif value is not None:
            dropped.append(name)
    return LabeledInterface(**found), dropped


def _value(value: Any) -> Any:
    """Return the model's value of a valid fact."""
    if isinstance(value, dict):
        return LastNeighbor(value.get("id"), value.get("name"), value.get("port_id"))
    return value if isinstance(value, str) else float(value)


def _word(facts: Json, name: str, pattern: re.Pattern[str]) -> str:
    value = facts.get(name)
    if value is None:
        raise Malformed("a row of interfaces lacks the interface or its PCI address")
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise Malformed(f"{name} is {value!r:.40}")
    return value


def _is_guid(value: object) -> bool:
    return isinstance(value, str) and bool(GUID.fullmatch(value))


def _is_gbps(value: object) -> bool:
    """Return True for a number from 0 to MAX_GBPS; NaN is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_GBPS


def _is_neighbor(value: object) -> bool:
    """Return True for a JSON object whose texts are valid or missing."""
    if not isinstance(value, dict):
        return False
    texts = [value.get(name) for name in LastNeighbor._fields]
    return all(text is None or _is_text(text) for text in texts)


def _is_text(value: object) -> bool:
    """Return True for a text of 1 to MAX_TEXT characters that is valid Unicode.

    JSON may carry half of a surrogate pair, which no UTF-8 text has.
    """
    if not (isinstance(value, str) and 0 < len(value) <= MAX_TEXT):
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


_OPTIONAL = {
    "port_guid": _is_guid,
    "node_guid": _is_guid,
    "counted_gbps": _is_gbps,
    "neighbor": _is_neighbor,
}
