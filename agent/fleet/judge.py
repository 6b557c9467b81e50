"""Judge a fleet: by a plan, by the expected labels of its Nodes, or by its own pattern.

Pure. What is expected decides: where a plan or labels give cables, nothing is inferred, and Nodes
without any are left out and counted. A silent Node is never compared.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent import encode
from agent.cabling import words
from agent.cabling.cables import IGNORED, ComparedCable
from agent.cabling.expected import Expected
from agent.cabling.finding import (
    ID_LENGTH,
    INFO,
    Finding,
    Move,
    PortRef,
    end_text,
    finding,
    fleet_order,
)
from agent.cabling.judge import DEFAULTS, VerifyOptions
from agent.cabling.plans.model import Plan
from agent.cabling.unstable import UnstableLink
from agent.cabling.unstable import findings as of_links
from agent.encode import Naming
from agent.errors import Malformed
from agent.fleet import identity, planned, silent, tiers
from agent.fleet.halves import MAX_NOTES, Expectations, names_of
from agent.fleet.model import Fleet, FleetNode, FleetPort, Group, Judged, Wire, wires
from agent.fleet.pattern.infer import Pattern
from agent.fleet.pattern.infer import infer as of_fleet
from agent.grouped import grouped
from agent.kube.managed_fields import Keys
from agent.text import listed, many

NAMING = Naming()
MIN_PORTS = 4  # of one interface in a group, or of one model of NICs
USUAL = 0.75  # the share of them that has the usual rate, or firmware
MAX_POSITIONS = 3  # of nodes in a finding, each with its tray; of more, the chassis that all are in
OF_SPEED = frozenset({"slow", "speed"})


def judge(  # noqa: PLR0913 - most are choices
    fleet: Fleet,
    plans: Sequence[Plan] = (),
    options: VerifyOptions = DEFAULTS,
    naming: Naming = NAMING,
    infer: Callable[[Fleet], Pattern] = of_fleet,
    *,
    is_partial: bool = False,
    is_selected: bool = False,
) -> Judged:
    """Judge a fleet; raises Malformed for plans that name no Node of it.

    `is_partial`: the plan is meant for some of the Nodes; `is_selected`: the Nodes are some of it.
    """
    expectations = Expectations(fleet, plans, naming, options.off)
    quiet = silent.causes(fleet)
    halves, findings = _halves(fleet, expectations)
    expected = {node.name: n for node, half in halves if (n := planned.cables_in(half))}
    fresh = [(node, half) for node, half in halves if node.name not in quiet]
    compared = planned.compared(fresh, expectations, options)
    kept = _without_ignored(fleet, options)
    inferred = infer(kept)
    findings += compared.findings
    if not expected:
        findings += (
            finding for finding in inferred.findings if quiet.keys().isdisjoint(finding.nodes)
        )
    rated = {port for finding in findings if finding.code in OF_SPEED for port in finding.ports}
    awake = [node for node in kept.nodes if node.name not in quiet]
    findings += _slow(awake, inferred.groups, rated, compared.cables)
    findings += _unstable(awake, compared.cables)
    told = {frozenset(finding.ports) for finding in findings if finding.code == "duplicate"}
    findings += identity.findings(kept, quiet, options.off, told)
    findings += tiers.findings(awake, Keys(naming).tiers, expectations.cables)
    findings += _firmware(kept.nodes)
    findings += silent.unreadable(kept.nodes)
    findings += silent.findings(fleet, quiet, expected or None)
    findings = planned.habits(findings, {node.name: len(node.ports) for node in fleet.nodes})
    findings = [*positioned(expectations.placed(findings), fleet.nodes)]
    unread = sum(count for name, count in expected.items() if name in quiet)
    gap = None
    if expected and not is_partial:
        gap = expectations.gap(expected, compared.planned, is_selected=is_selected)
    return Judged(
        fleet,
        tuple(_distinct(sorted(findings, key=fleet_order))),
        tuple(inferred.groups),
        tuple(_notes(fleet, expectations, expected, compared, inferred)),
        compared.planned + unread if expected else inferred.covered,
        compared.as_planned if expected else inferred.regular,
        not expected,
        gap,
        bool(plans),
    )


def _halves(
    fleet: Fleet, expectations: Expectations
) -> tuple[list[tuple[FleetNode, Expected]], list[Finding]]:
    """Return the nodes of which something is expected; findings of those that it contradicts."""
    halves: list[tuple[FleetNode, Expected]] = []
    contradictions: list[Finding] = []
    for node in fleet.nodes:
        try:
            half = expectations.of(node)
        except Malformed as error:
            contradictions.append(planned.contradiction(node.name, error))
        else:
            halves += [] if half.is_empty else [(node, half)]
    return halves, contradictions


def _without_ignored(fleet: Fleet, options: VerifyOptions) -> Fleet:
    if not options.ignore:
        return fleet
    nodes = []
    for node in fleet.nodes:
        ports = (port for port in node.ports if not options.has_ignored(names_of(port)))
        nodes.append(replace(node, ports=tuple(ports)))
    return replace(fleet, nodes=tuple(nodes))


def _distinct(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; a finding with the ID of an earlier one gets another ID.

    Names that differ only in case have one ID.
    """
    used: set[str] = set()
    for original in findings:
        identity = original.id
        while identity in used:
            identity = hashlib.sha256(identity.encode()).hexdigest()[:ID_LENGTH]
        used.add(identity)
        yield original if identity == original.id else original._replace(id=identity)


