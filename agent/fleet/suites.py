"""JUnit XML of `fleet verify`: a suite for each node, or of a large fleet for each group.

One cause is one failure: a finding of several nodes fails at the first of them, and is a skipped
case, which names that node, at the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.verdict import many
from agent.output.junit import SKIPPED, Case, document, suite, suites
from agent.verify.report import ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.judged import Judged

    ByNode = Mapping[str, Sequence[Finding]]

MAX_NODES = 2000  # of suites for nodes
SUITE = "bwagent fleet verify"
FLEET = "fleet"  # the host of findings without a node
PASSED = "cables"


def junit_text(judged: Judged) -> str:
    """Return the suites of nodes or groups, and one of the findings without a node."""
    by_node: dict[str, list[Finding]] = {}
    for one in judged.findings:
        for name in one.nodes or [FLEET]:
            by_node.setdefault(name, []).append(one)
    members = [suite(SUITE, name, [*cases]) for name, cases in _members(judged, by_node)]
    return document(suites(SUITE, members))


def _members(judged: Judged, by_node: ByNode) -> Iterator[tuple[str, Iterable[Case]]]:
    others = [one for one in by_node.get(FLEET, ()) if not one.nodes]
    if others:
        yield FLEET, map(_failed, others)
    if len(judged.fleet.nodes) <= MAX_NODES:
        for node in judged.fleet.nodes:
            yield node.name, _of_node(node.name, by_node)
        return
    for group in judged.groups:
        yield group.name, (case for name in group.nodes for case in _in_group(name, by_node))


def _of_node(name: str, by_node: ByNode) -> Iterator[Case]:
    """Yield a case for each finding, or one that passed."""
    found = [one for one in by_node.get(name, ()) if one.nodes]
    if not found:
        yield Case(PASSED)
    for one in found:
        yield _failed(one) if one.nodes[0] == name else _part(one)


def _in_group(name: str, by_node: ByNode) -> Iterator[Case]:
    return (case._replace(name=f"{name} {case.name}") for case in _of_node(name, by_node))


def _failed(one: Finding) -> Case:
    first = one.nodes[0] if one.nodes else None
    names = " ".join(port.interface for port in one.ports if port.node == first)
    more = f" and {many(len(one.nodes) - 1, 'other node')}" if len(one.nodes) > 1 else ""
    name = f"{names} {one.code} {one.id}{more}".strip()
    return Case(name, ELEMENTS[one.severity], one.text)


def _part(one: Finding) -> Case:
    return Case(f"{one.code} {one.id}", SKIPPED, f"Part of {one.code} {one.id} at {one.nodes[0]}.")
