"""What the reports of `verify` and `fleet verify` have in common: outcome, counts, cells, cases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.findings.finding import CODES, ERROR, INFO, UNKNOWN, WARNING
from agent.output import junit
from agent.output.layout import MAX_TEXT
from agent.text import many, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.findings.finding import Ends, Finding

OK, DIFFERENCES, UNVERIFIED = "ok", "differences", "unverified"
EXIT = {OK: 0, UNVERIFIED: 1, DIFFERENCES: 3}
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
ELEMENTS = {
    ERROR: junit.FAILURE,
    WARNING: junit.FAILURE,
    UNKNOWN: junit.ERROR,
    INFO: junit.SKIPPED,
}


def outcome(findings: Iterable[Finding], *, is_partial: bool = False) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something could not be compared."""
    severities = {one.severity for one in findings}
    if severities & {ERROR, WARNING}:
        return DIFFERENCES
    return UNVERIFIED if is_partial or UNKNOWN in severities else OK


def counted(findings: Iterable[Finding]) -> str:
    """Return the differences by their codes: `2 findings: 1 swapped, 1 slow`."""
    counts = Counter(one.code for one in findings if one.severity in {ERROR, WARNING})
    if not counts:
        return "no findings"
    listed = ", ".join(f"{counts[code]:,} {code}" for code in CODES if code in counts)
    return f"{many(counts.total(), 'finding')}: {listed}"


def cells(one: Finding, subject: Iterable[str | None], ends: tuple[Ends, Ends]) -> list[str | None]:
    """Return a row of CSV: what it is about, the expected and the actual end, and COLUMNS' rest."""
    facts = dict(one.facts)
    racks = " to ".join(filter(None, map(facts.get, ("rack", "far-rack"))))
    row = [*subject, *ends[0], *ends[1], one.code, one.text, racks, one.id]
    return [cell and visible(cell, MAX_TEXT) for cell in row]


def failed(one: Finding, names: Iterable[str], more: str = "") -> junit.Case:
    """Return the test case of a finding about these interfaces."""
    name = f"{' '.join(names)} {one.code} {one.id}{more}".strip()
    return junit.Case(name, ELEMENTS[one.severity], one.text)
