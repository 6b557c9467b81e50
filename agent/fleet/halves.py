"""The two halves of each Node for agent.cabling.judge.verify: what is expected, and what is seen.

The expected half is its rows of the plans, or its expected labels; the observed half is from its
labels and annotation. A Node does not say why a port has no neighbor. A port that counts nothing is
DOWN; of any other the reason is not known: a source that fails for longer than its hold removes the
label, too.

Invariant: agent.cabling.judge.verify returns the same for the expected half of a Node here as for
that of agent.cabling.plan_index.from_plans, as far as the plan's hosts are each one Node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property, lru_cache

from agent.cabling.cables import shapes
from agent.cabling.expected import Expected, from_labels
from agent.cabling.finding import Finding, PortRef
from agent.cabling.names import Off, guid, leaf_key, mac
from agent.cabling.plan_index import Hosts, PlanIndex
from agent.cabling.plans.model import Plan
from agent.cabling.seen import DOWN, Port, SeenEnd, SeenNode
from agent.encode import Naming
from agent.errors import Malformed
from agent.fleet.model import INFINIBAND, Fleet, FleetNode, FleetPort, Gap, wires
from agent.text import listed, many, natural

NONE = Expected()
MAX_NOTES = 3  # of one kind
MAX_NEAREST = 2  # names
NO_LABEL = "the Node has no neighbor label of this port"
ACTIVE = "ACTIVE"
MAX_CACHED = 1 << 16  # devices and ports


class Expectations:
    """The expected halves of a fleet; raises Malformed for plans that no fleet can be given."""

    def __init__(
        self, fleet: Fleet, plans: Sequence[Plan], naming: Naming, off: Off = frozenset()
    ) -> None:
        self._naming = naming
        self._plans = plans
        for plan in plans:
            if plan.labels:
                text = "expected labels of one node, which a fleet reads from its Nodes"
                raise Malformed(f"{plan.file}: {text}; give a plan with the names of hosts")
        self.cables = cables = [cable for plan in plans for cable in plan.cables]
        self._nodes = fleet.nodes
        names = dict.fromkeys(end.node for cable in cables for end in (cable.a, cable.b))
        self.hosts = Hosts([node.name for node in fleet.nodes], names, off)
        self.index = PlanIndex(cables, self.hosts.node)
        if plans and not self.index.rows and fleet.nodes:
            files = ", ".join(dict.fromkeys(plan.file for plan in plans))
            hosts = sorted({cable.a.node for cable in cables})[:1]
            example = f": it names {hosts[0]!r}" if hosts else ""
            fault = f"no row of any Node of {fleet.source}{example}"
            raise Malformed(f"{files}: {fault}, a Node is {fleet.nodes[0].name!r}")

    def placed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings, those of a leaf with its rack if the plan has it."""
        for finding in findings:
            leaf = finding.leaf if not finding.rack else None
            rack = place.rack if leaf and (place := self.index.spots.get(leaf)) else None
            fact = ("far-rack", rack) if rack else None
            yield finding._replace(facts=(*finding.facts, fact)) if fact else finding

    def notes(self) -> Iterator[str]:
        """Yield lines for the plans, and for their hosts that are no Node, or perhaps several."""
        for plan in self._plans:
            yield f"{plan.title}, {many(len(plan.cables), 'row')}"
            yield from plan.placed_notes
        for name, others in [*self.hosts.ambiguous.items()][:MAX_NOTES]:
            yield f"not compared: {name} may be {' or '.join(others)}"
        if len(self.hosts.ambiguous) > MAX_NOTES:
            yield f"not compared: {len(self.hosts.ambiguous) - MAX_NOTES:,} more names of hosts"
        if missing := self._missing_hosts:
            yield f"hosts of the plan without a Node: {listed(missing)}"

    def gap(self, expected: Collection[str], compared: int, *, is_selected: bool) -> Gap | None:
        """Return what was not compared; None if nothing was left out.

        `expected` are the Nodes with cables. Of Nodes that are selected, the plan has others.
        """
        nodes = [
            (node.name, count)
            for node in self._nodes
            if node.name not in expected and (count := sum(not port.is_lost for port in node.ports))
        ]
        hosts = [] if is_selected else self._missing_hosts
        if not (nodes or hosts):
            return None
        missing = {*hosts}
        rows = sum(not missing.isdisjoint((cable.a.node, cable.b.node)) for cable in self.cables)
        cables = compared + sum(count for _, count in nodes) + rows
        names = tuple(name for name, _ in nodes)
        others = hosts or [name for name in self.index.names if not self.hosts.node(name)]
        folded = {name.casefold(): name for name in others}
        first = names[0].casefold() if names else ""
        alike = get_close_matches(first, folded, MAX_NEAREST) if first else []
        nearest = tuple(sorted((folded[name] for name in alike), key=natural))
        return Gap(names, tuple(hosts), nearest, compared, cables)

    @cached_property
    def _missing_hosts(self) -> list[str]:
        """Return the names of the form of a Node's that are no Node and no far end."""
        leaves = {row.device for rows in self.index.rows.values() for row in rows}
        names = self.index.names.keys() - leaves - self.hosts.ambiguous.keys()
        others = [name for name in names if not self.hosts.node(name)]
        like = shapes(filter(self.hosts.node, self.index.names)) if others else set()
        missing = [name for name in others if shapes([name]) & like]
        return sorted(sorted(missing), key=natural)

    def of(self, node: FleetNode) -> Expected:
        """Return the expected half of a Node; raises Malformed if its labels contradict.

        Beside a plan, the labels give the speed only.
        """
        wanted = "/speed.expected" if self._plans else ".expected"
        labels = {key: node.labels[key] for key in [key for key in node.labels if wanted in key]}
        source = f"Node {node.name}"
        expected = from_labels(labels, self._naming, source) if labels else NONE
        if not self._plans:
            return expected
        ends = [wire.end for wire in wires([node])]
        seen = [(end.device, end.port_id or "") for end in ends]
        seen += [(end.device, end.port_name) for end in ends if end.port_name]
        planned = self.index.of(node.name, seen)
        if not planned.rows:
            return expected
        return planned._replace(speed=expected.speed) if expected.speed else planned


