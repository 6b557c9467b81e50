"""The annotation `P/observed`: time and place of the last full observation.

    {"schema": 2, "agent": "0.3.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "partial": {"boot_id": "...", "time": "2026-11-20T14:34:49Z"},
     "switches": [["b0cf0e0300d4ee40", "MF0;L90.1.3:MQM9700/U1"], ...],
     "ports": [
        {"interface": "ibp0", "pci": "0000:18:00.0", "port_guid": "a088c20300abcdef",
         "layer": "ib", "rule": "near-gpu", "gbps": 400.0, "via": "sa", "far": [0, "3"]},
        {"interface": "ibp1", ..., "unread": [81200, null, 81200]},
        {"interface": "ibp3", ..., "lost": "2026-11-20T13:30:00Z"},
        ...],
     "texts_since": 81200, "domain_since": 81200, "group_since": 81200,
     "rules": "1", "others": [["0000:5e:00.0", 1, "front-end"], ...],
     "gpus": ["0000:1b:00.0", ...], "away": ["0000:1a:00.0", ...],
     "verdict": {"boot_id": "...", "time": "2026-11-22T13:34:49Z",
                 "findings": [{"code": "swapped", "interface": "ibp3", "id": "0f3c..."}, ...],
                 "dropped": 9},
     "dropped": 2}

- `time` (RFC 3339, UTC) is that of the last observation in which no source failed and none was
  switched off, and `boot_id` its boot; `partial` has those of the last observation if it was
  another one, so that an agent with a failing source is not taken for a dead one.
- `ports` has the rows of the memory (agent/memory.py), `lost` since when the function of one is
  missing. `far` is the last far end: its index in `switches`, the ID of its port, and the name of
  that; the labels say whether it is the present one. `station` is the present far end if that says
  that it is neither Bridge nor Router, so that `far` is the last leaf. `via` is `sa` if it is from
  the subnet administrator, and left out if it was read by SMP or LLDP. A port number is left out if
  it is 1, a netdev if it is the interface, a node GUID if it is that of the port; null is unknown.
- `unread` has since when state and rate, the far end and the role of a port are unread, those that
  are so for a minute; `texts_since`, since when facts are unknown that the labels of the whole node
  have; `domain_since`, the NVLink domain; `group_since`, what the leaf group has more than the
  rows. They are seconds of CLOCK_BOOTTIME, of the boot of the last observation.
- `rules` is the rule set by which the ports have their roles, and `others` are those that it took
  out of the backend: address, number and rule. Ports of another rule set keep no role. `gpus` are
  the addresses of the GPUs by which it did, missing ones too, and `away` those of missing NICs
  (agent/sources/steady.py).
- A text of more than MAX_TEXT_BYTES bytes is cut, and ends in `~` and the hash of the whole.
- `verdict` is the last one (agent/verify/verdict.py), so that a restart does not lose it. It counts
  for the boot of its `boot_id` only. Its findings are those reported, the most severe first;
  `dropped` is the number of the others: more than MAX_FINDINGS, or without room.
- `dropped` is the number of rows for which the annotation has no room: least severe findings go
  first, then lost ports, then the last of the others. 64 ports of InfiniBand fit.
- Schema 1 (0.1 and 0.2) is read; it has `interfaces` and `lost` with a `neighbor` each. 0.2 does
  not read schema 2: it says so, and starts from the labels alone.

Anyone with access to the Node can edit the annotation, so a malformed one is a problem to report
and never an exception. A row without a valid interface or PCI address makes it malformed. Any other
malformed fact is dropped, a far end as a whole. So is a verdict, but for its times: half of it
could pass where the whole fails. For the same reason it is not written if its most severe finding
has no room.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import agent
from agent.errors import Malformed
from agent.ids import CODE, GUID, PCI
from agent.kube.facts import (
    COUNT,
    SECONDS,
    TEXT,
    TIME,
    WORD,
    Json,
    Kind,
    Schema,
    array,
    matching,
    number,
    past,
    read,
    record,
    written,
)
from agent.kube.managed_fields import Keys, State
from agent.labels import encode
from agent.memory import MAX_LOST, Fact, FarEnd, Identity
from agent.model import Problem
from agent.text import utc, visible

SCHEMA = 2
RESYNC = 3600.0  # seconds, the greatest age of the annotation of a running agent
MAX_AGE = 2 * RESYNC  # of an annotation that is taken for that of a running agent
MAX_BYTES = 16 * 1024  # of an annotation that is written
MAX_LENGTH = 64 * 1024  # characters of an annotation that is parsed
MAX_INTERFACES = 512  # of an annotation that is parsed
MAX_OTHERS = 64  # ports that a rule took out of the backend; GPUs
MAX_FINDINGS = 64
MAX_PROBLEM = 200  # characters
MAX_GBPS = 10_000.0  # of one interface
MAX_PORT = 255  # number of a port
MAX_TEXT_BYTES = 64  # of a text that is written

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INTERFACE = re.compile(r"[ -~]{1,64}")
_ID = re.compile(r"[0-9a-f]{1,64}")
_VIA = re.compile("sa")
_CUT = re.compile(r"~x[0-9a-f]{1,16}\Z")


# Rows have the facts that `ports` has of them: the last far end, and since when parts are unread.
# `lost_since` is 0 at an unknown time.
Interfaces = tuple[Fact, ...]


class OtherPort(NamedTuple):
    """A port that is not the backend's."""

    pci: str
    port: int
    rule: str  # that took it out


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
    # Seconds of CLOCK_BOOTTIME, since when facts are unread that are of no row
    texts_since: int | None = None
    domain_since: int | None = None
    group_since: int | None = None
    rules: str | None = None  # the rule set that decided the roles
    others: tuple[OtherPort, ...] = ()
    gpus: tuple[str, ...] = ()  # their addresses
    away: tuple[str, ...] = ()  # addresses of missing NICs

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
        lost = [one.identity for one in self.lost]
        verdict = (self.verdict.boot_id, self.verdict.findings) if self.verdict else None
        boots = self.boot_id, self.reported.boot_id
        since = self.texts_since, self.domain_since, self.group_since
        rows = [(*row.identity, row.node_guid, row.gbps, *_unread(row)) for row in self.interfaces]
        return *boots, *since, self.dropped, verdict, *lost, *rows


