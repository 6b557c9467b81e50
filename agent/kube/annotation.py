"""The annotation `P/observed`: time and place of the last full observation.

    {"schema": 1, "agent": "0.1.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "partial": {"boot_id": "...", "time": "2026-11-20T14:34:49Z"},
     "interfaces": [{"interface": "ibp0", "pci": "0000:18:00.0", ...}, ...],
     "lost": [{"interface": "ibp3", ..., "since": "2026-11-20T13:30:00Z"}],
     "verdict": {"boot_id": "...", "findings": [...]}, "dropped": 2}

`time` (RFC 3339, UTC) is that of the last observation in which no source failed and none was
switched off, and `boot_id` its boot; `partial` has those of the last observation if it was another
one, so that an agent with a failing source is not taken for a dead one. agent/kube/interfaces.py
has the rows of `interfaces`, and of `lost` those that left the bus, if there are any;
agent/kube/remembered.py has `verdict`, if there is one. `dropped` is the number of rows for which
the annotation has no room. The PCI addresses tell an interface that was renamed by a reboot from
one that is gone. Anyone with access to the Node can edit the annotation, so a malformed one is a
problem to report and never an exception. A malformed `time`, `since`, `boot_id`, `partial`, `agent`
or `verdict` is unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import agent
from agent.errors import Malformed
from agent.kube import interfaces, remembered
from agent.kube.facts import count, is_word, optional, parse_time, parse_word, past
from agent.kube.interfaces import LostInterface
from agent.labels.counts import LastCount, Published
from agent.model import Failed, Problem
from agent.sources import NAMES
from agent.text import utc, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.interfaces import Identity, Interfaces, Lost
    from agent.kube.managed_fields import Keys, State
    from agent.kube.remembered import Remembered
    from agent.model import Observation

    Json = dict[str, Any]
    Parsed = tuple["Annotation | None", Problem | None]

SCHEMA = 1
RESYNC = 3600.0  # seconds, the greatest age of the annotation of a running agent
MAX_AGE = 2 * RESYNC  # of an annotation that is taken for that of a running agent
MAX_BYTES = 16 * 1024  # of an annotation that is written
MAX_LENGTH = 64 * 1024  # characters of an annotation that is parsed
MAX_INTERFACES = 512  # of an annotation that is parsed
MAX_LOST = 64  # lost interfaces that are read and kept; no node has more ports
MAX_PROBLEM = 200  # characters


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
    lost: Lost = ()
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
        verdict = self.verdict.facts if self.verdict else None
        boots = self.boot_id, self.reported.boot_id
        return *boots, self.dropped, verdict, *lost, *(row[:-1] for row in self.interfaces)


_NEVER = Annotation(None, None)  # no observation yet


def annotate(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None = None
) -> Annotation:
    """Return the annotation for these labels, of any size.

    Time, boot ID, verdict and the facts of interfaces that cannot be read now come from `previous`.
    """
    previous = previous or _NEVER
    known = {keys.interface(key) for key in labels} | {*observation.unbound}
    rows = interfaces.rows(observation, known, previous.interfaces)
    lost = interfaces.lost_rows(observation, previous.interfaces, previous.lost)
    gone = {one.identity for one in lost}
    last, partial = _reports(observation, previous)
    kept = tuple(row for row in rows if row[:3] not in gone)
    return Annotation(*last, kept, lost=lost, verdict=previous.verdict, partial=partial)


def fitted(annotation: Annotation) -> Annotation:
    """Return the annotation without what MAX_BYTES leaves no room for.

    The least severe findings of the verdict go first, then the lost interfaces, then the last of
    the others.
    """
    verdict = annotation.verdict
    bare = verdict and verdict._replace(findings=(), dropped=MAX_BYTES)
    empty = replace(annotation, interfaces=(), lost=(), verdict=bare, dropped=MAX_BYTES)
    room = MAX_BYTES - len(render(empty)) - len(',"lost":[]')
    rows = [interfaces.document(row) for row in annotation.interfaces]
    rows += map(_lost_document, annotation.lost)
    kept, room = _fitting(rows, room)
    findings, _ = _fitting(map(remembered.row_document, verdict.findings if verdict else ()), room)
    present = len(annotation.interfaces)
    return replace(
        annotation,
        interfaces=annotation.interfaces[:kept],
        lost=annotation.lost[: max(kept - present, 0)],
        verdict=verdict and remembered.first(verdict, findings),
        dropped=len(rows) - kept,
    )


def without_lost(annotation: Annotation, forgotten: Iterable[LostInterface]) -> Annotation:
    """Return the annotation without these lost interfaces."""
    gone = {one.identity for one in forgotten}
    return replace(
        annotation, lost=tuple(one for one in annotation.lost if one.identity not in gone)
    )


def lost_in(annotation: Annotation | None) -> frozenset[Identity]:
    """Return the identities of the lost interfaces."""
    return frozenset(one.identity for one in annotation.lost) if annotation else frozenset()


def _fitting(rows: Iterable[Json], room: int) -> tuple[int, int]:
    """Return the number of rows that fit into so many bytes, each with its comma, and the rest."""
    kept = 0
    for row in rows:
        size = len(_json(row)) + len(",")
        if size > room:
            break
        kept, room = kept + 1, room - size
    return kept, room


def _reports(observation: Observation, previous: Annotation) -> tuple[Report, Report | None]:
    """Return the last full observation, and this one unless it is the same."""
    boot_id = observation.boot_id
    now = Report(int(observation.time), boot_id if is_word(boot_id) else None)
    return (now, None) if _is_full(observation) else (Report(previous.time, previous.boot_id), now)


def _is_full(observation: Observation) -> bool:
    """Return True if no source failed and none is switched off."""
    outcomes = [getattr(observation, name) for name in NAMES]
    return not observation.off and not any(isinstance(outcome, Failed) for outcome in outcomes)


def render(annotation: Annotation) -> str:
    """Return the annotation as JSON text in ASCII."""
    return _json(_document(annotation))


def _json(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


def _document(annotation: Annotation) -> Json:
    return {
        "schema": SCHEMA,
        "agent": annotation.agent,
        "boot_id": annotation.boot_id,
        "time": None if annotation.time is None else utc(annotation.time),
        **({"partial": _report_document(annotation.partial)} if annotation.partial else {}),
        "interfaces": [interfaces.document(row) for row in annotation.interfaces],
        **({"lost": [*map(_lost_document, annotation.lost)]} if annotation.lost else {}),
        **({"verdict": remembered.document(annotation.verdict)} if annotation.verdict else {}),
        **({"dropped": annotation.dropped} if annotation.dropped else {}),
    }


def _report_document(report: Report) -> Json:
    time = None if report.time is None else utc(report.time)
    return {"boot_id": report.boot_id, "time": time}


def _lost_document(lost: LostInterface) -> Json:
    since = {} if lost.since is None else {"since": utc(lost.since)}
    return {**interfaces.document(lost.row), **since}


def published_counts(
    annotation: Annotation | None, labels: Mapping[str, str], keys: Keys
) -> Published | None:
    """Return what the interfaces counted last, by the annotation; None if it does not have that."""
    rows = annotation.interfaces if annotation else ()
    last = {
        row.interface: LastCount(row.counted_gbps, row.pci)
        for row in rows
        if row.counted_gbps is not None
    }
    if annotation is None or not last:
        return None
    return Published(last, annotation.boot_id, labels.get(keys.speed), keys.annotation)


def annotation_of(state: State, keys: Keys) -> Parsed:
    """Return the annotation that a Node carries, or what is wrong with it; see `parse`."""
    return parse(state.fields.get(keys.annotation_field), keys.annotation)


def without_future(annotation: Annotation | None, now: float) -> Annotation | None:
    """Return the annotation, in which times after `now` are unknown.

    `now` is in seconds since the epoch, and may be MAX_SKEW too early.
    """
    if annotation is None:
        return None
    lost = tuple(one._replace(since=past(one.since, now)) for one in annotation.lost)
    verdict = annotation.verdict and annotation.verdict.without_future(now)
    partial = annotation.partial
    if partial:
        partial = partial._replace(time=past(partial.time, now))
    known = past(annotation.time, now)
    return replace(annotation, time=known, lost=lost, verdict=verdict, partial=partial)


def is_stale(annotation: Annotation | None, now: float, resync: float = RESYNC) -> bool:
    """Return True if the annotation is older than `resync` seconds, from the future or missing.

    `now` is in seconds since the epoch.
    """
    time = annotation.reported.time if annotation else None
    return time is None or not 0 <= now - time < resync


def parse(text: str | None, key: str) -> Parsed:
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
    document = _parse_document(text)
    time, untimely = optional(document, "time", parse_time)
    boot_id, unknown = optional(document, "boot_id", parse_word)
    version, unnamed = optional(document, "agent", parse_word)
    rows, faults = _parse_interfaces(document.get("interfaces"))
    lost, more = _parse_lost(document.get("lost"))
    verdict, undone = remembered.parse(document.get("verdict"))
    partial, unsaid = _parse_partial(document.get("partial"))
    dropped = count(document, "dropped")
    found = Annotation(time, boot_id, rows, version or "", dropped, lost, verdict, partial)
    return found, [*untimely, *unknown, *unnamed, *faults, *more, *undone, *unsaid]


def _parse_partial(value: object) -> tuple[Report | None, list[str]]:
    """Return the last observation if it was not full, and the facts that were dropped."""
    if value is None:
        return None, []
    if not isinstance(value, dict):
        return None, ["partial"]
    time, untimely = optional(value, "time", parse_time)
    boot_id, unknown = optional(value, "boot_id", parse_word)
    return Report(time, boot_id), [f"{name} of partial" for name in (*untimely, *unknown)]


def _parse_document(text: str) -> Json:
    """Return the JSON object; raises Malformed for another schema."""
    document = _json_object(text)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise Malformed(f"schema {schema!r:.20} instead of {SCHEMA}")
    return document


def _json_object(text: str) -> Json:
    if len(text) > MAX_LENGTH:
        raise Malformed(f"{len(text)} characters, at most {MAX_LENGTH} are allowed")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Malformed("not a JSON object")
    return document


def _parse_interfaces(rows: object) -> tuple[Interfaces, list[str]]:
    """Return the rows, the last of each interface, and the facts that were dropped."""
    if rows is None:
        return (), []
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES:
        raise Malformed(f"interfaces is not a list of up to {MAX_INTERFACES} rows")
    parsed = [interfaces.parse(row) for row in rows]
    faults = [f"{name} of {row.interface}" for row, dropped in parsed for name in dropped]
    return tuple({row.interface: row for row, _ in parsed}.values()), faults


def _parse_lost(rows: object) -> tuple[Lost, list[str]]:
    """Return the first rows of lost interfaces, the last of each, and what was dropped."""
    if rows is None:
        return (), []
    if not isinstance(rows, list):
        raise Malformed("lost is not a list")
    more = len(rows) - MAX_LOST
    faults = [f"{more} of {len(rows)} lost rows"] if more > 0 else []
    found: dict[Identity, LostInterface] = {}
    for one in rows[:MAX_LOST]:
        row, dropped = interfaces.parse(one)
        since, untimely = optional(one, "since", parse_time)
        found[row[:3]] = LostInterface(row, since)
        faults += [f"{name} of lost {row.interface}" for name in (*dropped, *untimely)]
    return tuple(found.values()), faults
