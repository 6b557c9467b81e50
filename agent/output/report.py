"""What the reports of `verify` and `fleet verify` have in common: outcome, counts, cells, cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agent.cabling.baseline import Accepted
from agent.cabling.finding import (
    CODES,
    ERROR,
    INFO,
    NO_END,
    NO_SPOT,
    UNKNOWN,
    WARNING,
    Finding,
    Move,
    Spot,
)
from agent.output import junit
from agent.output.layout import MAX_TEXT
from agent.text import many, visible

OK, DIFFERENCES, UNVERIFIED = "ok", "differences", "unverified"
EXIT = {OK: 0, UNVERIFIED: 1, DIFFERENCES: 3}
NOTHING_COMPARED = "no cable was compared"
COLUMNS = (
    "interface",
    "expected device",
    "expected port",
    "actual device",
    "actual port",
    "issue",
    "what to do",
    "place",
    "expected place",
    "actual place",
    "id",
)
ELEMENTS = {
    ERROR: junit.FAILURE,
    WARNING: junit.FAILURE,
    UNKNOWN: junit.ERROR,
    INFO: junit.SKIPPED,
}


def outcome(findings: Iterable[Finding], *, is_partial: bool = False) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something could not be compared."""
    severities = {finding.severity for finding in findings}
    if severities & {ERROR, WARNING}:
        return DIFFERENCES
    return UNVERIFIED if is_partial or UNKNOWN in severities else OK


def is_nothing_compared(as_planned: int, accepted: Iterable[Accepted]) -> bool:
    """Return True if no cable was compared, and that is accepted: no pass of anything."""
    severities = {finding.severity for finding, _ in accepted}
    return not as_planned and severities == {UNKNOWN}


def accepted_count(accepted: Sequence[Accepted]) -> str:
    """Return `3 accepted, 1 of them not compared`; "" for none."""
    unknown = sum(finding.severity == UNKNOWN for finding, _ in accepted)
    more = f", {unknown:,} of them not compared" if unknown else ""
    return f"{len(accepted):,} accepted{more}" if accepted else ""


def unverified(subject: str, findings: Iterable[Finding], gaps: Iterable[str] = ()) -> str:
    """Return why the outcome is UNVERIFIED, as the error of a command: gaps, or what is unknown."""
    unknown = sum(finding.severity == UNKNOWN for finding in findings)
    reasons = [*gaps, *([f"{many(unknown, 'finding')} of severity unknown"] if unknown else [])]
    return f"{subject}: not verified: {'; '.join(reasons)}"


def counted(findings: Iterable[Finding], *, is_compared: bool = True) -> str:
    """Return the differences by their codes: `2 findings: 1 swapped, 1 slow`.

    Without any, it is "" unless all could be compared.
    """
    counts = Counter(finding.code for finding in findings if finding.severity in {ERROR, WARNING})
    if not counts:
        return "no findings" if is_compared else ""
    listed = ", ".join(f"{counts[code]:,} {code}" for code in CODES if code in counts)
    return f"{many(counts.total(), 'finding')}: {listed}"


def cells(
    finding: Finding,
    subject: Iterable[str | None],
    move: Move | None = None,
    *,
    is_first: bool = True,
) -> list[str | None]:
    """Return a row of CSV: what it is about, its ends and places, and the rest of COLUMNS.

    They are those of the cable to move; without one, the first row has those of the finding.
    """
    facts = dict(finding.facts)
    ends = (finding.expected, finding.actual) if is_first else (NO_END, NO_END)
    near, far, present = Spot(facts.get("rack")), Spot(facts.get("far-rack")), NO_SPOT
    if move:
        ends = move.wanted, move.actual
        near, far, present = move.near_spot, move.far_spot, move.present_spot
    places = near.text, far.text, present.text
    row = [*subject, *ends[0], *ends[1], finding.code, finding.text, *places, finding.id]
    return [cell and visible(cell, MAX_TEXT) for cell in row]


def accepted(acceptance: Accepted, names: Iterable[str]) -> junit.Case:
    """Return the test case of an accepted finding about these interfaces."""
    case = failed(acceptance.finding, names)
    return case._replace(element=junit.SKIPPED, message=f"{acceptance.reason}: {case.message}")


def failed(finding: Finding, names: Iterable[str], more: str = "") -> junit.Case:
    """Return the test case of a finding about these interfaces."""
    name = f"{' '.join(names)} {finding.code} {finding.id}{more}".strip()
    return junit.Case(name, ELEMENTS[finding.severity], finding.text)
