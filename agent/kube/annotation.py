"""The annotation `P/observed`: time and place of the last full observation.

    {"schema": 3, "agent": "0.4.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "partial": {"boot_id": "...", "time": "2026-11-20T14:34:49Z"},
     "prefixes": ["backend.coreweave.cloud", "ib.coreweave.cloud"],
     "ports": [
        {"interface": "ibp0", "pci": "0000:18:00.0", "port": 1, "netdev": "ibp0",
         "port_guid": "a088c20300abcdef", "node_guid": "a088c20300abcdee", "layer": "InfiniBand",
         "rule": "gpu-affinity", "gbps": 400.0, "via": "sa",
         "far": {"id": "b0cf0e0300d4ee40", "name": "MF0;L90.1.3:MQM9700/U1", "port_id": "3"},
         "bad_link": {"end": "near", "time": "2026-11-20T13:20:00Z"}},
        {"interface": "ibp1", ..., "unread": {"state": 81200, "role": 81200}},
        {"interface": "ibp3", ..., "lost": "2026-11-20T13:30:00Z"},
        ...],
     "unread": {"node": 81200, "domain": 81200, "group": 81200},
     "rules": "2", "others": [{"pci": "0000:5e:00.0", "port": 1, "rule": "front-end"}, ...],
     "gpus": ["0000:1b:00.0", ...], "away": ["0000:1a:00.0", ...],
     "missed": "2026-11-20T13:30:00Z",
     "position": {"chassis": "1823825185529", "slot": 5, "tray": 4, "host": 1},
     "verdict": {"boot_id": "...", "time": "2026-11-22T13:34:49Z", "verdict": "fail",
                 "findings": 9},
     "left_out": 12}

- `time` (RFC 3339, UTC) is that of the last observation in which no source failed and none was
  switched off, and `boot_id` its boot; `partial` has those of the last observation if it was
  another, so that an agent with a failing source is not taken for dead. `uptime` is the last one in
  seconds of CLOCK_BOOTTIME: in one boot it tells the age, whatever the wall clock does.
- `prefixes` are those of the labels that are written.
- `ports` has the rows of the memory (agent/memory.py), `lost` since when the function of a row is
  missing, null at an unknown time. `far` is the last far end, of an `earlier` boot if that is true;
  the labels say whether it is the present far end. `station` is the present far end if that says
  that it is neither Bridge nor Router, so that `far` is the last leaf. `via` is `sa` if it is from
  the subnet administrator, and left out if it was read by SMP or LLDP. What is unknown is left out.
- `bad_link` is the end that the last errors of the link accuse (agent/infiniband/bad_link.py), and
  the time of the reading that told them, for a day.
- `unread` of a port has since when its state and rate, its far end and its role are unread, those
  that are so for a minute; that of the annotation, since when facts are missing that the labels of
  the whole node have, the NVLink domain, and what the leaf group has more than the rows. They are
  seconds of CLOCK_BOOTTIME, of the boot of the last observation.
- `rules` is the rule set by which the ports have their roles, and `others` are those that it took
  out of the backend. Ports of another rule set keep no role. `gpus` are the addresses of the GPUs
  by which it did, missing ones too, and `away` those of missing NICs; `missed` is since when
  anything is missing that they were decided by (agent/sources/steady.py).
- `position` is the platform position that the GPUs told last.
- `verdict` is the last verdict (agent/cabling/verdict.py), so that a restart does not lose it, with
  the number of its findings. It counts for the boot of its `boot_id` only.
- A text of more than MAX_TEXT_BYTES bytes is cut, and ends in `~` and the hash of the whole.
- `left_out` counts the rows that have no room in MAX_BYTES, from the last on. A port that comes
  takes the place of a lost one, so there are about as many rows as a node has ports; 64 fit.
- Schema 2 (0.3) is read (agent/kube/annotation_2.py). 0.3 does not read schema 3: it says so, and
  starts from the labels alone.

Anyone with access to the Node can edit the annotation, so a malformed text is a problem to report
and never an exception. A row without a valid interface or PCI address makes it malformed. Any other
malformed fact is dropped, a far end as a whole. So is a verdict, but for its time: half of it could
pass where the whole fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import agent
from agent import encode
from agent.errors import Malformed
from agent.facts import (
    COUNT,
    MAX_COUNT,
    SECONDS,
    TEXT,
    TIME,
    WORD,
    Kind,
    Schema,
    array,
    matching,
    number,
    past,
    read,
    record,
    shared,
    whole,
    written,
)
from agent.ids import GUID, PCI
from agent.kube.managed_fields import Keys, State
from agent.memory import MAX_LOST, Fact, FarEnd, Identity
from agent.model import PlatformPosition, Problem
from agent.reasons import BadLink, Remembered, Verdict
from agent.text import Json, utc, visible

if TYPE_CHECKING:  # an agent without --tiers does not load it
    from agent.infiniband.fabric_memory import FabricMemory

SCHEMA, FORMER_SCHEMA = 3, 2
RESYNC = 3600.0  # seconds, the greatest age of the annotation of a running agent
MAX_AGE = 2 * RESYNC  # of an annotation that is taken for that of a running agent
MAX_BYTES = 32 * 1024  # of an annotation that is written
MAX_LENGTH = 64 * 1024  # characters of an annotation that is parsed
MAX_PORTS = 576  # rows of an annotation that is parsed
MAX_OTHERS = 64  # ports that a rule took out of the backend; GPUs
MAX_PREFIXES = 8
MAX_PROBLEM = 200  # characters
MAX_GBPS = 10_000.0  # of one interface
MAX_OCTET = 255  # number of a port, slot, tray or host
MAX_TEXT_BYTES = 64  # of a text that is written

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INTERFACE = re.compile(r"[ -~]{1,64}")
_PREFIX = re.compile(r"[!-~]{1,317}")  # a whole label key at most
_LAYER = re.compile("InfiniBand|Ethernet")
_VIA = re.compile("sa")
_BAD_END = re.compile("near|far|cable|cannot-tell")
_SERIAL = re.compile(r"[!-~]([ -~]{0,14}[!-~])?")
_CUT = re.compile(r"~x[0-9a-f]{1,16}\Z")


# Rows have the facts that `ports` has of them: the last far end, and since when parts are unread.
# `lost_since` is 0 at an unknown time.
Interfaces = tuple[Fact, ...]


class OtherPort(NamedTuple):
    """A port that is not the backend's."""

    pci: str
    port: int
    rule: str  # that took it out


