"""Print what a fleet is judged to be: as table, JSON (docs/fleet.schema.json), CSV or JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import agent
from agent.findings import report
from agent.findings.baseline import document as accepted_document
from agent.findings.finding import (
    ERROR,
    INFO,
    UNKNOWN,
    WARNING,
    Finding,
    PortRef,
    fleet_document,
    place_of,
)
from agent.findings.report import EXIT, UNVERIFIED, counted
from agent.fleet.model import Group, Judged
from agent.output import junit
from agent.output.layout import joined, opening, section
from agent.plans.own import rows_text
from agent.text import Json, listed, many, utc

__all__ = ["EXIT", "FORMATS", "UNVERIFIED", "outcome", "unverified", "verdict"]

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
    silent = {name for one in judged.findings if one.code == "silent" for name in one.nodes}
    others = sum(one.severity == UNKNOWN and one.code != "silent" for one in judged.findings)
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
    return joined(
        [
            opening(verdict(judged)),
            *_work(judged),
            section("Silent nodes", _lines(judged, UNKNOWN, silent=True)),
            section("Not verified", _lines(judged, UNKNOWN, silent=False)),
            section("Remarks", _lines(judged, INFO, silent=False)),
            section("Accepted", [one.text for one in judged.accepted]),
            section("Groups", _groups(judged.groups)),
            section("Notes", notes),
        ]
    )


def _work(judged: Judged) -> Iterator[list[str]]:
    """Yield a section for each leaf at which there is something to do."""
    found = [one for one in judged.findings if one.severity in {ERROR, WARNING}]
    renamed = [one for one in found if one.code == "renamed"]
    if len(renamed) > MAX_RENAMED:  # one line; JSON and CSV have them one by one
        ends = (port.far_end for node in judged.fleet.nodes for port in node.ports)
        are_all = {end.device for end in ends if end} <= {one.actual[0] for one in renamed}
        names = listed([f"{one.actual[0]} is {one.expected[0]} there" for one in renamed])
        leaves = f"{'all ' * are_all}{len(renamed):,} leaves"
        line = f"renamed: {leaves} have other names than in the plan, correct them: {names}."
        yield section("Names of leaves", [line])
        found = [one for one in found if one.code != "renamed"]
    for _, group in groupby(found, place_of):
        same = list(group)
        leaf, rack = same[0].leaf, same[0].rack
        title = f"{leaf} (rack {rack})" if leaf and rack else leaf or NO_LEAF
        yield section(title, map(_line, same))


def _lines(judged: Judged, severity: str, *, silent: bool) -> Iterator[str]:
    for one in judged.findings:
        if one.severity == severity and (one.code == "silent") == silent:
            yield one.text if silent else _line(one)


def _line(one: Finding) -> str:
    """Return a finding, with what speaks for one by the pattern: never rounded up to 100 %."""
    line = f"{one.code}: {one.text}"
    if one.confidence is None:
        return line
    why = f": {one.majority}" if one.majority else ""
    return f"{line} ({int(one.confidence * 100)} % confident{why})"


def _groups(groups: tuple[Group, ...]) -> Iterator[str]:
    """Yield a line for each of the first groups, and one for all others."""
    shown = groups if len(groups) <= MAX_GROUPS else groups[: MAX_GROUPS - 1]
    for one in shown:
        pattern = one.pattern or "no pattern"
        yield f"{one.name}: {many(len(one.nodes), 'node')}, {pattern}"
    if others := groups[len(shown) :]:
        nodes = sum(len(one.nodes) for one in others)
        without = sum(one.pattern is None for one in others)
        what = f"{many(len(others), 'more group')} of {many(nodes, 'node')}"
        yield f"{what}, {without:,} without a pattern"


def document(judged: Judged) -> Json:
    """Return the JSON document, schema 1 (docs/fleet.schema.json); data is never in keys."""
    fleet = judged.fleet
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
            "cables": judged.gap.cables - judged.gap.compared if judged.gap else 0,
            "nodes": list(judged.gap.nodes if judged.gap else ()),
            "hosts": list(judged.gap.hosts if judged.gap else ()),
        },
        "problems": list(fleet.problems),
        "notes": list(judged.notes),
        "findings": [fleet_document(one) for one in judged.findings],
        "accepted": [accepted_document(one) for one in judged.accepted],
        "groups": [
            {
                "name": group.name,
                "nodes": list(group.nodes),
                "leaves": list(group.leaves),
                "pattern": group.pattern,
            }
            for group in judged.groups
        ],
    }


def json_text(judged: Judged) -> str:
    """Return the JSON document as text."""
    return json.dumps(document(judged), indent=2) + "\n"


def csv_text(judged: Judged) -> str:
    """Return a row for each port of a finding, or else for each of its nodes."""
    rows = []
    for one in judged.findings:
        moves = {move.port: move for move in one.moves}
        subjects = [*one.ports] or [PortRef(name, "") for name in one.nodes or [""]]
        for number, subject in enumerate(subjects):
            row = report.cells(one, subject, moves.get(subject), is_first=not number)
            rows.append(row)
    return rows_text([COLUMNS, *rows])


def junit_text(judged: Judged) -> str:
    """Return a suite for each node, or of a large fleet for each group, and one of the others.

    One cause is one failure: a finding of several nodes fails at the first of them, and is a
    skipped case, which names that node, at the others.
    """
    by_node: dict[str, list[Finding]] = {}
    for one in judged.findings:
        for name in one.nodes:
            by_node.setdefault(name, []).append(one)
    members = []
    others = [
        junit.Case("not compared", junit.ERROR, text)
        for text in (*judged.fleet.problems, *_gaps(judged))
    ]
    others += [_failed(one) for one in judged.findings if not one.nodes]
    others += [
        report.accepted(one, [one.finding.nodes[0]] if one.finding.nodes else [])
        for one in judged.accepted
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


def _cases(node: str, found: Sequence[Finding]) -> Iterator[junit.Case]:
    """Yield a case for each finding of a node, or one that passed."""
    if not found:
        yield junit.Case("cables")
    for one in found:
        if one.nodes[0] == node:
            yield _failed(one)
        else:
            text = f"Part of {one.code} {one.id} at {one.nodes[0]}."
            yield junit.Case(f"{one.code} {one.id}", junit.SKIPPED, text)


def _failed(one: Finding) -> junit.Case:
    names = [port.interface for port in one.ports if port.node in one.nodes[:1]]
    more = f" and {many(len(one.nodes) - 1, 'other node')}" if len(one.nodes) > 1 else ""
    return report.failed(one, names, more)


FORMATS: Mapping[str, Callable[[Judged], str]] = {
    "table": table,
    "json": json_text,
    "csv": csv_text,
    "junit": junit_text,
}
