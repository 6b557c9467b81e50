"""The expected half: one row for each cable of this node, from labels or from cabling plans.

Invariants:
- Nothing is guessed: rows that contradict each other raise Malformed with both places.
- Rows of other nodes are dropped, but for the ports that they take (`taken`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.labels import encode
from agent.model import natural
from agent.verify.model import NO_FIELDS, Place
from agent.verify.names import same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.labels.table import Naming
    from agent.verify.model import Cable, End, Plan

    Off = frozenset[str]

NEIGHBOR, PARTS = "neighbors.expected.", (".device", ".port-id", ".port-name")


class Row(NamedTuple):
    """One cable of this node, as planned."""

    text: str  # the interface, as the plan names it
    place: Place
    device: str | None = None  # None: the plan does not say
    port_id: str | None = None
    port_name: str | None = None
    near: End | None = None  # of a cabling plan: this node's end, with its rack and unit
    far: End | None = None
    rate_gbps: float | None = None
    mark: str | None = None
    fields: Mapping[str, str] = NO_FIELDS
    interface: str | None = None  # of this node; None: not found (agent/verify/interfaces.py)
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
    def far_end(self) -> tuple[str | None, ...]:
        """The far end, for comparisons between rows."""
        return self.device, self.port_id, self.port_name


class Expected(NamedTuple):
    """The expected half of one node."""

    rows: tuple[Row, ...] = ()
    speed: str | None = None  # speed.expected
    leaves: str | None = None  # IB/leaves.expected: the devices joined with "_"
    ports: str | None = None  # IB/ports.expected: the port IDs joined with "_"
    # the far ends that the plans give to other nodes: (device, port) to "node interface"
    taken: Mapping[tuple[str, str], str] = NO_FIELDS  # type: ignore[assignment]
    devices: frozenset[str] = frozenset()  # all far devices of the plans, of any node
    interfaces: tuple[str, ...] = ()  # all host interfaces of the plans, of any node
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is expected."""
        return not (self.rows or self.speed or self.leaves or self.ports)


def from_labels(labels: Mapping[str, str], naming: Naming, source: str) -> Expected:
    """Return the expected half in labels: P, IB and the older forms, any part missing."""
    found: dict[str, str] = {}
    for prefix in filter(None, (naming.ib_prefix, naming.prefix)):
        for key, value in labels.items():
            if key.startswith(f"{prefix}/") and value:
                _add(found, key.removeprefix(f"{prefix}/"), value, source)
    rows = _label_rows(found, source)
    return Expected(
        rows, found.get("speed.expected"), found.get("leaves.expected"), found.get("ports.expected")
    )


def _add(found: dict[str, str], name: str, value: str, source: str) -> None:
    if found.setdefault(name, value) != value:
        raise Malformed(f"{source}: {name} is {found[name]!r} and {value!r} under two prefixes")


def _label_rows(labels: Mapping[str, str], source: str) -> tuple[Row, ...]:
    parts: dict[str, dict[str, str]] = {}
    for name, value in labels.items():
        part = next((one for one in PARTS if name.endswith(one)), None)
        if part and name.startswith(NEIGHBOR):
            interface = name.removeprefix(NEIGHBOR).removesuffix(part)
            parts.setdefault(interface, {})[part] = value
    return tuple(
        Row(
            interface,
            Place(source, column=f"{NEIGHBOR}{interface}"),
            values.get(".device"),
            values.get(".port-id"),
            values.get(".port-name"),
            is_label=True,
        )
        for interface, values in sorted(parts.items(), key=lambda item: natural(item[0]))
    )