class Report(NamedTuple):
    """When an observation was made; None is unknown."""

    time: int | None  # seconds since the epoch
    boot_id: str | None


class Unread(NamedTuple):
    """Since when parts of a port are unread, seconds of CLOCK_BOOTTIME; None: they are read."""

    state: float | None = None  # state and rate
    far: float | None = None  # the far end
    role: float | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    """The contents of the annotation; None is unknown."""

    time: int | None  # of the last full observation, seconds since the epoch
    boot_id: str | None  # the boot of that observation
    interfaces: Interfaces = ()
    agent: str = agent.__version__
    left_out: int = 0  # rows that it has no room for
    lost: Interfaces = ()
    verdict: Remembered | None = None  # of `run`
    partial: Report | None = None  # the last observation; None: it was full
    # Seconds of CLOCK_BOOTTIME, since when facts are unread that are of no row
    unknown_since: int | None = None
    domain_since: int | None = None
    group_since: int | None = None
    prefixes: tuple[str, ...] = ()  # of the labels
    rules: str | None = None  # the rule set that decided the roles
    others: tuple[OtherPort, ...] = ()
    gpus: tuple[str, ...] = ()  # their addresses
    away: tuple[str, ...] = ()  # addresses of missing NICs
    missed: int | None = None  # seconds since the epoch: since when anything is missing
    uptime: int | None = None  # seconds of CLOCK_BOOTTIME: the last observation
    position: PlatformPosition | None = None

    @property
    def reported(self) -> Report:
        """The last observation, full or not."""
        return self.partial or Report(self.time, self.boot_id)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each interface's PCI function."""
        return {row.interface: row.function for row in self.interfaces if row.function}

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts that make a request due if they change.

        A neighbor changes together with labels, or is written with the next hourly request.
        """
        lost = [row.identity for row in self.lost]
        verdict = self.verdict and self.verdict._replace(time=None)
        boots = self.boot_id, self.reported.boot_id
        since = self.unknown_since, self.domain_since, self.group_since
        rows = [
            (
                *row.identity,
                row.node_guid,
                row.gbps,
                row.bad_link and row.bad_link.end,
                *unread(row),
            )
            for row in self.interfaces
        ]
        return *boots, *since, self.left_out, verdict, self.position, *lost, *rows


FAR_END: Schema = dict.fromkeys(("id", "name", "port_id", "port_name"), shared(TEXT))
_UNREAD: Schema = dict.fromkeys(Unread._fields, SECONDS)
_BAD_LINK: Schema = {"end": matching(_BAD_END), "time": TIME}
_OCTET = whole(MAX_OCTET)


def _parse_flag(value: object) -> bool:
    if value is not True:
        raise ValueError(value)
    return True


def _station(*texts: str | None) -> FarEnd:
    return FarEnd._make([*texts, True])


# The facts of a row, in the order in which they are written
_ROW: Schema = {
    "interface": shared(matching(_NAME)),
    "pci": shared(matching(PCI)),
    "port": _OCTET,
    "leg": shared(matching(_INTERFACE)),
    "netdev": shared(matching(_INTERFACE)),
    "port_guid": matching(GUID),
    "node_guid": matching(GUID),
    "layer": shared(matching(_LAYER)),
    "rule": shared(WORD),
    "gbps": number(MAX_GBPS),
    "via": shared(matching(_VIA)),
    "far": record(FarEnd, FAR_END),
    "earlier": Kind(_parse_flag),
    "station": record(_station, FAR_END),
    "unread": record(Unread, _UNREAD),
    "lost": TIME,
    "bad_link": record(BadLink, _BAD_LINK, _BAD_LINK),
}
# Their fields of a Fact, where those have other names
_FIELDS = {
    "pci": "function",
    "far": "last_far",
    "earlier": "is_earlier",
    "lost": "lost_since",
    "station": "far",
}
# The facts that are one JSON value each, and their fields
_MADE = {"far", "earlier", "station", "unread", "lost", "bad_link"}
_PLAIN = [name for name in _ROW if name not in _MADE]
_FACTS: Schema = {_FIELDS.get(name, name): _ROW[name] for name in _PLAIN}
# Where they are in a Fact
_SINCE = Fact._fields.index("state_since")  # the first of three, as Unread has them
_PLACES: dict[str, Any] = {
    name: Fact._fields.index(_FIELDS.get(name, name)) for name in _ROW if name != "unread"
}
_PLACES["unread"] = slice(_SINCE, _SINCE + len(Unread._fields))
_COLUMNS = {name: (_PLACES[name], kind.parse) for name, kind in _ROW.items()}
_UNKNOWN: tuple[Any, ...] = Fact("", None)
# A row in the output of a command: other names
_OUTPUT: Schema = {
    **{name: _ROW[name] for name in ("interface", "pci", "port_guid", "node_guid")},
    "counted_gbps": _ROW["gbps"],
    "neighbor": _ROW["far"],
    "bad_link": _ROW["bad_link"],
}
_OUTPUT_FIELDS = _FIELDS | {"counted_gbps": "gbps", "neighbor": "last_far"}


_REPORT: Schema = {"boot_id": WORD, "time": TIME}
_VERDICT: Schema = {
    **_REPORT,
    "verdict": Kind(lambda value: Verdict(str(value)), str),
    "findings": whole(MAX_COUNT),
}
_OTHER = record(
    OtherPort, {"pci": matching(PCI), "port": _OCTET, "rule": WORD}, ("pci", "port", "rule")
)
_POSITION: Schema = {"chassis": matching(_SERIAL), "slot": _OCTET, "tray": _OCTET, "host": _OCTET}
_NODE_UNREAD: Schema = dict.fromkeys(("node", "domain", "group"), SECONDS)
_HEAD: Schema = {
    "time": TIME,
    "boot_id": WORD,
    "agent": WORD,
    "prefixes": array(matching(_PREFIX), MAX_PREFIXES),
    "rules": WORD,
    "others": array(_OTHER, MAX_OTHERS),
    "gpus": array(matching(PCI), MAX_OTHERS),
    "away": array(matching(PCI), MAX_OTHERS),
    "missed": TIME,
    "uptime": SECONDS,
    "position": record(PlatformPosition, _POSITION, _POSITION),
    "left_out": COUNT,
}


def unread(row: Fact) -> Unread:
    """Return since when the parts of a row are unread."""
    return Unread(row.state_since, row.far_since, row.role_since)


def writable(row: Fact) -> Fact | None:
    """Return the facts of a row that can be written; None if it can have no row."""
    facts, _ = read(row._asdict(), _FACTS)
    if not {"interface", "function"} <= facts.keys():
        return None
    station = row.far if row.far and row.far.is_station else None
    far, last = _writable_end(station), _writable_end(row.last_far)
    kept = Fact(**facts, far=far, last_far=last, lost_since=row.lost_since)
    kept = kept._replace(is_earlier=row.is_earlier and last is not None, bad_link=row.bad_link)
    return kept if row.lost_since is None else kept._replace(gbps=None)


def _writable_end(far: FarEnd | None) -> FarEnd | None:
    facts, _ = read(far._asdict() if far else {}, FAR_END)
    return FarEnd(**facts, is_station=far.is_station) if far and facts else None


def interface_document(row: Fact) -> Json:
    """Return the JSON object of a row in a command's output, without what is unknown."""
    facts = row._asdict()
    return written({name: facts[_OUTPUT_FIELDS.get(name, name)] for name in _OUTPUT}, _OUTPUT)