FAR_END: Schema = dict.fromkeys(("id", "name", "port_id", "port_name"), TEXT)
_ROW: Schema = {
    "interface": matching(_NAME),
    "pci": matching(PCI),
    "port_guid": matching(GUID),
    "node_guid": matching(GUID),
    "counted_gbps": number(MAX_GBPS),
    "neighbor": record(FarEnd, FAR_END),
}
_LOST_ROW: Schema = {**_ROW, "since": TIME}
_LAYERS = {"ib": "InfiniBand", "eth": "Ethernet"}


def _parse_layer(value: object) -> str:
    if value not in _LAYERS:
        raise ValueError(value)
    return _LAYERS[str(value)]


# The fields of a row in schema 2, in the order in which they are written; `far` and `lost` follow.
_PORT: Schema = {
    "interface": matching(_NAME),
    "pci": matching(PCI),
    "port": Kind(lambda value: int(number(MAX_PORT).parse(value))),
    "leg": matching(_INTERFACE),
    "netdev": matching(_INTERFACE),
    "port_guid": matching(GUID),
    "node_guid": matching(GUID),
    "layer": Kind(_parse_layer, lambda layer: "ib" if layer == "InfiniBand" else "eth"),
    "rule": WORD,
    "gbps": number(MAX_GBPS),
    "via": matching(_VIA),
}
# Their fields of a row, where those have other names
_FIELDS = {
    "pci": "function",
    "counted_gbps": "gbps",
    "neighbor": "last_far",
    "far": "last_far",
    "since": "lost_since",
    "lost": "lost_since",
    "station": "far",
}
# Those that can be written of a row
_FACTS: Schema = {
    **{_FIELDS.get(name, name): kind for name, kind in _PORT.items()},
    "layer": matching(re.compile("|".join(_LAYERS.values()))),
}
_STATION = record(FarEnd, FAR_END)
_UNREAD = ("state_since", "far_since", "role_since")
_FINDING = record(
    RememberedFinding,
    {"code": matching(CODE), "interface": matching(_INTERFACE), "id": matching(_ID)},
    required=("code", "id"),
)
_REPORT: Schema = {"boot_id": WORD, "time": TIME}
_VERDICT: Schema = {**_REPORT, "findings": array(_FINDING, MAX_FINDINGS), "dropped": COUNT}


def _parse_other(row: Any) -> OtherPort:
    facts = (matching(PCI), _PORT["port"], WORD)
    return OtherPort(*(fact.parse(value) for fact, value in zip(facts, row, strict=True)))


# Facts of the whole node, after the rows
_NODE: Schema = {
    "texts_since": SECONDS,
    "domain_since": SECONDS,
    "group_since": SECONDS,
    "rules": WORD,
    "others": array(Kind(_parse_other), MAX_OTHERS),
    "gpus": array(matching(PCI), MAX_OTHERS),
    "away": array(matching(PCI), MAX_OTHERS),
}
_HEAD: Schema = {"time": TIME, "boot_id": WORD, "agent": WORD, "dropped": COUNT, **_NODE}


