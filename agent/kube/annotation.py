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
from agent.kube.managed_fields import ANNOTATION, Field
from agent.model import Failed, Problem, Seen
from agent.sources.table import NAMES
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.kube.managed_fields import Keys, State
    from agent.model import Observation

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
    interfaces: tuple[tuple[str, str], ...] = ()  # (interface, PCI address)
    agent: str = agent.__version__


def annotate(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None = None
) -> Annotation:
    """Return the annotation for these labels.

    Time, boot ID and the addresses of interfaces that cannot be read now come from `previous`.
    """
    time, boot_id = (previous.time, previous.boot_id) if previous else (None, None)
    if _is_full(observation):
        time, boot_id = int(observation.time), observation.boot_id
    if not _WORD.fullmatch(boot_id or ""):
        boot_id = None
    interfaces = _held_addresses(observation, labels, keys, previous) | _addresses(observation)
    return Annotation(time, boot_id, tuple(sorted(interfaces.items())[:MAX_INTERFACES]))


def _is_full(observation: Observation) -> bool:
    """Return True if no source failed and none is switched off."""
    outcomes = [getattr(observation, name) for name in NAMES]
    return not observation.off and not any(isinstance(outcome, Failed) for outcome in outcomes)


def _held_addresses(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None
) -> dict[str, str]:
    """Return the previous addresses of interfaces that have labels or may still exist."""
    if previous is None:
        return {}
    known = {keys.interface(key) for key in labels} | {*observation.unbound}
    return {
        interface: pci
        for interface, pci in previous.interfaces
        if interface in known or _may_exist(interface, observation)
    }


def _may_exist(interface: str, observation: Observation) -> bool:
    """Return True if the device of an interface may exist although it could not be read."""
    if not isinstance(observation.rdma, Seen):
        return isinstance(observation.rdma, Failed)
    failed = (device.name for device in observation.rdma.value if device.failure)
    return any(interface == name or interface.startswith(f"{name}-") for name in failed)


def _addresses(observation: Observation) -> dict[str, str]:
    """Return the PCI address of each backend interface, without those that `parse` rejects."""
    return {
        role.interface: role.device.pci
        for role in observation.ports
        if role.backend
        and _NAME.fullmatch(role.interface)
        and role.device.pci
        and _PCI.fullmatch(role.device.pci)
    }


def render(annotation: Annotation) -> str:
    """Return the annotation as JSON text."""
    time = None if annotation.time is None else _rfc3339(annotation.time)
    document = {
        "schema": SCHEMA,
        "agent": annotation.agent,
        "boot_id": annotation.boot_id,
        "time": time,
        "interfaces": [
            {"interface": interface, "pci": pci} for interface, pci in annotation.interfaces
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def annotation_of(state: State, keys: Keys) -> tuple[Annotation | None, Problem | None]:
    """Return the annotation that a Node carries, or what is wrong with it; see `parse`."""
    return parse(state.fields.get(Field(ANNOTATION, keys.annotation)), keys.annotation)


def is_stale(annotation: Annotation | None, now: float, resync: float = RESYNC) -> bool:
    """Return True if the annotation is older than `resync` seconds, from the future or missing.

    `now` is in seconds since the epoch.
    """
    if annotation is None or annotation.time is None:
        return True
    return not 0 <= now - annotation.time < resync


def parse(text: str | None, key: str) -> tuple[Annotation | None, Problem | None]:
    """Parse the annotation `key`.

    Returns (annotation, None), (None, problem) for malformed text, or (None, None) for no text.
    """
    if text is None:
        return None, None
    try:
        return _parse(text), None
    except (Malformed, ValueError, OverflowError, RecursionError) as error:
        return None, Problem(
            "node", key, None, visible(f"malformed annotation, ignored: {error}", MAX_PROBLEM)
        )


def _parse(text: str) -> Annotation:
    if len(text) > MAX_LENGTH:
        raise Malformed(f"{len(text)} characters, at most {MAX_LENGTH} are allowed")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Malformed("not a JSON object")
    if document.get("schema") != SCHEMA:
        raise Malformed(f"schema {document.get('schema')!r:.20} instead of {SCHEMA}")
    return Annotation(
        _parse_time(document.get("time")),
        _text(document, "boot_id", _WORD),
        _parse_interfaces(document.get("interfaces")),
        _text(document, "agent", _WORD) or "",
    )


def _parse_interfaces(rows: object) -> tuple[tuple[str, str], ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MAX_INTERFACES:
        raise Malformed(f"interfaces is not a list of up to {MAX_INTERFACES} rows")
    found = []
    for row in rows:
        interface = _text(row, "interface", _NAME) if isinstance(row, dict) else None
        pci = _text(row, "pci", _PCI) if isinstance(row, dict) else None
        if interface is None or pci is None:
            raise Malformed("a row of interfaces lacks the interface or its PCI address")
        found.append((interface, pci))
    return tuple(found)


def _text(document: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Malformed(f"{name} is {value!r:.40}")
    return value


def _parse_time(value: object) -> int | None:
    from datetime import UTC, datetime

    if value is None:
        return None
    if not isinstance(value, str):
        raise Malformed(f"time is {value!r:.40}")
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp())


def _rfc3339(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
