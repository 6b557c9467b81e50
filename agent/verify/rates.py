"""The findings `slow` and `speed`: rates below the plan's, below the peers', and their sum.

A rate that the kernel may not know (`is_suspect`) proves nothing, and neither does a plan with the
rates of cables: two ports of 400G may share one of 800G.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import INFO, NOT_VERIFIED, grouped
from agent.labels import encode
from agent.plans.rates import rate
from agent.text import listed
from agent.verify import words
from agent.verify.cables import IGNORED
from agent.verify.interfaces import ABSENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import Draft, Finding
    from agent.verify.cables import Cable
    from agent.verify.expected import Row
    from agent.verify.seen import Port, SeenNode

    ByInterface = Mapping[str, Cable]

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
    compared: Sequence[Cable],
    without: Iterable[tuple[Row, str]],
    speed: str | None,
    draft: Draft,
) -> Iterator[Finding]:
    """Yield the slow ports, and the sum below `speed`; what is not `kept` is to be ignored."""
    by_interface = {one.ref.interface: one for one in compared}
    marked = {name for name, one in by_interface.items() if one.status == IGNORED}
    ports = [port for name, port in kept.ports.items() if name not in marked]
    yield from _slow(ports, by_interface, draft)
    if speed:
        absent = [row.text for row, reason in without if reason == ABSENT]
        ignored = node.ports.keys() - {port.interface for port in ports}
        every = [*node.ports.values()]
        yield from _below(Sum(every, absent, ignored, is_complete=not node.unread), speed, draft)


def _slow(ports: Iterable[Port], cables: ByInterface, draft: Draft) -> Iterator[Finding]:
    """Yield a finding for each port that is slower than its plan or its peers."""
    active = [port for port in ports if port.rate_gbps]
    names = [port.interface for port in active if port.interface in cables]
    planned = {name: gbps for name in names if (gbps := cables[name].row.rate_gbps)}
    if not planned and len({port.rate_gbps for port in active}) < 2:
        return
    if _are_of_cables(active, planned):
        yield _unverifiable(
            [low for low in _low(active, planned) if low.than == PLAN], OF_CABLES, draft
        )
        planned = {}
    found = list(_low(active, planned))
    for doubt in (OLD_KERNEL, NO_KIND):
        if doubtful := [low for low in found if low.doubt == doubt]:
            yield _unverifiable(doubtful, doubt, draft)
    for low in found:
        if not low.doubt:
            port = low.port
            to = words.present(port, cables.get(port.interface))
            text = (
                f"Reseat or replace the cable of {port.interface} to {to}: it runs at "
                f"{encode.gbps(low.rate)} instead of {encode.gbps(low.wanted)} ({low.than})."
            )
            rates = {"rate-gbps": f"{low.rate:g}", "expected-gbps": f"{low.wanted:g}"}
            yield draft("slow", [port.interface], text, facts={**rates, "pci": port.pci})


def _are_of_cables(active: Iterable[Port], planned: Mapping[str, float]) -> bool:
    """Return True if no port has its planned rate, and most have one part of it."""
    parts = [
        (port.rate_gbps or 0) / planned[port.interface]
        for port in active
        if port.interface in planned and not port.is_suspect
    ]
    usual = Counter(parts).most_common(1)
    return len(parts) > 1 and max(parts) < 1 and 2 * usual[0][1] > len(parts)


def _low(active: Sequence[Port], planned: Mapping[str, float]) -> Iterator[Low]:
    """Yield the ports below their planned rate, or without one below that of their peers."""
    usual = _usual(active)
    for port in active:
        wanted = planned.get(port.interface)
        than = PLAN if wanted else PEERS
        wanted = wanted or usual.get(port.kind, 0)
        if port.rate_gbps and port.rate_gbps < wanted:
            yield Low(port, port.rate_gbps, wanted, than)


def _usual(active: Iterable[Port]) -> dict[object, float]:
    """Return the rate of more than half of the NICs of each kind."""
    found: dict[object, float] = {}
    for kind, peers in grouped(active, lambda port: port.kind).items():
        gbps, count = Counter(port.rate_gbps or 0 for port in peers).most_common(1)[0]
        if 2 * count > len(peers):
            found[kind] = gbps
    return found


def _unverifiable(low: Sequence[Low], doubt: str, draft: Draft) -> Finding:
    names = [one.port.interface for one in low]
    first = low[0]
    text = (
        f"Rates of {listed(names)} not verified: {names[0]} runs at {encode.gbps(first.rate)} "
        f"instead of {encode.gbps(first.wanted)} ({first.than}); {doubt}."
    )
    severity = INFO if doubt == NO_KIND else None
    facts, key = {"reason": doubt}, ["rate", doubt]
    return draft("unverifiable", names, text, facts=facts, key=key, severity=severity)


class Sum(NamedTuple):
    """The parts of `speed.current`."""

    ports: Sequence[Port]
    absent: Sequence[str] = ()  # interfaces of the plan that are not on this node
    ignored: Collection[str] = ()  # interfaces that are to be left out
    is_complete: bool = True  # every RDMA device was read

    @property
    def gbps(self) -> float:
        """The sum."""
        return sum(port.rate_gbps or 0 for port in self.ports)

    @property
    def most(self) -> float:
        """The sum if every rate that is not known is that of the best NIC of its kind."""
        if self._is_partial:
            return inf
        best = _best(port for port in self.ports if not port.is_suspect)
        return sum(
            best.get(port.kind, inf) if port.is_suspect else port.rate_gbps or 0
            for port in self.ports
        )

    @property
    def with_ignored(self) -> float:
        """The sum if every port to ignore had the rate of the best NIC of its kind."""
        best = _best(self.ports)
        return sum(
            best[port.kind] if port.interface in self.ignored else port.rate_gbps or 0
            for port in self.ports
        )

    @property
    def doubt(self) -> str:
        """The reason why it may be more."""
        return "not every port could be read" if self._is_partial else OLD_KERNEL

    @property
    def _is_partial(self) -> bool:
        return not self.is_complete or any(port.rate_gbps is None for port in self.ports)

    def low(self) -> dict[str, str]:
        """Return the interfaces that account for a difference, each with its rate in words."""
        best = _best(self.ports)
        low = {
            port.interface: encode.gbps(port.rate_gbps or 0)
            for port in self.ports
            if port.interface not in self.ignored
            and (not port.rate_gbps or port.rate_gbps < best[port.kind])
        }
        return low | dict.fromkeys(self.absent, "not on this node")


def _best(ports: Iterable[Port]) -> dict[object, float]:
    """Return the highest rate of each kind of NIC."""
    by_kind = grouped(ports, lambda port: port.kind)
    return {kind: max(port.rate_gbps or 0 for port in peers) for kind, peers in by_kind.items()}


def _below(sums: Sum, expected: str, draft: Draft) -> Iterator[Finding]:
    """Yield the finding of a sum below `speed.expected`."""
    wanted, current = rate(expected), encode.gbps(sums.gbps)
    if wanted is not None and sums.with_ignored >= wanted:
        return
    if wanted is not None and wanted > sums.most:
        low = sums.low()
        ports = ", ".join(f"{name} ({why})" for name, why in low.items())
        why = f": {ports} make the difference" if ports else ""
        text = f"Repair the ports that do not count; the node has {current} of {expected}{why}."
        facts = {"current": current, "expected": expected}
        yield draft("speed", [*low], text, facts=facts, key=["speed"])
        return
    text = (
        f"Correct speed.expected: {expected!r} is no rate such as 3200G."
        if wanted is None
        else f"Speed not verified: {current} of {expected}; {sums.doubt}."
    )
    yield draft("unverifiable", [], text, facts={NOT_VERIFIED: "speed"}, key=["speed"])