def seen_node(node: FleetNode) -> SeenNode:
    """Return the observed half without the ports that left the bus."""
    ports: dict[str, Port] = {}
    is_infiniband = node.flavor == INFINIBAND
    for port in node.ports:
        if port.is_lost:
            continue
        device, number, leg = _parts(port.interface)
        end, state = port.far_end or port.station, DOWN if port.gbps == 0 else None
        far_ends: tuple[SeenEnd, ...] = ()
        if end:
            ids = end.port_id or "", end.port_name, end.id
            names = _names(end.label, end.name, end.id)
            far_ends = (SeenEnd(end.label, *ids, end.name, *names, infiniband=is_infiniband),)
        ports[port.interface] = Port(
            port.interface,
            device,
            number,
            port.netdev or leg,
            port.pci,
            ACTIVE if end or port.gbps else state,
            rate_gbps=port.gbps,
            far_ends=far_ends,
            missing=None if end else NO_LABEL,
            link_layer="InfiniBand" if is_infiniband else None,
        )
    lost = {port.interface: port.pci for port in node.ports if port.is_lost and port.pci}
    return SeenNode(node.name, ports, former=lost, speed_gbps=node.speed_gbps)


def with_names(
    node: FleetNode, names: Mapping[str, str], of_ports: Mapping[PortRef, str]
) -> FleetNode:
    """Return a node with a plan's names for the switches at ports, or of the keys of names."""
    ports = []
    for port in node.ports:
        end = port.far_end
        if end:
            of_port = of_ports.get(PortRef(node.name, port.interface))
            if name := of_port or names.get(leaf_key(end.device)):
                end = end._replace(label=name, name=name)
        ports.append(port._replace(far_end=end))
    return replace(node, ports=tuple(ports))


def names_of(port: FleetPort) -> list[str]:
    """Return the names of a port for an operator: interface, device, netdev, PCI address."""
    device, _, leg = _parts(port.interface)
    return [*filter(None, (port.interface, device, port.netdev or leg, port.pci))]


@lru_cache(MAX_CACHED)
def _parts(interface: str) -> tuple[str, int, str | None]:
    """Return RDMA device, port number and leg: of `mlx5_0-3`, and of `mlx5_bond_0-eth2`."""
    device, dash, tail = interface.partition("-")
    if not dash:
        return interface, 1, None
    return (device, int(tail), None) if tail.isdecimal() and len(tail) < 4 else (device, 1, tail)


@lru_cache(MAX_CACHED)
def _names(
    label: str, name: str | None, identity: str | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return names, GUIDs and MACs of a switch; its label alone is a name, or an address."""
    addresses = [text for text in (identity, label) if text]
    guids = dict.fromkeys(filter(None, map(guid, addresses)))
    macs = dict.fromkeys(filter(None, map(mac, addresses)))
    is_address = bool(guid(label) or mac(label))
    names = (name,) if name else () if is_address else (label,)
    return names, tuple(guids), tuple(macs)
