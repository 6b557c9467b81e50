"""The expected half: one row for each cable of this node, from labels or from cabling plans.

agent/cabling/plan_index.py makes it of plans.

Invariants:
- Nothing is guessed: rows of one interface that contradict each other raise Malformed with both
  places. Rows of a name that is none, such as a bond of the front end, may be of several cables.
- Rows of other nodes are dropped, but for the ports that they take (`taken`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from agent import encode
from agent.cabling.finding import Spot
from agent.cabling.names import (
    LeafNames,
    compare_device,
    compare_port,
    guid,
    mac,
)
from agent.cabling.plans.columns import FACTS
from agent.cabling.plans.model import NO_FIELDS, End, FilePlace
from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.errors import Malformed
from agent.text import natural

MAX_CABLES = 64  # of one text, each of which is compared with all others
NEIGHBOR, PARTS = "neighbors.expected.", (".device", ".port-id", ".port-name")
LABEL = re.compile(r"^(cable[ _-]*)?(label|id)$|^cable$", re.IGNORECASE)  # a column of the plan


class ExpectedRow(NamedTuple):
    """One cable of this node, as planned."""

    text: str  # the interface, as the plan names it
    place: FilePlace
    device: str | None = None  # at the far end, its `node`; None: the plan does not say
    port_id: str | None = None
    port_name: str | None = None
    near: End | None = None  # of a cabling plan: this node's end, with its rack and unit
    far: End | None = None
    rate_gbps: float | None = None
    mark: str | None = None
    fields: Mapping[str, str] = NO_FIELDS
    interface: str | None = None  # of this node; None: not found (agent/cabling/interfaces.py)
    is_label: bool = False  # `text` is an interface by the label contract

    @property
    def port(self) -> str | None:
        """The port's name, else its ID."""
        return self.port_name or self.port_id

    @property
    def ports(self) -> tuple[str, ...]:
        """All names of the port."""
        return tuple(filter(None, (self.port_id, self.port_name)))

    @property
    def label(self) -> str | None:
        """The label of the cable, if the plan has a column of that name."""
        return next((text for name, text in self.fields.items() if LABEL.search(name)), None)

    @property
    def facts(self) -> dict[str, object]:
        """Where it stands, the places of its ends, and its other columns, for a finding."""
        ends = self.near, self.far
        places = {name: getattr(ends[side], field, None) for name, (side, field) in FACTS.items()}
        return {**self.fields, "plan": self.place, **places}

    @property
    def far_end(self) -> tuple[str | None, ...]:
        """The far end, for comparisons between rows."""
        return self.device, self.port_id, self.port_name


@dataclass(frozen=True)
class LeafSpots:
    """Where switches stand, by any spelling of their names."""

    by_name: Mapping[str, Spot] = field(default_factory=dict)

    @cached_property
    def _names(self) -> LeafNames:
        return LeafNames(self.by_name)

    def get(self, name: str) -> Spot | None:
        """Return the place of a switch; None if it is not known."""
        alike = self._names.like(name)
        return self.by_name[alike[0]] if len(alike) == 1 else None


NO_SPOTS = LeafSpots()
FarPort = tuple[str, str]  # device and port, as a plan or a neighbor names them


class Expected(NamedTuple):
    """The expected half of one node."""

    rows: tuple[ExpectedRow, ...] = ()
    speed: str | None = None  # speed.expected
    leaves: str | None = None  # IB/leaves.expected: the devices joined with "_"
    ports: str | None = None  # IB/ports.expected: the port IDs joined with "_"
    # `end_key` of the far ends that the plans give to other nodes, to "node interface"
    taken: Mapping[FarPort, str] = NO_FIELDS  # type: ignore[assignment]
    devices: frozenset[str] = frozenset()  # all far devices of the plans, of any node
    spots: LeafSpots = NO_SPOTS  # of switches
    numbers: frozenset[int] = frozenset()  # of HCAs in the plans, of any node
    notes: tuple[str, ...] = ()
    off: frozenset[str] = frozenset()  # tolerances of names that the plans do not permit

    @property
    def far_ports(self) -> frozenset[FarPort]:
        """The far ends of the rows, by each name of their ports."""
        return frozenset(
            [(device, port) for row in self.rows if (device := row.device) for port in row.ports]
        )

    @property
    def stated(self) -> tuple[object, ...]:
        """The part of the plan that concerns this node."""
        return self.rows, self.speed, self.leaves, self.ports, self.notes

    @property
    def is_empty(self) -> bool:
        """True if nothing is expected."""
        return not (self.rows or self.speed or self.leaves or self.ports)


def from_labels(labels: Mapping[str, str], naming: Naming, source: str) -> Expected:
    """Return the expected half in labels: P, IB and the older forms, any part missing."""
    values: dict[str, str] = {}
    for prefix in filter(None, (naming.ib_prefix, naming.prefix)):
        for key, value in labels.items():
            if key.startswith(f"{prefix}/") and value:
                name = key.removeprefix(f"{prefix}/")
                if (first := values.setdefault(name, value)) != value:
                    text = f"{name} is {first!r} and {value!r} under two prefixes"
                    raise Malformed(f"{source}: {text}")
    parts: dict[str, dict[str, str]] = {}  # of each interface
    for name, value in values.items():
        part = next((suffix for suffix in PARTS if name.endswith(suffix)), None)
        if part and name.startswith(NEIGHBOR):
            interface = name.removeprefix(NEIGHBOR).removesuffix(part)
            parts.setdefault(interface, {})[part] = value
    rows = []
    for interface in sorted(parts, key=natural):
        place = FilePlace(source, column=f"{NEIGHBOR}{interface}")
        device, port_id, port_name = map(parts[interface].get, PARTS)
        rows.append(ExpectedRow(interface, place, device, port_id, port_name, is_label=True))
    speed, leaves, ports = (values.get(f"{name}.expected") for name in ("speed", "leaves", "ports"))
    return Expected(tuple(rows), speed, leaves, ports)


