"""Causes that concern a whole leaf: it lost its ports, or has another name than in the plan.

Both are said once, not for each port; so is a node without any link. Two exchanged names, or a ring
of them, are leaves with other names, too: every cable is at the planned port of the next leaf.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.cabling import cables, words
from agent.cabling.cables import ComparedCable
from agent.cabling.expected import ExpectedRow
from agent.cabling.findings.finding import Finding, PortRef, finding
from agent.cabling.findings.names import LeafNames as Names
from agent.cabling.findings.names import leaf_key
from agent.cabling.seen import SeenEnd
from agent.fleet.model import FleetNode
from agent.grouped import grouped
from agent.text import listed, many, natural

Explained = tuple[Finding, list[PortRef]]  # and the ports that it explains
PlannedLeaves = Mapping[str, "_Leaf"]  # of the plan, by the key of their name

MIN_PORTS = 3  # of a leaf: fewer may each have a cause of its own
NEARLY_ALL = 0.9
MOST = 0.75  # of the cables of a leaf: the others may be wrong, or of agents with its former name


class _Leaf(NamedTuple):
    """The cables that the plan gives to one leaf."""

    name: str
    cables: tuple[ComparedCable, ...]

    @property
    def row(self) -> ExpectedRow:
        """Its first row, without a port."""
        return self.cables[0].row._replace(port_id=None, port_name=None)

    def at(self, name: str) -> list[ComparedCable]:
        """Return the cables at their planned ports of a switch with this other name."""
        return [cable for cable in self.cables if cable.actual[0] == name and _is_renamed(cable)]


class Renamed(NamedTuple):
    """Leaves with other names than in the plan."""

    findings: tuple[Finding, ...]
    names: Mapping[str, str]  # key of the name that is seen, to that of the plan
    ports: Mapping[PortRef, str]  # those at their planned port, to the leaf's name in the plan


def renamed(leaves: PlannedLeaves) -> Renamed:
    """Return a finding for each leaf with another name, and the names."""
    other = {key: name for key, leaf in leaves.items() if (name := _other_name(leaf))}
    planned = Names(leaf.name for leaf in leaves.values())
    findings: list[Finding] = []
    names: dict[str, str] = {}
    ports: dict[PortRef, str] = {}
    for key, name in other.items():
        if any(leaf_key(alike) not in other for alike in planned.like(name)):
            continue  # the name of a leaf that has its own
        leaf = leaves[key]
        seen = [cable.ref for cable in leaf.at(name)]
        count = sum(1 for cable in leaf.cables if cable.far_end)
        share = "all" if len(seen) == count else f"{len(seen):,} of"
        text = (
            f"Correct the name of {words.far(leaf.row)} in the plan or on the switch: {share} "
            f"{many(count, 'cable')} planned for it are at the same ports of {name}."
        )
        cause = finding(
            "renamed",
            seen,
            text,
            key=[leaf.name],
            facts=leaf.row.facts,
            expected=(leaf.name, None),
            actual=(name, None),
        )
        findings.append(cause)
        names[leaf_key(name)] = leaf.name
        ports |= dict.fromkeys(seen, leaf.name)
    return Renamed(tuple(findings), names, ports)


def by_leaf(compared: Iterable[ComparedCable]) -> PlannedLeaves:
    """Return the leaves of the plan by the key of their name; ignored cables are left out."""
    kept = [cable for cable in compared if cable.status != cables.IGNORED and cable.row.device]
    by_name = grouped(kept, lambda cable: leaf_key(cable.row.device or ""))
    return {key: _Leaf(same[0].row.device or "", tuple(same)) for key, same in by_name.items()}


def _other_name(leaf: _Leaf) -> str | None:
    """Return the name that most far ends have, at the planned ports; None if there is none."""
    seen = [cable for cable in leaf.cables if cable.far_end]
    others = grouped(
        (cable for cable in seen if _is_renamed(cable)), lambda cable: cable.actual[0] or ""
    )
    name, same = max(others.items(), key=lambda item: len(item[1]), default=("", []))
    if len(same) < max(MIN_PORTS, MOST * len(seen)) or len({cable.ref.node for cable in same}) < 2:
        return None
    former = [cable for cable in seen if cable.device.equal]
    return name if _addresses(former) <= _addresses(same) else None


def _addresses(compared: Iterable[ComparedCable]) -> set[str]:
    """Return the identifiers of the switches that these cables lead to, or else their names."""
    ends = [cable.far_end.seen_device for cable in compared if cable.far_end]
    return {text for end in ends for text in (end.guids + end.macs or end.names)}


def _is_renamed(cable: ComparedCable) -> bool:
    """Return True for another switch at the planned port of it."""
    return cable.device.equal is False and bool(cable.row.ports and cable.far_port.equal)


def down(leaves: PlannedLeaves, nodes: Iterable[FleetNode] = ()) -> Iterator[Explained]:
    """Yield a finding for each leaf of the plan that lost its ports, and the ports.

    Its ID is of the name that the annotations of the nodes have, as it is without a plan.
    """
    last = {link.port: link.end.device for node in nodes for link in _known(node)}
    for leaf in leaves.values():
        lost = [cable.ref for cable in leaf.cables if cable.status == cables.MISSING]
        seen = next((last[port] for port in lost if port in last), leaf.name)
        yield from _down(lost, len(leaf.cables), leaf.name, leaf.row, seen)


def _down(
    lost: list[PortRef], count: int, name: str, row: ExpectedRow | None, seen: str
) -> Iterator[Explained]:
    """Yield the finding of a leaf that lost nearly all of its ports; `row` is of the plan."""
    nodes = sorted({port.node for port in lost}, key=natural)
    if len(lost) >= MIN_PORTS and len(lost) >= NEARLY_ALL * count and len(nodes) > 1:
        share = f"all its {count:,}" if len(lost) == count else f"{len(lost):,} of its {count:,}"
        shown, facts = (words.far(row), row.facts) if row else (name, {})
        text = f"Check {shown}: {share} ports to these nodes lost their link: {listed(nodes)}."
        key, end = [leaf_key(seen)], (name, None)
        cause = finding("leaf-down", lost, text, nodes=nodes, key=key, facts=facts, expected=end)
        yield cause, lost


class _Known(NamedTuple):
    """A port whose far end is known, perhaps by the annotation only."""

    port: PortRef
    end: SeenEnd
    is_down: bool


def down_without_plan(nodes: Iterable[FleetNode]) -> Iterator[Explained]:
    """Yield the same by the last far ends that the annotations have; then nodes without a link."""
    known = [link for node in nodes for link in _known(node)]
    explained: set[PortRef] = set()
    for same in grouped(known, lambda link: link.end.switch).values():
        lost = [link.port for link in same if link.is_down]
        name = next((link.end.device for link in same if link.is_down), "")
        for cause, ports in _down(lost, len(same), name, None, name):
            explained.update(ports)
            yield cause, ports
    yield from nodes_down(((link.port, link.is_down) for link in known), explained)


def _known(node: FleetNode) -> Iterator[_Known]:
    for port in node.ports:
        end = port.far_end or port.last_end
        if end and not port.is_lost:
            is_down = port.far_end is None and port.gbps == 0
            yield _Known(PortRef(node.name, port.interface), end, is_down)


def nodes_down(
    ports: Iterable[tuple[PortRef, bool]], explained: Collection[PortRef]
) -> Iterator[Explained]:
    """Yield a finding for each node none of whose several ports has a link; True: it is down."""
    for node, same in grouped(ports, lambda pair: pair[0].node).items():
        lost = [port for port, is_down in same if is_down]
        if len(lost) == len(same) > 1 and not all(port in explained for port in lost):
            text = f"Check the NICs and cables of {node}: none of its {len(lost)} ports has a link."
            yield finding("missing", lost, text, key=[node, "all"]), lost
