"""The findings of compared cables: wrong, missing and doubled ones, and those not verified.

One cause is one finding: cables that changed places, rows that lack the same fact. The older labels
`leaves.expected` and `ports.expected`, of all cables at once, come last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

from agent import encode
from agent.cabling import cables, words
from agent.cabling.cables import ComparedCable, rings
from agent.cabling.expected import Expected, ExpectedRow, end_key
from agent.cabling.finding import NOT_VERIFIED, Draft, Ends, Finding, PortRef
from agent.cabling.names import Off
from agent.cabling.seen import SeenNode
from agent.grouped import grouped
from agent.ids import HASH
from agent.reasons import NeighborReason
from agent.text import listed, natural

LEAVES, PORTS = "leaves.expected", "ports.expected"  # older labels
IN_DUPLICATE = "the plan gives its switch port twice"  # with a finding of its own


def findings(
    compared: Sequence[ComparedCable], expected: Expected, off: Off, draft: Draft
) -> Iterator[Finding]:
    """Yield the findings of compared cables; one for each reason why some are not verified."""
    yield from _duplicates(compared, expected, draft)
    in_ring: set[PortRef] = set()
    wrong = [cable for cable in compared if cable.is_wrong]
    for ring in rings(wrong, off) if wrong else ():
        in_ring.update(cable.ref for cable in ring)
        yield _swapped(ring, draft)
    for cable in compared:
        if cable.is_wrong and cable.ref not in in_ring:
            owner = _owner(cable, compared, expected, off)
            yield _of_cable(cable, words.wrong(cable, owner), draft, {"planned-for": owner})
        elif cable.status == cables.MISSING:
            yield _of_cable(cable, words.missing(cable), draft)
    unknown = [
        cable
        for cable in compared
        if cable.status == cables.UNVERIFIABLE and cable.reason != IN_DUPLICATE
    ]
    for reason, same in grouped(unknown, lambda cable: cable.reason or "").items():
        word = NeighborReason.of(reason)
        names = [cable.ref.interface for cable in same]
        text = f"{listed(names)}: not verified: {word.text if word else reason}."
        facts = {"reason": reason, "plan": same[0].row.place}
        yield draft("unverifiable", names, text, facts=facts, key=[reason])


def _duplicates(
    compared: Sequence[ComparedCable], expected: Expected, draft: Draft
) -> Iterator[Finding]:
    """Yield the switch ports that the plan gives to several interfaces, or that several see."""
    for users, rows in _doubled(compared, expected):
        end: Ends = rows[0].device, rows[0].port
        yield draft(
            "duplicate",
            [row.interface or row.text for row in rows],
            words.duplicate_in_plan(*end, users),
            expected=end,
            facts={
                "plan": ", ".join(str(row.place) for row in rows),
                "users": ", ".join(users),
            },
            key=["plan", *end],
        )
    seen_ends: list[tuple[Ends, ComparedCable]] = [
        ((far.device, far.port_id), cable)
        for cable in compared
        if (far := cable.far_end) and far.port_id
    ]
    for seen, pairs in grouped(seen_ends, lambda pair: pair[0]).items():
        if len(pairs) > 1:
            names = [cable.ref.interface for _, cable in pairs]
            text = words.duplicate_seen(*seen, names, pairs[0][1].port.link_layer)
            yield draft("duplicate", names, text, actual=seen, key=["seen", *names])


def _swapped(ring: Sequence[ComparedCable], draft: Draft) -> Finding:
    """Return the finding of cables that changed places."""
    first = ring[0]
    facts = first.row.facts
    racks = dict.fromkeys(cable.row.far.rack for cable in ring if cable.row.far)
    facts["far-rack"] = ", ".join(filter(None, racks)) or None
    for cable in ring:
        facts[f"{cable.ref.interface}-expected"] = " ".join(filter(None, cable.expected))
        facts[f"{cable.ref.interface}-actual"] = " ".join(filter(None, cable.actual))
    return draft(
        "swapped",
        [cable.ref.interface for cable in ring],
        words.swapped(ring),
        expected=first.expected,
        actual=first.actual,
        facts=facts,
        moves=tuple(cable.move for cable in ring),
    )


def _of_cable(
    cable: ComparedCable, text: str, draft: Draft, facts: dict[str, object] | None = None
) -> Finding:
    """Return the finding of one cable, whose status is the code."""
    seen = {
        "reason": cable.reason,
        "phys-state": cable.port.phys_state,
        "pci": cable.port.pci,
        "matched-by-device": cable.device.by,
        "matched-by-port": cable.far_port.by,
        **(facts or {}),
    }
    known = cable.row.facts | {name: value for name, value in seen.items() if value}
    return draft(
        cable.status,
        [cable.ref.interface],
        text,
        expected=cable.expected,
        actual=cable.actual,
        facts=known,
        moves=(cable.move,),
    )


def _owner(
    cable: ComparedCable, compared: Sequence[ComparedCable], expected: Expected, off: Off
) -> str | None:
    """Return whose port the far end is: another interface of this node, or another node's."""
    for other in compared:
        if other is not cable and other.row.ports and cable.leads_to(other.row, off):
            return other.ref.interface
    if not cable.far_end:
        return None
    ports = (cable.far_end.port_id, cable.far_end.port_name)
    keys = [end_key(cable.far_end.device, port) for port in ports if port]
    return next((expected.taken[key] for key in keys if key in expected.taken), None)


def _doubled(
    compared: Sequence[ComparedCable], expected: Expected
) -> Iterator[tuple[list[str], list[ExpectedRow]]]:
    """Yield the switch ports that the plan gives to several interfaces: (users, rows here).

    A row that is to be ignored, or has a cage, may have its port with another.
    """
    ends = [
        (end_key(device, port), row)
        for cable in compared
        if (device := (row := cable.row).device)
        and (port := row.port)
        and cable.status != cables.IGNORED
        and cable.reason != cables.CAGES
    ]
    for end, pairs in grouped(ends, itemgetter(0)).items():
        here = [row for _, row in pairs]
        others = [expected.taken[end]] if end in expected.taken else []
        if len(here) + len(others) > 1:
            yield [*(row.interface or row.text for row in here), *others], here


def without_doubled(compared: Sequence[ComparedCable], expected: Expected) -> list[ComparedCable]:
    """Withdraw wrong cables whose port the plan gives twice: the plan is to be corrected first."""
    if not any(cable.is_wrong for cable in compared):
        return [*compared]
    texts = {row.text for _, rows in _doubled(compared, expected) for row in rows}
    return [
        cable.unverifiable(IN_DUPLICATE) if cable.is_wrong and cable.row.text in texts else cable
        for cable in compared
    ]


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
    for name, code, wanted, texts in (
        (LEAVES, "miscabled", expected.leaves, leaves),
        (PORTS, "wrong-port", expected.ports, [end.port_id or "" for end in seen]),
    ):
        if not wanted or _is_same(name, wanted, texts, is_part=is_part):
            continue
        why = None
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
        ends = {
            end: (joined, None) if name == LEAVES else (None, joined)
            for end, joined in (("expected", wanted), ("actual", "_".join(texts)))
        }
        yield draft(code, [], text, **ends, key=[name])


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