def writable(row: Fact) -> Fact | None:
    """Return the facts of a row that can be written; None if it can have no row."""
    facts, _ = read(row._asdict(), _FACTS)
    if not {"interface", "function"} <= facts.keys():
        return None
    station = row.far if row.far and row.far.is_station else None
    far, last = _writable_end(station), _writable_end(row.last_far)
    found = Fact(**facts, far=far, last_far=last, lost_since=row.lost_since)
    return found if row.lost_since is None else found._replace(gbps=None)


def _writable_end(far: FarEnd | None) -> FarEnd | None:
    facts, _ = read(far._asdict() if far else {}, FAR_END)
    return FarEnd(**facts, is_station=far.is_station) if far and facts else None


def interface_document(row: Fact) -> Json:
    """Return the JSON object of a row in a command's output, without what is unknown."""
    return _document(row, _ROW)


def _document(row: Fact, schema: Schema) -> Json:
    facts = row._asdict()
    return written({name: facts[_FIELDS.get(name, name)] for name in schema}, schema)


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
    switches: dict[tuple[str | None, str | None], int] = {}
    rows = (*annotation.interfaces, *annotation.lost)
    ports = [_port_document(row, switches) for row in rows]
    if switches:
        document["switches"] = list(switches)
    document["ports"] = ports
    of_node = {name: getattr(annotation, name) for name in _NODE}
    document |= written({name: value for name, value in of_node.items() if value != ()}, _NODE)
    if verdict:
        facts = verdict._asdict() | {"dropped": verdict.dropped or None}
        document["verdict"] = written(facts, _VERDICT)
    document |= {"dropped": dropped} if dropped else {}
    return json.dumps(document, separators=(",", ":"))


def _port_document(row: Fact, switches: dict[tuple[str | None, str | None], int]) -> Json:
    """Return the JSON object of a row; its switch is added to the table."""
    facts, document = row._asdict(), _document(row, _PORT)
    for name, default in _defaults(row.interface, row.port_guid).items():
        if facts[name] == default:
            document.pop(name, None)
        elif facts[name] is None:
            document[name] = None
    if far := row.last_far:
        node = cut(far.id), cut(far.name)
        ends = [switches.setdefault(node, len(switches)), cut(far.port_id), cut(far.port_name)]
        while ends[-1] is None:
            ends.pop()
        document["far"] = ends
    if row.far and row.far.is_station:
        facts = row.far._asdict()
        document["station"] = {name: cut(facts[name]) for name in FAR_END if facts[name]}
    if any(since is not None for since in _unread(row)):
        document["unread"] = _unread(row)
    if row.lost_since is not None:
        document["lost"] = utc(row.lost_since) if row.lost_since else None
    return document


def _unread(row: Fact) -> tuple[float | None, ...]:
    return row.state_since, row.far_since, row.role_since


def _defaults(interface: str, port_guid: str | None) -> Json:
    """Return the facts of a row that are left out if they are these."""
    return {"port": 1, "netdev": interface, "node_guid": port_guid}


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
    """Return the annotation without what MAX_BYTES leaves no room for.

    The least severe findings of the verdict go first, then the lost interfaces, then the last of
    the others.
    """
    if len(render(annotation)) <= MAX_BYTES:
        return annotation
    verdict, present = annotation.verdict, len(annotation.interfaces)
    total = present + len(annotation.lost)
    bare = verdict and verdict._replace(findings=(), dropped=MAX_BYTES)

    def with_rows(kept: int) -> Annotation:
        return replace(
            annotation,
            interfaces=annotation.interfaces[:kept],
            lost=annotation.lost[: max(kept - present, 0)],
            verdict=bare,
            dropped=total - kept,
        )

    rows = with_rows(_most(total, with_rows))
    if not verdict:
        return rows

    def with_findings(kept: int) -> Annotation:
        return replace(rows, verdict=first(verdict, kept))

    return with_findings(_most(len(verdict.findings), with_findings))


def _most(total: int, with_first: Callable[[int], Annotation]) -> int:
    """Return the most of `total` parts, the first ones, with which the annotation fits."""
    return bisect_right(
        range(1, total + 1), MAX_BYTES, key=lambda kept: len(render(with_first(kept)))
    )


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
    if schema not in (1, SCHEMA):
        raise Malformed(f"schema {schema!r:.20} instead of {SCHEMA}")
    facts, faults = read(document, _HEAD)
    found, lost, more = (_parse_interfaces if schema == 1 else _parse_ports)(document)
    verdict, dropped = _parse_report(document, "verdict", _VERDICT, {"boot_id", "findings"})
    partial, unsaid = _parse_report(document, "partial", _REPORT)
    return Annotation(
        interfaces=tuple({row.interface: row for row in found}.values()),  # the last of each
        lost=tuple({row.identity: row for row in lost}.values()),
        verdict=Remembered(**verdict) if verdict else None,
        partial=Report(**partial) if partial else None,
        **{"time": None, "boot_id": None, "agent": "", **facts},
    ), [*faults, *more, *dropped, *unsaid]


