"""The tiers of nodes and the uplinks of leaves, as agents with --tiers publish them.

The tiers above the leaf groups are made a tree, though the labels of some nodes differ. A fresh
agent has another value than its siblings while the lowest switch of the tier is down. So a leaf
group has the value that most of its nodes have, and so has all that is in one value of the tier
below; of as many nodes each, the lowest value. A node that differs in a tier says nothing of those
above it.

A leaf of a real fabric often lacks a few uplinks, and leaves for storage have fewer by design. So
without a plan only leaves of one kind are compared: those of one tier 1 whose names have one form.
Of a leaf counts what the newest answer that an agent has about it had.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent import encode
from agent.cabling.finding import INFO, WARNING, Finding, finding
from agent.cabling.interfaces import shape
from agent.cabling.names import LeafNames, guid, leaf_key
from agent.cabling.plans.model import PlanCable
from agent.fleet.model import FleetNode, LeafUplinks
from agent.grouped import grouped
from agent.infiniband.tiers import LinkEnd, tiers
from agent.text import listed, many, natural

MIN_LEAVES = 4  # of a kind
USUAL = 0.5  # more of them than this share have as many uplinks
MUCH = 0.25  # of a leaf's uplinks: what is more than a remark


class Differing(NamedTuple):
    """Nodes with another value of a tier than most of those with which they share it."""

    key: str  # label of the tier
    where: str  # in words: `leaf group leaf[1-8]`, `backend.coreweave.cloud/tier-1.current spine1`
    usual: str
    value: str | None  # theirs; None: they have the tier below only
    nodes: Sequence[str]


class TierTree(NamedTuple):
    """The values of each leaf group, closest tier first, and the nodes that differ."""

    values: Mapping[str, tuple[str | None, ...]]
    differing: tuple[Differing, ...]


def tree(nodes: Iterable[FleetNode], keys: Sequence[str]) -> TierTree:
    """Return the tree by the labels of these keys, closest tier first."""
    members = grouped((n for n in nodes if n.leaf_group), lambda node: node.leaf_group or "")
    values: dict[str, tuple[str | None, ...]] = dict.fromkeys(members, ())
    place = {group: f"leaf group {group}" for group in members}
    differing, elsewhere = list[Differing](), set[str]()
    for tier, key in enumerate(keys):
        for where, groups in grouped(members, place.__getitem__).items():
            every = (node for group in groups for node in members[group])
            same = [node for node in every if node.name not in elsewhere]
            labels = {node.name: label(node, key) for node in same}
            counts = Counter(filter(None, labels.values()))
            usual = min(counts, key=lambda value: (-counts[value], natural(value)), default=None)
            values |= {group: (*values[group], usual) for group in groups}
            if usual is None:
                continue
            place |= dict.fromkeys(groups, f"{key} {usual}")
            below = {node.name for node in same if tier and label(node, keys[tier - 1])}
            odd = _odd(labels, usual, below if 2 * counts[usual] > len(below) else ())
            differing += [Differing(key, where, usual, *pair) for pair in odd.items()]
            elsewhere.update(*odd.values())
    return TierTree(values, tuple(differing))


def _odd(
    labels: Mapping[str, str | None], usual: str, known: Collection[str]
) -> dict[str | None, list[str]]:
    """Return the nodes with another value, and those of `known` without one."""
    others = (name for name, value in labels.items() if value or name in known)
    return grouped((name for name in others if labels[name] != usual), labels.__getitem__)


def label(node: FleetNode, key: str) -> str | None:
    """Return the value of a label; None if it is missing, empty or no value of a label."""
    value = node.labels.get(key)
    return value if encode.is_value(value) else None


# uplinks


class SeenLeaf(NamedTuple):
    """A leaf as its nodes have seen it last."""

    name: str
    tier_1: str | None
    uplinks: Mapping[int, str]  # the switch at each port

    @property
    def to(self) -> Counter[str]:
        """The number of uplinks to each switch."""
        return Counter(self.uplinks.values())


def findings(
    nodes: Sequence[FleetNode], keys: Sequence[str], cables: Sequence[PlanCable]
) -> Iterator[Finding]:
    """Yield the findings of nodes that are not silent.

    `keys` are the labels of the tiers, closest first, `cables` those of the plan.
    """
    whole = tree(nodes, keys)
    # of the plan: the switch at each port that leads to another switch, by the name of its switch
    planned = defaultdict[str, dict[int, str]](dict)
    for cable in cables:
        if cable.is_trunk:
            planned[cable.a.node][int(cable.a.interface)] = cable.b.node
            planned[cable.b.node][int(cable.b.interface)] = cable.a.node
    names = LeafNames(planned)
    others = []
    leaves = _leaves(nodes, whole)
    lateral = {leaf_key(leaf.name) for leaf in leaves}  # a cable to another leaf is no uplink
    for leaf in leaves:
        alike = names.like(leaf.name)
        if len(alike) != 1:
            others.append(leaf)
            continue
        name = alike[0]
        wanted = sorted(planned[name].items())
        uplinks = {port: far for port, far in wanted if leaf_key(far) not in lateral}
        wrong = [
            f"port {port} leads to {leaf.uplinks[port]}, not to {far}"
            if port in leaf.uplinks
            else f"port {port} to {far} is not up"
            for port, far in uplinks.items()
            if leaf_key(leaf.uplinks.get(port, "")) != leaf_key(far)
        ]
        if wrong:
            text = f"Look at the uplinks of {name}: {listed(wrong)}."
            facts = {"planned": len(uplinks), "as-planned": len(uplinks) - len(wrong)}
            yield finding("uplinks", [], text, key=[name], facts=facts, expected=(name, None))
    yield from _short(others)
    yield from _incomplete(whole)
    if all(cable.is_trunk is not None for cable in cables):  # these are all between switches
        yield from _unlike_planned_tier(nodes, keys[0], whole, planned, names)


def _leaves(nodes: Sequence[FleetNode], whole: TierTree) -> list[SeenLeaf]:
    """Return the leaves in natural order, each with the uplinks of its newest report."""
    reporting = [node for node in nodes if node.uplinks and node.leaf_group]
    if not reporting:
        return []
    ends = (port.far_end or port.last_end for node in nodes for port in node.ports)
    names = {end.id: end.name or end.device for end in ends if end and end.id}
    newest: dict[str, LeafUplinks] = {}
    tier_of: dict[str, str | None] = {}
    for node in reporting:
        for switch, report in node.uplinks.items():
            known = newest.setdefault(switch, report)
            newest[switch] = max(known, report, key=lambda row: (row.time, len(row.ports)))
            tier_of[switch] = tier_of.get(switch) or whole.values[node.leaf_group or ""][0]
    leaves = [
        SeenLeaf(names.get(switch) or switch, tier_of[switch], report.ports)
        for switch, report in newest.items()
    ]
    return sorted(leaves, key=lambda leaf: natural(leaf.name))


def _short(leaves: Sequence[SeenLeaf]) -> Iterator[Finding]:
    """Yield one finding for the leaves of a kind that have fewer uplinks than most of it.

    Kinds of several pods whose names and uplinks are alike are one.
    """
    short = defaultdict[tuple[str, int], list[tuple[SeenLeaf, str]]](list)
    totals = Counter[tuple[str, int]]()
    # of one kind: the tier 1 and the form of the name; switches without a name are alike
    kinds = grouped(leaves, lambda leaf: (leaf.tier_1, "" if guid(leaf.name) else shape(leaf.name)))
    for (_, form), same in kinds.items():
        counts = Counter(len(leaf.uplinks) for leaf in same)
        usual, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if len(same) >= MIN_LEAVES and count > USUAL * len(same):
            totals[form, usual] += len(same)
            short[form, usual] += _fewer(same, usual)
    for kind, pairs in short.items():
        if not pairs:
            continue
        names, usual = [leaf.name for leaf, _ in pairs], kind[1]
        shown = [f"{leaf.name} has {len(leaf.uplinks)}{to}" for leaf, to in pairs]
        text = (
            f"Look at the cables above {len(names):,} of {totals[kind]:,} leaves of one kind: most "
            f"have {many(usual, 'uplink')}, but {listed(shown, separator='; ')}."
        )
        missing = max(usual - len(leaf.uplinks) for leaf, _ in pairs)
        yield finding(
            "uplinks",
            [],
            text,
            severity=WARNING if missing >= MUCH * usual else INFO,
            key=names,
            facts={"usual": usual, **{f"of {leaf.name}": len(leaf.uplinks) for leaf, _ in pairs}},
            expected=(names[0] if len(names) == 1 else None, None),
        )


def _fewer(same: Sequence[SeenLeaf], usual: int) -> Iterator[tuple[SeenLeaf, str]]:
    """Yield the leaves of a kind with fewer uplinks, and to which switches that is."""
    switches = {switch for leaf in same for switch in leaf.to}
    width = Counter(
        {s: Counter(leaf.to[s] for leaf in same).most_common(1)[0][0] for s in switches}
    )
    for leaf in same:
        if len(leaf.uplinks) < usual:
            less = width - leaf.to
            is_told = less.total() == usual - len(leaf.uplinks)  # else it has other switches
            yield leaf, f", fewer to {listed(sorted(less, key=natural), 3)}" if is_told else ""


def _incomplete(whole: TierTree) -> Iterator[Finding]:
    """Yield one finding for all nodes that have another value than this one of a tier."""
    for (key, usual), same in grouped(whole.differing, lambda odd: (odd.key, odd.usual)).items():
        nodes = sorted({name for odd in same for name in odd.nodes}, key=natural)
        values = sorted({odd.value or "missing" for odd in same}, key=natural)
        places = sorted({odd.where for odd in same}, key=natural)
        where = f"{many(len(nodes), 'node')} ({listed(nodes)})"
        text = (
            f"{key} of {where} is {listed(values)}, and {usual} on most others of "
            f"{listed(places, 3)}: look at {usual} if their agents started long ago."
        )
        yield finding("tier-incomplete", [], text, nodes=nodes, key=[key, usual])


def _unlike_planned_tier(
    nodes: Sequence[FleetNode],
    key: str,
    whole: TierTree,
    planned: Mapping[str, Mapping[int, str]],
    names: LeafNames,
) -> Iterator[Finding]:
    """Yield one finding for all leaf groups with one tier 1 where the plan has another.

    Tier 2 is not compared: what has hosts is none, and a plan does not say what is a host.
    """
    switches = {name: None if guid(name) else name for name in planned}

    def links(name: str) -> list[LinkEnd]:
        ends = sorted(planned[name].items())
        return [LinkEnd(port, far, 0, is_switch=True, is_host=False) for port, far in ends]

    known = (node for node in nodes if whole.values.get(node.leaf_group or "", [None])[0])
    for value, same in grouped(known, lambda n: whole.values[n.leaf_group or ""][0]).items():
        ends = (port.far_end for port in same[0].ports)
        leaves = {name for end in ends if end for name in names.like(end.device)}
        answer = tiers(leaves, switches, links) if leaves else None
        lowest = encode.value(answer.label(1) or "") if answer else ""
        if lowest not in {"", value}:
            wrong = [node.name for node in same]
            text = (
                f"{key} of {many(len(wrong), 'node')} ({listed(wrong)}) is {value}, and {lowest} "
                f"by the plan: look at {lowest}, or renew the plan."
            )
            yield finding("tier-incomplete", [], text, nodes=wrong, key=[key, value, lowest])
