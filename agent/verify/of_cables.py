"""The findings of compared cables: wrong, missing and doubled ones, and those not verified.

One cause is one finding: cables that changed places, rows that lack the same fact. The older labels
`leaves.expected` and `ports.expected`, of all cables at once, come last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from agent.findings.finding import NO_END, NOT_VERIFIED, Draft, Ends, Finding, PortRef, grouped
from agent.ids import HASH
from agent.labels import encode
from agent.model import natural
from agent.reasons import NeighborReason
from agent.text import listed
from agent.verify import cables, words
from agent.verify.cables import Cable, rings
from agent.verify.expected import Expected, Row, end_key
from agent.verify.seen import SeenNode

Off = frozenset[str]

LEAVES, PORTS = "leaves.expected", "ports.expected"  # older labels
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
        first = ring[0]
        facts = first.row.facts
        racks = dict.fromkeys(one.row.far.rack for one in ring if one.row.far)
        facts["far-rack"] = ", ".join(filter(None, racks)) or None
        for one in ring:
            facts[f"{one.ref.interface}-expected"] = " ".join(filter(None, one.expected))
            facts[f"{one.ref.interface}-actual"] = " ".join(filter(None, one.actual))
        names, text = [one.ref.interface for one in ring], words.swapped(ring)
        yield draft("swapped", names, text, ends=(first.expected, first.actual), facts=facts)
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
    ports = ((one.far_end.device, one.far_end.port_id, one) for one in found if one.far_end)
    seen = [one for one in ports if one[1]]
    for end, same in grouped(seen, lambda one: one[:2]).items():
        if len(same) > 1:
            names = [one.ref.interface for _, _, one in same]
            text = words.duplicate_seen(*end, names, same[0][2].port.link_layer)
            yield draft("duplicate", names, text, ends=(NO_END, end), key=["seen", *names])


# all cables in one label


def of_older_labels(
    expected: Expected, node: SeenNode, kept: Collection[str], draft: Draft
) -> Iterator[Finding]:
    """Yield the differences from the labels that have all devices, or all ports, in one text.

    `kept` are the interfaces that are not to be ignored, of whose ports the label may have more.
    """
    ports = [port for name, port in node.ports.items() if name in kept]
    seen = [port.far_ends[0] for port in ports if port.far_ends]
    is_complete = len(seen) == len(ports) > 0 and not node.unread
    is_part = len(ports) < len(node.ports)
    leaves = sorted(sorted({end.device for end in seen}), key=natural)  # leaf1 and leaf01 tie
    for name, wanted, texts in (
        (LEAVES, expected.leaves, leaves),
        (PORTS, expected.ports, [end.port_id or "" for end in seen]),
    ):
        if not wanted or _is_same(name, wanted, texts, is_part=is_part):
            continue
        code, why = ("miscabled" if name == LEAVES else "wrong-port"), None
        if not is_complete:
            why = "not every backend port has a neighbor"
        elif is_part and HASH.fullmatch(wanted):
            why = "it is a hash, of which --ignore can leave no port out"
        if why:
            text = f"{name}, {wanted}, not verified: {why}."
            yield draft("unverifiable", [], text, facts={NOT_VERIFIED: code}, key=[name])
            continue
        text = (
            f"Check the cables of this node: {name} is {wanted}, "
            f"and the ports see {', '.join(texts)}."
        )
        actual = "_".join(texts)
        of_leaves, of_ports = ((wanted, None), (actual, None)), ((None, wanted), (None, actual))
        yield draft(code, [], text, ends=of_leaves if name == LEAVES else of_ports, key=[name])


def _is_same(name: str, wanted: str, seen: Sequence[str], *, is_part: bool) -> bool:
    """Return True if a label has what is seen, encoded or not; leaves in any order.

    `is_part`: it may have more than these, port IDs in their order.
    """
    joined = "_".join(seen)
    if is_part:
        parts, of_label = (encode.replaced(text).casefold() for text in (joined, wanted))
        if name == LEAVES:
            return Counter(_parts(parts)) <= Counter(_parts(of_label))
        rest = iter(of_label.split("_"))
        return all(part in rest for part in parts.split("_"))
    if encode.value(wanted) == encode.value(joined):
        return True
    return name == LEAVES and _parts(wanted) in (_parts(joined), _parts(encode.value(joined)))


def _parts(text: str) -> list[str]:
    return sorted(text.casefold().split("_"))