Rows = tuple[list[Fact], list[Fact], list[str]]  # here, lost, faults


def _parse_interfaces(document: Json) -> Rows:
    """Parse the rows of schema 1."""
    rows, gone = (
        [] if rows is None else rows for rows in map(document.get, ("interfaces", "lost"))
    )
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES:
        raise Malformed(f"interfaces is not a list of up to {MAX_INTERFACES} rows")
    found = [_parse_row(row, _ROW) for row in rows]
    faults = [f"{name} of {row.interface}" for row, dropped in found for name in dropped]
    if not isinstance(gone, list):
        raise Malformed("lost is not a list")
    if len(gone) > MAX_LOST:
        faults.append(f"{len(gone) - MAX_LOST} of {len(gone)} lost rows")
    lost = [_parse_row(row, _LOST_ROW) for row in gone[:MAX_LOST]]
    faults += [f"{name} of lost {row.interface}" for row, dropped in lost for name in dropped]
    return [row for row, _ in found], [row for row, _ in lost], faults


def _parse_ports(document: Json) -> Rows:
    """Parse the rows of schema 2."""
    rows, switches = document.get("ports") or [], document.get("switches")
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES + MAX_LOST:
        raise Malformed(f"ports is not a list of up to {MAX_INTERFACES + MAX_LOST} rows")
    table = switches if isinstance(switches, list) else []
    far, unread = Kind(lambda value: _parse_far(value, table)), Kind(_parse_unread)
    schema: Schema = {
        **_PORT,
        "far": far,
        "station": Kind(_parse_station),
        "unread": unread,
        "lost": TIME,
    }
    found: list[Fact] = []
    lost: list[Fact] = []
    faults = []
    for row in rows:
        port, dropped = _parse_row(row, schema)
        is_lost = port.lost_since is not None
        faults += [f"{name} of {'lost ' * is_lost}{port.interface}" for name in dropped]
        (lost if is_lost else found).append(port)
    if len(lost) > MAX_LOST:
        faults.append(f"{len(lost) - MAX_LOST} of {len(lost)} lost rows")
    return found, lost[:MAX_LOST], faults


def _parse_far(value: Any, switches: list[Any]) -> FarEnd:
    """Parse a far end, whose device is a row in the table of switches."""
    index, *texts = value
    is_index = isinstance(index, int) and 0 <= index < len(switches)
    node = switches[index] if is_index else None
    if not isinstance(node, list) or len(node) != 2 or len(texts) > 2:
        raise ValueError(value)
    found = dict(zip(FAR_END, (*node, *texts), strict=False))
    return FarEnd(**{name: TEXT.parse(text) for name, text in found.items() if text is not None})


def _parse_station(value: object) -> FarEnd:
    """Parse the far end of a port that is no leaf."""
    found: FarEnd = _STATION.parse(value)
    return found._replace(is_station=True)


def _parse_unread(value: Any) -> list[int | None]:
    """Parse the times since which parts of a row are unread."""
    if not isinstance(value, list) or len(value) > len(_UNREAD):
        raise ValueError(value)
    return [None if since is None else SECONDS.parse(since) for since in value]


def _parse_row(row: object, schema: Schema) -> tuple[Fact, list[str]]:
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
    if "port" in schema:
        defaults = _defaults(facts["interface"], facts.get("port_guid"))
        facts |= {name: value for name, value in defaults.items() if name not in document}
    facts |= zip(_UNREAD, facts.pop("unread", ()), strict=False)
    found = {_FIELDS.get(name, name): value for name, value in facts.items()}
    if schema is _LOST_ROW or ("lost" in schema and "lost" in document):
        found.setdefault("lost_since", 0)
    return Fact(**found), faults


def _parse_report(
    document: Json, name: str, schema: Schema, required: Collection[str] = ()
) -> tuple[Json | None, list[str]]:
    """Parse a part that has time and boot ID; returns its facts, and those that were dropped."""
    value = document.get(name)
    if value is None:
        return None, []
    if not isinstance(value, dict):
        return None, [name]
    facts, faults = read(value, schema)
    if not {*required} <= facts.keys():
        return None, [name]
    return {"time": None, "boot_id": None, **facts}, [f"{fault} of {name}" for fault in faults]


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
        lost=tuple(
            one._replace(lost_since=past(one.lost_since, now) or 0) for one in annotation.lost
        ),
        verdict=verdict and verdict._replace(time=past(verdict.time, now)),
        partial=partial and partial._replace(time=past(partial.time, now)),
    )


def without_lost(annotation: Annotation, forgotten: Iterable[Fact]) -> Annotation:
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
