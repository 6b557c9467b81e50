"""The annotation `P/observed`: time and place of the last full observation.

    {"schema": 1, "agent": "0.1.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "partial": {"boot_id": "...", "time": "2026-11-20T14:34:49Z"},
     "interfaces": [
        {"interface": "ibp0", "pci": "0000:18:00.0", "port_guid": "a088c20300abcdef",
         "node_guid": "a088c20300abcdee", "counted_gbps": 400.0,
         "neighbor": {"id": "b0cf0e0300d4ee40", "name": "MF0;L90.1.3:MQM9700/U1", "port_id": "3"}},
        ...],
     "lost": [{"interface": "ibp3", ..., "since": "2026-11-20T13:30:00Z"}],
     "verdict": {"boot_id": "...", "time": "2026-11-22T13:34:49Z",
                 "findings": [{"code": "swapped", "interface": "ibp3", "id": "0f3c..."}, ...],
                 "dropped": 9},
     "dropped": 2}

- `time` (RFC 3339, UTC) is that of the last observation in which no source failed and none was
  switched off, and `boot_id` its boot; `partial` has those of the last observation if it was
  another one, so that an agent with a failing source is not taken for a dead one.
- `interfaces` has a row for each labeled interface, `lost` those that left the bus
  (agent/kube/lost.py), since when they were found missing. The PCI addresses tell an interface that
  was renamed by a reboot from one that is gone.
- `verdict` is the last one (agent/verify/verdict.py), so that a restart does not lose it. It counts
  for the boot of its `boot_id` only. Its findings are those reported, the most severe first;
  `dropped` is the number of the others: more than MAX_FINDINGS, or without room.
- `dropped` is the number of rows for which the annotation has no room.

Anyone with access to the Node can edit the annotation, so a malformed one is a problem to report
and never an exception. A row without a valid interface or PCI address makes it malformed. Any other
malformed fact is dropped, a neighbor as a whole. So is a verdict, but for its times: half of it
could pass where the whole fails. For the same reason it is not written if its most severe finding
has no room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import agent
from agent.errors import Malformed
from agent.ids import CODE, GUID, PCI
from agent.kube.facts import (
    COUNT,
    TEXT,
    TIME,
    WORD,
    Fact,
    Json,
    Schema,
    matching,
    number,
    past,
    read,
    record,
    written,
)
from agent.kube.managed_fields import Keys, State
from agent.model import LastNeighbor, Problem
from agent.text import visible

SCHEMA = 1
RESYNC = 3600.0  # seconds, the greatest age of the annotation of a running agent
MAX_AGE = 2 * RESYNC  # of an annotation that is taken for that of a running agent
MAX_BYTES = 16 * 1024  # of an annotation that is written
MAX_LENGTH = 64 * 1024  # characters of an annotation that is parsed
MAX_INTERFACES = 512  # of an annotation that is parsed
MAX_LOST = 64  # lost interfaces that are read and kept; no node has more ports
MAX_FINDINGS = 64
MAX_PROBLEM = 200  # characters
MAX_GBPS = 10_000.0  # of one interface

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INTERFACE = re.compile(r"[ -~]{1,64}")
_ID = re.compile(r"[0-9a-f]{1,64}")

Identity = tuple[str, str, str | None]  # interface, PCI address, port GUID


class LabeledInterface(NamedTuple):
    """One row of `interfaces` or `lost`; None is unknown."""

    interface: str  # its name in label keys
    pci: str  # address of its PCI function
    port_guid: str | None = None  # gids/0, lower half
    node_guid: str | None = None  # of the HCA
    counted_gbps: float | None = None  # its part of the speed label
    neighbor: LastNeighbor | None = None
    # Of one that left the bus: time of the first observation without it, seconds since the epoch.
    since: int | None = None

    @property
    def identity(self) -> Identity:
        """The fields that identify it; another interface may have its name and address now."""
        return self.interface, self.pci, self.port_guid


Interfaces = tuple[LabeledInterface, ...]


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


class Report(NamedTuple):
    """When an observation was made; None is unknown."""

    time: int | None  # seconds since the epoch
    boot_id: str | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """The contents of the annotation; None is unknown."""

    time: int | None  # of the last full observation, seconds since the epoch
    boot_id: str | None  # the boot of that observation
    interfaces: Interfaces = ()
    agent: str = agent.__version__
    dropped: int = 0  # rows for which there was no room
    lost: Interfaces = ()
    verdict: Remembered | None = None  # of `run`
    partial: Report | None = None  # the last observation; None: it was full

    @property
    def reported(self) -> Report:
        """The last observation, full or not."""
        return self.partial or Report(self.time, self.boot_id)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each interface's PCI function."""
        return {row.interface: row.pci for row in self.interfaces}

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts that make a request due if they change.

        A neighbor changes together with labels, or is written with the next hourly request.
        """
        lost = [one.identity for one in self.lost]
        verdict = (self.verdict.boot_id, self.verdict.findings) if self.verdict else None
        boots = self.boot_id, self.reported.boot_id
        rows = [row._replace(neighbor=None) for row in self.interfaces]
        return *boots, self.dropped, verdict, *lost, *rows


_ROW: Schema = {
    "interface": matching(_NAME),
    "pci": matching(PCI),
    "port_guid": matching(GUID),
    "node_guid": matching(GUID),
    "counted_gbps": number(MAX_GBPS),
    "neighbor": record(LastNeighbor, dict.fromkeys(LastNeighbor._fields, TEXT)),
}
_LOST_ROW: Schema = {**_ROW, "since": TIME}
_FINDING = record(
    RememberedFinding,
    {"code": matching(CODE), "interface": matching(_INTERFACE), "id": matching(_ID)},
    required=("code", "id"),
)
_REPORT: Schema = {"boot_id": WORD, "time": TIME}


def _parse_findings(rows: Any) -> tuple[RememberedFinding, ...]:
    if not isinstance(rows, list) or len(rows) > MAX_FINDINGS:
        raise ValueError(rows)
    return tuple(_FINDING.parse(row) for row in rows)


_VERDICT: Schema = {
    **_REPORT,
    "findings": Fact(
        _parse_findings, lambda rows: [_FINDING.document(row) for row in rows[:MAX_FINDINGS]]
    ),
    "dropped": COUNT,
}


def interface_facts(facts: Json) -> Json:
    """Return those of a row's facts that can be written; the others are unknown."""
    return read(facts, _ROW)[0]


