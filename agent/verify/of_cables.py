"""The findings of compared cables: wrong, missing and doubled ones, and those not verified.

One cause is one finding: cables that changed places, rows that lack the same fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import NO_END, grouped
from agent.model import natural
from agent.reasons import NeighborReason
from agent.text import listed
from agent.verify import cables, words
from agent.verify.expected import end_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.findings.finding import Draft, Ends, Finding
    from agent.verify.cables import Checked
    from agent.verify.expected import Expected, Row

    Off = frozenset[str]

IN_DUPLICATE = "the plan gives its switch port twice"  # with a finding of its own


def findings(
    checked: Sequence[Checked], expected: Expected, off: Off, draft: Draft
) -> Iterator[Finding]:
    """Yield the findings of compared rows."""
    yield from (_in_plan(users, rows, draft) for users, rows in _doubled(checked, expected))
    yield from _seen_twice(checked, draft)
    rings = cables.rings(checked, off)
    yield from (_swapped(ring, draft) for ring in rings)
    in_ring = {one.port.interface for ring in rings for one in ring}
    for one in checked:
        if one.is_wrong and one.port.interface not in in_ring:
            yield _wrong(one, _owner(one, checked, expected, off), draft)
    missing = (one for one in checked if one.status == cables.MISSING)
    yield from (_of_cable("missing", one, words.missing(one), draft) for one in missing)
    yield from _unverifiable(checked, draft)


def _wrong(one: Checked, owner: str | None, draft: Draft) -> Finding:
    """Return the finding of one cable that leads elsewhere."""
    say = words.miscabled if one.status == cables.MISCABLED else words.wrong_port
    return _of_cable(one.status, one, say(one, owner), draft, {"planned-for": owner})


def _owner(one: Checked, checked: Iterable[Checked], expected: Expected, off: Off) -> str | None:
    """Return whose port the far end is: another interface of this node, or another node's."""
    for other in checked:
        if other is not one and other.row.ports and cables.leads_to(one, other.row, off):
            return other.port.interface
    if not one.far_end:
        return None
    ports = (one.far_end.port_id, one.far_end.port_name)
    keys = [end_key(one.far_end.device, port) for port in ports if port]
    return next((expected.taken[key] for key in keys if key in expected.taken), None)


def _of_cable(
    code: str, one: Checked, text: str, draft: Draft, facts: dict[str, object] | None = None
) -> Finding:
    seen = {
        "reason": one.reason,
        "phys-state": one.port.phys_state,
        "pci": one.port.pci,
        "matched-by-device": one.device.by,
        "matched-by-port": one.far_port.by,
        **(facts or {}),
    }
    known = one.row.facts | {name: value for name, value in seen.items() if value}
    ends = one.expected, one.actual
    return draft(code, [one.port.interface], text, ends=ends, facts=known)


def _swapped(ring: Sequence[Checked], draft: Draft) -> Finding:
    """Return the finding of a ring, from its first interface on in the order of the ring."""
    start = ring.index(min(ring, key=lambda one: natural(one.port.interface)))
    ring = [*ring[start:], *ring[:start]]
    first = ring[0]
    names = [one.port.interface for one in ring]
    ends = first.expected, first.actual
    return draft("swapped", names, words.swapped(ring), ends=ends, facts=_ring_facts(ring))


def _ring_facts(ring: Sequence[Checked]) -> dict[str, object]:
    """Return the facts of the first row, the racks of all far ends, and each cable's two ends."""
    facts = ring[0].row.facts
    racks = dict.fromkeys(one.row.far.rack for one in ring if one.row.far)
    facts["far-rack"] = ", ".join(filter(None, racks)) or None
    for one in ring:
        facts[f"{one.port.interface}-expected"] = _joined(one.expected)
        facts[f"{one.port.interface}-actual"] = _joined(one.actual)
    return facts


def _joined(end: Ends) -> str:
    return " ".join(filter(None, end))


def _doubled(
    checked: Iterable[Checked], expected: Expected
) -> Iterator[tuple[list[str], list[Row]]]:
    """Yield the switch ports that the plan gives to several interfaces: (users, rows here)."""
    rows = [one.row for one in checked if one.row.port and not _shares_port(one)]
    by_end = grouped(rows, lambda row: end_key(row.device or "", row.port or ""))
    for end, here in by_end.items():
        if len(here) == 1 and end not in expected.taken:
            continue
        others = [expected.taken[end]] if end in expected.taken else []
        users = [*(row.interface or row.text for row in here), *others]
        if here[0].device:
            yield users, here


def _shares_port(one: Checked) -> bool:
    """Return True for a row that may have its port with another: to ignore, or with a cage."""
    return one.status == cables.IGNORED or one.reason == cables.CAGES


def without_doubled(checked: Sequence[Checked], expected: Expected) -> list[Checked]:
    """Withdraw wrong cables whose port the plan gives twice: the plan is to be corrected first."""
    if not any(one.is_wrong for one in checked):
        return [*checked]
    texts = {row.text for _, rows in _doubled(checked, expected) for row in rows}
    return [
        one.unverifiable(IN_DUPLICATE) if one.is_wrong and one.row.text in texts else one
        for one in checked
    ]


def _in_plan(users: Sequence[str], rows: Sequence[Row], draft: Draft) -> Finding:
    device, port = rows[0].device or "", rows[0].port or ""
    text = words.duplicate_in_plan(device, port, users)
    places = ", ".join(str(row.place) for row in rows)
    names = [row.interface or row.text for row in rows]
    facts = {"plan": places, "users": ", ".join(users)}
    end = (device, port)
    return draft("duplicate", names, text, ends=(end, NO_END), facts=facts, key=["plan", *end])


def _seen_twice(checked: Iterable[Checked], draft: Draft) -> Iterator[Finding]:
    """Yield the switch ports that several interfaces see."""
    seen = [one for one in checked if one.far_end and one.far_end.port_id]
    for group in grouped(seen, _port_seen).values():
        if len(group) > 1:
            yield _seen_by_all(group, draft)


def _port_seen(one: Checked) -> Ends:
    return (one.far_end.device, one.far_end.port_id) if one.far_end else NO_END


def _seen_by_all(group: Sequence[Checked], draft: Draft) -> Finding:
    device, port = _port_seen(group[0])
    names = [one.port.interface for one in group]
    text = words.duplicate_seen(device, port, names, group[0].port.link_layer)
    return draft("duplicate", names, text, ends=(NO_END, (device, port)), key=["seen", *names])


def _unverifiable(checked: Iterable[Checked], draft: Draft) -> Iterator[Finding]:
    """Yield one finding for each reason."""
    unknown = [one for one in checked if one.status == cables.UNVERIFIABLE]
    for reason, group in grouped(unknown, lambda one: one.reason or "").items():
        if reason != IN_DUPLICATE:
            yield _not_verified(reason, group, draft)


def _not_verified(reason: str, group: Sequence[Checked], draft: Draft) -> Finding:
    word = NeighborReason.of(reason)
    names = [one.port.interface for one in group]
    text = f"{listed(names)}: not verified: {word.text if word else reason}."
    facts = {"reason": reason, "plan": group[0].row.place}
    return draft("unverifiable", names, text, facts=facts, key=[reason])
