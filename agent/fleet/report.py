"""Print what a fleet is judged to be: as table, JSON (docs/fleet.schema.json), CSV or JUnit XML."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

import agent
from agent.findings.finding import (
    ERROR,
    INFO,
    NO_END,
    UNKNOWN,
    WARNING,
    fleet_document,
    place_of,
)
from agent.fleet.suites import junit_text
from agent.fleet.verdict import EXIT, many, outcome, verdict
from agent.output.layout import MAX_TEXT, joined, opening, section
from agent.plans.own import rows_text
from agent.text import listed, utc, visible
from agent.verify.report import COLUMNS as NODE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import Ends, Finding
    from agent.fleet.judged import Group, Judged

    Cells = list[str | None]
    Json = dict[str, Any]

__all__ = ["EXIT", "FORMATS", "outcome", "verdict"]

SCHEMA = 1
MAX_GROUPS = 20  # lines
MAX_RENAMED = 3  # leaves, each with a line of its own
NO_LEAF = "Nodes"  # title of the findings that are at no leaf
COLUMNS = ("node", *NODE_COLUMNS)


def table(judged: Judged) -> str:
    """Return the report for people, 80 columns wide."""
    return joined(
        [
            opening(verdict(judged)),
            *_work(judged),
            section("Silent nodes", _lines(judged, UNKNOWN, silent=True)),
            section("Not verified", _lines(judged, UNKNOWN, silent=False)),
            section("Remarks", _lines(judged, INFO, silent=False)),
            section("Groups", _groups(judged.groups)),
            section("Notes", [*judged.fleet.problems, *judged.notes, *_others(judged)]),
        ]
    )


def _work(judged: Judged) -> Iterator[list[str]]:
    """Yield a section for each leaf at which there is something to do."""
    found = [one for one in judged.findings if one.severity in {ERROR, WARNING}]
    renamed = [one for one in found if one.code == "renamed"]
    if len(renamed) > MAX_RENAMED:
        yield section("Names of leaves", [_names(renamed, judged)])
        found = [one for one in found if one.code != "renamed"]
    for _, group in groupby(found, place_of):
        same = list(group)
        yield section(_title(same[0]), map(_line, same))


def _names(renamed: Sequence[Finding], judged: Judged) -> str:
    """Return the line of leaves with other names; JSON and CSV have them one by one."""
    ends = (port.far_end for node in judged.fleet.nodes for port in node.ports)
    are_all = {end.device for end in ends if end} <= {one.actual[0] for one in renamed}
    names = listed([f"{one.actual[0]} is {one.expected[0]} there" for one in renamed])
    count = f"{'all ' * are_all}{len(renamed):,}"
    return f"renamed: {count} leaves have other names than in the plan, correct them: {names}."


def _title(finding: Finding) -> str:
    leaf, rack = finding.leaf, finding.rack
    if not leaf:
        return NO_LEAF
    return f"{leaf} (rack {rack})" if rack else leaf


def _lines(judged: Judged, severity: str, *, silent: bool) -> Iterator[str]:
    for one in judged.findings:
        if one.severity == severity and (one.code == "silent") == silent:
            yield one.text if silent else _line(one)


def _line(one: Finding) -> str:
    return f"{one.code}: {one.text}{_reason(one)}"


def _reason(one: Finding) -> str:
    """Return what speaks for a finding by the pattern."""
    if one.confidence is None:
        return ""
    return f" ({_percent(one.confidence)} confident{': ' * bool(one.majority)}{one.majority or ''})"


def _percent(share: float) -> str:
    """Return a share, never rounded up to 100 %."""
    return f"{int(share * 100)} %"


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


def _others(judged: Judged) -> list[str]:
    count = judged.fleet.others
    return [f"{many(count, 'other Node')} without labels of the agent, left out"] if count else []


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
        "problems": list(fleet.problems),
        "notes": list(judged.notes),
        "findings": [fleet_document(one) for one in judged.findings],
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
    rows = (row for one in judged.findings for row in _rows(one))
    return rows_text([COLUMNS, *rows])


def _rows(one: Finding) -> Iterator[Cells]:
    """Yield the rows of a finding; only the first has its ends where a port has no move."""
    moves = {move.port: (move.wanted, move.actual) for move in one.moves}
    subjects: Iterable[tuple[str, str | None]] = one.ports or [(name, None) for name in one.nodes]
    ends: tuple[Ends, Ends] = (one.expected, one.actual)
    for subject in subjects or [("", None)]:
        expected, actual = moves.get(subject, ends)  # type: ignore[call-overload]
        yield _cells(one, subject, expected, actual)
        ends = (NO_END, NO_END)


def _cells(one: Finding, subject: tuple[str, str | None], expected: Ends, actual: Ends) -> Cells:
    facts = dict(one.facts)
    racks = " to ".join(filter(None, map(facts.get, ("rack", "far-rack"))))
    cells = [*subject, *expected, *actual, one.code, one.text, racks, one.id]
    return [cell and visible(cell, MAX_TEXT) for cell in cells]


FORMATS: Mapping[str, Callable[[Judged], str]] = {
    "table": table,
    "json": json_text,
    "csv": csv_text,
    "junit": junit_text,
}
