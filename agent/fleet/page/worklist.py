"""The findings as a list of work, the silent nodes, the speeds and the summary of the page."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import UNKNOWN
from agent.fleet.page.marks import APART, SEVERITIES, SIGNS, nodes_of
from agent.fleet.page.matrix import place_text
from agent.labels.encode import gbps
from agent.text import many, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.judged import Judged
    from agent.fleet.model import Fleet, FleetNode
    from agent.fleet.page.marks import Numbered

PLACES = ("rack", "unit", "far-rack", "far-unit")  # facts that say where to go
# Codes of what is so with a plan and without; no estimate.
FACTS = ("leaf-down", "renamed", "switch-identity", "claimed", "cloned", "silent", "unreadable")
SHOWN = 6  # nodes of a finding; more are joined to runs, and folded


class Entry(NamedTuple):
    """One finding, as the work list has it."""

    number: int
    finding: Finding
    order: int  # of its severity
    sign: str
    groups: tuple[int, ...]  # numbers, from 1
    where: tuple[tuple[str, str], ...]  # node, or run of nodes, and the interfaces
    places: tuple[tuple[str, str], ...]  # of facts
    facts: tuple[tuple[str, str], ...]  # the other ones
    moves: tuple[tuple[str, str, str], ...]  # interface, from, to
    expected: str | None  # where no move says it
    actual: str | None
    confidence: str

    @property
    def is_folded(self) -> bool:
        """True if it has more places than are shown."""
        return len(self.where) > SHOWN


class Silent(NamedTuple):
    """A node that does not report, or whose report cannot be read."""

    entry: Entry
    is_first: bool  # of the nodes of its finding
    node: str
    time: str | None
    age: str
    agent: str | None


class Speed(NamedTuple):
    """The nodes or ports of one rate."""

    rate: str
    number: int
    nodes: tuple[str, ...]  # names, or runs of names


def entries(judged: Judged, findings: Iterable[Numbered]) -> list[Entry]:
    """Return all findings in their order."""
    group_of = {node: n for n, group in enumerate(judged.groups, 1) for node in group.nodes}
    order = {node.name: place for place, node in enumerate(judged.fleet.nodes)}
    found = []
    for number, one in findings:
        interfaces: dict[str, list[str]] = {node: [] for node in nodes_of(one)}
        for port in one.ports:
            interfaces[port.node].append(port.interface)
        where = [(node, ", ".join(of_node)) for node, of_node in interfaces.items()]
        groups = dict.fromkeys(group_of[node] for node in interfaces if node in group_of)
        entry = Entry(
            number,
            one,
            SEVERITIES.index(one.severity),
            SIGNS[one.severity],
            tuple(groups),
            tuple(where if len(where) <= SHOWN else _joined(judged.fleet, order, where)),
            tuple(fact for fact in one.facts if fact[0] in PLACES),
            tuple(fact for fact in one.facts if fact[0] not in PLACES),
            tuple(
                (" ".join(move.port), place_text(*move.actual), place_text(*move.wanted))
                for move in one.moves
            ),
            place_text(*one.expected) if any(one.expected) and not one.moves else None,
            place_text(*one.actual) if any(one.actual) and not one.moves else None,
            _confidence(one, by_pattern=judged.by_pattern),
        )
        found.append(entry)
    return found


def _joined(
    fleet: Fleet, order: Mapping[str, int], where: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the places of a finding of many nodes as runs with the same interfaces."""
    numbers: dict[str, list[int]] = {}
    for node, interfaces in where:
        if node in order:
            numbers.setdefault(interfaces, []).append(order[node])
    known = [
        (run, interfaces)
        for interfaces, places in numbers.items()
        for run in runs(fleet.nodes, sorted(places))
    ]
    return [*known, *(one for one in where if one[0] not in order)]


def _confidence(one: Finding, *, by_pattern: bool) -> str:
    if one.confidence is not None:
        return f"{min(100 * one.confidence, 99.9 if one.confidence < 1 else 100):.3g} %"
    return "fact" if by_pattern or one.code in FACTS else "plan"


def silent(fleet: Fleet, found: Iterable[Entry]) -> list[Silent]:
    """Return the nodes that are said apart."""
    nodes = {node.name: node for node in fleet.nodes}
    told = []
    for entry in found:
        if entry.finding.code in APART:
            for number, name in enumerate(nodes_of(entry.finding) or [""]):
                node = nodes.get(name)
                agent, time = (node.agent, node.time) if node else (None, None)
                age = "unknown" if time is None else _age(fleet.now - time)
                shown = None if time is None else utc(time)
                told.append(Silent(entry, number == 0, name, shown, age, agent))
    return told


def _age(seconds: int) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return f"{max(seconds, 0)} s"


def node_speeds(fleet: Fleet) -> list[Speed]:
    """Return the rates of `speed.current`, the most common one first."""
    return _speeds(fleet, [[node.speed_gbps] for node in fleet.nodes])


def port_speeds(fleet: Fleet) -> list[Speed]:
    """Return the rates of the ports, the most common one first."""
    return _speeds(fleet, [[port.gbps for port in node.ports] for node in fleet.nodes])


def rate_text(rate: float | None) -> str:
    """Return a rate as `400G`."""
    return "unknown" if rate is None else gbps(rate)


def _speeds(fleet: Fleet, rates: Sequence[Sequence[float | None]]) -> list[Speed]:
    counts = Counter(rate for of_node in rates for rate in of_node)
    having: dict[float | None, list[int]] = {}
    for number, of_node in enumerate(rates):
        for rate in set(of_node):
            having.setdefault(rate, []).append(number)
    return [
        Speed(rate_text(rate), count, tuple(runs(fleet.nodes, having[rate])))
        for rate, count in counts.most_common()
    ]


def runs(nodes: Sequence[FleetNode], numbers: Sequence[int]) -> list[str]:
    """Return the names of nodes, those that follow each other as `gpu-001 to gpu-016 (16)`."""
    found = []
    for _, pairs in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [nodes[number].name for _, number in pairs]
        found += [f"{run[0]} to {run[-1]} ({len(run)})"] if len(run) > 2 else run
    return found


def summary(judged: Judged, found: Sequence[Entry], silent_nodes: Sequence[Silent]) -> str:
    """Return the line at the top: what was compared, what is wrong, what is silent."""
    parts = [f"{many(len(judged.fleet.nodes), 'node')} in {many(len(judged.groups), 'group')}"]
    if judged.planned:
        what = "the pattern has them" if judged.by_pattern else "planned"
        cables = many(judged.planned, "cable")
        parts.append(f"{judged.as_planned:,} of {cables} are as {what}")
    else:
        parts.append("nothing to compare with: no plan and no pattern")
    work = Counter(one.finding.severity for one in found if one.finding.code not in APART)
    counts = ", ".join(
        f"{work[severity]} unknown" if severity == UNKNOWN else many(work[severity], severity)
        for severity in SEVERITIES
        if work[severity]
    )
    parts.append(f"{many(work.total(), 'finding')} ({counts})" if work else "no findings")
    if names := {one.node for one in silent_nodes}:
        parts.append(many(len(names), "silent node"))
    return "; ".join(parts) + "."


def verdict(found: Sequence[Entry]) -> str:
    """Return the class of the summary: the worst severity, or `good`."""
    severities = [one.finding.severity for one in found]
    if not severities:
        return "good"
    return min(severities, key=SEVERITIES.index)
