"""The findings `slow` and `speed`: rates below the plan's, below the peers', and their sum.

A rate that the kernel may not know (`is_suspect`) proves nothing, and neither does a plan with the
rates of cables: two ports of 400G may share one of 800G. Where the plan has no rate, an unknown one
is a remark: nothing that was expected could not be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from agent import encode
from agent.cabling import words
from agent.cabling.cables import IGNORED, ComparedCable
from agent.cabling.expected import ExpectedRow
from agent.cabling.finding import INFO, NOT_VERIFIED, Draft, Finding
from agent.cabling.interfaces import ABSENT
from agent.cabling.plans.columns import rate
from agent.cabling.seen import Port, SeenNode
from agent.grouped import grouped
from agent.text import listed

ByInterface = Mapping[str, ComparedCable]

OLD_KERNEL = "the kernel may not know the speed of this HCA"
OF_CABLES = "no port has its planned rate, so these may be the rates of cables"
NO_KIND = "the kernel does not tell the kind of these NICs, which may be two"
PLAN, PEERS = "the plan's rate", "as its peers do"


class Low(NamedTuple):
    """A port below the rate that it should have."""

    port: Port
    rate: float  # Gb/s
    wanted: float
    than: str  # PLAN or PEERS

    @property
    def doubt(self) -> str | None:
        """The reason to doubt that the port is slow; None for none."""
        if self.port.is_suspect:
            return OLD_KERNEL
        return NO_KIND if self.than == PEERS and self.port.kind == (None, None) else None


def findings(  # noqa: PLR0913, PLR0917 - both halves of the node
    node: SeenNode,
    kept: SeenNode,
    compared: Sequence[ComparedCable],
    without: Iterable[tuple[ExpectedRow, str]],
    speed: str | None,
    draft: Draft,
) -> Iterator[Finding]:
    """Yield the slow ports, and the sum below `speed`; what is not `kept` is to be ignored."""
    by_interface = {cable.ref.interface: cable for cable in compared}
    marked = {name for name, cable in by_interface.items() if cable.status == IGNORED}
    ports = [port for name, port in kept.ports.items() if name not in marked]
    yield from _slow(ports, by_interface, draft)
    if speed:
        absent = [row.text for row, reason in without if reason == ABSENT]
        ignored = node.ports.keys() - {port.interface for port in ports}
        planned = {name: cable.row.rate_gbps or 0 for name, cable in by_interface.items()}
        yield from _below(node, planned, absent, ignored, speed, draft)


def _slow(ports: Iterable[Port], cables: ByInterface, draft: Draft) -> Iterator[Finding]:
    """Yield a finding for each port that is slower than its plan or its peers."""
    active = [port for port in ports if port.rate_gbps]
    planned = {
        port.interface: gbps
        for port in active
        if (cable := cables.get(port.interface)) and (gbps := cable.row.rate_gbps)
    }
    if not planned and len({port.rate_gbps for port in active}) < 2:  # as nearly everywhere
        return
    if _is_of_cables(active, planned):
        yield _unverifiable(
            [low for low in _low(active, planned) if low.than == PLAN], OF_CABLES, draft
        )
        planned = {}
    slow = list(_low(active, planned))
    for doubt in (OLD_KERNEL, NO_KIND):
        if doubtful := [low for low in slow if low.doubt == doubt]:
            yield _unverifiable(doubtful, doubt, draft)
    for low in slow:
        if low.doubt:
            continue
        port, cable = low.port, cables.get(low.port.interface)
        near = words.near(cable.row) if cable else port.interface
        text = (
            f"Reseat or replace the cable of {near} to {words.present(port, cable)}: it runs at "
            f"{encode.gbps(low.rate)} instead of {encode.gbps(low.wanted)} ({low.than})."
        )
        facts = {"rate-gbps": f"{low.rate:g}", "expected-gbps": f"{low.wanted:g}", "pci": port.pci}
        known, moves = (cable.facts | facts, (cable.stay,)) if cable else (facts, ())
        yield draft("slow", [port.interface], text, facts=known, moves=moves)


def _is_of_cables(active: Iterable[Port], planned: Mapping[str, float]) -> bool:
    """Return True if no port has its planned rate, and most have one part of it."""
    parts = [
        (port.rate_gbps or 0) / planned[port.interface]
        for port in active
        if port.interface in planned and not port.is_suspect
    ]
    if len(parts) < 2 or max(parts) >= 1:
        return False
    return 2 * Counter(parts).most_common(1)[0][1] > len(parts)


def _low(active: Sequence[Port], planned: Mapping[str, float]) -> Iterator[Low]:
    """Yield the ports below their planned rate, or without one below that of their peers."""
    usual: dict[object, float] = {}  # the rate of more than half of the NICs of a kind
    for kind, peers in grouped(active, lambda port: port.kind).items():
        gbps, count = Counter(port.rate_gbps or 0 for port in peers).most_common(1)[0]
        if 2 * count > len(peers):
            usual[kind] = gbps
    for port in active:
        wanted = planned.get(port.interface)
        than = PLAN if wanted else PEERS
        wanted = wanted or usual.get(port.kind, 0)
        if port.rate_gbps and port.rate_gbps < wanted:
            yield Low(port, port.rate_gbps, wanted, than)


def _unverifiable(slow: Sequence[Low], doubt: str, draft: Draft) -> Finding:
    names = [low.port.interface for low in slow]
    first = slow[0]
    text = (
        f"Rates of {listed(names)} not verified: {names[0]} runs at {encode.gbps(first.rate)} "
        f"instead of {encode.gbps(first.wanted)} ({first.than}); {doubt}."
    )
    severity = None if any(low.than == PLAN for low in slow) else INFO
    facts, key = {"reason": doubt}, ["rate", doubt]
    return draft("unverifiable", names, text, facts=facts, key=key, severity=severity)


class Sums(NamedTuple):
    """What the rates of a node add up to, in Gb/s.

    Where a rate is not known at all, the sum of the Node's label counts.
    """

    current: float
    allowed: float  # with the best rate of its kind for each port to ignore
    most: float  # with that for each port whose rate the kernel may not know
    doubt: str  # why the node may have more than now


def _sums(node: SeenNode, ignored: Collection[str]) -> Sums:
    ports = node.ports.values()
    rates = {port.interface: port.rate_gbps or 0 for port in ports}
    best, sure = _best(ports), _best(port for port in ports if not port.is_suspect)
    of_ignored = {port.interface: best[port.kind] for port in ports if port.interface in ignored}
    current, allowed = sum(rates.values()), sum((rates | of_ignored).values())
    if not node.unread and all(port.rate_gbps is not None for port in ports):
        suspect = {port.interface: sure.get(port.kind, inf) for port in ports if port.is_suspect}
        return Sums(current, allowed, sum((rates | suspect).values()), OLD_KERNEL)
    doubt, published = "not every port could be read", None if ignored else node.speed_gbps
    if published is None:
        return Sums(current, allowed, inf, doubt)
    return Sums(published or current, published, published, doubt)


def _below(  # noqa: PLR0913, PLR0917 - as above
    node: SeenNode,
    planned: Mapping[str, float],
    absent: Iterable[str],
    ignored: Collection[str],
    expected: str,
    draft: Draft,
) -> Iterator[Finding]:
    """Yield the finding of a sum below `speed.expected`.

    `absent` are interfaces of the plan that are not on this node.
    """
    wanted, sums = rate(expected), _sums(node, ignored)
    current = encode.gbps(sums.current)
    unsure: dict[str, Any] = {"facts": {NOT_VERIFIED: "speed"}, "key": ["speed"]}
    if wanted is None:
        text = f"Correct speed.expected: {expected!r} is no rate such as 3200G."
        yield draft("unverifiable", [], text, **unsure)
    elif sums.most >= wanted > sums.allowed:
        text = f"Speed not verified: {current} of {expected}; {sums.doubt}."
        yield draft("unverifiable", [], text, **unsure)
    elif wanted > sums.allowed:
        low = _low_ports(node, planned, ignored) | dict.fromkeys(absent, "not on this node")
        rates = [node.ports[name].rate_gbps if name in node.ports else 0 for name in low]
        which = ["do not count"] if not all(rates) else []
        which += ["are slow"] if any(rates) else []
        shown = low or {  # none is lower than another
            port.interface: encode.gbps(port.rate_gbps)
            for port in node.ports.values()
            if port.interface not in ignored and port.rate_gbps
        }
        names = ", ".join(f"{name} ({why})" for name, why in shown.items())
        names = f": {names}{' make the difference' if low else ''}" if names else ""
        repair = f"Repair the ports that {' or '.join(which) or 'are slow or missing'}"
        text = f"{repair}; the node has {current} of {expected}{names}."
        facts = {"current": current, "expected": expected}
        yield draft("speed", [*low], text, facts=facts, key=["speed"])


def _low_ports(
    node: SeenNode, planned: Mapping[str, float], ignored: Collection[str]
) -> dict[str, str]:
    """Return the rates of ports below that of the best NIC of their kind, or of the plan."""
    best = _best(node.ports.values())
    return {
        name: encode.gbps(port.rate_gbps)
        for name, port in node.ports.items()
        if name not in ignored
        and port.rate_gbps is not None
        and (not port.rate_gbps or port.rate_gbps < max(best[port.kind], planned.get(name, 0)))
    }


def _best(ports: Iterable[Port]) -> dict[object, float]:
    """Return the highest rate of each kind of NIC."""
    by_kind = grouped(ports, lambda port: port.kind)
    return {kind: max(port.rate_gbps or 0 for port in peers) for kind, peers in by_kind.items()}
