"""Compare all nodes with the plan or their expected labels; fold the findings by their causes.

The findings of a node are those of agent/verify/findings.py, under the same IDs. Those of one cause
are one: cables of several nodes in a ring, a leaf that is down or renamed, a node without any link,
a switch port that the plan gives twice, cables that lack the same fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.fleet import leaves, rings
from agent.fleet.cables import Cable, cables_of, port_text
from agent.fleet.finding import FleetFinding, PortRef, finding
from agent.fleet.seen import seen_node
from agent.fleet.unverified import folded
from agent.verify import cables, rates, words
from agent.verify.expected import end_key
from agent.verify.finding import NO_END, grouped
from agent.verify.findings import verify

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agent.fleet.expectation import Expectations
    from agent.fleet.model import FleetNode
    from agent.verify.expected import Expected, FarPort
    from agent.verify.finding import Finding
    from agent.verify.findings import Options, Result

    Off = frozenset[str]
    Explained = tuple[FleetFinding, list[PortRef]]

OF_LINKS = frozenset({"leaf-down", "missing", "missing-interface", "slow"})


class Compared(NamedTuple):
    """The result of comparing nodes with what is expected of them."""

    findings: tuple[FleetFinding, ...]
    planned: int  # cables
    as_planned: int
    assumptions: tuple[str, ...]  # one line each


def compared(
    nodes: Iterable[tuple[FleetNode, Expected]], expectations: Expectations, options: Options
) -> Compared:
    """Compare each node with its expected half."""
    options = options._replace(off=options.off | expectations.off)
    results: list[Result] = []
    refused: list[FleetFinding] = []
    for node, expected in nodes:
        try:
            results.append(_result(node, expected, options))
        except Malformed as error:
            refused.append(contradiction(node.name, error))
    return Compared(
        (*refused, *_findings(results, options.off)),
        sum(result.planned for result in results),
        sum(result.as_planned for result in results),
        tuple(dict.fromkeys(one.assumption for one in results if one.assumption)),
    )


def contradiction(node: str, error: Malformed) -> FleetFinding:
    """Return the finding of a node whose rows or labels contradict each other."""
    text = f"Correct what is expected of {node}: {error}."
    return finding("unverifiable", [], text, nodes=[node], key=[node, "contradiction"])


def _result(node: FleetNode, expected: Expected, options: Options) -> Result:
    lost = {port.interface: port.pci for port in node.ports if port.is_lost and port.pci}
    return verify(expected, seen_node(node), options._replace(addresses=lost) if lost else options)


def _findings(results: Sequence[Result], off: Off) -> Iterator[FleetFinding]:
    """Yield the causes of several ports, then what they do not explain."""
    found = cables_of(results)
    in_rings = {
        PortRef(result.node, name)
        for result in results
        for one in result.findings
        if one.code == "swapped"
        for name in one.interfaces
    }
    explained: set[PortRef] = set()
    for cause in (
        leaves.renamed(found),
        leaves.down(found),
        _rings(found, in_rings, explained, off),
        _nodes_down(found, explained),
    ):
        for one, ports in cause:
            yield one
            explained.update(ports)
    rest = [(result.node, one) for result in results for one in result.findings]
    yield from _of_nodes(rest, {one.port: one for one in found}, explained)


def _rings(
    found: Iterable[Cable], done: Collection[PortRef], explained: Collection[PortRef], off: Off
) -> Iterator[Explained]:
    """Yield the rings over several nodes; those of one node (`done`) are findings of its own."""
    wrong = [
        one
        for one in found
        if one.checked.is_wrong and one.port not in done and one.port not in explained
    ]
    for ring in rings.rings(wrong, off):
        yield rings.swapped(ring), [one.port for one in ring]


def _nodes_down(found: Iterable[Cable], explained: Collection[PortRef]) -> Iterator[Explained]:
    """Yield a finding for each node none of whose cables has a link."""
    counted = (one for one in found if one.checked.status != cables.IGNORED)
    for node, same in grouped(counted, lambda one: one.port.node).items():
        lost = [one.port for one in same if one.checked.status == cables.MISSING]
        if len(lost) == len(same) > 1 and not all(port in explained for port in lost):
            text = f"Check the NICs and cables of {node}: none of its {len(lost)} ports has a link."
            yield finding("missing", lost, text, key=[node, "all"]), lost


def _of_nodes(
    found: Iterable[tuple[str, Finding]],
    by_port: dict[PortRef, Cable],
    explained: Collection[PortRef],
) -> Iterator[FleetFinding]:
    """Yield the findings of nodes that nothing wider explains, those of one cause folded."""
    kept = [one for one in found if not _is_explained(*one, explained)]
    kinds = grouped(kept, lambda one: _kind(one[1]))
    plain = [_of_node(*one, by_port) for one in kinds.get("", ())]
    linked = {port for one in plain if one.code in OF_LINKS for port in one.ports}
    yield from plain
    yield from _of_plan(kinds.get("duplicate", ()))
    yield from folded(kinds.get("unverifiable", ()))
    for one in kinds.get("speed", ()):
        speed = _of_node(*one, by_port)
        if not speed.ports or not {*speed.ports} <= linked | {*explained}:
            yield speed


def _kind(one: Finding) -> str:
    """Return the code of a finding that is folded, or may be explained by others."""
    if one.code == "duplicate":
        return one.code if one.actual == NO_END else ""
    return one.code if one.code in {"unverifiable", "speed"} else ""


def _is_explained(node: str, one: Finding, explained: Collection[PortRef]) -> bool:
    if dict(one.facts).get("reason") == rates.NO_KIND:
        return True  # a fleet compares with the other nodes (agent/fleet/speeds.py)
    if one.code in {"speed", "slow", "unexpected"} or not one.interfaces:
        return False
    return all(PortRef(node, name) in explained for name in one.interfaces)


def _of_node(node: str, one: Finding, by_port: dict[PortRef, Cable]) -> FleetFinding:
    """Return the finding of a node as one of the fleet, under the same ID."""
    ports = tuple(PortRef(node, name) for name in one.interfaces)
    wrong = [by_port[port] for port in ports if port in by_port and by_port[port].checked.is_wrong]
    return FleetFinding(
        one.code,
        one.severity,
        (node,),
        ports,
        f"{node}: {one.text}",
        tuple(cable.move for cable in wrong),
        expected=one.expected,
        actual=one.actual,
        facts=one.facts,
        id=one.id,
    )


def _of_plan(found: Iterable[tuple[str, Finding]]) -> Iterator[FleetFinding]:
    """Yield one finding for each switch port that the plan gives twice."""
    for same in grouped(found, lambda pair: _end(pair[1])).values():
        ports = [PortRef(node, name) for node, one in same for name in one.interfaces]
        first = same[0][1]
        facts, (device, port) = dict(first.facts), first.expected
        users = [port_text(one) for one in ports] if len(ports) > 1 else [facts["users"]]
        text = words.duplicate_in_plan(device or "", port or "", users)
        end = first.expected
        yield finding("duplicate", ports, text, key=_end(first), facts=facts, expected=end)


def _end(one: Finding) -> FarPort:
    device, port = one.expected
    return end_key(device or "", port or "")
