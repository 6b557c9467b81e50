"""Compare one node: the list of findings, and the result for each cable.

Pure. Every difference is one finding, and one cause one finding: cables that changed places, rows
that lack the same fact. A port that is down without a row in the plan is none. The older labels
`leaves.expected` and `ports.expected`, of all cables at once, come last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from agent import encode
from agent.cabling import cables, interfaces, pcie, rates, unstable, words
from agent.cabling.baseline import Accepted
from agent.cabling.cables import ComparedCable
from agent.cabling.expected import Expected, ExpectedRow, end_key, one_each
from agent.cabling.finding import INFO, NO_SPOT, NOT_VERIFIED, Draft, Ends, Finding, PortRef, order
from agent.cabling.interfaces import HcaMap, Resolved, names_of
from agent.cabling.names import Off
from agent.cabling.plan_index import unsafe
from agent.cabling.plans.model import IGNORE
from agent.cabling.seen import SeenNode
from agent.grouped import grouped
from agent.ids import HASH, pci_address
from agent.reasons import NeighborReason
from agent.text import listed, natural

Doubled = tuple[list[str], list[ExpectedRow]]  # who uses one switch port, and the rows here
Without = tuple[tuple[ExpectedRow, str], ...]  # rows without an interface, and why

LEAVES, PORTS = "leaves.expected", "ports.expected"  # older labels
IN_DUPLICATE = "the plan gives its switch port twice"  # with a finding of its own
OF_CABLES = frozenset({"miscabled", "wrong-port", "swapped", "missing", "missing-interface"})
# Why a row without an interface is no cable of the backend.
LOW = frozenset({interfaces.NOT_BACKEND, interfaces.EXCLUDED})
# Why a row may be that of a port that no other row names.
VAGUE = frozenset(
    {
        *(interfaces.UNKNOWN, interfaces.NUMBERING, interfaces.UNMAPPED, interfaces.SEVERAL),
        interfaces.PERHAPS_UNREAD,
    }
)


class VerifyOptions(NamedTuple):
    """The choices of the operator."""

    off: frozenset[str] = frozenset()  # tolerances of names that are switched off
    ignore: tuple[str, ...] = ()  # globs of interfaces, netdevs, PCI addresses
    hca_map: HcaMap = MappingProxyType({})

    def has_ignored(self, names: Iterable[str | None]) -> bool:
        """Return True if --ignore names one of these."""
        return any(fnmatchcase(name, glob) for name in names if name for glob in self.ignore)


DEFAULTS = VerifyOptions()


class VerifyResult(NamedTuple):
    """The result of one node."""

    node: str
    findings: tuple[Finding, ...]
    cables: tuple[ComparedCable, ...]
    unresolved: Without = ()
    ignored: int = 0  # cables of the plan that --ignore names
    assumption: str | None = None
    accepted: tuple[Accepted, ...] = ()  # findings of --baseline

    @property
    def planned(self) -> int:
        """The number of cables of the plan that can be compared on this node."""
        ignored = [cable.status for cable in self.cables].count(cables.IGNORED)
        return len(self.cables) - ignored + sum(reason not in LOW for _, reason in self.unresolved)

    @property
    def as_planned(self) -> int:
        """The number of cables that are as planned."""
        return [cable.status for cable in self.cables].count(cables.AS_PLANNED)


def verify(expected: Expected, node: SeenNode, options: VerifyOptions = DEFAULTS) -> VerifyResult:
    """Compare the expected half with the observed one."""
    switches = expected.devices.union(row.device for row in expected.rows if row.device)
    off, draft = options.off | expected.off | unsafe(switches), Draft(node.name)
    mapped = names_of(options.hca_map, node.name)
    every = interfaces.resolve(expected.rows, node, mapped, expected.numbers)
    kept, resolved = _without_ignored(node, every, options)
    ignored = _cables(every) - _cables(resolved) if options.ignore else 0
    compared = cables.check_all(resolved.rows, kept, resolved.numbered, expected.devices, off)
    doubled = [*_doubled(compared, expected)]
    texts = {row.text for _, rows in doubled for row in rows}
    for index, cable in enumerate(compared):
        if cable.is_wrong and cable.row.text in texts:
            compared[index] = cable.unverifiable(IN_DUPLICATE)  # first the plan is to be corrected
        elif cable.status == cables.MISCABLED:  # where the switch is to which it leads
            other = expected.spots.get(cable.actual[0] or "")
            compared[index] = cable._replace(other_spot=other or NO_SPOT)
    without = tuple((row, why) for row, why in resolved.without if row.mark != IGNORE)
    findings = [
        *_duplicates(doubled, compared, draft),
        *_of_compared(compared, expected, off, draft),
        *(_unexpected(resolved, kept, draft) if expected.rows else ()),
        *_without_interface(without, resolved, mapped, kept, draft),
        *rates.findings(node, kept, compared, without, expected.speed, draft),
        *pcie.findings(kept, draft),
        *unstable.of_node(kept, compared),
    ]
    if not any(finding.code in OF_CABLES for finding in findings):
        findings += _of_older_labels(expected, node, kept.ports, draft)
    findings.sort(key=order)
    return VerifyResult(
        node.name, tuple(findings), tuple(compared), without, ignored, resolved.assumption
    )


def _cables(resolved: Resolved) -> int:
    return len({row.interface for row in resolved.rows}) + len(resolved.without)


def _without_ignored(
    node: SeenNode, resolved: Resolved, options: VerifyOptions
) -> tuple[SeenNode, Resolved]:
    """Return the ports and rows that --ignore does not name, by their own name or the plan's.

    The rows are in the order of their ports, those without an interface in natural order.
    """
    by_interface = {row.interface: row for row in one_each(resolved.rows)}
    if options.ignore:
        ports = {
            name: port
            for name, port in node.ports.items()
            if not options.has_ignored(
                (
                    *(port.interface, port.netdev, port.pci, port.device),
                    by_interface[name].text if name in by_interface else None,
                )
            )
        }
        node = node._replace(ports=ports)
    without = [(row, why) for row, why in resolved.without if not options.has_ignored([row.text])]
    return node, resolved._replace(
        rows=tuple(by_interface[name] for name in node.ports if name in by_interface),
        without=tuple(sorted(without, key=lambda unresolved: natural(unresolved[0].text))),
    )


def _of_compared(
    compared: Sequence[ComparedCable], expected: Expected, off: Off, draft: Draft
) -> Iterator[Finding]:
    """Yield the findings of compared cables; one for each reason why some are not verified."""
    in_ring: set[PortRef] = set()
    wrong = [cable for cable in compared if cable.is_wrong]
    for ring in cables.rings(wrong, off) if wrong else ():
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
    doubled: Iterable[Doubled], compared: Sequence[ComparedCable], draft: Draft
) -> Iterator[Finding]:
    """Yield the switch ports that the plan gives to several interfaces, or that several see."""
    for users, rows in doubled:
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
    if len({end for end, _ in seen_ends}) == len(seen_ends):  # as nearly everywhere in a fleet
        return
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


def _doubled(compared: Sequence[ComparedCable], expected: Expected) -> Iterator[Doubled]:
    """Yield the switch ports that the plan gives to several interfaces.

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
    keys = {key for key, _ in ends}
    if len(keys) == len(ends) and expected.taken.keys().isdisjoint(keys):
        return  # as nearly everywhere in a fleet
    for end, pairs in grouped(ends, itemgetter(0)).items():
        here = [row for _, row in pairs]
        others = [expected.taken[end]] if end in expected.taken else []
        if len(here) + len(others) > 1:
            yield [*(row.interface or row.text for row in here), *others], here


