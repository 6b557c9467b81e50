"""One finding: its code, severity, ends, sentence, facts and stable ID."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.verify.expected import Row

    Json = dict[str, Any]

ERROR, WARNING, UNKNOWN, INFO = "error", "warning", "unknown", "info"
# In the order in which findings are listed: (severity, meaning).
CODES = {
    "miscabled": (ERROR, "another device at the far end"),
    "wrong-port": (ERROR, "the right device, another port of it"),
    "swapped": (ERROR, "two cables of this node, or a ring of several, changed places"),
    "missing": (ERROR, "nobody at the far end"),
    "missing-interface": (ERROR, "an interface of the plan is not on this node"),
    "speed": (ERROR, "`speed.current` is below `speed.expected`"),
    "unexpected": (WARNING, "a backend port has a neighbor, and the plan has no cable for it"),
    "duplicate": (WARNING, "one switch port for two interfaces, in the plan or on the node"),
    "slow": (WARNING, "a rate below the plan's, or below that of the same NICs of this node"),
    "pcie": (WARNING, "a PCIe link of a NIC is slower or narrower than both of its ends permit"),
    "unverifiable": (UNKNOWN, "a privilege, a source or a fact is missing"),
}
ID_LENGTH = 12  # hex digits
NOT_VERIFIED = "not-verified"  # fact of an `unverifiable` without interfaces: the code in question

T = TypeVar("T")
K = TypeVar("K")
Ends = tuple[str | None, str | None]  # device, port
NO_END: Ends = (None, None)


class Finding(NamedTuple):
    """One difference between the expected and the observed half, or what cannot be compared."""

    code: str  # of CODES
    severity: str
    interfaces: tuple[str, ...]
    text: str  # one sentence that says what to do
    expected: Ends
    actual: Ends
    facts: tuple[tuple[str, str], ...]  # (name, value); with the plan's other columns
    id: str  # equal from run to run

    @property
    def interface(self) -> str | None:
        """The first interface, if there is any."""
        return self.interfaces[0] if self.interfaces else None


class Draft:
    """Makes the findings of one node."""

    def __init__(self, node: str) -> None:
        self._node = node

    def __call__(  # noqa: PLR0913 - most are keywords
        self,
        code: str,
        interfaces: Sequence[str],
        text: str,
        *,
        ends: tuple[Ends, Ends] = (NO_END, NO_END),
        facts: Mapping[str, object] | None = None,
        key: Sequence[object] = (),
        severity: str | None = None,
    ) -> Finding:
        """Return a finding.

        Its ID is of node, code, expected end, and `key` or else the interfaces: a `key` is the one
        cause of a finding whose interfaces come and go.
        """
        parts = (self._node, code, *ends[0], *(key or sorted(interfaces)))
        identity = "\0".join(str(part or "").casefold() for part in parts)
        known = {name: str(value) for name, value in (facts or {}).items() if value is not None}
        return Finding(
            code,
            severity or CODES[code][0],
            tuple(interfaces),
            text,
            *ends,
            tuple(known.items()),
            hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:ID_LENGTH],
        )


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by key, in their order."""
    found: dict[K, list[T]] = {}
    for item in items:
        name = key(item)
        if name in found:
            found[name].append(item)
        else:
            found[name] = [item]
    return found


def facts_of(row: Row) -> dict[str, object]:
    """Return where a row stands, the places of its ends, and its other columns."""
    near, far = row.near, row.far
    return {
        **row.fields,
        "plan": row.place,
        "rack": near.rack if near else None,
        "unit": near.unit if near else None,
        "far-rack": far.rack if far else None,
        "far-unit": far.unit if far else None,
    }


def finding_document(one: Finding) -> Json:
    """Return the JSON object of a finding; data is never in keys."""
    return {
        "id": one.id,
        "code": one.code,
        "severity": one.severity,
        "interface": one.interface,
        "interfaces": list(one.interfaces),
        "expected": end_document(*one.expected),
        "actual": end_document(*one.actual),
        "text": one.text,
        "facts": [{"name": name, "value": value} for name, value in one.facts],
    }


def end_document(device: str | None, port: str | None) -> Json:
    """Return the JSON object of one end of a cable."""
    return {"device": device, "port": port}


def order(finding: Finding) -> tuple[int, int]:
    """Return the sort key: by severity, then by code."""
    severities = [ERROR, WARNING, UNKNOWN, INFO]
    return severities.index(finding.severity), list(CODES).index(finding.code)
