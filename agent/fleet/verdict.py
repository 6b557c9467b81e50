"""The verdict on a fleet: its outcome, exit code and first line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.findings.finding import CODES, ERROR, UNKNOWN, WARNING
from agent.verify.report import DIFFERENCES, EXIT, OK, UNVERIFIED

if TYPE_CHECKING:
    from agent.fleet.judged import Judged

__all__ = ["EXIT", "many", "outcome", "verdict"]


def outcome(judged: Judged) -> str:
    """Return OK, DIFFERENCES, or UNVERIFIED if something, or everything, could not be compared."""
    severities = {finding.severity for finding in judged.findings}
    if severities & {ERROR, WARNING}:
        return DIFFERENCES
    is_partial = UNKNOWN in severities or judged.fleet.problems or not judged.planned
    return UNVERIFIED if is_partial else OK


def verdict(judged: Judged) -> str:
    """Return the first line: `64 nodes: 1 finding: 1 swapped; 510 of 512 cables as planned`."""
    parts = [_found(judged), _cables(judged), *_unknown(judged)]
    return f"{many(len(judged.fleet.nodes), 'node')}: {'; '.join(filter(None, parts))}"


def many(count: int, noun: str) -> str:
    """Return a number and its noun: `1,024 nodes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _found(judged: Judged) -> str:
    counts = Counter(one.code for one in judged.findings if one.severity in {ERROR, WARNING})
    listed = ", ".join(f"{counts[code]:,} {code}" for code in CODES if code in counts)
    return f"{many(counts.total(), 'finding')}: {listed}" if counts else "no findings"


def _cables(judged: Judged) -> str:
    how = "follow the pattern" if judged.by_pattern else "as planned"
    if not judged.planned:
        return "no pattern found" if judged.by_pattern else "no cables in the plan"
    return f"{judged.as_planned:,} of {judged.planned:,} cables {how}"


def _unknown(judged: Judged) -> list[str]:
    """Return how many nodes are silent, and how much else is not verified."""
    others = [one for one in judged.findings if one.severity == UNKNOWN and one.code != "silent"]
    silent = {name for one in judged.findings if one.code == "silent" for name in one.nodes}
    return [
        f"{len(silent):,} silent" if silent else "",
        f"{len(others):,} unverifiable" if others else "",
    ]
