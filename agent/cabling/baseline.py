"""Findings that are known and accepted: the file of `--baseline` and `--write-baseline`.

CSV with the columns of COLUMNS, to be edited in a spreadsheet program: a finding is accepted by its
ID, which stays from run to run, with a date and a note. An accepted finding is listed apart and
does not fail.

Invariant: a finding that has grown, to ports or nodes that its row does not have, is not accepted:
one ID may be of a cause that spreads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from agent.cabling.finding import INFO, Finding
from agent.cabling.plans.own import rows_text, table, unquoted
from agent.errors import Malformed, Unavailable
from agent.text import listed, many, visible

COLUMNS = ("id", "date", "note", "code", "where", "text")
MAX_WHERE = 64 << 10  # characters of a cell; a csv.reader takes 128 Ki
_ID = re.compile(r"[0-9a-f]{12}")


class BaselineRow(NamedTuple):
    """A row of the file."""

    id: str
    date: str = ""
    note: str = ""
    code: str = ""
    where: frozenset[str] = frozenset()  # "node/interface", or nodes; empty: anywhere
    text: str = ""


class Accepted(NamedTuple):
    """A finding that is known and accepted."""

    finding: Finding
    entry: BaselineRow

    @property
    def text(self) -> str:
        """The finding with the date and the note of its acceptance."""
        return f"{self.finding.code}: {self.finding.text} ({self.reason})"

    @property
    def reason(self) -> str:
        """The date and the note of its acceptance."""
        when = f"accepted {self.entry.date}".strip()
        return ": ".join(filter(None, (when, self.entry.note)))


class Sorted(NamedTuple):
    """The findings that count, those that are accepted, and a line for what is odd in the file."""

    findings: tuple[Finding, ...]
    accepted: tuple[Accepted, ...] = ()
    notes: tuple[str, ...] = ()
    kept: tuple[BaselineRow, ...] = ()  # rows that may be of nodes that were not compared


def read(path: str) -> dict[str, BaselineRow]:
    """Return the rows of a file by ID; raises Malformed."""
    entries: dict[str, BaselineRow] = {}
    for place, cells in table(path, COLUMNS[:1], COLUMNS[1:]):
        row = {name: unquoted(cell) for name, cell in cells.items()}
        if not _ID.fullmatch(row["id"]):
            shown = visible(row["id"], 64)
            raise Malformed(f"{place}: {shown!r} is no ID of 12 hex digits, import IDs as text")
        try:
            _ = row["date"] and date.fromisoformat(row["date"])
        except ValueError:
            shown = visible(row["date"], 64)
            raise Malformed(f"{place}: {shown!r} is no date such as 2026-11-23") from None
        entry = BaselineRow(**{**row, "where": frozenset(row["where"].split())})  # type: ignore[arg-type]
        if entries.setdefault(entry.id, entry) != entry:
            raise Malformed(f"{place}: the ID {entry.id} is in an earlier row, which differs")
    return entries


def sort(
    findings: Sequence[Finding],
    entries: Mapping[str, BaselineRow],
    nodes: Collection[str],
    path: str,
) -> Sorted:
    """Take the accepted findings out; `nodes` are those that were compared."""
    kept: list[Finding] = []
    accepted: list[Accepted] = []
    grown: list[str] = []
    for finding in findings:
        entry = entries.get(finding.id)
        if entry and (not entry.where or _where(finding) <= entry.where):
            accepted.append(Accepted(finding, entry))
        else:
            kept.append(finding)
            grown += [finding.id] if entry else []
    ids = {finding.id for finding in findings}
    here = {*nodes}
    unseen = [entry for entry in entries.values() if entry.id not in ids]
    elsewhere = [
        entry
        for entry in unseen
        if not entry.where or any(name.partition("/")[0] not in here for name in entry.where)
    ]
    gone = [entry.id for entry in unseen if entry not in elsewhere]
    notes = [f"{path}: {many(len(accepted), 'finding')} accepted"] if accepted else []
    if grown:
        notes.append(f"{path}: not accepted, they have grown: {listed(grown)}")
    if gone:
        notes.append(f"{path}: gone, leave them out: {listed(gone)}")
    return Sorted(tuple(kept), tuple(accepted), tuple(notes), tuple(elsewhere))


def _where(finding: Finding) -> frozenset[str]:
    """Return its ports, or else its nodes, without white space."""
    ports = [f"{port.node}/{port.interface}" for port in finding.ports] or finding.nodes
    return frozenset("_".join(name.split()) for name in ports)


def write(
    path: str, sorted_: Sorted, former: Mapping[str, BaselineRow], renewed: str | None
) -> dict[str, BaselineRow]:
    """Write all findings but remarks, each with its former date and note; return the rows.

    One that has grown keeps the note. Rows of `former` stay unless their findings are gone. Nothing
    is overwritten but `renewed`, the file that was read. Raises Unavailable.
    """
    today = datetime.now(UTC).date().isoformat()
    entries = [*sorted_.kept, *(acceptance.entry for acceptance in sorted_.accepted)]
    for finding in sorted_.findings:
        if finding.severity != INFO:
            row = former.get(finding.id, BaselineRow(finding.id))
            where, text = _where(finding), finding.text
            entries.append(row._replace(date=today, code=finding.code, where=where, text=text))
    rows = []
    for entry in entries:
        cell = " ".join(sorted(entry.where))
        shown = cell if len(cell) <= MAX_WHERE else ""
        text = visible(entry.text, 1000)
        rows.append((entry.id, entry.date, entry.note, entry.code, shown, text))
    is_renewed = renewed is not None and os.path.realpath(renewed) == os.path.realpath(path)
    draft = f"{path}.new" if is_renewed else path
    try:
        with open(draft, "w" if is_renewed else "x", encoding="utf-8", newline="") as file:
            file.write(rows_text([COLUMNS, *rows]))
        if is_renewed:
            os.replace(draft, path)  # noqa: PTH105
    except FileExistsError:
        hint = "give it as --baseline, too, to renew it"
        raise Unavailable(f"{path}: it exists; {hint}") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
    return {entry.id: entry for entry in entries}


def document(acceptance: Accepted) -> dict[str, str]:
    """Return the JSON object of an accepted finding."""
    finding, entry = acceptance
    return {
        "id": finding.id,
        "code": finding.code,
        "severity": finding.severity,
        "text": finding.text,
        "date": entry.date,
        "note": entry.note,
    }


def settled(
    findings: Sequence[Finding],
    nodes: Collection[str],
    baseline: str | None,
    written: str | None,
) -> Sorted:
    """Return the findings by the flags: those of `written` are accepted from now on."""
    former = read(baseline) if baseline else {}
    result = sort(findings, former, nodes, baseline or "")
    if written:
        result = sort(findings, write(written, result, former, baseline), nodes, written)
    return result