def interface_document(row: LabeledInterface) -> Json:
    """Return the JSON object of a row, without what is unknown."""
    return written(row._asdict(), _LOST_ROW)


def interface_of(text: str | None) -> str | None:
    """Return the name of an interface as a verdict can remember it; None if it cannot."""
    return text if text and _INTERFACE.fullmatch(text) else None


def render(annotation: Annotation) -> str:
    """Return the annotation as JSON text in ASCII."""
    verdict, dropped = annotation.verdict, annotation.dropped
    document: Json = {"schema": SCHEMA, "agent": annotation.agent}
    document |= _report_document(Report(annotation.time, annotation.boot_id))
    if annotation.partial:
        document["partial"] = _report_document(annotation.partial)
    document["interfaces"] = [interface_document(row) for row in annotation.interfaces]
    if annotation.lost:
        document["lost"] = [interface_document(row) for row in annotation.lost]
    if verdict:
        facts = verdict._asdict() | {"dropped": verdict.dropped or None}
        document["verdict"] = written(facts, _VERDICT)
    return _json(document | ({"dropped": dropped} if dropped else {}))


def _report_document(report: Report) -> Json:
    """Return the JSON object of a report, in which what is unknown is null."""
    return {**dict.fromkeys(_REPORT), **written(report._asdict(), _REPORT)}


