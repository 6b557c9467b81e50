"""The annotation `P/observed`: when the labels were last true, said small.

    {"schema": 1, "agent": "0.1.0", "boot_id": "...", "time": "2026-11-20T13:34:49Z",
     "interfaces": [{"interface": "ibp0", "pci": "0000:18:00.0"}, ...]}

`time` is that of the last full observation (nothing failed, nothing was switched off), RFC 3339 in UTC. The addresses
tell a rename after a reboot from a loss. Anybody with access to the Node can write into it, so it is read as a guess:
what does not fit is ignored, with a problem and never an exception.
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

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.kube.managed_fields import Keys
    from agent.model import Observation

SCHEMA = 1
LONGEST = 64 * 1024  # characters that are looked at
MOST_INTERFACES = 512

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_WORD = re.compile(r"[!-~]{1,64}")


@dataclass(frozen=True, slots=True)
class Annotation:
    """The annotation; None is unknown."""

    time: int | None  # of the last full observation, seconds since the epoch
    boot_id: str | None  # the boot that it was in
    interfaces: tuple[tuple[str, str], ...] = ()  # (interface, PCI address)
    agent: str = agent.__version__


def observed(
    observation: Observation, labels: Iterable[str], keys: Keys, previous: Annotation | None = None
) -> Annotation:
    """What to write beside these labels; `previous` knows what cannot be seen now."""
    outcomes = [getattr(observation, name) for name in NAMES]
    full = not observation.off and not any(isinstance(outcome, Failed) for outcome in outcomes)
    time, boot_id = (previous.time, previous.boot_id) if previous else (None, None)
    if full:
        time, boot_id = int(observation.time), observation.boot_id
    labelled = {keys.interface(key) for key in labels}
    known = {*labelled, *observation.unbound}
    before = previous.interfaces if previous else ()
    held = {name: pci for name, pci in before if name in known or _is_hidden(name, observation)}
    boot_id = boot_id if _WORD.fullmatch(boot_id or "") else None
    return Annotation(
        time, boot_id, tuple(sorted((held | _addresses(observation)).items())[:MOST_INTERFACES])
    )


def _is_hidden(interface: str, observation: Observation) -> bool:
    """Its device may be there and could not be read."""
    if not isinstance(observation.rdma, Seen):
        return isinstance(observation.rdma, Failed)
    sick = (device.name for device in observation.rdma.value if device.failure)
    return any(interface == name or interface.startswith(f"{name}-") for name in sick)


def _addresses(observation: Observation) -> dict[str, str]:
    """The PCI address of each backend interface; what `parse` would not take back is left out."""
    backend = [
        (role.interface, role.device.pci or "") for role in observation.ports if role.backend
    ]
    return {
        interface: pci
        for interface, pci in backend
        if _NAME.fullmatch(interface) and _PCI.fullmatch(pci)
    }


def render(told: Annotation) -> str:
    """The annotation's text."""
    document = {
        "schema": SCHEMA,
        "agent": told.agent,
        "boot_id": told.boot_id,
        "time": None if told.time is None else _rfc3339(told.time),
        "interfaces": [{"interface": interface, "pci": pci} for interface, pci in told.interfaces],
    }
    return json.dumps(document, separators=(",", ":"))


def parse(text: str | None, key: str) -> tuple[Annotation | None, Problem | None]:
    """The annotation `key` out of its text; None and what is wrong where it is not one. No text is no problem."""
    if text is None:
        return None, None
    try:
        return _parse(text), None
    except (Malformed, ValueError, OverflowError, RecursionError) as error:
        return None, Problem(
            "node", key, None, f"annotation not understood, ignored: {error}"[:200]
        )


def _parse(text: str) -> Annotation:
    if len(text) > LONGEST:
        raise Malformed(f"it has {len(text)} characters")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Malformed("it is no JSON object")
    if document.get("schema") != SCHEMA:
        raise Malformed(f"its schema is {document.get('schema')!r:.20}, {SCHEMA} is known")
    return Annotation(
        _time(document.get("time")),
        _text(document, "boot_id", _WORD),
        _interfaces(document.get("interfaces")),
        _text(document, "agent", _WORD) or "",
    )


def _interfaces(rows: object) -> tuple[tuple[str, str], ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MOST_INTERFACES:
        raise Malformed(f"its interfaces are no list of up to {MOST_INTERFACES}")
    found = []
    for row in rows:
        interface = _text(row, "interface", _NAME) if isinstance(row, dict) else None
        pci = _text(row, "pci", _PCI) if isinstance(row, dict) else None
        if interface is None or pci is None:
            raise Malformed("a row of its interfaces lacks the interface or its PCI address")
        found.append((interface, pci))
    return tuple(found)


def _text(document: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Malformed(f"its {name} is {value!r:.40}")
    return value


def _time(value: object) -> int | None:
    from datetime import UTC, datetime

    if value is None:
        return None
    if not isinstance(value, str):
        raise Malformed(f"its time is {value!r:.40}")
    time = datetime.fromisoformat(value)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _rfc3339(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