def _notes(
    fleet: Fleet,
    expectations: Expectations,
    expected: Collection[str],
    compared: planned.Compared,
    inferred: Pattern,
) -> Iterator[str]:
    yield from expectations.notes()
    if expected and len(expected) < len(fleet.nodes):
        others = [node.name for node in fleet.nodes if node.name not in expected]
        yield f"nothing is expected of {many(len(others), 'Node')}: {listed(others)}"
    yield from compared.assumptions[:MAX_NOTES]
    if (more := len(compared.assumptions) - MAX_NOTES) > 0:
        yield f"and {more:,} more like this"
    if not expected:
        yield from inferred.notes


T = TypeVar("T")
# The usual rate of the ports at one address, and the number that have it of all of them.
_Share = tuple[float, int, int]


def _usual(values: Sequence[T]) -> tuple[T, int] | None:
    """Return the usual value and how many ports have it; None if there is none.

    It takes enough ports of which nearly all have one value: two generations of NICs in a group are
    no difference.
    """
    usual, count = Counter(values).most_common(1)[0]
    return (usual, count) if len(values) >= MIN_PORTS and count >= USUAL * len(values) else None


def _slow(
    nodes: Iterable[FleetNode],
    groups: Iterable[Group],
    explained: Collection[PortRef],
    cables: Iterable[ComparedCable],
) -> Iterator[Finding]:
    """Yield a finding for each node with ports slower than the same port of most other nodes.

    A leg of a bond may be on standby and count nothing. Ports that are `explained` are left out.
    `cables` have places.
    """
    by_name = {node.name: node for node in nodes}
    causes: list[list[tuple[Wire, _Share]]] = []
    for group in groups:
        members = (by_name[name] for name in group.nodes if name in by_name)
        rated = [wire for wire in wires(members) if _is_rated(wire.port)]
        slow: dict[str, list[tuple[Wire, _Share]]] = {}  # slow ports by node
        for same in grouped(rated, lambda wire: wire.port.pci or wire.port.interface).values():
            rates = [wire.port.gbps or 0.0 for wire in same]
            if usual := _usual(rates):
                for wire, rate in zip(same, rates, strict=True):
                    if rate < usual[0] and wire.ref not in explained:
                        slow.setdefault(wire.node.name, []).append((wire, (*usual, len(same))))
        causes += slow.values()
    planned = {cable.ref: cable for cable in cables} if causes else {}
    yield from (_slower(ports, planned) for ports in causes)


def _is_rated(port: FleetPort) -> bool:
    """Return True for a port whose rate is known, but for a leg of a bond."""
    is_leg = "-" in port.interface and not port.interface.rpartition("-")[2].isdecimal()
    return port.gbps is not None and not is_leg