def _json(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


def fitted(annotation: Annotation) -> Annotation:
    """Return the annotation without what MAX_BYTES leaves no room for.

    The least severe findings of the verdict go first, then the lost interfaces, then the last of
    the others.
    """
    verdict = annotation.verdict
    bare = verdict and verdict._replace(findings=(), dropped=MAX_BYTES)
    empty = replace(annotation, interfaces=(), lost=(), verdict=bare, dropped=MAX_BYTES)
    room = MAX_BYTES - len(render(empty)) - len(',"lost":[]')
    rows = [interface_document(row) for row in (*annotation.interfaces, *annotation.lost)]
    kept, room = _fitting(rows, room)
    findings, _ = _fitting(map(_FINDING.document, verdict.findings if verdict else ()), room)
    present = len(annotation.interfaces)
    return replace(
        annotation,
        interfaces=annotation.interfaces[:kept],
        lost=annotation.lost[: max(kept - present, 0)],
        verdict=verdict and first(verdict, findings),
        dropped=len(rows) - kept,
    )


def _fitting(rows: Iterable[Json], room: int) -> tuple[int, int]:
    """Return the number of rows that fit into so many bytes, each with its comma, and the rest."""
    kept = 0
    for row in rows:
        size = len(_json(row)) + len(",")
        if size > room:
            break
        kept, room = kept + 1, room - size
    return kept, room


def first(verdict: Remembered, number: int) -> Remembered | None:
    """Return the verdict with its first findings; None if it has some, and keeps none."""
    kept = verdict.findings[:number]
    if verdict.findings and not kept:
        return None
    dropped = verdict.dropped + len(verdict.findings) - len(kept)
    return verdict._replace(findings=kept, dropped=dropped)


def annotation_of(state: State, keys: Keys) -> tuple[Annotation | None, Problem | None]:
    """Return the annotation that a Node carries, or what is wrong with it; see `parse`."""
    return parse(state.fields.get(keys.annotation_field), keys.annotation)


def parse(text: str | None, key: str) -> tuple[Annotation | None, Problem | None]:
    """Parse the annotation `key`.

    Returns (annotation, None), (None, problem) for malformed text, (annotation, problem) if only
    some facts were malformed and dropped, or (None, None) for no text.
    """
    if text is None:
        return None, None
    try:
        found, faults = _parse(text)
    except (Malformed, ValueError, OverflowError, RecursionError) as error:
        return None, _problem(key, f"malformed annotation, ignored: {error}")
    if faults:
        return found, _problem(key, f"malformed facts, ignored: {', '.join(faults)}")
    return found, None


def _problem(key: str, text: str) -> Problem:
    return Problem("node", key, None, visible(text, MAX_PROBLEM))


def _parse(text: str) -> tuple[Annotation, list[str]]:
    """Return the annotation, and the facts that were dropped."""
    if len(text) > MAX_LENGTH:
        raise Malformed(f"{len(text)} characters, at most {MAX_LENGTH} are allowed")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Malformed("not a JSON object")
    schema = document.get("schema")
    if schema != SCHEMA:
        raise Malformed(f"schema {schema!r:.20} instead of {SCHEMA}")
    facts, faults = read(document, {"time": TIME, "boot_id": WORD, "agent": WORD, "dropped": COUNT})
    rows, gone = (
        [] if rows is None else rows for rows in map(document.get, ("interfaces", "lost"))
    )
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES:
        raise Malformed(f"interfaces is not a list of up to {MAX_INTERFACES} rows")
    found = [_parse_row(row, _ROW) for row in rows]
    faults += [f"{name} of {row.interface}" for row, dropped in found for name in dropped]
    if not isinstance(gone, list):
        raise Malformed("lost is not a list")
    if len(gone) > MAX_LOST:
        faults.append(f"{len(gone) - MAX_LOST} of {len(gone)} lost rows")
    lost = [_parse_row(row, _LOST_ROW) for row in gone[:MAX_LOST]]
    faults += [f"{name} of lost {row.interface}" for row, dropped in lost for name in dropped]
    verdict, dropped = _parse_verdict(document.get("verdict"))
    partial, unsaid = _parse_partial(document.get("partial"))
    return Annotation(
        facts.get("time"),
        facts.get("boot_id"),
        tuple({row.interface: row for row, _ in found}.values()),  # the last of each
        facts.get("agent", ""),
        facts.get("dropped", 0),
        tuple({row.identity: row for row, _ in lost}.values()),
        verdict,
        partial,
    ), [*faults, *dropped, *unsaid]


def _parse_row(row: object, schema: Schema) -> tuple[LabeledInterface, list[str]]:
    """Parse a JSON row; returns it and the names of the facts that were dropped.

    Raises Malformed without a valid interface and PCI address.
    """
    document = row if isinstance(row, dict) else {}
    facts, faults = read(document, schema)
    for name in ("interface", "pci"):
        if name in faults:
            raise Malformed(f"{name} is {document[name]!r:.40}")
        if name not in facts:
            raise Malformed("a row of interfaces lacks the interface or its PCI address")
    return LabeledInterface(**facts), faults


def _parse_verdict(value: object) -> tuple[Remembered | None, list[str]]:
    if value is None:
        return None, []
    facts, faults = read(value if isinstance(value, dict) else {}, _VERDICT)
    if not {"boot_id", "findings"} <= facts.keys():
        return None, ["verdict"]
    return Remembered(**{"time": None, **facts}), [f"{name} of verdict" for name in faults]


def _parse_partial(value: object) -> tuple[Report | None, list[str]]:
    if value is None:
        return None, []
    if not isinstance(value, dict):
        return None, ["partial"]
    facts, faults = read(value, _REPORT)
    report = Report(facts.get("time"), facts.get("boot_id"))
    return report, [f"{name} of partial" for name in faults]


def without_future(annotation: Annotation | None, now: float) -> Annotation | None:
    """Return the annotation, in which times after `now` are unknown.

    `now` is in seconds since the epoch, and may be MAX_SKEW too early.
    """
    if annotation is None:
        return None
    verdict, partial = annotation.verdict, annotation.partial
    return replace(
        annotation,
        time=past(annotation.time, now),
        lost=tuple(one._replace(since=past(one.since, now)) for one in annotation.lost),
        verdict=verdict and verdict._replace(time=past(verdict.time, now)),
        partial=partial and partial._replace(time=past(partial.time, now)),
    )


def without_lost(annotation: Annotation, forgotten: Iterable[LabeledInterface]) -> Annotation:
    """Return the annotation without these lost interfaces."""
    gone = {one.identity for one in forgotten}
    return replace(
        annotation, lost=tuple(one for one in annotation.lost if one.identity not in gone)
    )


def lost_in(annotation: Annotation | None) -> frozenset[Identity]:
    """Return the identities of the lost interfaces."""
    return frozenset(one.identity for one in annotation.lost) if annotation else frozenset()


def is_stale(annotation: Annotation | None, now: float, resync: float = RESYNC) -> bool:
    """Return True if the annotation is older than `resync` seconds, from the future or missing.

    `now` is in seconds since the epoch.
    """
    time = annotation.reported.time if annotation else None
    return time is None or not 0 <= now - time < resync
