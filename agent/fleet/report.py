"""Print what a fleet is judged to be: as table, JSON (docs/fleet.schema.json), CSV or JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import agent
from agent.cabling.baseline import document as accepted_document
from agent.cabling.finding import (
    ERROR,
    INFO,
    UNKNOWN,
    WARNING,
    Finding,
    PortRef,
    fleet_document,
    place_of,
)
from agent.cabling.plans.own import rows_text
from agent.fleet.model import Gap, Judged, wires
from agent.output import junit, report
from agent.output.layout import joined, opening, section
from agent.output.report import counted
from agent.text import Json, listed, many, utc

SCHEMA = 1
MAX_GROUPS = 20  # lines
MAX_RENAMED = 3  # leaves, each with a line of its own
NO_LEAF = "Nodes"  # title of the findings that are at no leaf
COLUMNS = ("node", *report.COLUMNS)
MAX_SUITES = 2000  # of nodes; for more, those of groups
SUITE = "bwagent fleet verify"
NO_NODE = "fleet"  # the host of findings without a node


def outcome(judged: Judged) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something, or everything, could not be compared."""
    is_partial = bool(judged.fleet.problems or judged.gap or not judged.planned)
    is_blind = report.is_nothing_compared(judged.as_planned, judged.accepted)
    return report.outcome(judged.findings, is_partial=is_partial or is_blind)


def verdict(judged: Judged) -> str:
    """Return the first line: `64 nodes: 1 finding: 1 swapped; 510 of 512 cables as planned`."""
    how = "follow the pattern" if judged.by_pattern else "as planned"
    compared = f"{judged.as_planned:,} of {judged.planned:,} cables {how}"
    if not judged.planned:
        compared = "no pattern found" if judged.by_pattern else "no cables in the plan"
    silent = {
        name for finding in judged.findings if finding.code == "silent" for name in finding.nodes
    }
    others = sum(
        finding.severity == UNKNOWN and finding.code != "silent" for finding in judged.findings
    )
    unread = len(judged.fleet.problems)
    parts = [
        f"{unread:,} not read" if unread else "",
        uncompared(judged),
        counted(judged.findings, is_compared=is_compared(judged)),
        compared,
        f"{len(silent):,} silent" if silent else "",
        f"{others:,} unverifiable" if others else "",
        report.accepted_count(judged.accepted),
    ]
    return f"{many(len(judged.fleet.nodes), 'node')}: {'; '.join(filter(None, parts))}"


def is_compared(judged: Judged) -> bool:
    """Return True if all that was asked for could be read, and there was anything to compare."""
    return bool(judged.planned) and not judged.fleet.problems


def unverified(judged: Judged) -> str:
    """Return why the outcome is UNVERIFIED, as the error of a command."""
    return report.unverified(judged.fleet.source, judged.findings, _gaps(judged))


def _gaps(judged: Judged) -> Iterator[str]:
    """Yield what was not compared, and is not about single nodes."""
    if judged.gap:
        yield uncompared(judged)
    if not judged.planned:
        plan = "" if judged.has_plan else ": name the expected cables with --plan FILE"
        yield f"no pattern found{plan}" if judged.by_pattern else "no cables in the plan"
    elif report.is_nothing_compared(judged.as_planned, judged.accepted):
        yield report.NOTHING_COMPARED


def uncompared(judged: Judged) -> str:
    """Return how much was compared, and what was not; "" if all was."""
    if not (gap := judged.gap):
        return ""
    why = []
    if gap.nodes:
        are = "is" if len(gap.nodes) == 1 else "are"
        have = "has" if len(gap.nodes) == 1 else "have"
        lack = f"{are} not in the plan" if judged.has_plan else f"{have} no expected labels"
        why.append(f"{many(len(gap.nodes), 'Node')} {lack}")
        if gap.nearest:
            are = "names there are" if len(gap.nearest) > 1 else "name there is"
            why.append(f"the nearest {are} {' and '.join(gap.nearest)}")
    if gap.hosts:
        have = "has" if len(gap.hosts) == 1 else "have"
        why.append(f"{many(len(gap.hosts), 'host')} of the plan {have} no Node")
    return f"{gap.compared:,} of {gap.cables:,} cables compared: {', '.join(why)}"


def table(judged: Judged) -> str:
    """Return the report for people, 80 columns wide."""
    notes = [*judged.fleet.problems, *judged.notes]
    if count := judged.fleet.others:
        notes.append(f"{many(count, 'other Node')} without labels of the agent, left out")
    # the first groups, and a single line for all others
    shown = len(judged.groups) if len(judged.groups) <= MAX_GROUPS else MAX_GROUPS - 1
    groups = [
        f"{group.name}: {many(len(group.nodes), 'node')}, {group.pattern or 'no pattern'}"
        for group in judged.groups[:shown]
    ]
    if others := judged.groups[shown:]:
        nodes = sum(len(group.nodes) for group in others)
        without = sum(group.pattern is None for group in others)
        what = f"{many(len(others), 'more group')} of {many(nodes, 'node')}"
        groups.append(f"{what}, {without:,} without a pattern")
    return joined(
        [
            opening(verdict(judged)),
            *_work(judged),
            section("Silent nodes", _lines(judged, UNKNOWN, silent=True)),
            section("Not verified", _lines(judged, UNKNOWN, silent=False)),
            section("Remarks", _lines(judged, INFO, silent=False)),
            section("Accepted", [accepted.text for accepted in judged.accepted]),
            section("Groups", groups),
            section("Notes", notes),
        ]
    )


