"""The annotation `P/observed`: time and place of the last full observation.

    {"schema": 1, "agent": "0.1.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "interfaces": [{"interface": "ibp0", "pci": "0000:18:00.0"}, ...]}

`time` (RFC 3339, UTC) is that of the last observation in which no source failed and none was
switched off. The PCI addresses tell an interface that was renamed by a reboot from one that is
gone. Anyone with access to the Node can edit the annotation, so a malformed one is a problem to
report and never an exception.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import agent
from agent.errors import Malformed
from agent.model import Failed, Problem, Seen
from agent.sources.table import NAMES
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from agent.kube.managed_fields import Keys, State
    from agent.model import Observation

    Json = dict[str, Any]
    Interfaces = tuple[tuple[str, str], ...]  # (interface, PCI address)
    Parsed = tuple["Annotation | None", Problem | None]

SCHEMA = 1
RESYNC = 3600.0  # seconds, the greatest age of the annotation
MAX_LENGTH = 64 * 1024  # characters of an annotation that is parsed
MAX_INTERFACES = 512
MAX_PROBLEM = 200  # characters

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_WORD = re.compile(r"[!-~]{1,64}")


@dataclass(frozen=True, slots=True)
class Annotation:
    """The contents of the annotation; None is unknown."""

    time: int | None  # of the last full observation, seconds since the epoch
    boot_id: str | None  # the boot of that observation
    interfaces: Interfaces = ()
    agent: str = agent.__version__


_NEVER = Annotation(None, None)  # no observation yet


def annotate(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None = None
) -> Annotation:
    """Return the annotation for these labels.

    Time, boot ID and the addresses of interfaces that cannot be read now come from `previous`.
    """
    previous = previous or _NEVER
    known = {keys.interface(key) for key in labels} | {*observation.unbound}
    interfaces = _held_addresses(observation, known, previous) | _addresses(observation)
    time, boot_id = _last_full(observation, previous)
    return Annotation(time, boot_id, tuple(sorted(interfaces.items())[:MAX_INTERFACES]))


def _last_full(observation: Observation, previous: Annotation) -> tuple[int | None, str | None]:
    """Return time and boot ID of the last full observation; a malformed boot ID is unknown."""
    time, boot_id = previous.time, previous.boot_id
    if _is_full(observation):
        time, boot_id = int(observation.time), observation.boot_id
    return time, boot_id if _WORD.fullmatch(boot_id or "") else None


def _is_full(observation: Observation) -> bool:
    """Return True if no source failed and none is switched off."""
    outcomes = [getattr(observation, name) for name in NAMES]
    return not observation.off and not any(isinstance(outcome, Failed) for outcome in outcomes)


def _held_addresses(
    observation: Observation, known: AbstractSet[str | None], previous: Annotation
) -> dict[str, str]:
    """Return the previous addresses of interfaces that are known or may still exist."""
    return {
        interface: pci
        for interface, pci in previous.interfaces
        if interface in known or _may_exist(interface, observation)
    }


def _may_exist(interface: str, observation: Observation) -> bool:
    """Return True if the device of an interface may exist although it could not be read."""
    if isinstance(observation.rdma, Seen):
        failed = [device.name for device in observation.rdma.value if device.failure]
        return any(_is_of_device(interface, name) for name in failed)
    return isinstance(observation.rdma, Failed)


def _is_of_device(interface: str, device: str) -> bool:
    """Return True for the interface of a device's only port or of one of its ports."""
    return interface == device or interface.startswith(f"{device}-")


def _addresses(observation: Observation) -> dict[str, str]:
    """Return the PCI address of each backend interface, without those that `parse` rejects."""
    backend = [role for role in observation.ports if role.backend]
    addresses = {role.interface: role.device.pci or "" for role in backend}
    return {name: pci for name, pci in addresses.items() if _is_valid(name, pci)}


def _is_valid(interface: str, pci: str) -> bool:
    return bool(_NAME.fullmatch(interface) and _PCI.fullmatch(pci))


def render(annotation: Annotation) -> str:
    """Return the annotation as JSON text."""
    return json.dumps(_document(annotation), separators=(",", ":"))


def _document(annotation: Annotation) -> Json:
    return {
        "schema": SCHEMA,
        "agent": annotation.agent,
        "boot_id": annotation.boot_id,
        "time": None if annotation.time is None else _rfc3339(annotation.time),
        "interfaces": [{"interface": name, "pci": pci} for name, pci in annotation.interfaces],
    }


def annotation_of(state: State, keys: Keys) -> Parsed:
    """Return the annotation that a Node carries, or what is wrong with it; see `parse`."""
    return parse(state.fields.get(keys.annotation_field), keys.annotation)


def is_stale(annotation: Annotation | None, now: float, resync: float = RESYNC) -> bool:
    """Return True if the annotation is older than `resync` seconds, from the future or missing.

    `now` is in seconds since the epoch.
    """
    if annotation is None or annotation.time is None:
        return True
    return not 0 <= now - annotation.time < resync


def parse(text: str | None, key: str) -> Parsed:
    """Parse the annotation `key`.

    Returns (annotation, None), (None, problem) for malformed text, or (None, None) for no text.
    """
    if text is None:
        return None, None
    try:
        return _parse(text), None
    except (Malformed, ValueError, OverflowError, RecursionError) as error:
        fault = visible(f"malformed annotation, ignored: {error}", MAX_PROBLEM)
        return None, Problem("node", key, None, fault)


def _parse(text: str) -> Annotation:
    document = _parse_document(text)
    return Annotation(
        _parse_time(_text(document, "time")),
        _word(document, "boot_id", _WORD),
        _parse_interfaces(document.get("interfaces")),
        _word(document, "agent", _WORD) or "",
    )


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


def _parse_interfaces(rows: object) -> Interfaces:
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES:
        raise Malformed(f"interfaces is not a list of up to {MAX_INTERFACES} rows")
    return tuple(_parse_row(row) for row in rows)


def _parse_row(row: object) -> tuple[str, str]:
    """Return (interface, PCI address)."""
    found = row if isinstance(row, dict) else {}
    interface, pci = _word(found, "interface", _NAME), _word(found, "pci", _PCI)
    if interface is None or pci is None:
        raise Malformed("a row of interfaces lacks the interface or its PCI address")
    return interface, pci


def _word(document: Json, name: str, pattern: re.Pattern[str]) -> str | None:
    value = _text(document, name)
    if value is not None and not pattern.fullmatch(value):
        raise Malformed(f"{name} is {value!r:.40}")
    return value


def _text(document: Json, name: str) -> str | None:
    value = document.get(name)
    if not isinstance(value, str | None):
        raise Malformed(f"{name} is {value!r:.40}")
    return value


def _parse_time(text: str | None) -> int | None:
    from datetime import UTC, datetime

    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _rfc3339(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