def _unexpected(resolved: Resolved, node: SeenNode, draft: Draft) -> Iterator[Finding]:
    """Yield the ports with a neighbor that no row names; none if a row may still be theirs."""
    if any(reason in VAGUE for _, reason in resolved.without):
        return
    planned = {row.interface for row in resolved.rows}
    for name, port in node.ports.items():
        if name not in planned and port.far_ends:
            end = port.far_ends[0]
            text = (
                f"The plan has no cable for {name}, which is connected to {end.device} "
                f"port {end.port}: unplug it, or add it to the plan."
            )
            actual, facts = (end.device, end.port), {"pci": port.pci}
            yield draft("unexpected", [name], text, actual=actual, facts=facts)


def _without_interface(
    without: Without,
    resolved: Resolved,
    hca_map: Mapping[str, str],
    node: SeenNode,
    draft: Draft,
) -> Iterator[Finding]:
    """Yield the rows whose interface is not on this node, and a finding for each other reason.

    If every backend port has a row, a name that is not known is of another port.
    """
    by_reason = grouped(without, itemgetter(1))
    for row, _ in by_reason.pop(interfaces.ABSENT, ()):
        name = interfaces.mapped(row.text, hca_map) or row.text
        pci = node.former.get(name) or pci_address(name.strip())
        on_bus = pci in node.on_bus if pci and node.on_bus else None
        if on_bus:
            why = f"its PCI function {pci} is on the bus, so load or repair its driver"
        elif on_bus is False:
            why = f"its PCI function {pci} is not on the bus, so reseat or replace the NIC"
        else:
            why = "look for its NIC on the PCI bus"
        text = f"{row.text} of the plan, to {words.far(row)}, is not on this node: {why}."
        end = (row.device, row.port)
        yield draft(
            "missing-interface",
            [row.text],
            text,
            expected=end,
            facts={**row.facts, "pci": pci, "on-bus": on_bus},
            key=[row.text, *end],  # rows of a name that is none may be of several cables
        )
    has_all = bool(node.ports) and {row.interface for row in resolved.rows}.issuperset(node.ports)
    low = {*LOW, interfaces.UNKNOWN} if has_all else LOW
    for reason, pairs in by_reason.items():
        names = [*dict.fromkeys(row.text for row, _ in pairs)]
        text = f"{listed(names)} of the plan: not verified: {reason}."
        facts = {"reason": reason, "plan": pairs[0][0].place}
        severity = INFO if reason in low else None
        key = ["plan", reason]
        yield draft("unverifiable", names, text, facts=facts, key=key, severity=severity)


# all cables in one label


def _of_older_labels(
    expected: Expected, node: SeenNode, kept: Collection[str], draft: Draft
) -> Iterator[Finding]:
    """Yield the differences from the labels that have all devices, or all ports, in one text.

    `kept` are the interfaces that are not to be ignored, of whose ports the label may have more.
    """
    if not (expected.leaves or expected.ports):  # the Node has none of these labels
        return
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
