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
    from agent.fleet.model import FarEnd, FleetNode

MIN_PORTS = 4  # of one interface in a group
USUAL = 0.75  # the share of them that has the usual rate


class _Rated(NamedTuple):
    """A port with a far end and a known rate."""

    ref: PortRef
    end: FarEnd
    address: str  # of its PCI function, or else the interface
    gbps: float


def slow(
    nodes: Iterable[FleetNode], groups: Iterable[Group], explained: Collection[PortRef]
) -> Iterator[Finding]:
    """Yield a finding for each node with such ports; `explained` ones are left out."""
    by_name = {node.name: node for node in nodes}
    for group in groups:
        rated = [one for name in group.nodes if name in by_name for one in _rated(by_name[name])]
        found: dict[str, list[_Rated]] = {}  # slow ports by node
        shares: dict[str, tuple[float, int, int]] = {}  # by address: usual rate, ports with it, all
        for address, same in grouped(rated, lambda one: one.address).items():
            usual, count = Counter(one.gbps for one in same).most_common(1)[0]
            if len(same) >= MIN_PORTS and count >= USUAL * len(same):
                shares[address] = usual, count, len(same)
                for one in same:
                    if one.gbps < usual and one.ref not in explained:
                        found.setdefault(one.ref.node, []).append(one)
        for ports in found.values():
            yield _finding(ports, *shares[ports[0].address])


def _rated(node: FleetNode) -> Iterator[_Rated]:
    """Yield the ports with a cable; a leg of a bond may be on standby and count nothing."""
    for port in node.ports:
        is_leg = not port.interface.rpartition("-")[2].isdecimal() and "-" in port.interface
        if port.gbps is not None and port.far_end and not port.is_lost and not is_leg:
            ref = PortRef(node.name, port.interface)
            yield _Rated(ref, port.far_end, port.pci or port.interface, port.gbps)


def _finding(found: Sequence[_Rated], usual: float, count: int, total: int) -> Finding:
    """Return the finding of a node's slow ports, by the share of the first one."""
    first, shown = found[0], []
    for one in found:
        rate = encode.gbps(one.gbps) if one.gbps else "a port that is not ACTIVE"
        shown.append(f"{one.ref.interface} to {end_text((one.end.device, one.end.port))} ({rate})")
    verb = "Reseat or replace the cable of" if first.gbps else "Activate"
    text = (
        f"{verb} {first.ref.node} {listed(shown)}; {count:,} of {total:,} such ports of the group "
        f"run at {encode.gbps(usual)}."
    )
    ports = [one.ref for one in found]
    facts = {"rate-gbps": f"{first.gbps:g}", "usual-gbps": f"{usual:g}"}
    actual = (first.end.device, first.end.port)
    return finding("slow", ports, text, key=[*ports], facts=facts, actual=actual)