def _work(judged: Judged) -> Iterator[list[str]]:
    """Yield a section for each leaf at which there is something to do."""
    work = [finding for finding in judged.findings if finding.severity in {ERROR, WARNING}]
    renamed = [finding for finding in work if finding.code == "renamed"]
    if len(renamed) > MAX_RENAMED:  # one line; JSON and CSV have them one by one
        seen = {wire.end.device for wire in wires(judged.fleet.nodes)}
        are_all = seen <= {finding.actual[0] for finding in renamed}
        names = listed(
            [f"{finding.actual[0]} is {finding.expected[0]} there" for finding in renamed]
        )
        leaves = f"{'all ' * are_all}{len(renamed):,} leaves"
        line = f"renamed: {leaves} have other names than in the plan, correct them: {names}."
        yield section("Names of leaves", [line])
        work = [finding for finding in work if finding.code != "renamed"]
    for _, group in groupby(work, place_of):
        same = list(group)
        leaf, rack = same[0].leaf, same[0].rack
        title = f"{leaf} (rack {rack})" if leaf and rack else leaf or NO_LEAF
        yield section(title, map(_line, same))


def _lines(judged: Judged, severity: str, *, silent: bool) -> Iterator[str]:
    for finding in judged.findings:
        if finding.severity == severity and (finding.code == "silent") == silent:
            yield finding.text if silent else _line(finding)


def _line(finding: Finding) -> str:
    """Return a finding as a line, with its confidence if it has that, never rounded up to 100 %."""
    line = f"{finding.code}: {finding.text}"
    if finding.confidence is None:
        return line
    why = f": {finding.majority}" if finding.majority else ""
    return f"{line} ({int(finding.confidence * 100)} % confident{why})"


def document(judged: Judged) -> Json:
    """Return the JSON document, schema 1 (docs/fleet.schema.json); data is never in keys."""
    fleet, gap = judged.fleet, judged.gap or Gap()
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "source": fleet.source,
        "time": utc(fleet.now),
        "verdict": verdict(judged),
        "outcome": outcome(judged),
        "by": "pattern" if judged.by_pattern else "plan",
        "nodes": len(fleet.nodes),
        "other_nodes": fleet.others,
        "planned": judged.planned,
        "as_planned": judged.as_planned,
        "not_compared": {
            "cables": gap.cables - gap.compared,
            "nodes": gap.nodes,
            "hosts": gap.hosts,
        },
        "problems": fleet.problems,
        "notes": judged.notes,
        "findings": [fleet_document(finding) for finding in judged.findings],
        "accepted": [accepted_document(accepted) for accepted in judged.accepted],
        "groups": [group._asdict() for group in judged.groups],
    }


def csv_text(judged: Judged) -> str:
    """Return a row for each port of a finding, or else for each of its nodes."""
    rows = []
    for finding in judged.findings:
        moves = {move.port: move for move in finding.moves}
        subjects = [*finding.ports] or [PortRef(name, "") for name in finding.nodes or [""]]
        for number, subject in enumerate(subjects):
            row = report.cells(finding, subject, moves.get(subject), is_first=not number)
            rows.append(row)
    return rows_text([COLUMNS, *rows])


def junit_text(judged: Judged) -> str:
    """Return a suite for each node, or of a large fleet for each group, and a suite of the others.

    One cause is one failure: a finding of several nodes fails at the first of them, and is a
    skipped case, which names that node, at the others.
    """
    by_node: dict[str, list[Finding]] = {}
    for finding in judged.findings:
        for name in finding.nodes:
            by_node.setdefault(name, []).append(finding)
    members = []
    others = [
        junit.Case("not compared", junit.ERROR, text)
        for text in (*judged.fleet.problems, *_gaps(judged))
    ]
    others += [_failed(finding) for finding in judged.findings if not finding.nodes]
    others += [
        report.accepted(accepted, [accepted.finding.nodes[0]] if accepted.finding.nodes else [])
        for accepted in judged.accepted
    ]
    if others:
        members.append(junit.suite(SUITE, NO_NODE, others))
    if len(judged.fleet.nodes) <= MAX_SUITES:
        for node in judged.fleet.nodes:
            cases = [*_cases(node.name, by_node.get(node.name, ()))]
            members.append(junit.suite(SUITE, node.name, cases))
    else:
        for group in judged.groups:
            cases = [
                case._replace(name=f"{name} {case.name}")
                for name in group.nodes
                for case in _cases(name, by_node.get(name, ()))
            ]
            members.append(junit.suite(SUITE, group.name, cases))
    return junit.document(junit.suites(SUITE, members))


def _cases(node: str, findings: Sequence[Finding]) -> Iterator[junit.Case]:
    """Yield a case for each finding of a node, or a passed case if it has none."""
    if not findings:
        yield junit.Case("cables")
    for finding in findings:
        if finding.nodes[0] == node:
            yield _failed(finding)
        else:
            text = f"Part of {finding.code} {finding.id} at {finding.nodes[0]}."
            yield junit.Case(f"{finding.code} {finding.id}", junit.SKIPPED, text)


def _failed(finding: Finding) -> junit.Case:
    names = [port.interface for port in finding.ports if port.node in finding.nodes[:1]]
    more = f" and {many(len(finding.nodes) - 1, 'other node')}" if len(finding.nodes) > 1 else ""
    return report.failed(finding, names, more)


FORMATS: Mapping[str, Callable[[Judged], str]] = {
    "table": table,
    "json": lambda judged: json.dumps(document(judged), indent=2) + "\n",
    "csv": csv_text,
    "junit": junit_text,
}
