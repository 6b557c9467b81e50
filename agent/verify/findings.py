"""Compare the two halves of one node: the list of findings, and the result for each cable.

Pure. Every difference is one finding, and one cause one finding: cables that changed places, rows
that lack the same fact. A port that is down without a row in the plan is none.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from agent.model import natural
from agent.reasons import NeighborReason
from agent.verify import cables, interfaces, pcie, rates, words
from agent.verify.expected import contradiction, of_seen
from agent.verify.finding import INFO, Draft, Finding, facts_of, listed, order
from agent.verify.names import same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.sources.pcie import PciePath
    from agent.verify.cables import Checked
    from agent.verify.expected import Expected, Row
    from agent.verify.interfaces import Resolved
    from agent.verify.seen import Port, SeenNode

NO_NAMES: Mapping[str, str] = {}
OF_CABLES = frozenset({"miscabled", "wrong-port", "swapped", "missing", "missing-interface"})
IN_DUPLICATE = "the plan gives its switch port twice"  # with a finding of its own
LOW = frozenset({interfaces.NOT_BACKEND, interfaces.EXCLUDED})  # no cable of the backend


class Options(NamedTuple):
    """The choices of the operator, and facts about this node."""

    off: frozenset[str] = frozenset()  # tolerances of names that are switched off
    ignore: tuple[str, ...] = ()  # globs of interfaces, netdevs, PCI addresses
    hca_map: Mapping[str, str] = NO_NAMES  # interface of the plan to interface, netdev or address
    addresses: Mapping[str, str] = NO_NAMES  # former interface to PCI address, from the Node
    on_bus: frozenset[str] = frozenset()  # PCI functions; empty: not read


DEFAULTS = Options()


class Result(NamedTuple):
    """The result of one node."""

    node: str
    findings: tuple[Finding, ...]
    cables: tuple[Checked, ...]
    unresolved: tuple[tuple[Row, str], ...] = ()  # rows without an interface, and why
    assumption: str | None = None

    @property
    def planned(self) -> int:
        """The number of cables of the plan that can be told from this node."""
        checked = sum(one.status != cables.IGNORED for one in self.cables)
        return checked + sum(reason not in LOW for _, reason in self.unresolved)

    @property
    def as_planned(self) -> int:
        """The number of cables that are as planned."""
        return sum(one.status == cables.AS_PLANNED for one in self.cables)


def verify(
    expected: Expected,
    node: SeenNode,
    options: Options = DEFAULTS,
    paths: Mapping[str, PciePath] | None = None,
) -> Result:
    """Compare the expected half with the observed one; `paths` are by PCI address, None: unread."""
    draft = Draft(node.name)
    kept = [row for row in expected.rows if not _is_ignored([row.text], options)]
    resolved = interfaces.resolve(kept, node, options.hca_map, expected.interfaces)
    ports = {
        name: port for name, port in node.ports.items() if not _is_ignored(_names(port), options)
    }
    checked = cables.check_all(
        resolved.rows, ports, resolved.numbered, expected.devices, options.off
    )
    checked = _without_doubled(_one_each(checked), expected)
    found = [
        *_cable_findings(checked, expected, options, draft),
        *_unplanned(expected, ports, resolved, draft),
        *_unresolved(resolved, ports, options, draft),
        *_rates(expected, node, ports, checked, draft),
        *(pcie.findings(ports.values(), paths, draft) if paths is not None else ()),
    ]
    found += _joined(expected, node, found, draft)
    findings = tuple(sorted(found, key=order))
    return Result(node.name, findings, tuple(checked), resolved.without, resolved.assumption)


def _one_each(checked: Iterable[Checked]) -> list[Checked]:
    """Drop a second row of an interface; raises Malformed if the two differ."""
    found: dict[str, Checked] = {}
    for one in checked:
        first = found.setdefault(one.port.interface, one)
        if first is not one and not _agree(first, one):
            raise contradiction(first.row, one.row)
    return list(found.values())


def _agree(one: Checked, other: Checked) -> bool:
    if one.status == other.status == cables.AS_PLANNED:
        return True
    is_same_port = not {*one.row.ports}.isdisjoint(other.row.ports)
    return is_same_port and bool(same_name(one.row.device or "", other.row.device or ""))


def _names(port: Port) -> list[str]:
    return [name for name in (port.interface, port.netdev, port.pci, port.device) if name]


def _is_ignored(names: Iterable[str], options: Options) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in options.ignore)


def _cable_findings(
    checked: Sequence[Checked], expected: Expected, options: Options, draft: Draft
) -> Iterator[Finding]:
    """Yield the findings of compared rows, swaps and duplicates first."""
    for users, rows in _doubled(checked, expected):
        yield _in_plan(users, rows, draft)
    yield from _seen_twice(checked, draft)
    rings = cables.rings(checked, options.off)
    in_ring = {one.port.interface for ring in rings for one in ring}
    for ring in rings:
        yield _swapped(ring, draft)
    for one in checked:
        if one.status == cables.MISSING:
            yield _of_cable("missing", one, words.missing(one), draft)
        elif one.is_wrong and one.port.interface not in in_ring:
            yield _wrong(one, checked, expected, options, draft)
    yield from _unverifiable(checked, draft)


def _wrong(
    one: Checked, checked: Iterable[Checked], expected: Expected, options: Options, draft: Draft
) -> Finding:
    """Return the finding of one cable that leads elsewhere, with the owner of its port."""
    owner = next(
        (
            other.port.interface
            for other in checked
            if other is not one and other.row.ports and cables.leads_to(one, other.row, options.off)
        ),
        None,
    )
    if owner is None and one.far_end:
        ports = (one.far_end.port_id, one.far_end.port_name)
        keys = [(one.far_end.device, port) for port in ports if port]
        owner = next((expected.taken[key] for key in keys if key in expected.taken), None)
    say = words.miscabled if one.status == cables.MISCABLED else words.wrong_port
    return _of_cable(one.status, one, say(one, owner), draft, {"planned-for": owner})


def _of_cable(
    code: str, one: Checked, text: str, draft: Draft, facts: dict[str, object] | None = None
) -> Finding:
    known = {
        **facts_of(one.row),
        "reason": one.reason,
        "phys-state": one.port.phys_state,
        "pci": one.port.pci,
        "matched-by-device": one.device.by,
        "matched-by-port": one.far_port.by,
        **(facts or {}),
    }
    ends = (one.row.device, one.row.port), _actual(one)
    return draft(code, [one.port.interface], text, ends=ends, facts=known)


def _actual(one: Checked) -> tuple[str | None, str | None]:
    return (one.far_end.device, one.far_end.port) if one.far_end else (None, None)


def _swapped(ring: Sequence[Checked], draft: Draft) -> Finding:
    ring = sorted(ring, key=lambda one: natural(one.port.interface))
    facts = {
        f"{one.port.interface}-{name}": " ".join(filter(None, end))
        for one in ring
        for name, end in (
            ("expected", (one.row.device, one.row.port)),
            ("actual", _actual(one)),
        )
    }
    names = [one.port.interface for one in ring]
    ends = (ring[0].row.device, ring[0].row.port), _actual(ring[0])
    return draft("swapped", names, words.swapped(ring), ends=ends, facts=facts)


def _doubled(
    checked: Iterable[Checked], expected: Expected
) -> Iterator[tuple[list[str], list[Row]]]:
    """Yield the switch ports that the plan gives to several interfaces: (users, rows here)."""
    by_end: dict[tuple[str, str], list[Row]] = {}
    for one in checked:
        if one.row.device and one.row.port and one.status != cables.IGNORED:
            by_end.setdefault((one.row.device, one.row.port), []).append(one.row)
    for end, rows in by_end.items():
        others = [expected.taken[end]] if end in expected.taken else []
        users = [*(row.interface or row.text for row in rows), *others]
        if len(users) > 1:
            yield users, rows


def _without_doubled(checked: Sequence[Checked], expected: Expected) -> list[Checked]:
    """Withdraw wrong cables whose port the plan gives twice: the plan is to be corrected first."""
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
    return draft("duplicate", names, text, ends=((device, port), (None, None)), facts=facts)


def _seen_twice(checked: Iterable[Checked], draft: Draft) -> Iterator[Finding]:
    """Yield the switch ports that several interfaces see."""
    by_end: dict[tuple[str, str], list[str]] = {}
    for one in checked:
        if one.far_end and one.far_end.port_id:
            end = one.far_end.device, one.far_end.port_id
            by_end.setdefault(end, []).append(one.port.interface)
    for (device, port), names in by_end.items():
        if len(names) > 1:
            text = words.duplicate_seen(device, port, names)
            yield draft("duplicate", names, text, ends=((None, None), (device, port)))


def _unverifiable(checked: Iterable[Checked], draft: Draft) -> Iterator[Finding]:
    """Yield one finding for each reason."""
    by_reason: dict[str, list[Checked]] = {}
    for one in checked:
        if one.status == cables.UNVERIFIABLE and one.reason != IN_DUPLICATE:
            by_reason.setdefault(one.reason or "", []).append(one)
    for reason, group in by_reason.items():
        word = NeighborReason.of(reason)
        names = [one.port.interface for one in group]
        text = f"{listed(names)}: not verified: {word.text if word else reason}."
        facts = {"reason": reason, "plan": group[0].row.place}
        yield draft("unverifiable", names, text, facts=facts, key=[reason])


def _unplanned(
    expected: Expected, ports: Mapping[str, Port], resolved: Resolved, draft: Draft
) -> Iterator[Finding]:
    """Yield the ports with a neighbor that no row names; none if a row may still be theirs."""
    if not expected.rows or any(_may_be_a_port(reason) for _, reason in resolved.without):
        return
    planned = {row.interface for row in resolved.rows}
    for name, port in ports.items():
        if name not in planned and port.far_ends:
            device, far_port = port.far_ends[0].device, port.far_ends[0].port
            text = words.unexpected(name, device, far_port)
            ends = (None, None), (device, far_port)
            yield draft("unexpected", [name], text, ends=ends, facts={"pci": port.pci})


def _may_be_a_port(reason: str) -> bool:
    return reason in {interfaces.UNKNOWN, interfaces.NUMBERING}


def _unresolved(
    resolved: Resolved, ports: Mapping[str, Port], options: Options, draft: Draft
) -> Iterator[Finding]:
    """Yield the rows without an interface: missing ones each, all others by their reason."""
    by_reason: dict[str, list[Row]] = {}
    for row, reason in resolved.without:
        if reason == interfaces.ABSENT:
            yield _missing_interface(row, options, draft)
        else:
            by_reason.setdefault(reason, []).append(row)
    has_all = {row.interface for row in resolved.rows}.issuperset(ports)
    for reason, rows in by_reason.items():
        is_low = reason in LOW or (has_all and reason == interfaces.UNKNOWN)
        names = [row.text for row in rows]
        text = f"{listed(names)} of the plan: not verified: {reason}."
        facts = {"reason": reason, "plan": rows[0].place}
        severity = INFO if is_low else None
        yield draft("unverifiable", names, text, facts=facts, key=[reason], severity=severity)


def _missing_interface(row: Row, options: Options, draft: Draft) -> Finding:
    pci = options.addresses.get(row.text) or (row.text if ":" in row.text else None)
    on_bus = pci in options.on_bus if pci and options.on_bus else None
    text = words.missing_interface(row, pci, on_bus=on_bus)
    facts = {**facts_of(row), "pci": pci, "on-bus": on_bus}
    ends = (row.device, row.port), (None, None)
    return draft("missing-interface", [row.text], text, ends=ends, facts=facts)


def _rates(
    expected: Expected,
    node: SeenNode,
    ports: Mapping[str, Port],
    checked: Iterable[Checked],
    draft: Draft,
) -> Iterator[Finding]:
    rows = {one.port.interface: one.row for one in checked if one.status != cables.IGNORED}
    ignored = {one.port.interface for one in checked if one.status == cables.IGNORED}
    yield from rates.slow(
        [port for name, port in ports.items() if name not in ignored], rows, draft
    )
    if expected.speed:
        all_ports = list(node.ports.values())
        found = rates.speed(all_ports, expected.speed, draft, complete=not node.unread)
        yield from [found] if found else []


def _joined(
    expected: Expected, node: SeenNode, found: Sequence[Finding], draft: Draft
) -> Iterator[Finding]:
    """Compare `leaves.expected` and `ports.expected`, unless a cable explains the difference."""
    ends = [port.far_ends[0] for port in node.ports.values() if port.far_ends]
    leaves = sorted({end.device for end in ends}, key=natural)
    has_all = len(ends) == len(node.ports) and not node.unread
    is_explained = any(one.code in OF_CABLES for one in found)
    for code, wanted, texts in (
        ("miscabled", expected.leaves, leaves),
        ("wrong-port", expected.ports, [end.port_id for end in ends]),
    ):
        if wanted and of_seen(texts) != wanted and not is_explained:
            yield _joined_finding(code, wanted, of_seen(texts), draft, has_all=has_all)


def _joined_finding(code: str, wanted: str, seen: str, draft: Draft, *, has_all: bool) -> Finding:
    name = "leaves.expected" if code == "miscabled" else "ports.expected"
    ends = ((wanted, None), (seen, None)) if code == "miscabled" else ((None, wanted), (None, seen))
    if not has_all:
        text = f"{name} not verified: not every backend port has a neighbor."
        return draft("unverifiable", [], text, ends=ends, key=[name])
    text = f"Check the cables of this node: {name} is {wanted}, and the ports see {seen}."
    return draft(code, [], text, ends=ends, key=[name])