def end_key(device: str, port: str) -> FarPort:
    """Return the key of a far end; spellings that differ in case are one."""
    return device.casefold(), port.casefold()


def distinct(rows: Iterable[ExpectedRow]) -> tuple[ExpectedRow, ...]:
    """Combine the rows of one text that may be of one cable.

    Raises Malformed for more than MAX_CABLES of one text.
    """
    rows = tuple(rows)
    if len({row.text for row in rows}) == len(rows):
        return rows
    by_text: dict[str, list[ExpectedRow]] = {}
    for row in rows:
        same = by_text.setdefault(row.text, [])
        if len(same) > MAX_CABLES:
            raise Malformed(f"{row.place}: {row.text} has more than {MAX_CABLES} far ends")
        index = next((i for i, other in enumerate(same) if not _differ(other, row)), None)
        if index is None:
            same.append(row)
        else:
            same[index] = _combined(same[index], row)
    return tuple(row for same in by_text.values() for row in same)


def one_each(rows: Iterable[ExpectedRow]) -> tuple[ExpectedRow, ...]:
    """Combine the rows of one interface; raises Malformed if they contradict each other."""
    by_interface: dict[str | None, ExpectedRow] = {}
    for row in rows:
        first = by_interface.get(row.interface)
        if first and _differ(first, row):
            ends = []
            for rival in (row, first):
                speed = f"at {encode.gbps(rival.rate_gbps)}" if rival.rate_gbps else None
                ends.append(" ".join(filter(None, (rival.device, rival.port, speed))))
            raise Malformed(
                f"{row.place}: {row.text} is connected to {ends[0]}, "
                f"but to {ends[1]} by {first.place}"
            )
        by_interface[row.interface] = _combined(first, row) if first else row
    return tuple(by_interface.values())


def _combined(row: ExpectedRow, other: ExpectedRow) -> ExpectedRow:
    """Return a row with the parts of both: labels may have the device, a plan port and rate."""
    names = ("device", "port_id", "port_name", "near", "far", "rate_gbps", "mark")
    known = {name: getattr(row, name) or getattr(other, name) for name in names}
    return row._replace(**known, fields={**other.fields, **row.fields})


def _differ(row: ExpectedRow, other: ExpectedRow) -> bool:
    """Return True if two rows cannot be of one cable: by device, port or rate.

    Two names differ, or two addresses; an address and a name may be one switch.
    """
    if len({row.rate_gbps, other.rate_gbps} - {None}) > 1:
        return True
    if row.device and other.device:
        addresses = [guid(text) or mac(text) for text in (row.device, other.device)]
        if addresses == [None, None]:
            seen = SeenEnd(other.device, names=(other.device,))
            if not compare_device(row.device, seen).equal:
                return True
        elif None not in addresses and addresses[0] != addresses[1]:
            return True
    if not row.ports or not other.ports:
        return False
    return compare_port(row.ports, SeenEnd("", other.port_id, other.port_name)).equal is False


def merged(parts: Sequence[Expected]) -> Expected:
    """Combine the expected halves of several files and of the Node."""
    rows = [row for part in parts for row in part.rows]
    return Expected(
        distinct(rows),
        _one("speed", parts),
        _one("leaves", parts),
        _one("ports", parts),
        taken={key: text for part in parts for key, text in part.taken.items()},
        devices=frozenset().union(*(part.devices for part in parts)),
        spots=LeafSpots({k: v for part in parts for k, v in part.spots.by_name.items()}),
        numbers=frozenset().union(*(part.numbers for part in parts)),
        notes=tuple(note for part in parts for note in part.notes),
        off=frozenset().union(*(part.off for part in parts)),
    )


def _one(name: str, parts: Sequence[Expected]) -> str | None:
    """Return the value that the parts agree on; raises Malformed if they do not."""
    values = {value for part in parts if (value := getattr(part, name))}
    if len(values) > 1:
        raise Malformed(f"{name}.expected is given twice: {' and '.join(sorted(values))}")
    return next(iter(values), None)


# JSON, between the helper that reads plan files and the agent


def dump(expected: Expected) -> dict[str, Any]:
    """Return an expected half as JSON."""
    return expected._asdict() | {
        "rows": [row._replace(fields=dict(row.fields)) for row in expected.rows],
        "taken": [[*end, text] for end, text in expected.taken.items()],
        "devices": sorted(expected.devices),
        "numbers": sorted(expected.numbers),
        "spots": None,  # the agent's verdict does not tell where the wrong switch stands
        "off": sorted(expected.off),
    }


def load(document: dict[str, Any]) -> Expected:
    """Return the expected half that `dump` wrote."""
    rows = []
    for values in document["rows"]:
        row = ExpectedRow(*values)
        near, far = (End(*end) if end else None for end in (row.near, row.far))
        rows.append(row._replace(place=FilePlace(*row.place), near=near, far=far))
    return Expected(**document)._replace(
        rows=tuple(rows),
        spots=NO_SPOTS,
        taken={(device, port): text for device, port, text in document["taken"]},
        devices=frozenset(document["devices"]),
        numbers=frozenset(document["numbers"]),
        notes=tuple(document["notes"]),
        off=frozenset(document["off"]),
    )
