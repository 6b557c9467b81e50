"""Compare all nodes with the plan or their expected labels; fold the findings by their causes.

The findings of a node are those of agent/cabling/judge.py, under the same IDs. Those of one cause
are one finding: cables of several nodes in a ring, nodes that are not in their place, a leaf that
is down or renamed, a node without any link, a switch port that the plan gives twice, cables that
lack the same fact, nodes that have the same cables exchanged in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import factorial, prod
from typing import NamedTuple

from agent.cabling import cables, rates, words
from agent.cabling.cables import rings as rings_in
from agent.cabling.expected import Expected, FarPort, end_key
from agent.cabling.finding import NO_END, NOT_VERIFIED, WARNING, Finding, PortRef, finding
from agent.cabling.judge import VerifyOptions, VerifyResult, verify
from agent.cabling.names import Off
from agent.errors import Malformed
from agent.fleet import whole_causes
from agent.fleet.halves import Expectations, seen_node, with_names
from agent.fleet.model import FleetNode
from agent.fleet.pattern.grouping import NO_COINCIDENCE, RIVALS, surprise
from agent.fleet.whole_causes import PlannedLeaves
from agent.grouped import grouped
from agent.reasons import NeighborReason
from agent.text import listed, many, natural

Rings = tuple[tuple[str, ...], ...]  # the interfaces of each, in the order of the ring

OF_LINKS = frozenset({"leaf-down", "missing", "missing-interface", "slow"})
MIN_NODES = 3  # whose plan lacks the same interface
MAX_REASONS = 20  # more that are of one node each are one finding
OTHERS = "reasons of one node each"
MIN_INTERFACES = 2  # of a node, all missing
SWAPPED = "swapped"
RINGS = frozenset({SWAPPED, "shifted"})


class Compared(NamedTuple):
    """The result of comparing nodes with what is expected of them."""

    findings: tuple[Finding, ...]
    planned: int  # cables
    as_planned: int
    assumptions: tuple[str, ...]  # one line each
    cables: Sequence[cables.ComparedCable]


def compared(
    nodes: Iterable[tuple[FleetNode, Expected]], expectations: Expectations, options: VerifyOptions
) -> Compared:
    """Compare each node with its expected half; leaves with other names by those of the plan."""
    options = options._replace(off=options.off | expectations.index.off)
    nodes = list(nodes)
    first, leaves = _compared(nodes, options)
    renamed = whole_causes.renamed(leaves)
    if not renamed.names:
        return first
    named = [(with_names(node, renamed.names, renamed.ports), expected) for node, expected in nodes]
    again, _ = _compared(named, options)
    return again._replace(findings=(*renamed.findings, *again.findings))


def _compared(
    nodes: Sequence[tuple[FleetNode, Expected]], options: VerifyOptions
) -> tuple[Compared, PlannedLeaves]:
    results: list[VerifyResult] = []
    refused: list[Finding] = []
    planned = as_planned = 0
    for node, expected in nodes:
        try:
            result = verify(expected, seen_node(node), options)
        except Malformed as error:
            refused.append(contradiction(node.name, error))
            planned += cables_in(expected)
        else:
            results.append(result)
            planned += result.planned if expected.rows else cables_in(expected)
            right = result.as_planned
            if not expected.rows:  # of labels that name all leaves or ports at once
                is_right = all(finding.code == "speed" for finding in result.findings)
                right = cables_in(expected) * is_right
            as_planned += right
    all_cables = [cable for result in results for cable in result.cables]
    leaves = whole_causes.by_leaf(all_cables)
    members = [node for node, _ in nodes]
    findings = (*refused, *_findings(members, results, all_cables, leaves, options.off))
    assumptions = dict.fromkeys(result.assumption for result in results if result.assumption)
    return Compared(findings, planned, as_planned, (*assumptions,), all_cables), leaves


def cables_in(expected: Expected) -> int:
    """Return the number of expected cables; 1 for labels that name all leaves or ports at once."""
    return len(expected.rows) or int(bool(expected.leaves or expected.ports))


def contradiction(node: str, error: Malformed) -> Finding:
    """Return the finding of a node whose rows or labels contradict each other."""
    text = f"Correct what is expected of {node}: {error}."
    return finding("unverifiable", [], text, nodes=[node], key=[node, "contradiction"])


def _findings(
    nodes: Sequence[FleetNode],
    results: Sequence[VerifyResult],
    all_cables: Sequence[cables.ComparedCable],
    leaves: PlannedLeaves,
    off: Off,
) -> Iterator[Finding]:
    """Yield the causes of several ports, then what they do not explain."""
    of_one = [finding for result in results for finding in result.findings]
    in_rings = {port for finding in of_one if finding.code == SWAPPED for port in finding.ports}
    explained: set[PortRef] = set()

    def explaining(causes: Iterable[Finding]) -> Iterator[Finding]:
        for cause in causes:
            explained.update(cause.ports)
            yield cause

    yield from explaining(whole_causes.down(nodes, leaves))
    wrong = [cable for cable in all_cables if cable.is_wrong]
    left = [cable for cable in wrong if cable.ref not in in_rings and cable.ref not in explained]
    rings = rings_in(left, off)  # over several nodes
    cabled = {result.node: result.cables for result in results if result.cables}
    astray = grouped(left, lambda cable: cable.ref.node)
    names = [node.name for node in nodes]
    yield from explaining(whole_causes.exchanged(rings, names, cabled, astray))
    others = (ring for ring in rings if not explained.issuperset(cable.ref for cable in ring))
    yield from explaining(
        whole_causes.of_cables(
            SWAPPED,
            ring,
            words.swapped(ring),
            sorted({cable.ref.node for cable in ring}, key=natural),
        )
        for ring in others
    )
    owners = {
        finding.ports[0]: owner
        for finding in of_one
        if (owner := dict(finding.facts).get("planned-for"))
    }
    astray = grouped((c for c in left if c.ref not in explained), lambda cable: cable.ref.node)
    yield from explaining(whole_causes.moved(cabled, astray, owners))
    dark = dict.fromkeys(c.ref.node for c in all_cables if c.status == cables.MISSING)
    kept = (cable for name in dark for cable in cabled[name] if cable.status != cables.IGNORED)
    links = ((cable.ref, cable.status == cables.MISSING) for cable in kept)
    yield from explaining(whole_causes.nodes_down(links, explained))
    yield from _of_nodes(of_one, explained)


def _of_nodes(findings: Iterable[Finding], explained: Collection[PortRef]) -> Iterator[Finding]:
    """Yield the findings of nodes that nothing wider explains, those of one cause folded."""

    def is_explained(finding: Finding) -> bool:
        if dict(finding.facts).get("reason") == rates.NO_KIND:
            return True  # a fleet compares with the other nodes (agent/fleet/judge.py)
        if finding.code in {"speed", "slow", "unexpected"} or not finding.ports:
            return False
        return all(port in explained for port in finding.ports)

    kept = (finding for finding in findings if not is_explained(finding))
    kinds = grouped(kept, lambda finding: finding.code)
    speeds = kinds.pop("speed", [])
    told: set[PortRef] = {*explained}
    for code, same in kinds.items():
        for cause in FOLDS[code](same) if code in FOLDS else map(_of_node, same):
            yield cause
            told.update(cause.ports if code in OF_LINKS else ())
    for speed in speeds:
        if not speed.ports or not told.issuperset(speed.ports):
            yield _of_node(speed)


def _of_node(finding: Finding) -> Finding:
    """Return the finding of a node as one of the fleet, under the same ID."""
    return finding._replace(text=f"{finding.nodes[0]}: {finding.text}")


# A fold takes all findings of a code, each of one node. What one node says by itself keeps the ID
# that it has there.


def _unverifiable(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a finding for each reason and severity, or one for all reasons of one node each."""

    def reason_of(finding: Finding) -> str:
        facts = dict(finding.facts)
        return facts.get("reason") or facts.get(NOT_VERIFIED) or finding.text

    by_reason = grouped(findings, lambda finding: (finding.severity, reason_of(finding)))
    single = {key: same for key, same in by_reason.items() if len({f.nodes for f in same}) == 1}
    if len(single) <= MAX_REASONS:
        single = {}
    for key, same in by_reason.items():
        if key not in single:
            word = NeighborReason.of(key[1])
            text = f"not verified: {word.text if word else key[1]}."
            yield _not_verified(same, text, key, {"reason": key[1]})
    rest = grouped(chain(*single.values()), lambda finding: finding.severity)
    for severity, same in rest.items():
        example = _of_node(same[0]).text
        text = f"not verified, for {OTHERS}; for example {example}"
        yield _not_verified(same, text, (severity, OTHERS), None)


