"""The expected half of each Node: its rows of the plans, or its expected labels.

The cables of a plan are indexed once by host, so that a fleet costs as much as its cables.

Invariant: agent.verify.judge.verify returns the same for the half of a Node here as for that of
agent.verify.expected.from_plans, as far as the plan's hosts are each one Node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.findings.names import device_key, unpadded
from agent.fleet.cables import Leaves
from agent.fleet.hosts import Hosts
from agent.model import natural
from agent.plans.model import IGNORE
from agent.text import listed
from agent.verify.cables import shapes
from agent.verify.expected import Expected, distinct, end_key, from_labels, row_of
from agent.verify.interfaces import numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.model import Fleet, FleetNode
    from agent.labels.table import Naming
    from agent.plans.model import Cable, End, Plan
    from agent.verify.expected import FarPort, Row

    Off = frozenset[str]

NONE = Expected()
MAX_NOTES = 3  # of one kind


class Expectations:
    """The expected halves of a fleet; raises Malformed for plans that no fleet can be given."""

    def __init__(
        self, fleet: Fleet, plans: Sequence[Plan], naming: Naming, off: Off = frozenset()
    ) -> None:
        self._naming = naming
        self._has_plans = bool(plans)
        cables = [cable for plan in plans for cable in _cables(plan)]
        names = dict.fromkeys(end.node for cable in cables for end in (cable.a, cable.b))
        self.hosts = Hosts([node.name for node in fleet.nodes], names, off)
        self._rows: dict[str, list[Row]] = {}
        self._taken = _Taken()
        self._racks: dict[str, str] = {}  # by the name of the leaf
        interfaces: dict[str, None] = {}
        for cable in cables:
            self._add(cable)
            interfaces |= {cable.a.interface: None, cable.b.interface: None}
        self._interfaces = tuple(numbers(interfaces).values())
        self._names = _Names(names)
        self._leaves = Leaves(self._racks)
        self._plan_names = set(names)
        _require_any(self._rows, plans, fleet)

    @property
    def off(self) -> Off:
        """`padding` if the plans have two switches that differ in leading zeros only."""
        return frozenset() if self._names.are_padded else frozenset({"padding"})

    def placed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings, those of a leaf with its rack if the plan has it."""
        for one in findings:
            rack = self._rack(one.leaf) if one.leaf and not one.rack else None
            yield one._replace(facts=(*one.facts, ("far-rack", rack))) if rack else one

    def _rack(self, leaf: str) -> str | None:
        """Return the rack of a leaf; None if the plan has none, or several leaves like this."""
        racks = {self._racks[name] for name in self._leaves.like(leaf)}
        return racks.pop() if len(racks) == 1 else None

    def notes(self) -> Iterator[str]:
        """Yield a line for hosts of the plans that are no Node, or perhaps several."""
        for name, others in [*self.hosts.ambiguous.items()][:MAX_NOTES]:
            yield f"not compared: {name} may be {' or '.join(others)}"
        if len(self.hosts.ambiguous) > MAX_NOTES:
            yield f"not compared: {len(self.hosts.ambiguous) - MAX_NOTES:,} more names of hosts"
        if missing := self._missing_hosts():
            yield f"hosts of the plan without a Node: {listed(missing)}"

    def _missing_hosts(self) -> list[str]:
        """Return the names of the form of a Node's that are no Node and no far end."""
        leaves = {row.device for rows in self._rows.values() for row in rows}
        names = self._plan_names - leaves - self.hosts.ambiguous.keys()
        others = [name for name in names if not self.hosts.node(name)]
        like = shapes(filter(self.hosts.node, self._plan_names)) if others else set()
        missing = [name for name in others if shapes([name]) & like]
        return sorted(sorted(missing), key=natural)

    def of(self, node: FleetNode) -> Expected:
        """Return the expected half of a Node; raises Malformed if its labels contradict."""
        expected = self._of_labels(node)
        if not self._has_plans:
            return expected
        rows = distinct(self._rows.get(node.name, ()))
        if not rows:
            return expected
        planned = Expected(rows, expected.speed)
        ends = {*_far_ports(node), *planned.far_ports}
        return planned._replace(
            taken=dict(self._users(ends, node.name)),
            devices=frozenset(self._names.like(_seen_devices(node))),
            interfaces=self._interfaces,
        )

    def _of_labels(self, node: FleetNode) -> Expected:
        """Return what the labels expect; beside a plan, the speed only."""
        wanted = "/speed.expected" if self._has_plans else ".expected"
        labels = {key: value for key, value in node.labels.items() if wanted in key}
        return from_labels(labels, self._naming, f"Node {node.name}") if labels else NONE

    def _add(self, cable: Cable) -> None:
        """Add a cable to the rows of the Nodes at its ends, and both ends to the taken ports."""
        for near, far in ((cable.a, cable.b), (cable.b, cable.a)):
            node = self.hosts.node(near.node)
            if node is not None:
                self._rows.setdefault(node, []).append(row_of(cable, near, far))
                if far.rack:
                    self._racks[far.node] = far.rack
            if cable.mark != IGNORE:
                self._taken.add(far, near)

    def _users(self, ends: Iterable[FarPort], node: str) -> Iterator[tuple[FarPort, str]]:
        """Yield who else has each of these ports by the plans: the last row that is not ours."""
        for end in {end_key(*end) for end in ends}:
            users = reversed(self._taken.by(end))
            other = next((near for near in users if self.hosts.node(near.node) != node), None)
            if other:
                yield end, f"{other.node} {other.interface}"