def render(annotation: Annotation) -> str:
    """Return the annotation as JSON text in ASCII."""
    document = _head_document(annotation)
    document["ports"] = [*map(_row_document, (*annotation.interfaces, *annotation.lost))]
    return _text(document)


def _text(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


def _head_document(annotation: Annotation) -> Json:
    """Return the JSON object of all but the rows, which come last."""
    document: Json = {"schema": SCHEMA, "agent": annotation.agent}
    document |= _report_document(Report(annotation.time, annotation.boot_id))
    if annotation.partial:
        document["partial"] = _report_document(annotation.partial)
    facts = {name: getattr(annotation, name) or None for name in _HEAD if name not in document}
    document |= written(facts, _HEAD)
    times = annotation.unknown_since, annotation.domain_since, annotation.group_since
    if since := written(dict(zip(_NODE_UNREAD, times, strict=True)), _NODE_UNREAD):
        document["unread"] = since
    if annotation.verdict:
        document["verdict"] = written(annotation.verdict._asdict(), _VERDICT)
    return document


def _row_document(row: Fact) -> Json:
    """Return the JSON object of a row, without what is unknown."""
    facts = row._asdict()
    document = written({name: facts[_FIELDS.get(name, name)] for name in _PLAIN}, _ROW)
    for name, far in (("far", row.last_far), ("station", row.far)):
        if far and (name == "far" or far.is_station):
            document[name] = {part: cut(text) for part in FAR_END if (text := getattr(far, part))}
    if row.last_far and row.is_earlier:
        document["earlier"] = True
    if since := written(unread(row)._asdict(), _UNREAD):
        document["unread"] = since
    if row.bad_link:
        document["bad_link"] = _ROW["bad_link"].document(row.bad_link)
    if row.lost_since is not None:
        document["lost"] = utc(row.lost_since) if row.lost_since else None
    return document


def cut(text: str | None) -> str | None:
    """Return a text of at most MAX_TEXT_BYTES bytes."""
    if text is None or len(text.encode()) <= MAX_TEXT_BYTES:
        return text
    hashed = f"~{encode.hashed(text)}"
    return text.encode()[: MAX_TEXT_BYTES - len(hashed)].decode(errors="ignore") + hashed


def is_cut(text: str | None) -> bool:
    """Return True if a text that was read may have been cut."""
    return text is not None and _CUT.search(text) is not None


def _report_document(report: Report) -> Json:
    """Return the JSON object of a report, in which what is unknown is null."""
    return {**dict.fromkeys(_REPORT), **written(report._asdict(), _REPORT)}


def fitted(annotation: Annotation) -> Annotation:
    """Return the annotation without the last rows that MAX_BYTES leaves no room for."""
    if len(render(annotation)) <= MAX_BYTES:
        return annotation
    rows = (*annotation.interfaces, *annotation.lost)
    # The number of all rows is as long as any.
    head = _head_document(replace(annotation, left_out=len(rows))) | {"ports": []}
    room, kept = MAX_BYTES - len(_text(head)), 0
    for row in rows:
        room -= len(_text(_row_document(row))) + 1
        if room < 0:
            break
        kept += 1
    present = len(annotation.interfaces)
    return replace(
        annotation,
        interfaces=annotation.interfaces[:kept],
        lost=annotation.lost[: max(kept - present, 0)],
        left_out=len(rows) - kept,
    )


def annotation_of(state: State, keys: Keys) -> tuple[Annotation | None, Problem | None]:
    """Return the annotation that a Node carries, or what is wrong with it; see `parse`."""
    return parse(state.fields.get(keys.annotation_field), keys.annotation)


def fabric_of(state: State, keys: Keys) -> tuple[FabricMemory | None, Problem | None]:
    """Return what a Node's annotation has of the switches above, or what is wrong with it."""
    text = state.fields.get(keys.fabric_field)
    if text is None:
        return None, None
    from agent.infiniband.fabric_memory import read as read_memory

    try:
        return read_memory(text), None
    except Malformed as error:
        return None, _problem(keys.fabric_field.key, f"malformed annotation, ignored: {error}")


def fabric_text(memory: FabricMemory) -> str:
    """Return the text of the annotation that `fabric_of` reads."""
    from agent.infiniband.fabric_memory import text

    return text(memory)


def parse(text: str | None, key: str) -> tuple[Annotation | None, Problem | None]:
    """Parse the annotation `key`.

    Returns (annotation, None), (None, problem) for malformed text, (annotation, problem) if only
    some facts were malformed and dropped, or (None, None) for no text.
    """
    if text is None:
        return None, None
    try:
        annotation, faults = _parse(text)
    except (Malformed, ValueError, OverflowError, RecursionError) as error:
        return None, _problem(key, f"malformed annotation, ignored: {error}")
    if faults:
        return annotation, _problem(key, f"malformed facts, ignored: {', '.join(faults)}")
    return annotation, None


def reported_time(text: str) -> int | None:
    """Return the time of the last observation by an annotation of any schema; None: unknown."""
    try:
        document = json.loads(text[: MAX_LENGTH + 1])
        reports = [read(fields, _REPORT)[0] for fields in (document.get("partial") or {}, document)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return next((report["time"] for report in reports if "time" in report), None)


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
    if schema == FORMER_SCHEMA:
        from agent.kube import annotation_2  # once, at an upgrade

        document = annotation_2.upgraded(document)
    elif schema != SCHEMA:
        raise Malformed(f"schema {schema!r:.20} instead of {SCHEMA}")
    facts, faults = read(document, _HEAD)
    rows = _parse_rows(document.get("ports") or [], faults)
    lost = [row for row in rows if row.lost_since is not None]
    if len(lost) > MAX_LOST:
        faults.append(f"{len(lost) - MAX_LOST} of {len(lost)} lost rows")
    part = partial(_parse_part, document, faults)
    verdict = part("verdict", _VERDICT, {"boot_id", "verdict"})
    report, since = part("partial", _REPORT), part("unread", _NODE_UNREAD) or {}
    unknown = {"time": None, "boot_id": None}
    annotation = Annotation(
        # the last row of each
        interfaces=tuple({row.interface: row for row in rows if row.lost_since is None}.values()),
        lost=tuple({row.identity: row for row in lost[:MAX_LOST]}.values()),
        verdict=Remembered(**{"time": None, **verdict}) if verdict else None,
        partial=None if report is None else Report(**{**unknown, **report}),
        unknown_since=since.get("node"),
        domain_since=since.get("domain"),
        group_since=since.get("group"),
        **{**unknown, "agent": "", **facts},
    )
    return annotation, faults


def _parse_rows(rows: object, faults: list[str]) -> list[Fact]:
    """Return the rows; adds the facts of them that were dropped to `faults`.

    Raises Malformed for a row without a valid interface and PCI address.
    """
    if not isinstance(rows, list) or len(rows) > MAX_PORTS:
        raise Malformed(f"ports is not a list of up to {MAX_PORTS} rows")
    parsed = []
    for row in rows:
        document = row if isinstance(row, dict) else {}
        fact, dropped = _parse_row(document)
        if not (fact.interface and fact.function):
            name = "pci" if fact.interface else "interface"
            if name in dropped:
                raise Malformed(f"{name} is {document[name]!r:.40}")
            raise Malformed("a row of ports lacks the interface or its PCI address")
        if dropped:
            of_row = f"{'lost ' * ('lost' in document)}{fact.interface}"
            faults += [f"{name} of {of_row}" for name in dropped]
        parsed.append(fact)
    return parsed


def _parse_row(document: Json) -> tuple[Fact, list[str]]:
    """Return the row, and the names of the malformed facts, which are unknown in it."""
    values, dropped = [*_UNKNOWN], []
    for name, value in document.items():
        if value is not None and (column := _COLUMNS.get(name)):
            place, parse = column
            try:
                values[place] = parse(value)
            except (ValueError, TypeError, OverflowError):
                dropped.append(name)
    row = Fact._make(values)
    if "lost" in document and row.lost_since is None:
        row = row._replace(lost_since=0)
    return row, dropped


def _parse_part(
    document: Json, faults: list[str], name: str, schema: Schema, required: Collection[str] = ()
) -> Json | None:
    """Return the facts of an object of the annotation; adds those that were dropped to `faults`.

    It is dropped as a whole if a required fact is missing.
    """
    value = document.get(name)
    if value is None:
        return None
    facts, dropped = read(value, schema) if isinstance(value, dict) else ({}, [])
    if not isinstance(value, dict) or not {*required} <= facts.keys():
        faults.append(name)
        return None
    faults += [f"{fault} of {name}" for fault in dropped]
    return facts


def without_future(annotation: Annotation | None, now: float) -> Annotation | None:
    """Return the annotation, in which times after `now` are unknown.

    `now` is in seconds since the epoch, and may be MAX_SKEW too early.
    """
    if annotation is None:
        return None
    verdict, partial = annotation.verdict, annotation.partial
    has_bad_links = any(row.bad_link for row in annotation.interfaces)
    if past(annotation.time, now) == annotation.time and not (
        annotation.lost or verdict or partial or has_bad_links
    ):
        return annotation
    return replace(
        annotation,
        time=past(annotation.time, now),
        interfaces=tuple(
            row._replace(bad_link=row.bad_link if past(row.bad_link.time, now) else None)
            if row.bad_link
            else row
            for row in annotation.interfaces
        ),
        lost=tuple(
            row._replace(lost_since=past(row.lost_since, now) or 0) for row in annotation.lost
        ),
        verdict=verdict and verdict._replace(time=past(verdict.time, now)),
        partial=partial and partial._replace(time=past(partial.time, now)),
    )


def without_lost(annotation: Annotation, forgotten: Iterable[Fact]) -> Annotation:
    """Return the annotation without these lost interfaces."""
    gone = {row.identity for row in forgotten}
    return replace(
        annotation, lost=tuple(row for row in annotation.lost if row.identity not in gone)
    )


def lost_in(annotation: Annotation | None) -> frozenset[Identity]:
    """Return the identities of the lost interfaces."""
    return frozenset(row.identity for row in annotation.lost) if annotation else frozenset()


def is_stale(annotation: Annotation | None, now: float) -> bool:
    """Return True if the annotation is older than RESYNC, from the future or missing.

    `now` is in seconds since the epoch.
    """
    time = annotation.reported.time if annotation else None
    return time is None or not 0 <= now - time < RESYNC
