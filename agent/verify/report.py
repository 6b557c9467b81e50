"""Print a result as table, JSON (schema 1, docs/verify.md), JUnit XML, CSV, or one line for NPD."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import agent
from agent.findings.finding import (
    CODES,
    ERROR,
    INFO,
    UNKNOWN,
    WARNING,
    end_document,
    finding_document,
)
from agent.output import junit
from agent.output.layout import MAX_TEXT, WIDTH, columns, joined, opening, section
from agent.plans.own import rows_text
from agent.text import visible
from agent.verify import cables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from agent.findings.finding import Finding
    from agent.verify.cables import Cable
    from agent.verify.judge import Result

    Json = dict[str, Any]

SCHEMA = 1
NPD_WIDTH = 80  # characters that node-problem-detector keeps of a plugin's output by default
OK, DIFFERENCES, UNVERIFIED = "ok", "differences", "unverified"
EXIT = {OK: 0, UNVERIFIED: 1, DIFFERENCES: 3}
NPD_EXIT = {OK: 0, DIFFERENCES: 1, UNVERIFIED: 2}
ELEMENTS = {
    ERROR: junit.FAILURE,
    WARNING: junit.FAILURE,
    UNKNOWN: junit.ERROR,
    INFO: junit.SKIPPED,
}
TITLES = ["INTERFACE", "EXPECTED", "ACTUAL", "RESULT"]
COLUMNS = (
    "interface",
    "expected device",
    "expected port",
    "actual device",
    "actual port",
    "issue",
    "what to do",
    "racks",
    "id",
)


def outcome(result: Result) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if a cable of the plan could not be compared."""
    severities = {finding.severity for finding in result.findings}
    if severities & {ERROR, WARNING}:
        return DIFFERENCES
    return UNVERIFIED if UNKNOWN in severities else OK


def verdict(result: Result) -> str:
    """Return the first line: `gpu-017: 2 findings: 1 swapped, 1 slow; 6 of 8 cables as planned`."""
    counts = Counter(one.code for one in result.findings if one.severity in {ERROR, WARNING})
    total = counts.total()
    listed = ", ".join(f"{counts[code]} {code}" for code in CODES if code in counts)
    found = f"{total} finding{'s' * (total != 1)}: {listed}" if total else "no findings"
    unknown = sum(one.severity == UNKNOWN for one in result.findings)
    parts = [found, _planned(result), f"{unknown} unverifiable" if unknown else ""]
    return f"{result.node}: {'; '.join(filter(None, parts))}"


def _planned(result: Result) -> str:
    if not result.planned:
        return "no cables in the plan"
    return f"{result.as_planned} of {result.planned} cables as planned"


def document(result: Result, notes: Sequence[str] = ()) -> Json:
    """Return the JSON document; data is never in keys."""
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": result.node,
        "verdict": verdict(result),
        "outcome": outcome(result),
        "planned": result.planned,
        "as_planned": result.as_planned,
        "notes": list(notes),
        "assumption": result.assumption,
        "cables": [_cable(one) for one in result.cables],
        "findings": [finding_document(one) for one in result.findings],
    }


def _cable(one: Cable) -> Json:
    return {
        "interface": one.ref.interface,
        "plan": one.row.text,
        "place": str(one.row.place),
        "status": one.status,
        "reason": one.reason,
        "expected": end_document(*one.expected),
        "actual": end_document(*one.actual),
        "matched_by": {"device": one.device.by, "port": one.far_port.by},
    }


def _json(result: Result, notes: Sequence[str]) -> str:
    return json.dumps(document(result, notes), indent=2) + "\n"


def _table(result: Result, notes: Sequence[str]) -> str:
    by_severity = {
        "Findings": {ERROR, WARNING},
        "Not verified": {UNKNOWN},
        "Remarks": {INFO},
    }
    sections = [
        opening(verdict(result)),
        _lines(result),
        *(
            section(title, [_line(one) for one in result.findings if one.severity in severities])
            for title, severities in by_severity.items()
        ),
        section("Plan", [*notes, *filter(None, [result.assumption])]),
    ]
    return joined(sections)


def _line(one: Finding) -> str:
    return f"{one.code}: {one.text}"


def _lines(result: Result) -> list[str]:
    """Return a line for each cable."""
    in_ring = {name for one in result.findings if one.code == "swapped" for name in one.interfaces}
    rows = [[visible(cell, WIDTH) for cell in _cells(one, in_ring)] for one in result.cables]
    return columns([TITLES, *rows]) if rows else []


def _cells(one: Cable, in_ring: Collection[str]) -> list[str]:
    expected = " ".join(filter(None, one.expected)) or "-"
    actual = " ".join(filter(None, one.actual)) or "-"
    status = "swapped" if one.ref.interface in in_ring else one.status
    return [one.ref.interface, expected, actual, status]


def _csv(result: Result, _notes: Sequence[str]) -> str:
    return rows_text([COLUMNS, *map(_columns, result.findings)])


def _columns(one: Finding) -> list[str | None]:
    facts = dict(one.facts)
    racks = [facts.get(name) for name in ("rack", "far-rack")]
    cells = [
        " ".join(one.interfaces),
        *one.expected,
        *one.actual,
        one.code,
        one.text,
        " to ".join(filter(None, racks)),
        one.id,
    ]
    return [cell and visible(cell, MAX_TEXT) for cell in cells]


def _junit(result: Result, _notes: Sequence[str]) -> str:
    """Return a test suite: a case for each cable as planned, and for each finding."""
    return junit.document(junit.suite("bwagent verify", result.node, [*_cases(result)]))


def _cases(result: Result) -> Iterator[junit.Case]:
    for one in result.cables:
        if one.status == cables.AS_PLANNED:
            yield junit.Case(f"{one.ref.interface} cable")
    for finding in result.findings:
        name = f"{' '.join(finding.interfaces)} {finding.code} {finding.id}".strip()
        yield junit.Case(name, ELEMENTS[finding.severity], finding.text)


def npd_line(result: Result) -> str:
    """Return the line for node-problem-detector."""
    return visible(verdict(result), NPD_WIDTH)


FORMATS: Mapping[str, Callable[[Result, Sequence[str]], str]] = {
    "table": _table,
    "json": _json,
    "junit": _junit,
    "csv": _csv,
}