def _cables(plan: Plan) -> tuple[Cable, ...]:
    """Return the cables of a plan; raises Malformed for a file of the labels of one node."""
    if plan.labels:
        text = "expected labels of one node, which a fleet reads from its Nodes"
        raise Malformed(f"{plan.file}: {text}; give a plan with the names of hosts")
    return plan.cables


def _require_any(found: Collection[str], plans: Sequence[Plan], fleet: Fleet) -> None:
    """Raise Malformed if no plan has a row of any Node."""
    if not plans or found or not fleet.nodes:
        return
    files = ", ".join(dict.fromkeys(plan.file for plan in plans))
    hosts = sorted({cable.a.node for plan in plans for cable in plan.cables})[:1]
    example = f": it names {hosts[0]!r}" if hosts else ""
    first = fleet.nodes[0].name
    raise Malformed(f"{files}: no row of any Node of {fleet.source}{example}, a Node is {first!r}")


def _far_ports(node: FleetNode) -> Iterator[FarPort]:
    for port in node.ports:
        if end := port.far_end:
            yield from ((end.device, name) for name in (end.port_id, end.port_name) if name)


def _seen_devices(node: FleetNode) -> set[str]:
    return {port.far_end.device for port in node.ports if port.far_end}


class _Taken:
    """The ends of cables by the port at their other end: by its device, then by its name."""

    def __init__(self) -> None:
        self._by_device: dict[str, dict[str, list[End]]] = {}

    def add(self, far: End, near: End) -> None:
        """Add the end that takes a port."""
        device, port = end_key(far.node, far.interface)
        self._by_device.setdefault(device, {}).setdefault(port, []).append(near)

    def by(self, port: FarPort) -> Sequence[End]:
        """Return the ends that take a port, in the order of the rows."""
        return self._by_device.get(port[0], {}).get(port[1], ())


class _Names:
    """The names of the plans, by their forms: one that is like a seen name stands for all."""

    def __init__(self, names: Collection[str]) -> None:
        self.are_padded = len({unpadded(name) for name in names}) == len(names)
        self._by_shape = {shape: name for name in names for shape in shapes([name])}
        self._by_key = {device_key(name): name for name in names}
        self._like: dict[str, tuple[str, ...]] = {}

    def like(self, seen: Iterable[str]) -> Iterator[str]:
        """Yield a name for each form, and for each equal name, of these."""
        for device in seen:
            if device not in self._like:
                self._like[device] = (*self._find(device),)
            yield from self._like[device]

    def _find(self, device: str) -> Iterator[str]:
        for shape in shapes([device]) & self._by_shape.keys():
            yield self._by_shape[shape]
        key = device_key(device)
        if key in self._by_key:
            yield self._by_key[key]
