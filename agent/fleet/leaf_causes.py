"""Causes that concern a whole leaf: it lost its ports, or has another name than in the plan.

Both are said once, not for each port; so is a node without any link. Two exchanged names, or a ring
of them, are leaves with other names, too: every cable is at the planned port of the next leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.cabling import cables, words
from agent.cabling.cables import ComparedCable
from agent.cabling.expected import ExpectedRow
from agent.cabling.findings.finding import Finding, PortRef, finding
from agent.cabling.findings.names import LeafNames as Names
from agent.cabling.findings.names import leaf_key
from agent.fleet.model import FleetNode, FleetPort
from agent.grouped import grouped
from agent.text import listed, many, natural

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


class _Link(NamedTuple):
    """A cable and the leaf at which it is, or was last, or else is planned."""

    port: PortRef
    leaf: str  # identity
    is_down: bool
    name: str | None = None  # as it was seen
    planned: str | None = None  # key of its leaf in the plan


def down(nodes: Iterable[FleetNode], leaves: PlannedLeaves | None = None) -> Iterator[Finding]:
    """Yield a finding for each leaf that lost its ports; `leaves` are of a plan.

    A cable counts where it was seen last, wherever it is planned. The ID is of the name that the
    annotations of the nodes have, so it is the same with a plan and without one.
    """
    nodes = list(nodes)
    if sum(1 for node in nodes for port in node.ports if _is_down(port)) < MIN_PORTS:
        return
    known = {link.port: link for node in nodes for link in _known(node)}
    links = [*known.values()] if leaves is None else [*_planned(leaves, known)]
    for same in grouped(links, lambda link: link.leaf).values():
        lost = [link for link in same if link.is_down]
        names = sorted({link.port.node for link in lost}, key=natural)
        if len(lost) < max(MIN_PORTS, NEARLY_ALL * len(same)) or len(names) < 2:
            continue
        yield _down(same, lost, names, leaves)


def _down(
    same: Sequence[_Link],
    lost: Sequence[_Link],
    names: Sequence[str],
    leaves: PlannedLeaves | None,
) -> Finding:
    """Return the finding of a leaf that lost these of its links, to the nodes of these names."""
    seen, facts = next((link.name for link in lost if link.name), ""), dict[str, object]()
    name = shown = seen
    if leaves is not None:  # that for which most of them are planned
        row = leaves[Counter(link.planned or "" for link in same).most_common(1)[0][0]].row
        name, shown, facts = row.device or "", words.far(row), row.facts
    share = f"all its {len(same):,}" if lost == same else f"{len(lost):,} of its {len(same):,}"
    text = f"Check {shown}: {share} ports to these nodes lost their link: {listed(names)}."
    ports, key, end = [link.port for link in lost], [leaf_key(seen or name)], (name, None)
    return finding("leaf-down", ports, text, nodes=names, key=key, facts=facts, expected=end)


def _planned(leaves: PlannedLeaves, known: Mapping[PortRef, _Link]) -> Iterator[_Link]:
    """Yield the cables of the plan; one that was never seen is where most of its leaf's are."""
    for key, leaf in leaves.items():
        seen = Counter(known[cable.ref].leaf for cable in leaf.cables if cable.ref in known)
        usual = seen.most_common(1)[0][0] if seen else leaf.name
        for cable in leaf.cables:
            link = known.get(cable.ref)
            where, name = (link.leaf, link.name) if link else (usual, None)
            yield _Link(cable.ref, where, cable.status == cables.MISSING, name, key)


def _known(node: FleetNode) -> Iterator[_Link]:
    for port in node.ports:
        end = port.far_end or port.last_end
        if end and not port.is_lost:
            ref = PortRef(node.name, port.interface)
            yield _Link(ref, end.switch, _is_down(port), end.device)


def _is_down(port: FleetPort) -> bool:
    return port.gbps == 0 and port.far_end is None and not port.is_lost


def without_plan(nodes: Sequence[FleetNode]) -> list[Finding]:
    """Return the leaves that are down by the annotations of the nodes, and nodes without a link."""
    lost = [*down(nodes)]
    dark = (node for node in nodes if any(map(_is_down, node.ports)))
    links = ((link.port, link.is_down) for node in dark for link in _known(node))
    return [*lost, *nodes_down(links, {port for cause in lost for port in cause.ports})]


def nodes_down(
    ports: Iterable[tuple[PortRef, bool]], explained: Collection[PortRef]
) -> Iterator[Finding]:
    """Yield a finding for each node none of whose several ports has a link; True: it is down."""
    for node, same in grouped(ports, lambda pair: pair[0].node).items():
        lost = [port for port, is_down in same if is_down]
        if len(lost) == len(same) > 1 and not all(port in explained for port in lost):
            text = f"Check the NICs and cables of {node}: none of its {len(lost)} ports has a link."
            yield finding("missing", lost, text, key=[node, "all"])