def from_plans(plans: Iterable[Plan], names: Sequence[str], off: Off = frozenset()) -> Expected:
    """Return the rows of the node with these names, and the ports of all others."""
    rows: list[Row] = []
    taken: dict[tuple[str, str], str] = {}
    devices: set[str] = set()
    interfaces: dict[str, None] = {}
    is_here = _Memory(names, off)
    for cable in (cable for plan in plans for cable in plan.cables):
        near, far = _oriented(cable, is_here)
        if near is None:
            for one, other in ((cable.a, cable.b), (cable.b, cable.a)):
                taken[one.node, one.interface] = f"{other.node} {other.interface}"
                devices.add(one.node)
                interfaces[one.interface] = None
        elif far:
            is_here.require_one(near.node, cable.place)
            rows.append(_row(cable, near, far))
            devices.add(far.node)
            interfaces[near.interface] = None
    return Expected(
        _unique(rows), taken=taken, devices=frozenset(devices), interfaces=tuple(interfaces)
    )


class _Memory(dict[str, bool]):
    """Whether a host of the plan is this node, by its name; compared once for each name."""

    def __init__(self, names: Sequence[str], off: Off) -> None:
        super().__init__()
        self._names, self._off = names, off
        self._used: dict[str, Place] = {}

    def require_one(self, name: str, place: Place) -> None:
        """Raise Malformed if another host of the plan is this node, too, by its short name."""
        for other, first in self._used.items():
            if not same_name(name, other):
                raise Malformed(f"{place}: {name} may be this node, and so may {other} of {first}")
        self._used.setdefault(name, place)

    def __missing__(self, name: str) -> bool:
        self[name] = is_node(name, self._names, self._off)
        return self[name]


def _oriented(cable: Cable, is_here: _Memory) -> tuple[End | None, End | None]:
    """Return this node's end and the other; None twice for a cable of others."""
    here = [end for end in (cable.a, cable.b) if is_here[end.node]]
    if len(here) == 2:
        raise Malformed(f"{cable.place}: both ends are this node, {cable.a.node}")
    if not here:
        return None, None
    return here[0], cable.b if here[0] is cable.a else cable.a


def is_node(name: str, names: Sequence[str], off: Off = frozenset()) -> bool:
    """Return True if a plan's host is this node: by host name, FQDN or Node name."""
    return any(same_name(name, one, off) for one in names)


def _row(cable: Cable, near: End, far: End) -> Row:
    return Row(
        near.interface,
        cable.place,
        far.node or None,
        far.interface or None,
        far.port_name,
        near,
        far,
        cable.rate_gbps,
        cable.mark,
        cable.fields,
    )


def _unique(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Drop repeated rows; raises Malformed if two give one interface different far ends."""
    found: dict[str, Row] = {}
    for row in rows:
        first = found.setdefault(row.text, row)
        if first.far_end != row.far_end:
            raise contradiction(first, row)
    return tuple(found.values())


def contradiction(one: Row, other: Row) -> Malformed:
    """Return the error for two rows of one interface with different far ends."""
    ends = [" ".join(filter(None, (row.device, row.port))) for row in (one, other)]
    return Malformed(
        f"{other.place}: {other.text} is connected to {ends[1]}, but to {ends[0]} by {one.place}"
    )


def merged(parts: Sequence[Expected]) -> Expected:
    """Combine the expected halves of several files and of the Node."""
    rows = [row for part in parts for row in part.rows]
    return Expected(
        _unique(rows),
        _one("speed", parts),
        _one("leaves", parts),
        _one("ports", parts),
        taken={key: text for part in parts for key, text in part.taken.items()},
        devices=frozenset().union(*(part.devices for part in parts)),
        interfaces=tuple(dict.fromkeys(name for part in parts for name in part.interfaces)),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _one(name: str, parts: Sequence[Expected]) -> str | None:
    """Return the value that the parts agree on; raises Malformed if they do not."""
    values = {value for part in parts if (value := getattr(part, name))}
    if len(values) > 1:
        raise Malformed(f"{name}.expected is given twice: {' and '.join(sorted(values))}")
    return next(iter(values), None)


def of_seen(texts: Sequence[str]) -> str:
    """Return the label value of joined texts, as `leaves.expected` has it."""
    return encode.value("_".join(texts))
