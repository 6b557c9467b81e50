"""The findings as a list of work, on screen and on paper; the silent nodes, speeds and summary.

On paper a row has a cable with its place, its far end, and the far end that it belongs to,
under a heading for each leaf of the walk. Names are without the domain that all have, so that a row
is a line of A4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from agent.cabling.finding import UNKNOWN, Ends, Finding, place_of
from agent.cabling.plans.columns import FACTS as OF_PLAN
from agent.cabling.plans.columns import NEAR
from agent.encode import gbps
from agent.fleet.model import Fleet, FleetNode, Judged, place_text, wires
from agent.fleet.page.lookup import APART, SEVERITIES, common_domain, nodes_of
from agent.fleet.report import is_compared, outcome, uncompared
from agent.output.report import UNVERIFIED, accepted_count
from agent.text import many, utc

Cut = Callable[[str], str]
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))  # of the age of a report

# The facts that say where to go, as the page names them.
PLACES = {
    name: field if side == NEAR else f"{field} of the switch"
    for name, (side, field) in OF_PLAN.items()
}
# Codes of what is so with a plan and without; no estimate.
FACTS = (
    "leaf-down",
    "renamed",
    "switch-identity",
    "claimed",
    "cloned",
    "unstable",
    "silent",
    "unreadable",
)
SHOWN = 6  # nodes of a finding; more are joined to runs, and folded
NO_LEAF = "At no leaf"
# Codes whose cables do not say what to do: a name or the plan may be wrong, or one end is bad
SAID = frozenset({"exchanged", "moved", "mirrored", "unstable"})


class Entry(NamedTuple):
    """One finding, as the work list has it."""

    number: int
    finding: Finding
    groups: tuple[int, ...]  # numbers, from 1
    where: tuple[tuple[str, str], ...]  # node, or run of nodes, and the interfaces
    expected: str | None  # where no move says it
    actual: str | None
    confidence: str  # a share by the pattern, else what the finding is by

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


def entries(judged: Judged) -> list[Entry]:
    """Return all findings in their order."""
    group_of = {node: n for n, group in enumerate(judged.groups, 1) for node in group.nodes}
    order = {node.name: place for place, node in enumerate(judged.fleet.nodes)}
    listed = []
    for number, finding in enumerate(judged.findings, 1):
        interfaces: dict[str, list[str]] = {node: [] for node in nodes_of(finding)}
        for port in finding.ports:
            interfaces[port.node].append(port.interface)
        where = [(node, ", ".join(of_node)) for node, of_node in interfaces.items()]
        groups = dict.fromkeys(group_of[node] for node in interfaces if node in group_of)
        shown = where if len(where) <= SHOWN else _joined(judged.fleet, order, where)
        confidence = "fact" if judged.by_pattern or finding.code in FACTS else "plan"
        if finding.confidence is not None:  # a share by the pattern is never rounded up to 100 %
            most = 99.9 if finding.confidence < 1 else 100
            confidence = f"{min(100 * finding.confidence, most):.3g} %"
        listed.append(
            Entry(
                number,
                finding,
                tuple(groups),
                tuple(shown),
                _without_moves(finding, finding.expected),
                _without_moves(finding, finding.actual),
                confidence,
            )
        )
    return listed


def _without_moves(finding: Finding, end: Ends) -> str | None:
    """Return an end of a finding without moves, which say it otherwise."""
    return place_text(*end) if any(end) and not finding.moves else None


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
    return [*known, *(place for place in where if place[0] not in order)]


def silent(fleet: Fleet, entries: Iterable[Entry]) -> list[Silent]:
    """Return the nodes that are said apart."""
    nodes = {node.name: node for node in fleet.nodes}
    told = []
    for entry in entries:
        if entry.finding.code in APART:
            for number, name in enumerate(nodes_of(entry.finding) or [""]):
                node = nodes.get(name)
                agent, time = (node.agent, node.time) if node else (None, None)
                shown, age = None, "unknown"
                if time is not None:
                    seconds = max(fleet.now - time, 0)
                    size, unit = next((at for at in UNITS if seconds >= at[0]), UNITS[-1])
                    shown, age = utc(time), f"{seconds // size} {unit}"
                told.append(Silent(entry, number == 0, name, shown, age, agent))
    return told


def speeds(nodes: Sequence[FleetNode]) -> dict[str, list[Speed]]:
    """Return the rates of nodes (`speed.current`) and of ports, the most common rate first."""
    rates: dict[str, list[list[float | None]]] = {
        "Nodes by the sum of their ports": [[node.speed_gbps] for node in nodes],
        "Ports by rate": [[port.gbps for port in node.ports] for node in nodes],
    }
    tables: dict[str, list[Speed]] = {}
    for caption, of_nodes in rates.items():
        having: dict[float | None, list[int]] = {}
        for number, of_node in enumerate(of_nodes):
            for rate in set(of_node):
                having.setdefault(rate, []).append(number)
        counts = Counter(rate for of_node in of_nodes for rate in of_node)
        tables[caption] = [
            Speed(rate_text(rate), count, tuple(runs(nodes, having[rate])))
            for rate, count in counts.most_common()
        ]
    return tables


def rate_text(rate: float | None) -> str:
    """Return a rate as `400G`."""
    return "unknown" if rate is None else gbps(rate)


def runs(nodes: Sequence[FleetNode], numbers: Sequence[int]) -> list[str]:
    """Return the names of nodes, those that follow each other as `gpu-001 to gpu-016 (16)`."""
    texts = []
    for _, pairs in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [nodes[number].name for _, number in pairs]
        texts += [f"{run[0]} to {run[-1]} ({len(run)})"] if len(run) > 2 else run
    return texts


def summary(judged: Judged) -> str:
    """Return the line at the top: what was compared, what is wrong, what is silent."""
    parts = [f"{many(len(judged.fleet.nodes), 'node')} in {many(len(judged.groups), 'group')}"]
    if unread := len(judged.fleet.problems):
        parts.append(f"{unread:,} not read")
    if judged.gap:
        parts.append(uncompared(judged))
    if judged.planned:
        what = "the pattern has them" if judged.by_pattern else "planned"
        cables = many(judged.planned, "cable")
        parts.append(f"{judged.as_planned:,} of {cables} are as {what}")
    else:
        parts.append("nothing to compare with: no plan and no pattern")
    apart = [finding for finding in judged.findings if finding.code in APART]
    work = Counter(finding.severity for finding in judged.findings if finding.code not in APART)
    counts = ", ".join(
        f"{work[severity]} unknown" if severity == UNKNOWN else many(work[severity], severity)
        for severity in SEVERITIES
        if work[severity]
    )
    if work:
        parts.append(f"{many(work.total(), 'finding')} ({counts})")
    elif is_compared(judged):
        parts.append("no findings")
    if names := {name for finding in apart for name in nodes_of(finding) or [""]}:
        parts.append(many(len(names), "silent node"))
    parts += filter(None, [accepted_count(judged.accepted)])
    return "; ".join(parts) + "."


def verdict(judged: Judged) -> str:
    """Return the class of the summary: the worst severity, or `good` if all was compared."""
    severities = [finding.severity for finding in judged.findings]
    severities += [UNKNOWN] if outcome(judged) == UNVERIFIED else []
    return min(severities, key=SEVERITIES.index, default="good")


# on paper


class Line(NamedTuple):
    """A cable to tick, or a sentence where a finding is not of cables."""

    number: int
    code: str
    cable: str = ""
    place: str = ""
    seen: str = ""
    seen_place: str = ""
    wanted: str = ""
    wanted_place: str = ""
    text: str = ""


class Stop(NamedTuple):
    """A leaf of the walk."""

    title: str
    lines: tuple[Line, ...]


def stops(judged: Judged) -> list[Stop]:
    """Return the leaves in the order of the findings, with what there is to do at each."""
    # without the domain of all nodes, and that of all switches
    nodes = judged.fleet.nodes
    ends = [wire.end.device for wire in wires(nodes)]
    domains = {common_domain(node.name for node in nodes), common_domain(ends)} - {""}
    names = "|".join(map(re.escape, sorted(domains, key=len, reverse=True)))
    domain = re.compile(rf"(?<=\w)(?:{names})(?![\w-]|\.\w)" if names else r"(?!)")

    def cut(text: str) -> str:
        return domain.sub("", text)

    numbered = enumerate(judged.findings, 1)
    work = [(number, finding) for number, finding in numbered if finding.code not in APART]
    positions = {node.name: str(node.position) for node in nodes if node.position}
    walk = []
    for _, group in groupby(work, lambda numbered: place_of(numbered[1])):
        same = list(group)
        _, first = same[0]
        title = [f"Rack {first.rack}"] if first.rack else []
        lines = tuple(line for pair in same for line in _lines(*pair, cut, positions))
        walk.append(Stop(cut(", ".join([*title, first.leaf or NO_LEAF])), lines))
    return walk


def _lines(number: int, finding: Finding, cut: Cut, positions: Mapping[str, str]) -> Iterator[Line]:
    """Yield a line for each cable, before them the sentence that they do not say."""
    if not finding.moves or finding.code in SAID:
        yield Line(number, finding.code, text=cut(finding.text))
    for move in finding.moves:
        wanted = place_text(*move.wanted) if any(move.wanted) else "out"
        is_still = move.wanted == move.actual
        yield Line(
            number,
            finding.code,
            cut(move.port.text),
            move.near_spot.text or positions.get(move.port.node, ""),
            cut(place_text(*move.actual)) if any(move.actual) else "no link",
            move.present_spot.text
            if is_still or move.present_spot != move.far_spot
            else "",  # once for one switch
            "stays" if is_still else cut(wanted),
            "" if is_still else move.far_spot.text,
        )
