"""Print a result as table, JSON (schema 1, docs/verify.md), JUnit XML, CSV, or one line for NPD."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import agent
from agent.cabling import cables
from agent.cabling.baseline import document as accepted_document
from agent.cabling.finding import (
    ERROR,
    INFO,
    UNKNOWN,
    WARNING,
    end_document,
    finding_document,
)
from agent.cabling.judge import VerifyResult
from agent.cabling.plans.own import rows_text
from agent.output import junit, report
from agent.output.layout import WIDTH, columns, joined, opening, section
from agent.output.report import (
    COLUMNS,
    DIFFERENCES,
    OK,
    UNVERIFIED,
    accepted,
    cells,
    counted,
    failed,
)
from agent.text import Json, visible

SCHEMA = 1
NPD_WIDTH = 80  # characters that node-problem-detector keeps of a plugin's output by default
NPD_EXIT = {OK: 0, DIFFERENCES: 1, UNVERIFIED: 2}
TITLES = ["INTERFACE", "EXPECTED", "ACTUAL", "RESULT"]


def is_blind(result: VerifyResult) -> bool:
    """Return True if no cable was compared, and that is accepted."""
    return report.is_nothing_compared(result.as_planned, result.accepted)


def outcome(result: VerifyResult) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something, or everything, could not be compared."""
    return report.outcome(result.findings, is_partial=is_blind(result))


def verdict(result: VerifyResult) -> str:
    """Return the first line: `gpu-017: 2 findings: 1 swapped, 1 slow; 6 of 8 cables as planned`."""
    planned = f"{result.as_planned} of {result.planned} cables as planned"
    unknown = sum(finding.severity == UNKNOWN for finding in result.findings)
    parts = [
        counted(result.findings),
        planned if result.planned or result.ignored else "no cables in the plan",
        f"{result.ignored} ignored" if result.ignored else "",
        f"{unknown} unverifiable" if unknown else "",
        report.accepted_count(result.accepted),
    ]
    return f"{result.node}: {'; '.join(filter(None, parts))}"


def document(result: VerifyResult, notes: Sequence[str] = ()) -> Json:
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
        "cables": [
            {
                "interface": cable.ref.interface,
                "plan": cable.row.text,
                "place": str(cable.row.place),
                "status": cable.status,
                "reason": cable.reason,
                "expected": end_document(*cable.expected),
                "actual": end_document(*cable.actual),
                "matched_by": {"device": cable.device.by, "port": cable.far_port.by},
            }
            for cable in result.cables
        ],
        "findings": [finding_document(finding) for finding in result.findings],
        "accepted": [accepted_document(acceptance) for acceptance in result.accepted],
    }


def table(result: VerifyResult, notes: Sequence[str]) -> str:
    """Return the report for people."""
    every = (*result.findings, *(finding for finding, _ in result.accepted))
    in_ring = {port for finding in every if finding.code == "swapped" for port in finding.ports}
    rows = [
        [
            cable.ref.interface,
            " ".join(filter(None, cable.expected)) or "-",
            " ".join(filter(None, cable.actual)) or "-",
            "swapped" if cable.ref in in_ring else cable.status,
        ]
        for cable in result.cables
    ]
    shown = [[visible(cell, WIDTH) for cell in row] for row in rows]
    by_severity = {"Findings": (ERROR, WARNING), "Not verified": (UNKNOWN,), "Remarks": (INFO,)}
    return joined(
        [
            opening(verdict(result)),
            columns([TITLES, *shown]) if shown else [],
            *(
                section(
                    title,
                    [
                        f"{finding.code}: {finding.text}"
                        for finding in result.findings
                        if finding.severity in kept
                    ],
                )
                for title, kept in by_severity.items()
            ),
            section("Accepted", [acceptance.text for acceptance in result.accepted]),
            section("Plan", [*notes, *filter(None, [result.assumption])]),
        ]
    )


def csv_text(result: VerifyResult, _notes: Sequence[str]) -> str:
    """Return a row for each cable of a finding, or for the finding."""
    rows = [
        cells(finding, [move.port.interface if move else " ".join(finding.interfaces)], move)
        for finding in result.findings
        for move in finding.moves or (None,)
    ]
    return rows_text([COLUMNS, *rows])


def junit_text(result: VerifyResult, _notes: Sequence[str]) -> str:
    """Return a test suite: a case for each cable as planned, and for each finding."""
    right = [cable for cable in result.cables if cable.status == cables.AS_PLANNED]
    cases = [junit.Case(f"{cable.ref.interface} cable") for cable in right]
    cases += [failed(finding, finding.interfaces) for finding in result.findings]
    cases += [accepted(acceptance, acceptance.finding.interfaces) for acceptance in result.accepted]
    return junit.document(junit.suite("bwagent verify", result.node, cases))


def npd_text(text: str) -> str:
    """Return a text as the line for node-problem-detector."""
    return visible(" ".join(text.split()), NPD_WIDTH)


FORMATS: Mapping[str, Callable[[VerifyResult, Sequence[str]], str]] = {
    "table": table,
    "json": lambda result, notes: json.dumps(document(result, notes), indent=2) + "\n",
    "junit": junit_text,
    "csv": csv_text,
}
