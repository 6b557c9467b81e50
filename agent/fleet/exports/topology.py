"""The topology of a fleet: its leaf groups, the levels above them, and NVLink domains.

Invariants:
- Every name in it is valid in Kubernetes: Nodes as DNS subdomains, groups, levels and domains as
  label values. What is not valid is left out with a note, so no format has to quote it.
- A node is in one leaf group at most, and in one domain at most.
- Everything is in natural order, domains in that of their leaf groups, so equal fleets give equal
  exports.

A leaf group is made of all leaves of a node, so that one wrong cable makes a group of its own: a
switch with one node in Slurm, and NVLink domains that cross leaf groups.
A scheduler loses more by such a group than by a node with one rail on another leaf, so `placed`
puts a node with wrong cables into the group in which it is once they are right.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from agent.encode import Naming, is_subdomain, is_value, key_fault
from agent.fleet.exports.text import listed
from agent.fleet.model import Fleet, FleetNode
from agent.fleet.pattern.infer import infer
from agent.fleet.tiers import label, tree
from agent.grouped import grouped
from agent.kube.managed_fields import Keys
from agent.text import natural

LEAF_GROUP = "leafgroup.current"  # below P
HOST = "kubernetes.io/hostname"  # the last level of a scheduler that reads labels
SITE_LEVELS = ("fabric", "superpod")  # the site's own labels below P or IB, outermost first
INNER, OUTER, CROSSING = "inner", "outer", "crossing"
# Label keys that may be levels: of Topograph, of AWS, Google, Nebius and OCI, and of the site.
CANDIDATE = re.compile("fabric|network|rdma|spine|superpod|tier|topology")
MAX_LISTED = 8  # candidates, and leaf groups that break a level
MOVES = frozenset({"swapped", "shifted", "miscabled"})  # codes of cables on another leaf

Levels = Sequence[str]  # labels above the leaf group, outermost first, that the operator chose
Path = tuple[str | None, ...]  # a value for each of Topology.levels; None is unknown
TierValues = Mapping[str, Mapping[str, str | None]]  # by label and leaf group
NO_TIERS: TierValues = MappingProxyType({})


class LeafGroup(NamedTuple):
    """The nodes that hang on one set of leaves."""

    path: Path
    value: str  # of the label
    nodes: tuple[FleetNode, ...]


@dataclass(frozen=True)
class Topology:
    """The topology that the exports for schedulers are made of."""

    key: str  # label of the leaf groups
    levels: tuple[str, ...]  # labels of the levels above them, outermost first
    nodes: tuple[FleetNode, ...]  # all that are exported
    groups: tuple[LeafGroup, ...]
    notes: tuple[str, ...]

    @cached_property
    def domains(self) -> Mapping[str, tuple[FleetNode, ...]]:
        """NVLink domains, in the order of the leaf groups that most of their nodes are in.

        Slurm joins adjacent blocks: in the order of their UUIDs, a job would span leaf groups.
        """
        places = [
            (number, node)
            for number, group in enumerate(self.groups)
            for node in group.nodes
            if is_value(node.accelerator)
        ]
        members = grouped(places, lambda place: place[1].accelerator or "")
        order = {
            value: Counter(number for number, _ in of_domain).most_common(1)[0][0]
            for value, of_domain in members.items()
        }
        ordered = sorted(members, key=order.__getitem__)
        return {value: tuple(node for _, node in members[value]) for value in ordered}

    @cached_property
    def relation(self) -> str | None:
        """INNER or OUTER if domains nest with leaf groups, else CROSSING; None without domains."""
        if not self.domains:
            return None
        group_of = {node.name: at for at, group in enumerate(self.groups) for node in group.nodes}
        if all(len({group_of[n.name] for n in nodes}) == 1 for nodes in self.domains.values()):
            return INNER
        domain_of = {node.name: value for value, nodes in self.domains.items() for node in nodes}
        inside = [{domain_of.get(node.name) for node in group.nodes} for group in self.groups]
        return OUTER if all(len(values - {None}) <= 1 for values in inside) else CROSSING

    def part(self, nodes: Collection[FleetNode]) -> Topology:
        """Return the topology of some of its nodes; it has no notes."""
        names = {node.name for node in nodes}
        kept = (
            group._replace(nodes=tuple(node for node in group.nodes if node.name in names))
            for group in self.groups
        )
        groups = tuple(group for group in kept if group.nodes)
        return replace(self, nodes=tuple(nodes), groups=groups, notes=())


def level_fault(naming: Naming, given: Levels) -> str | None:
    """Return why a label that the operator chose is no level above the leaf groups."""
    taken = {f"{naming.prefix}/{LEAF_GROUP}", naming.accelerator, HOST}
    for level in given:
        prefix, slash, name = level.rpartition("/")
        if (slash and not is_subdomain(prefix)) or key_fault(name):
            return f"{level[:64]!r} is no label key"
        if level in taken:
            return f"{level} is a level already"
        taken.add(level)
    return None


def placed(fleet: Fleet) -> tuple[Fleet, list[str]]:
    """Return the fleet with misplaced nodes in the group of most of their neighbors, and the notes.

    They are the nodes of findings by the pattern; without a pattern none is moved.
    """
    pattern = infer(fleet)
    wrong = {
        port.node for finding in pattern.findings if finding.code in MOVES for port in finding.ports
    }
    nodes = {node.name: node for node in fleet.nodes}
    moved: dict[str, list[str]] = {}
    for group in pattern.groups:
        values = Counter(nodes[name].leaf_group for name in group.nodes if name not in wrong)
        value, count = values.most_common(1)[0] if values else (None, 0)
        if group.pattern is None or value is None or 2 * count <= len(group.nodes):
            continue
        for name in group.nodes:
            if name in wrong and nodes[name].leaf_group not in {None, value}:
                nodes[name] = replace(nodes[name], leaf_group=value)
                moved.setdefault(value, []).append(name)
    notes = [
        f"in leaf group {value}, though wrong cables give another label: {listed(names)}"
        for value, names in moved.items()
    ]
    return replace(fleet, nodes=tuple(nodes[node.name] for node in fleet.nodes)), notes


def topology(fleet: Fleet, naming: Naming, given: Levels = ()) -> Topology:
    """Return the topology of the nodes that have a leaf group; the levels are `given`, if any."""
    key = f"{naming.prefix}/{LEAF_GROUP}"
    notes: list[str] = []
    nodes = _usable(fleet.nodes, key, notes)
    if broken := [*_no_trees(nodes, given)]:  # a finding, and no topology
        return Topology(key, tuple(given), (), (), (*notes, *broken))
    levels, tiers = tuple(given), NO_TIERS
    if not given:
        site = tuple(_levels(nodes, naming, notes))
        tiers = _tiers(nodes, naming, site, notes)
        levels = (*site, *tiers)
    lacking = ((level, labeled(nodes, level)[1]) for level in (*given, *tiers))
    notes += [f"no {level} of their own: {listed(lack)}" for level, lack in lacking if lack]
    groups = _groups(nodes, levels, tiers)
    if not given and (
        seen := _candidates(nodes, groups, {*levels, *Keys(naming).tiers, naming.accelerator})
    ):
        notes.append(f"labels that may be levels (--level): {', '.join(seen)}")
    if odd := [node.name for node in nodes if node.accelerator and not is_value(node.accelerator)]:
        notes.append(f"the accelerator is not a label value: {listed(odd)}")
    for value, same in grouped(groups, lambda group: group.value).items():
        if len(same) > 1:  # the site has its nodes in several places
            where = ", ".join("/".join(part or "?" for part in group.path) for group in same)
            keys = " and ".join(levels)
            notes.append(f"leaf group {value} is {len(same)} groups, by {keys}: {where}")
    return Topology(key, levels, tuple(nodes), groups, tuple(notes))


def labeled(nodes: Iterable[FleetNode], key: str) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that have a label, and of those that lack it."""
    have: list[str] = []
    lack: list[str] = []
    for node in nodes:
        (have if is_value(node.labels.get(key)) else lack).append(node.name)
    return have, lack


