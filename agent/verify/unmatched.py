"""The findings of what has no counterpart: ports without a row, and rows without a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import INFO, NO_END, grouped
from agent.ids import pci_address
from agent.text import listed
from agent.verify import interfaces, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.findings.finding import Draft, Finding
    from agent.verify.expected import Row
    from agent.verify.interfaces import Lookup, Resolved
    from agent.verify.seen import FarEnd, Port

    Without = Sequence[tuple[Row, str]]  # rows without an interface, and why

LOW = frozenset({interfaces.NOT_BACKEND, interfaces.EXCLUDED})  # no cable of the backend
# The rows that may be those of a port that no other row names.
VAGUE = frozenset(
    {interfaces.UNKNOWN, interfaces.NUMBERING, interfaces.SEVERAL, interfaces.PERHAPS_UNREAD}
)


def unexpected(resolved: Resolved, ports: Mapping[str, Port], draft: Draft) -> Iterator[Finding]:
    """Yield the ports with a neighbor that no row names; none if a row may still be theirs."""
    if any(reason in VAGUE for _, reason in resolved.without):
        return
    planned = {row.interface for row in resolved.rows}
    others = [port for name, port in ports.items() if name not in planned and port.far_ends]
    yield from (_unexpected(port, port.far_ends[0], draft) for port in others)


def _unexpected(port: Port, far_end: FarEnd, draft: Draft) -> Finding:
    text = words.unexpected(port.interface, far_end.device, far_end.port)
    ends = NO_END, (far_end.device, far_end.port)
    return draft("unexpected", [port.interface], text, ends=ends, facts={"pci": port.pci})


def missing(
    without: Without, lookup: Lookup, addresses: Mapping[str, str], draft: Draft
) -> Iterator[Finding]:
    """Yield the rows whose interface is not on this node; `addresses` are the last known ones."""
    for row, reason in without:
        if reason == interfaces.ABSENT:
            name = lookup.hca_map.get(interfaces.map_key(row.text), row.text)
            pci = addresses.get(name) or pci_address(name.strip())
            yield _missing(row, pci, lookup, draft)


def _missing(row: Row, pci: str | None, lookup: Lookup, draft: Draft) -> Finding:
    on_bus = pci in lookup.on_bus if pci and lookup.on_bus else None
    text = words.missing_interface(row, pci, on_bus=on_bus)
    facts = {**row.facts, "pci": pci, "on-bus": on_bus}
    end = (row.device, row.port)
    key = [row.text, *end]  # rows of a name that is none may be of several cables
    return draft("missing-interface", [row.text], text, ends=(end, NO_END), facts=facts, key=key)


def unverifiable(without: Without, draft: Draft, *, has_all: bool) -> Iterator[Finding]:
    """Yield one finding for each other reason.

    `has_all`: every backend port has a row, so a name that is not known is of another port.
    """
    low = {*LOW, interfaces.UNKNOWN} if has_all else LOW
    others = [one for one in without if one[1] != interfaces.ABSENT]
    for reason, group in grouped(others, lambda one: one[1]).items():
        rows = [row for row, _ in group]
        yield _unverifiable(reason, rows, draft, INFO if reason in low else None)


def _unverifiable(reason: str, rows: Sequence[Row], draft: Draft, severity: str | None) -> Finding:
    names = list(dict.fromkeys(row.text for row in rows))
    text = f"{listed(names)} of the plan: not verified: {reason}."
    facts = {"reason": reason, "plan": rows[0].place}
    key = ["plan", reason]
    return draft("unverifiable", names, text, facts=facts, key=key, severity=severity)
