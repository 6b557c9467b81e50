"""The findings of compared cables: wrong, missing and doubled ones, and those not verified.

One cause is one finding: cables that changed places, rows that lack the same fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import NO_END, grouped
from agent.reasons import NeighborReason
from agent.text import listed
from agent.verify import cables, words
from agent.verify.expected import end_key
from agent.verify.rings import rings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.findings.finding import Draft, Ends, Finding, PortRef
    from agent.verify.cables import Cable
    from agent.verify.expected import Expected, Row

    Off = frozenset[str]

IN_DUPLICATE = "the plan gives its switch port twice"  # with a finding of its own


def findings(
    found: Sequence[Cable], expected: Expected, off: Off, draft: Draft
) -> Iterator[Finding]:
    """Yield the findings of compared cables."""
    for users, rows in _doubled(found, expected):
        end: Ends = rows[0].device, rows[0].port
        places = ", ".join(str(row.place) for row in rows)
        yield draft(
            "duplicate",
            [row.interface or row.text for row in rows],
            words.duplicate_in_plan(*end, users),
            ends=(end, NO_END),
            facts={"plan": places, "users": ", ".join(users)},
            key=["plan", *end],
        )
    yield from _seen_twice(found, draft)
    in_ring: set[PortRef] = set()
    for ring in rings([one for one in found if one.is_wrong], off):
        in_ring.update(one.ref for one in ring)
        yield _swapped(ring, draft)
    for one in found:
        if one.is_wrong and one.ref not in in_ring:
            owner = _owner(one, found, expected, off)
            yield _of_cable(one, words.wrong(one, owner), draft, {"planned-for": owner})
        elif one.status == cables.MISSING:
            yield _of_cable(one, words.missing(one), draft)
    unknown = [one for one in found if one.status == cables.UNVERIFIABLE]
    for reason, same in grouped(unknown, lambda one: one.reason or "").items():
        if reason != IN_DUPLICATE:
            word = NeighborReason.of(reason)
            names = [one.ref.interface for one in same]
            text = f"{listed(names)}: not verified: {word.text if word else reason}."
            facts = {"reason": reason, "plan": same[0].row.place}
            yield draft("unverifiable", names, text, facts=facts, key=[reason])


def _of_cable(
    one: Cable, text: str, draft: Draft, facts: dict[str, object] | None = None
) -> Finding:
    """Return the finding of one cable, whose status is the code."""
    seen = {
        "reason": one.reason,
        "phys-state": one.port.phys_state,
        "pci": one.port.pci,
        "matched-by-device": one.device.by,
        "matched-by-port": one.far_port.by,
        **(facts or {}),
    }
    known = one.row.facts | {name: value for name, value in seen.items() if value}
    return draft(
        one.status, [one.ref.interface], text, ends=(one.expected, one.actual), facts=known
    )


def _owner(one: Cable, found: Sequence[Cable], expected: Expected, off: Off) -> str | None:
    """Return whose port the far end is: another interface of this node, or another node's."""
    for other in found:
        if other is not one and other.row.ports and one.leads_to(other.row, off):
            return other.ref.interface
    if not one.far_end:
        return None
    ports = (one.far_end.port_id, one.far_end.port_name)
    keys = [end_key(one.far_end.device, port) for port in ports if port]
    return next((expected.taken[key] for key in keys if key in expected.taken), None)


def _swapped(ring: Sequence[Cable], draft: Draft) -> Finding:
    """Return the finding of a ring: the facts of its first row, all racks, each cable's ends."""
    first = ring[0]
    facts = first.row.facts
    racks = dict.fromkeys(one.row.far.rack for one in ring if one.row.far)
    facts["far-rack"] = ", ".join(filter(None, racks)) or None
    for one in ring:
        for name, end in (("expected", one.expected), ("actual", one.actual)):
            facts[f"{one.ref.interface}-{name}"] = " ".join(filter(None, end))
    names = [one.ref.interface for one in ring]
    ends = first.expected, first.actual
    return draft("swapped", names, words.swapped(ring), ends=ends, facts=facts)


def _doubled(found: Sequence[Cable], expected: Expected) -> Iterator[tuple[list[str], list[Row]]]:
    """Yield the switch ports that the plan gives to several interfaces: (users, rows here).

    A row that is to be ignored, or has a cage, may have its port with another.
    """
    rows = [
        one.row
        for one in found
        if one.row.device
        and one.row.port
        and one.status != cables.IGNORED
        and one.reason != cables.CAGES
    ]
    by_end = grouped(rows, lambda row: end_key(row.device or "", row.port or ""))
    for end, here in by_end.items():
        others = [expected.taken[end]] if end in expected.taken else []
        if len(here) + len(others) > 1:
            yield [*(row.interface or row.text for row in here), *others], here


def without_doubled(found: Sequence[Cable], expected: Expected) -> list[Cable]:
    """Withdraw wrong cables whose port the plan gives twice: the plan is to be corrected first."""
    if not any(one.is_wrong for one in found):
        return [*found]
    texts = {row.text for _, rows in _doubled(found, expected) for row in rows}
    return [
        one.unverifiable(IN_DUPLICATE) if one.is_wrong and one.row.text in texts else one
        for one in found
    ]


def _seen_twice(found: Sequence[Cable], draft: Draft) -> Iterator[Finding]:
    """Yield the switch ports that several interfaces see."""
    seen = [one for one in found if one.far_end and one.far_end.port_id]
    by_end = grouped(
        seen, lambda one: (one.far_end.device, one.far_end.port_id) if one.far_end else NO_END
    )
    for end, same in by_end.items():
        if len(same) > 1:
            names = [one.ref.interface for one in same]
            text = words.duplicate_seen(*end, names, same[0].port.link_layer)
            yield draft("duplicate", names, text, ends=(NO_END, end), key=["seen", *names])