def _usable(nodes: Sequence[FleetNode], key: str, notes: list[str]) -> list[FleetNode]:
    left: dict[str, list[str]] = defaultdict(list)
    usable = []
    for node in nodes:
        if not is_subdomain(node.name):
            left["not a Node name"].append(node.name)
        elif node.leaf_group is None:
            left[f"no {key}"].append(node.name)
        elif not is_value(node.leaf_group):
            left[f"{key} is not a label value"].append(node.name)
        else:
            usable.append(node)
    notes += [f"left out, {reason}: {listed(names)}" for reason, names in left.items()]
    return usable


def _levels(nodes: Sequence[FleetNode], naming: Naming, notes: list[str]) -> Iterator[str]:
    """Yield the labels of the site that more than half of the nodes have."""
    for level in SITE_LEVELS:
        for prefix in filter(None, (naming.prefix, naming.ib_prefix)):
            key = f"{prefix}/{level}"
            have, lack = labeled(nodes, key)
            if len(have) > len(lack):
                if lack:
                    notes.append(f"no {key} of their own: {listed(lack)}")
                yield key
                break
            if have:
                notes.append(f"{key} is no level, only {len(have)} of {len(nodes)} Nodes have it")


def _tiers(
    nodes: Sequence[FleetNode], naming: Naming, site: Levels, notes: list[str]
) -> dict[str, dict[str, str | None]]:
    """Return the tiers that more than half of the nodes have, outermost first, made a tree.

    A tier that joins what the site's levels have apart is none.
    """
    keys = [key for key in Keys(naming).tiers if 2 * len(labeled(nodes, key)[0]) > len(nodes)]
    whole = tree(nodes, keys)
    tiers: dict[str, dict[str, str | None]] = {}
    for at, key in reversed([*enumerate(keys)]):
        values = {group: path[at] for group, path in whole.values.items()}
        inside = grouped(((values[node.leaf_group or ""], node) for node in nodes), itemgetter(0))
        apart = [
            f"{value} has {level} {' and '.join(parts)}"
            for value, pairs in inside.items()
            for level in site
            if value and len(parts := by_value([node for _, node in pairs], level)) > 1
        ]
        if apart:
            notes.append(f"{key} is no level: {apart[0]}")
        else:
            tiers[key] = values
    notes += [
        f"{odd.key} is {odd.usual} in {odd.where}, as on most Nodes, not {odd.value}: "
        f"{listed(odd.nodes)}"
        for odd in whole.differing
        if odd.value and odd.key in tiers
    ]
    return tiers


