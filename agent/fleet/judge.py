"""Judge a fleet: by a plan, by the expected labels of its Nodes, or by its own pattern.

Pure. What is expected decides: where a plan or labels give cables, nothing is inferred, and Nodes
without any are left out and counted. A silent Node is never compared.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.findings.finding import ID_LENGTH, fleet_order
from agent.fleet import identity, planned, silent, speeds
from agent.fleet.expectation import MAX_NOTES, Expectations
from agent.fleet.judged import Judged
from agent.fleet.pattern.infer import infer as of_fleet
from agent.fleet.seen import names_of
from agent.labels.table import Naming
from agent.text import listed, many
from agent.verify.judge import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.judged import Group
    from agent.fleet.model import Fleet, FleetNode
    from agent.fleet.pattern.infer import Pattern
    from agent.plans.model import Plan
    from agent.verify.expected import Expected
    from agent.verify.judge import Options

NAMING = Naming()
OF_SPEED = frozenset({"slow", "speed"})


def judge(
    fleet: Fleet,
    plans: Sequence[Plan] = (),
    options: Options = DEFAULTS,
    naming: Naming = NAMING,
    infer: Callable[[Fleet], Pattern] = of_fleet,
) -> Judged:
    """Judge a fleet; raises Malformed for plans that name no Node of it."""
    expectations = Expectations(fleet, plans, naming, options.off)
    quiet = silent.causes(fleet)
    halves, refused = _halves(fleet, expectations)
    counts = {node.name: planned.cables_in(half) for node, half in halves}
    expected = {name: count for name, count in counts.items() if count}
    fresh = [one for one in halves if one[0].name not in quiet]
    compared = planned.compared(fresh, expectations, options)
    kept = _without_ignored(fleet, options)
    inferred = infer(kept)
    found = [*refused, *compared.findings]
    if not expected:
        found += (one for one in inferred.findings if quiet.keys().isdisjoint(one.nodes))
    found += _of_fleet(kept, inferred.groups, quiet, found)
    found += silent.findings(fleet, quiet, expected or None)
    unread = sum(count for name, count in expected.items() if name in quiet)
    return Judged(
        fleet,
        tuple(_distinct(sorted(expectations.placed(found), key=fleet_order))),
        tuple(inferred.groups),
        tuple(_notes(fleet, plans, expectations, expected, compared, inferred)),
        compared.planned + unread if expected else inferred.covered,
        compared.as_planned if expected else inferred.regular,
        not expected,
    )


def _without_ignored(fleet: Fleet, options: Options) -> Fleet:
    """Return the fleet without the interfaces that --ignore names."""
    if not options.ignore:
        return fleet
    nodes = tuple(
        replace(
            node,
            ports=tuple(port for port in node.ports if not options.has_ignored(names_of(port))),
        )
        for node in fleet.nodes
    )
    return replace(fleet, nodes=nodes)


def _halves(
    fleet: Fleet, expectations: Expectations
) -> tuple[list[tuple[FleetNode, Expected]], list[Finding]]:
    """Return the Nodes of which something is expected, and those that contradict themselves."""
    halves, refused = [], []
    for node in fleet.nodes:
        try:
            half = expectations.of(node)
        except Malformed as error:
            refused.append(planned.contradiction(node.name, error))
        else:
            halves += [] if half.is_empty else [(node, half)]
    return halves, refused


def _of_fleet(
    fleet: Fleet, groups: Iterable[Group], quiet: Collection[str], found: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield what needs no plan: speeds, identities, and Nodes that could not be read."""
    found = list(found)
    fresh = [node for node in fleet.nodes if node.name not in quiet]
    rated = {port for one in found if one.code in OF_SPEED for port in one.ports}
    yield from speeds.slow(fresh, groups, rated)
    doubled = {frozenset(one.ports) for one in found if one.code in {"duplicate", "claimed"}}
    for one in identity.findings(fleet, quiet):
        if one.code != "claimed" or frozenset(one.ports) not in doubled:
            yield one
    yield from silent.unreadable(fleet.nodes)


def _distinct(found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; one with the ID of another before it has one of its own.

    Names that differ only in case have one ID.
    """
    used: set[str] = set()
    for one in found:
        identity = one.id
        while identity in used:
            identity = hashlib.sha256(identity.encode()).hexdigest()[:ID_LENGTH]
        used.add(identity)
        yield one if identity == one.id else one._replace(id=identity)


def _notes(  # noqa: PLR0913, PLR0917 - of all that was compared
    fleet: Fleet,
    plans: Sequence[Plan],
    expectations: Expectations,
    expected: Collection[str],
    compared: planned.Compared,
    inferred: Pattern,
) -> Iterator[str]:
    """Yield a line for each plan, and for what was left out."""
    for plan in plans:
        sheet = f", sheet {plan.sheet}" if plan.sheet else ""
        yield f"{plan.file}: {plan.kind}{sheet}, {many(len(plan.cables), 'row')}"
        yield from (
            note if note.startswith(plan.file) else f"{plan.file}: {note}" for note in plan.notes
        )
    yield from expectations.notes()
    if expected and len(expected) < len(fleet.nodes):
        others = [node.name for node in fleet.nodes if node.name not in expected]
        yield f"nothing is expected of {many(len(others), 'Node')}: {listed(others)}"
    yield from first_notes(compared.assumptions)
    if not expected:
        yield from inferred.notes


def first_notes(notes: Sequence[str]) -> Iterator[str]:
    """Yield the first notes of a kind, and the number of the others."""
    yield from notes[:MAX_NOTES]
    if len(notes) > MAX_NOTES:
        yield f"and {len(notes) - MAX_NOTES:,} more like this"
