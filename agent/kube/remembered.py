"""The last verdict in the annotation, so that a restart of the agent does not lose it.

    "verdict": {"boot_id": "...", "time": "2026-11-22T13:34:49Z",
                "findings": [{"code": "swapped", "interface": "ibp3", "id": "0f3c..."}, ...],
                "dropped": 9}

The findings are those reported (agent/verify/verdict.py), the most severe first; `dropped` is the
number of the others: more than MAX_FINDINGS, or without room beside the rows of interfaces. `time`
is that of the last comparison. It counts for the boot of `boot_id` only, which may be newer than
that of the last full observation. Half of a verdict could pass where the whole fails, so a verdict
whose most severe finding has no room, or with any malformed part, is dropped as a whole; a
malformed `time` or `dropped` is unknown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.ids import CODE
from agent.kube.facts import count, is_word, optional, parse_time, past
from agent.text import utc

if TYPE_CHECKING:
    Json = dict[str, Any]

MAX_FINDINGS = 64

_INTERFACE = re.compile(r"[ -~]{1,64}")
_ID = re.compile(r"[0-9a-f]{1,64}")


class RememberedFinding(NamedTuple):
    """One reported finding."""

    code: str
    interface: str | None  # the first of the finding; None: it has none, or an odd name
    id: str


class Remembered(NamedTuple):
    """The verdict of an agent."""

    boot_id: str
    time: int | None  # of the last comparison, seconds since the epoch
    findings: tuple[RememberedFinding, ...] = ()
    dropped: int = 0  # findings, less severe than these

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts that make a request due if they change."""
        return self.boot_id, self.findings

    def without_future(self, now: float) -> Remembered:
        """Return the verdict, whose time is unknown if it is after `now`."""
        return self._replace(time=past(self.time, now))


def interface_of(text: str | None) -> str | None:
    """Return the name of an interface as it can be remembered; None if it cannot."""
    return text if text and _INTERFACE.fullmatch(text) else None


def document(verdict: Remembered) -> Json:
    """Return the JSON object of a verdict, without what is unknown."""
    return {
        "boot_id": verdict.boot_id,
        **({} if verdict.time is None else {"time": utc(verdict.time)}),
        "findings": [*map(row_document, verdict.findings[:MAX_FINDINGS])],
        **({"dropped": verdict.dropped} if verdict.dropped else {}),
    }


def first(verdict: Remembered, number: int) -> Remembered | None:
    """Return the verdict with its first findings; None if it has some, and keeps none."""
    kept = verdict.findings[:number]
    if verdict.findings and not kept:
        return None
    dropped = verdict.dropped + len(verdict.findings) - len(kept)
    return verdict._replace(findings=kept, dropped=dropped)


def row_document(finding: RememberedFinding) -> Json:
    """Return the JSON object of a finding."""
    return {name: value for name, value in finding._asdict().items() if value is not None}


def parse(value: object) -> tuple[Remembered | None, list[str]]:
    """Parse the JSON object; return the verdict, and the names of facts that were dropped."""
    if value is None:
        return None, []
    facts: Json = value if isinstance(value, dict) else {}
    boot_id, findings = facts.get("boot_id"), _parse_findings(facts.get("findings"))
    if not (isinstance(boot_id, str) and is_word(boot_id)) or findings is None:
        return None, ["verdict"]
    time, untimely = optional(facts, "time", parse_time)
    found = Remembered(boot_id, time, findings, count(facts, "dropped"))
    return found, [f"{name} of verdict" for name in untimely]


def _parse_findings(rows: object) -> tuple[RememberedFinding, ...] | None:
    """Return the findings; None if any is malformed, or there are too many."""
    if not isinstance(rows, list) or len(rows) > MAX_FINDINGS:
        return None
    if not all(isinstance(row, dict) and _is_finding(row) for row in rows):
        return None
    return tuple(RememberedFinding(row["code"], row.get("interface"), row["id"]) for row in rows)


def _is_finding(row: Json) -> bool:
    interface = row.get("interface")
    has_interface = interface is None or _matches(_INTERFACE, interface)
    return has_interface and _matches(CODE, row.get("code")) and _matches(_ID, row.get("id"))


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and bool(pattern.fullmatch(value))
