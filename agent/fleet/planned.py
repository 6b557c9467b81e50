"""Compare all nodes with the plan or their expected labels; fold the findings by their causes.

The findings of a node are those of agent/verify/judge.py, under the same IDs. Those of one cause
are one: cables of several nodes in a ring, a leaf that is down or renamed, a node without any link,
a switch port that the plan gives twice, cables that lack the same fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.findings.finding import Finding, PortRef, finding, grouped
from agent.fleet import leaf_causes
from agent.fleet.cables import end_text, port_text
from agent.fleet.folds import FOLDS
from agent.fleet.seen import seen_node, with_names
from agent.model import natural
from agent.text import listed
from agent.verify import cables, rates, words
from agent.verify.judge import verify
from agent.verify.rings import rings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.expectation import Expectations
    from agent.fleet.folds import Found
    from agent.fleet.leaf_causes import Leaves
    from agent.fleet.model import FleetNode
    from agent.verify.cables import Cable
    from agent.verify.expected import Expected
    from agent.verify.judge import Options, Result

    Off = frozenset[str]
    Explained = tuple[Finding, list[PortRef]]

OF_LINKS = frozenset({"leaf-down", "missing", "missing-interface", "slow"})


class Compared(NamedTuple):
    """The result of comparing nodes with what is expected of them."""

    findings: tuple[Finding, ...]
    planned: int  # cables
    as_planned: int
    assumptions: tuple[str, ...]  # one line each


def compared(
    nodes: Iterable[tuple[FleetNode, Expected]], expectations: Expectations, options: Options
) -> Compared:
    """Compare each node with its expected half; leaves with other names by those of the plan."""
    options = options._replace(off=options.off | expectations.index.off)
    nodes = list(nodes)
    first, leaves = _compared(nodes, options)
    renamed = leaf_causes.renamed(leaves)
    if not renamed.names:
        return first
    named = [(with_names(node, renamed.names, renamed.ports), expected) for node, expected in nodes]
    again, _ = _compared(named, options)
    return again._replace(findings=(*renamed.findings, *again.findings))


def _compared(
    nodes: Iterable[tuple[FleetNode, Expected]], options: Options
) -> tuple[Compared, Leaves]:
    results: list[Result] = []
    refused: list[Finding] = []
    planned = as_planned = 0
    for node, expected in nodes:
        try:
            result = _result(node, expected, options)
        except Malformed as error:
            refused.append(contradiction(node.name, error))
            planned += cables_in(expected)
        else:
            results.append(result)
            planned += result.planned if expected.rows else cables_in(expected)
            as_planned += result.as_planned if expected.rows else _is_right(expected, result)
    found = [cable for result in results for cable in result.cables]
    leaves = leaf_causes.by_leaf(found)
    findings = (*refused, *_findings(results, found, leaves, options.off))
    assumptions = dict.fromkeys(one.assumption for one in results if one.assumption)
    return Compared(findings, planned, as_planned, (*assumptions,)), leaves


def cables_in(expected: Expected) -> int:
    """Return the number of expected cables; 1 for labels that name all leaves or ports at once."""
    return len(expected.rows) or int(bool(expected.leaves or expected.ports))


def _is_right(expected: Expected, result: Result) -> int:
    """Return 1 if labels that name all leaves or ports at once are as expected."""
    return cables_in(expected) and int(not any(one.code != "speed" for one in result.findings))


def contradiction(node: str, error: Malformed) -> Finding:
    """Return the finding of a node whose rows or labels contradict each other."""
    text = f"Correct what is expected of {node}: {error}."
    return finding("unverifiable", [], text, nodes=[node], key=[node, "contradiction"])


def _result(node: FleetNode, expected: Expected, options: Options) -> Result:
    lost = {port.interface: port.pci for port in node.ports if port.is_lost and port.pci}
    return verify(expected, seen_node(node), options._replace(addresses=lost) if lost else options)


def _findings(
    results: Sequence[Result], found: Sequence[Cable], leaves: Leaves, off: Off
) -> Iterator[Finding]:
    """Yield the causes of several ports, then what they do not explain."""
    in_rings = {
        PortRef(result.node, name)
        for result in results
        for one in result.findings
        if one.code == "swapped"
        for name in one.interfaces
    }
    explained: set[PortRef] = set()
    for cause in (
        leaf_causes.down(leaves),
        _rings(found, in_rings, explained, off),
        leaf_causes.nodes_down(_links(found), explained),
    ):
        for one, ports in cause:
            yield one
            explained.update(ports)
    rest = [(result.node, one) for result in results for one in result.findings]
    yield from _of_nodes(rest, {one.ref: one for one in found if one.is_wrong}, explained)


def _links(found: Iterable[Cable]) -> Iterator[tuple[PortRef, bool]]:
    """Yield the ports that are compared, True if nobody is at the far end."""
    for one in found:
        if one.status != cables.IGNORED:
            yield one.ref, one.status == cables.MISSING


def _rings(
    found: Iterable[Cable], done: Collection[PortRef], explained: Collection[PortRef], off: Off
) -> Iterator[Explained]:
    """Yield the rings over several nodes; those of one node (`done`) are findings of its own."""
    wrong = [
        one for one in found if one.is_wrong and one.ref not in done and one.ref not in explained
    ]
    for ring in rings(wrong, off):
        yield _swapped(ring), [one.ref for one in ring]


def _swapped(ring: Sequence[Cable]) -> Finding:
    """Return the finding of a ring: what to exchange, in the order of the ring."""
    names = [port_text(one.ref) for one in ring]
    ends = [words.far(one.row) for one in ring]
    if len(ring) == 2:
        belongs = f"{names[0]} belongs to {ends[0]}, {names[1]} to {ends[1]}"
        text = f"Exchange the far ends of {names[0]} and {names[1]}: {belongs}."
    else:
        moves = [
            f"{name} from {end_text(one.actual)} to {end}"
            for one, name, end in zip(ring, names, ends, strict=True)
        ]
        text = f"Move the far ends of {len(ring)} cables in a ring: {listed(moves)}."
    return finding(
        "swapped",
        [one.ref for one in ring],
        text,
        nodes=sorted({one.ref.node for one in ring}, key=natural),
        moves=tuple(one.move for one in ring),
        expected=ring[0].expected,
        actual=ring[0].actual,
        facts=ring[0].row.facts,
    )


def _of_nodes(
    found: Iterable[Found], wrong: Mapping[PortRef, Cable], explained: Collection[PortRef]
) -> Iterator[Finding]:
    """Yield the findings of nodes that nothing wider explains, those of one cause folded."""
    kept = [one for one in found if not _is_explained(one[1], explained)]
    kinds = grouped(kept, lambda one: one[1].code)
    speeds = kinds.pop("speed", [])
    told: set[PortRef] = {*explained}
    for code, same in kinds.items():
        folded, rest = FOLDS[code](same) if code in FOLDS else ([], same)
        for one in (*folded, *(_of_node(*pair, wrong) for pair in rest)):
            yield one
            told.update(one.ports if code in OF_LINKS else ())
    for pair in speeds:
        speed = _of_node(*pair, wrong)
        if not speed.ports or not told.issuperset(speed.ports):
            yield speed


def _is_explained(one: Finding, explained: Collection[PortRef]) -> bool:
    if dict(one.facts).get("reason") == rates.NO_KIND:
        return True  # a fleet compares with the other nodes (agent/fleet/speeds.py)
    if one.code in {"speed", "slow", "unexpected"} or not one.ports:
        return False
    return all(port in explained for port in one.ports)


def _of_node(node: str, one: Finding, wrong: Mapping[PortRef, Cable]) -> Finding:
    """Return the finding of a node as one of the fleet, under the same ID."""
    moves = tuple(wrong[port].move for port in one.ports if port in wrong)
    return one._replace(text=f"{node}: {one.text}", moves=moves)