def _not_verified(
    same: Sequence[Finding], text: str, key: tuple[str, str], facts: Mapping[str, object] | None
) -> Finding:
    """Return the finding of ports, or of nodes as such; `key` has its severity first."""
    ports, nodes = [*dict.fromkeys(_ports(same))], _nodes(same)
    where = f"of {many(len(nodes), 'node')} ({listed(nodes)})"
    text = f"{many(len(ports), 'port') if ports else 'Something'} {where} {text}"
    made = finding("unverifiable", ports, text, nodes=nodes, severity=key[0], key=key, facts=facts)
    if len(nodes) == 1 and facts:
        return made._replace(id=same[0].id, text=_of_node(same[0]).text)
    return made


def _duplicate(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one finding for each switch port that the plan gives twice."""

    def end_of(finding: Finding) -> FarPort:
        device, port = finding.expected
        return end_key(device or "", port or "")

    of_plan = [finding for finding in findings if finding.actual == NO_END]
    for key, same in grouped(of_plan, end_of).items():
        first, ports = same[0], _ports(same)
        facts = dict(first.facts)
        users = [port.text for port in ports]
        if len(ports) < 2:  # the others are of nodes that are not compared
            users += [facts["users"].removeprefix(f"{ports[0].interface}, " if ports else "")]
        text = words.duplicate_in_plan(*first.expected, users)
        made = finding("duplicate", ports, text, key=key, facts=facts, expected=first.expected)
        yield made._replace(id=first.id) if len(same) == 1 else made
    yield from (_of_node(finding) for finding in findings if finding.actual != NO_END)


def _unexpected(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one finding for each interface that the plan lacks on several nodes."""
    for name, same in grouped(findings, lambda finding: finding.interface).items():
        if len(same) < MIN_NODES:
            yield from map(_of_node, same)
            continue
        nodes, key = _nodes(same), ["interface", name]
        text = (
            f"The plan has no cable for {name} of {many(len(nodes), 'node')} ({listed(nodes)}): "
            "add the cables to the plan, or leave them out with --ignore."
        )
        yield finding("unexpected", _ports(same), text, nodes=nodes, key=key)


def _missing_interface(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one finding for each node that has none of several interfaces."""
    for (node,), same in grouped(findings, lambda finding: finding.nodes).items():
        if len(same) < MIN_INTERFACES:
            yield from map(_of_node, same)
            continue
        ports = _ports(same)
        names = listed([port.interface for port in ports])
        look = "look for their NICs on the PCI bus"
        text = f"{node}: {names} of the plan are not on this node: {look}."
        yield finding("missing-interface", ports, text, key=[node, "several"])


def _ports(same: Iterable[Finding]) -> list[PortRef]:
    return [port for finding in same for port in finding.ports]


def _nodes(same: Iterable[Finding]) -> list[str]:
    return sorted({node for finding in same for node in finding.nodes}, key=natural)


FOLDS: Mapping[str, Callable[[Sequence[Finding]], Iterator[Finding]]] = {
    "unverifiable": _unverifiable,
    "duplicate": _duplicate,
    "unexpected": _unexpected,
    "missing-interface": _missing_interface,
}


def habits(findings: Iterable[Finding], ports: Mapping[str, int]) -> list[Finding]:
    """Return the findings, those of a habit folded; `ports` is the number of each node's ports.

    Somebody who numbers the ports of one kind of node otherwise exchanges the same cables on each
    of them. That is a design, or one mistake, and no accident of each node: it is a habit if four
    nodes or more agree better than accidents would.
    """
    kept = list(findings)
    swapped = [cause for cause in kept if cause.code in RINGS and len(cause.nodes) == 1]
    by_node = grouped(swapped, lambda exchange: exchange.nodes[0])
    alike = grouped(
        by_node, lambda node: tuple(sorted(exchange.interfaces for exchange in by_node[node]))
    )
    for rings, nodes in alike.items():
        # in how many ways as many cables of a node are exchanged in rings of these lengths
        lengths = [len(ring) for ring in rings]
        equal = prod(factorial(count) for count in Counter(lengths).values())
        fixed = max(max(ports.get(node, 0) for node in nodes) - sum(lengths), 0)
        ways = factorial(fixed + sum(lengths)) / (factorial(fixed) * prod(lengths) * equal)
        if len(nodes) >= RIVALS and surprise(len(nodes), len(by_node), ways) >= NO_COINCIDENCE:
            told = {*nodes}
            kept = [each for each in kept if each.code not in RINGS or told.isdisjoint(each.nodes)]
            kept.append(_habit(rings, nodes, [cause for node in nodes for cause in by_node[node]]))
    return kept


def _habit(rings: Rings, nodes: Iterable[str], same: Sequence[Finding]) -> Finding:
    """Return the finding of nodes that have the same cables exchanged; `same` are theirs."""
    names = sorted(nodes, key=natural)
    cables = ", ".join(
        " and ".join(ring) if len(ring) == 2 else " to ".join(ring) for ring in rings
    )
    text = (
        f"{many(len(names), 'node')} ({listed(names)}) have the cables of {cables} exchanged "
        "the same way: exchange their far ends, unless it is meant."
    )
    weakest = min(
        same, key=lambda exchange: exchange.confidence if exchange.confidence is not None else 1
    )
    return finding(
        SWAPPED,
        [port for exchange in same for port in exchange.ports],
        text,
        nodes=names,
        severity=WARNING,
        key=["habit", *(name for ring in rings for name in ring)],
        moves=tuple(move for exchange in same for move in exchange.moves),
        confidence=weakest.confidence,
        majority=weakest.majority,
        expected=same[0].expected,
        actual=same[0].actual,
    )
