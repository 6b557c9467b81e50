"""The expected half of each Node: its rows of the plans, or its expected labels.

Invariant: agent.verify.judge.verify returns the same for the half of a Node here as for that of
agent.verify.plan_index.from_plans, as far as the plan's hosts are each one Node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.fleet.cables import Leaves
from agent.model import natural
from agent.text import listed
from agent.verify.cables import shapes
from agent.verify.expected import Expected, from_labels
from agent.verify.plan_index import Hosts, PlanIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.model import Fleet, FleetNode
    from agent.labels.table import Naming
    from agent.plans.model import Cable, Plan

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
        self.index = PlanIndex(cables, self.hosts.node)
        self._leaves = Leaves(self.index.racks)
        _require_any(self.index.rows, plans, fleet)

    def placed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings, those of a leaf with its rack if the plan has it."""
        for one in findings:
            rack = self._rack(one.leaf) if one.leaf and not one.rack else None
            yield one._replace(facts=(*one.facts, ("far-rack", rack))) if rack else one

    def _rack(self, leaf: str) -> str | None:
        """Return the rack of a leaf; None if the plan has none, or several leaves like this."""
        racks = {self.index.racks[name] for name in self._leaves.like(leaf)}
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
        leaves = {row.device for rows in self.index.rows.values() for row in rows}
        names = self.index.names.keys() - leaves - self.hosts.ambiguous.keys()
        others = [name for name in names if not self.hosts.node(name)]
        like = shapes(filter(self.hosts.node, self.index.names)) if others else set()
        missing = [name for name in others if shapes([name]) & like]
        return sorted(sorted(missing), key=natural)

    def of(self, node: FleetNode) -> Expected:
        """Return the expected half of a Node; raises Malformed if its labels contradict."""
        expected = self._of_labels(node)
        if not self._has_plans:
            return expected
        ends = [port.far_end for port in node.ports if port.far_end]
        planned = self.index.of(
            node.name,
            [(end.device, name or "") for end in ends for name in (end.port_id, end.port_name)],
        )
        return planned._replace(speed=expected.speed) if planned.rows else expected

    def _of_labels(self, node: FleetNode) -> Expected:
        """Return what the labels expect; beside a plan, the speed only."""
        wanted = "/speed.expected" if self._has_plans else ".expected"
        labels = {key: value for key, value in node.labels.items() if wanted in key}
        return from_labels(labels, self._naming, f"Node {node.name}") if labels else NONE


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
