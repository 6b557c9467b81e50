"""Causes that concern a whole leaf, or a whole node, which are said once, not for each port.

A leaf lost its ports, or has another name than in the plan. Two exchanged names, or a ring of them,
are leaves with other names, too: every cable is at the planned port of the next leaf.

A node has no link, or is not in its place: all that a plan has for it is that of another, or of
none. The names of nodes may be wrong, or the plan, as well as the cables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.cabling import cables, words
from agent.cabling.cables import ComparedCable
from agent.cabling.expected import ExpectedRow
from agent.cabling.finding import Finding, PortRef, finding
from agent.cabling.names import LeafNames as Names
from agent.cabling.names import leaf_key
from agent.fleet.model import FleetNode, FleetPort, current
from agent.grouped import grouped
from agent.text import listed, many, natural

OfNodes = Mapping[str, Sequence[ComparedCable]]  # the cables of each node
PlannedLeaves = Mapping[str, Sequence[ComparedCable]]  # cables by the key of their leaf's name

MIN_PORTS = 3  # of a leaf: fewer may each have a cause of its own
NEARLY_ALL = 0.9
MOST = 0.75  # of the cables of a leaf: the others may be wrong, or of agents with its former name
PAIR = 2
MIN_CABLES = 2  # of a node: a single one is exchanged, not its node
MIN_PAIRS = 2  # of nodes in the reverse order


class Renamed(NamedTuple):
    """Leaves with other names than in the plan."""

    findings: tuple[Finding, ...]
    names: Mapping[str, str]  # key of the name that is seen, to that of the plan
    ports: Mapping[PortRef, str]  # those at their planned port, to the leaf's name in the plan


def renamed(leaves: PlannedLeaves) -> Renamed:
    """Return a finding for each leaf with another name, and the names."""
    moved = {key: same for key, leaf in leaves.items() if (same := _at_another_name(leaf))}
    planned = Names(leaf[0].row.device or "" for leaf in leaves.values())
    findings: list[Finding] = []
    names: dict[str, str] = {}
    ports: dict[PortRef, str] = {}
    for key, same in moved.items():
        name, row, seen = same[0].actual[0] or "", _row(leaves[key]), [cable.ref for cable in same]
        if any(leaf_key(alike) not in moved for alike in planned.like(name)):
            continue  # the name of a leaf that has its own
        count = sum(1 for cable in leaves[key] if cable.far_end)
        share = "all" if len(seen) == count else f"{len(seen):,} of"
        text = (
            f"Correct the name of {words.far(row)} in the plan or on the switch: {share} "
            f"{many(count, 'cable')} planned for it are at the same ports of {name}."
        )
        cause = finding(
            "renamed",
            seen,
            text,
            key=[row.device],
            facts=row.facts,
            expected=(row.device, None),
            actual=(name, None),
        )
        findings.append(cause)
        names[leaf_key(name)] = row.device or ""
        ports |= dict.fromkeys(seen, row.device or "")
    return Renamed(tuple(findings), names, ports)


def by_leaf(compared: Iterable[ComparedCable]) -> PlannedLeaves:
    """Return the cables of each leaf of the plan; ignored cables are left out."""
    kept = [cable for cable in compared if cable.status != cables.IGNORED and cable.row.device]
    return grouped(kept, lambda cable: leaf_key(cable.row.device or ""))


def _row(leaf: Sequence[ComparedCable]) -> ExpectedRow:
    return leaf[0].row._replace(port_id=None, port_name=None)


def _at_another_name(leaf: Sequence[ComparedCable]) -> Sequence[ComparedCable]:
    """Return the cables at their planned ports of a switch with another name, if most are."""
    seen = [cable for cable in leaf if cable.far_end]
    others = [
        cable
        for cable in seen
        if cable.device.equal is False and cable.row.ports and cable.far_port.equal
    ]
    same = max(grouped(others, lambda cable: cable.actual[0]).values(), key=len, default=[])
    if len(same) < max(MIN_PORTS, MOST * len(seen)) or len({cable.ref.node for cable in same}) < 2:
        return []
    former = [cable for cable in seen if cable.device.equal]
    return same if _addresses(former) <= _addresses(same) else []


def _addresses(compared: Iterable[ComparedCable]) -> set[str]:
    """Return the identifiers of the switches that these cables lead to, or else their names."""
    ends = [cable.far_end for cable in compared if cable.far_end]
    return {text for end in ends for text in (end.guids + end.macs or end.names)}


class _Link(NamedTuple):
    """A cable and the leaf at which it is, or was last, or else is planned."""

    port: PortRef
    leaf: str  # identity
    is_down: bool = False
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
        seen, facts = next((link.name for link in lost if link.name), ""), dict[str, object]()
        name = shown = seen
        if leaves is not None:  # that for which most of them are planned
            row = _row(leaves[Counter(link.planned or "" for link in same).most_common(1)[0][0]])
            name, shown, facts = row.device or "", words.far(row), row.facts
        share = f"all its {len(same):,}" if lost == same else f"{len(lost):,} of its {len(same):,}"
        text = f"Check {shown}: {share} ports to these nodes lost their link: {listed(names)}."
        ports, key, end = [link.port for link in lost], [leaf_key(seen or name)], (name, None)
        yield finding("leaf-down", ports, text, nodes=names, key=key, facts=facts, expected=end)


def _planned(leaves: PlannedLeaves, known: Mapping[PortRef, _Link]) -> Iterator[_Link]:
    """Yield the cables of the plan; one that was never seen is where most of its leaf's are."""
    for key, leaf in leaves.items():
        seen = Counter(known[cable.ref].leaf for cable in leaf if cable.ref in known)
        usual = seen.most_common(1)[0][0] if seen else leaf[0].row.device or ""
        for cable in leaf:
            link = known.get(cable.ref) or _Link(cable.ref, usual)
            yield link._replace(is_down=cable.status == cables.MISSING, planned=key)