def _slower(
    ports: Sequence[tuple[Wire, _Share]], planned: Mapping[PortRef, ComparedCable]
) -> Finding:
    """Return the finding of a node with slow ports; the share is that of the first one."""
    (first, (usual, alike, total)), shown, moves = ports[0], [], []
    for wire, _ in ports:
        rate = encode.gbps(wire.port.gbps) if wire.port.gbps else "a port that is not ACTIVE"
        cable, end = planned.get(wire.ref), (wire.end.device, wire.end.port)
        near, far = wire.port.interface, end_text(end)
        if cable:
            near, far = words.near(cable.row), words.present(cable.port, cable)
        shown.append(f"{near} to {far} ({rate})")
        moves.append(cable.stay if cable else Move(wire.ref, end, end))
    gbps = first.port.gbps or 0.0
    verb = "Reseat or replace the cable of" if gbps else "Activate"
    text = (
        f"{verb} {first.node.name} {listed(shown)}; {alike:,} of {total:,} such ports "
        f"of the group run at {encode.gbps(usual)}."
    )
    refs = [wire.ref for wire, _ in ports]
    facts = planned[first.ref].facts if first.ref in planned else {}
    facts |= {"rate-gbps": f"{gbps:g}", "usual-gbps": f"{usual:g}"}
    return finding("slow", refs, text, facts=facts, moves=tuple(moves), actual=moves[0].actual)


def _unstable(nodes: Sequence[FleetNode], cables: Iterable[ComparedCable]) -> Iterator[Finding]:
    """Yield a finding for each cause of links with errors; `cables` are those of the plan."""
    bad = [(wire, link) for wire in wires(nodes) if (link := wire.port.bad_link)]
    planned, links = {cable.ref: cable for cable in cables} if bad else {}, []
    for wire, link in bad:
        cable = planned.get(wire.ref)
        if not cable or cable.status != IGNORED:
            near = words.near(cable.row) if cable else wire.port.interface
            links.append(UnstableLink(wire.ref, link, wire.end, f"{wire.node.name} {near}", cable))
    yield from of_links(links, ((wire.node.name, wire.end) for wire in wires(nodes)))


def _firmware(nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Yield a remark for each version that few ports of a model of NICs have.

    Only captures have it (agent/fleet/snapshots.py); of a running fleet `bwagent_port_info` has it.
    """
    ports = [
        (port.nic, PortRef(node.name, port.interface))
        for node in nodes
        for port in node.ports
        if port.nic
    ]
    for model, same in grouped(ports, lambda port: port[0].model).items():
        if not (share := _usual([nic.firmware for nic, _ in same])):
            continue
        usual, count = share
        for version, others in grouped(same, lambda port: port[0].firmware).items():
            if version == usual:
                continue
            refs = [ref for _, ref in others]
            names = [*dict.fromkeys(ref.node for ref in refs)]
            where = f"{many(len(refs), 'port')} of {many(len(names), 'node')} ({listed(names)})"
            text = (
                f"Firmware {version} on {where}: {count:,} of {len(same):,} ports of {model} "
                f"have {usual}."
            )
            facts = {"model": model, "firmware": version, "usual": usual}
            yield finding("firmware", refs, text, key=[model, version], facts=facts)


def positioned(findings: Iterable[Finding], nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Yield the findings with the platform positions of their nodes, if each node has one.

    A remark has none; nor has a finding whose nodes' racks the plan has.
    """
    positions = {node.name: node.position for node in nodes if node.position}
    for original in findings:
        known = [(name, positions[name]) for name in original.nodes if name in positions]
        is_planned = any(move.near_spot.rack for move in original.moves)
        chassis, text = {position.chassis for _, position in known}, ""
        if original.severity != INFO and not is_planned and len(known) == len(original.nodes):
            if 0 < len(known) <= MAX_POSITIONS:
                text = f" {listed([f'{name} is {position}' for name, position in known])}."
            elif len(chassis) == 1:
                text = f" All {len(known)} nodes are in chassis {chassis.pop()}."
        yield original._replace(text=original.text + text)