def _no_trees(nodes: Sequence[FleetNode], levels: Sequence[str]) -> Iterator[str]:
    """Yield why labels that are asked for are no levels of a tree in this order."""
    groups = grouped(nodes, lambda node: node.leaf_group or "")
    for level in levels:
        if nodes and not labeled(nodes, level)[0]:
            yield f"{level} is no level: no Node has it"
        split = {group: by_value(members, level) for group, members in groups.items()}
        broken = [(group, parts) for group, parts in split.items() if len(parts) > 1]
        for group, parts in broken[:MAX_LISTED]:
            where = "; ".join(
                f"{value} on {listed([node.name for node in same])}"
                for value, same in parts.items()
            )
            yield f"{level} is no tree: leaf group {group} has {where}"
        if len(broken) > MAX_LISTED:
            yield f"{level} is no tree: {len(broken)} leaf groups in all"
    for outer, inner in pairwise(levels):
        pairs = {(node.labels.get(outer), node.labels.get(inner)) for node in nodes}
        if len({above for above, _ in pairs}) == len(pairs) > len({below for _, below in pairs}):
            yield f"{inner} is above {outer}: give the outermost first"


def by_value(nodes: Iterable[FleetNode], key: str) -> dict[str, list[FleetNode]]:
    """Return the nodes by the value of a label; those without it are left out."""
    known = [node for node in nodes if is_value(node.labels.get(key))]
    return grouped(known, lambda node: node.labels[key])


def _candidates(
    nodes: Sequence[FleetNode], groups: Sequence[LeafGroup], used: Collection[str]
) -> list[str]:
    """Return the labels of most nodes that join whole leaf groups, those of most groups first."""
    times = Counter(key for node in nodes for key in node.labels)
    values_of = {}
    for key, count in times.items():
        if key in used or 2 * count <= len(nodes) or not CANDIDATE.search(key):
            continue
        inside = [{node.labels[key] for node in g.nodes if key in node.labels} for g in groups]
        values = {value for values in inside for value in values}
        if max(map(len, inside)) == 1 and len(values) < len(groups) and all(map(is_value, values)):
            values_of[key] = len(values)
    return sorted(values_of, key=lambda key: (values_of[key], natural(key)))[:MAX_LISTED]


def _groups(
    nodes: Sequence[FleetNode], levels: Sequence[str], tiers: TierValues
) -> tuple[LeafGroup, ...]:
    """Return the leaf groups; a node without a level's label is where its leaf group is."""
    by_place: dict[tuple[Path, str], list[FleetNode]] = defaultdict(list)
    for value, members in grouped(nodes, lambda node: node.leaf_group or "").items():
        own = [
            [tiers[key][value] if key in tiers else label(node, key) for key in levels]
            for node in members
        ]
        known = [{*column} - {None} for column in zip(*own, strict=True)]
        agreed = [values.pop() if len(values) == 1 else None for values in known]
        for node, path in zip(members, own, strict=True):
            full = tuple(part or best for part, best in zip(path, agreed, strict=True))
            by_place[full, value].append(node)
    groups = [LeafGroup(path, value, tuple(members)) for (path, value), members in by_place.items()]
    return tuple(
        sorted(
            groups,
            key=lambda group: ([natural(part or "") for part in group.path], natural(group.value)),
        )
    )