def _known(node: FleetNode) -> Iterator[_Link]:
    for port in node.ports:
        if end := current(port):
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


def exchanged(
    rings: Iterable[list[ComparedCable]], nodes: Sequence[str], cabled: OfNodes, wrong: OfNodes
) -> Iterator[Finding]:
    """Yield a finding for nodes in each other's place, in a ring or in the reverse order.

    Most cables of each node are where those of the next node belong. `nodes` are in natural order.
    """
    seen = {name: sum(1 for cable in same if cable.far_end) for name, same in cabled.items()}
    crossed = grouped(rings, lambda ring: tuple([cable.ref.node for cable in ring]))
    groups = {
        group: len(same)
        for group, same in crossed.items()
        if len({*group}) == len(group) and all(2 * len(same) > seen[name] for name in group)
    }
    mirrored: set[str] = set()
    for first, last in _reversed(nodes, groups):
        turned = nodes[first : last + 1]
        mirrored.update(turned)
        text = (
            f"The cables of the {len(turned)} nodes from {turned[0]} to {turned[-1]} are in the "
            "reverse order: exchange those of the first and the last, the second and the last but "
            "one, and so on."
        )
        same = [cable for name in turned for cable in wrong.get(name, ())]
        yield _of_whole("mirrored", same, text)
    for group, count in groups.items():
        if count >= MIN_CABLES and mirrored.isdisjoint(group):
            same = [cable for name in group for cable in wrong[name]]
            yield _of_whole("exchanged", same, words.exchanged([wrong[name][0] for name in group]))


def _reversed(nodes: Sequence[str], groups: Iterable[tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of nodes in which pairs around one middle are exchanged."""
    rank = {name: number for number, name in enumerate(nodes)}
    pairs = [tuple([rank[name] for name in group]) for group in groups if len(group) == PAIR]
    for total, around in grouped(pairs, sum).items():
        run: list[tuple[int, ...]] = []
        for pair in sorted(around, reverse=True):  # from the middle on
            if pair[0] == (total - 1) // 2 - len(run):
                run.append(pair)
        if len(run) >= MIN_PAIRS:
            yield run[-1][0], run[-1][1]


def moved(cabled: OfNodes, wrong: OfNodes, owners: Mapping[PortRef, str]) -> Iterator[Finding]:
    """Yield a finding for each node elsewhere: no cable is as planned, and most are wrong.

    `owners` has the node and interface to which the plan gives the present port of a cable.
    """
    for name, same in wrong.items():
        others = [cable for cable in cabled[name] if cable.status != cables.IGNORED]
        if len(same) < MIN_CABLES or 2 * len(same) <= len(others):
            continue
        if any(cable.status == cables.AS_PLANNED for cable in others):
            continue
        hosts = Counter(
            owners[cable.ref].rpartition(" ")[0] for cable in same if cable.ref in owners
        )
        host, count = next(iter(hosts.most_common(1)), ("", 0))
        yield _of_whole("moved", same, words.moved(same, host if 2 * count > len(same) else None))


def _of_whole(code: str, same: Sequence[ComparedCable], text: str) -> Finding:
    """Return the finding of nodes; its ID is of them alone, as their cables come and go."""
    return of_cables(code, same, text, key=sorted({cable.ref.node for cable in same}))


def of_cables(
    code: str,
    same: Sequence[ComparedCable],
    text: str,
    nodes: Sequence[str] = (),
    key: Sequence[object] = (),
) -> Finding:
    """Return the finding of cables, with their moves; by default its nodes are in their order."""
    return finding(
        code,
        [cable.ref for cable in same],
        text,
        nodes=nodes,
        key=key,
        moves=tuple(cable.move for cable in same),
        expected=same[0].expected,
        actual=same[0].actual,
        facts=same[0].row.facts,
    )
