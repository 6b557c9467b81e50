"""Ports that are slower than the same port of most other nodes of the group.

A group says what is usual only if it has enough active ports of one interface, and nearly all of
them have one rate: two generations of NICs in a group are no difference.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import PortRef, finding, grouped
from agent.fleet.cables import end_text
from agent.labels import encode
from agent.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.judged import Group
    from agent.fleet.model import FleetNode, FleetPort

MIN_PORTS = 4  # of one interface in a group
USUAL = 0.75  # the share of them that has the usual rate


class _Rated(NamedTuple):
    """A port with a far end and a known rate."""

    ref: PortRef
    port: FleetPort
    gbps: float


class _Slow(NamedTuple):
    """A port below the usual rate."""

    rated: _Rated
    usual: float
    share: tuple[int, int]  # ports with that rate, of all


def slow(
    nodes: Iterable[FleetNode], groups: Iterable[Group], explained: Collection[PortRef]
) -> Iterator[Finding]:
    """Yield a finding for each node with such ports; `explained` ones are left out."""
    by_name = {node.name: node for node in nodes}
    for group in groups:
        members = [by_name[name] for name in group.nodes if name in by_name]
        found = [one for one in _slow_ports(members) if one.rated.ref not in explained]
        for node, same in grouped(found, lambda one: one.rated.ref.node).items():
            yield _finding(node, same)


def _slow_ports(nodes: Iterable[FleetNode]) -> Iterator[_Slow]:
    rated = (one for node in nodes for one in _rated(node))
    for same in grouped(rated, lambda one: one.port.pci or one.port.interface).values():
        usual, count = Counter(one.gbps for one in same).most_common(1)[0]
        if len(same) >= MIN_PORTS and count >= USUAL * len(same):
            yield from (_Slow(one, usual, (count, len(same))) for one in same if one.gbps < usual)


def _rated(node: FleetNode) -> Iterator[_Rated]:
    """Yield the ports with a cable; a leg of a bond may be on standby and count nothing."""
    for port in node.ports:
        is_leg = not port.interface.rpartition("-")[2].isdecimal() and "-" in port.interface
        if port.gbps is not None and port.far_end and not port.is_lost and not is_leg:
            yield _Rated(PortRef(node.name, port.interface), port, port.gbps)


def _finding(node: str, found: Sequence[_Slow]) -> Finding:
    first = found[0]
    shown = [_text(one) for one in found]
    verb = "Activate" if not first.rated.gbps else "Reseat or replace the cable of"
    count, all_ports = first.share
    text = (
        f"{verb} {node} {listed(shown)}; {count:,} of {all_ports:,} such ports of the group "
        f"run at {encode.gbps(first.usual)}."
    )
    facts = {"rate-gbps": f"{first.rated.gbps:g}", "usual-gbps": f"{first.usual:g}"}
    ports = [one.rated.ref for one in found]
    end = first.rated.port.far_end
    actual = (end.device, end.port) if end else (None, None)
    return finding("slow", ports, text, key=[*ports], facts=facts, actual=actual)


def _text(one: _Slow) -> str:
    end = one.rated.port.far_end
    to = f" to {end_text((end.device, end.port))}" if end else ""
    rate = encode.gbps(one.rated.gbps) if one.rated.gbps else "a port that is not ACTIVE"
    return f"{one.rated.ref.interface}{to} ({rate})"
