"""The findings `slow` and `speed`: rates below the plan's, below the peers', and their sum."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.labels import encode
from agent.verify import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.verify.expected import Row
    from agent.verify.finding import Draft, Finding
    from agent.verify.seen import Port

Planned = tuple["Port", "Row"]


def slow(ports: Sequence[Port], rows: Mapping[str, Row], draft: Draft) -> Iterator[Finding]:
    """Yield a finding for each port that is slower than its plan or its peers."""
    active = [port for port in ports if port.rate_gbps]
    planned = [(port, row) for port in active if (row := rows.get(port.interface))]
    below = [one for one in planned if _is_below(*one)]
    doubt = _doubt(below, planned)
    if doubt:
        yield _doubtful(below, doubt, draft)
    else:
        yield from (_below_plan(port, row, draft) for port, row in below)
    known = {port.interface for port, row in planned if row.rate_gbps and not doubt}
    yield from _below_peers(active, known, rows, draft)


def _is_below(port: Port, row: Row) -> bool:
    return bool(row.rate_gbps and port.rate_gbps and port.rate_gbps < row.rate_gbps)


def _doubt(below: Sequence[Planned], planned: Sequence[Planned]) -> str | None:
    """Return why the rates of the plan cannot be compared; None if they can."""
    if any(port.is_suspect for port, _ in below):
        return "the kernel may not know the speed of this HCA"
    rated = [one for one in planned if one[1].rate_gbps]
    factors = {(port.rate_gbps or 0) / (row.rate_gbps or 1) for port, row in below}
    if len(rated) > 1 and len(below) == len(rated) and len(factors) == 1:
        return "every port is below its planned rate by one factor: are these the rates of cables?"
    return None


def _doubtful(below: Sequence[Planned], doubt: str, draft: Draft) -> Finding:
    interfaces = [port.interface for port, _ in below]
    port, row = below[0]
    text = (
        f"Rates not verified: {interfaces[0]} runs at {encode.gbps(port.rate_gbps or 0)}, "
        f"the plan says {encode.gbps(row.rate_gbps or 0)}; {doubt}."
    )
    return draft("unverifiable", interfaces, text, key=["rate"])


def _below_plan(port: Port, row: Row, draft: Draft) -> Finding:
    rate, wanted = port.rate_gbps or 0, row.rate_gbps or 0
    text = words.slow(port.interface, rate, wanted, "the plan's rate", words.far(row))
    return _slow(port, text, rate, wanted, draft)


def _below_peers(
    active: Iterable[Port], known: Iterable[str], rows: Mapping[str, Row], draft: Draft
) -> Iterator[Finding]:
    """Yield the ports below the rate of more than half of the NICs of their kind."""
    by_kind: dict[object, list[Port]] = {}
    for port in active:
        by_kind.setdefault(port.kind, []).append(port)
    for peers in by_kind.values():
        usual, count = Counter(port.rate_gbps for port in peers).most_common(1)[0]
        for port in peers:
            is_slow = port.rate_gbps and usual and port.rate_gbps < usual
            if is_slow and 2 * count > len(peers) and port.interface not in known:
                yield _below_peer(port, usual or 0, rows.get(port.interface), draft)


def _below_peer(port: Port, usual: float, row: Row | None, draft: Draft) -> Finding:
    rate = port.rate_gbps or 0
    seen = port.far_ends[0].device if port.far_ends else "the switch"
    to = words.far(row) if row else seen
    text = words.slow(port.interface, rate, usual, "as its peers do", to)
    return _slow(port, text, rate, usual, draft)


def _slow(port: Port, text: str, rate: float, wanted: float, draft: Draft) -> Finding:
    facts = {"rate-gbps": f"{rate:g}", "expected-gbps": f"{wanted:g}", "pci": port.pci}
    return draft("slow", [port.interface], text, facts=facts)


def speed(ports: Sequence[Port], expected: str, draft: Draft, *, complete: bool) -> Finding | None:
    """Compare the sum of the rates with `speed.expected`; None if it is not below.

    `complete`: every RDMA device was read.
    """
    wanted = gbps(expected)
    rates = [port.rate_gbps for port in ports]
    if wanted is None:
        text = f"Correct speed.expected: {expected!r} is no rate such as 3200G."
        return draft("unverifiable", [], text, key=["speed"])
    total = sum(filter(None, rates))
    if total >= wanted:
        return None
    if not complete or None in rates:
        text = (
            f"Speed not verified: not every port could be read; {encode.gbps(total)} of {expected}."
        )
        return draft("unverifiable", [], text, key=["speed"])
    usual = max(filter(None, rates), default=wanted / max(len(ports), 1))
    low = [port for port in ports if (port.rate_gbps or 0) < usual]
    names = [f"{port.interface} ({encode.gbps(port.rate_gbps or 0)})" for port in low]
    facts = {"current": encode.gbps(total), "expected": expected}
    text = words.speed(encode.gbps(total), expected, names)
    return draft("speed", [port.interface for port in low], text, facts=facts, key=["speed"])


def gbps(text: str) -> float | None:
    """Return the Gb/s of `3200G`; None for anything else."""
    number = text.removesuffix("G")
    is_rate = number != text and number.replace(".", "", 1).isdecimal() and number.isascii()
    return float(number) if is_rate else None
