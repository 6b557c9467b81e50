"""HyperNodes of Volcano (topology.volcano.sh/v1alpha1): leaf groups and what is above them.

Tier 1 has the NVLink domains where a fleet has any within its leaf groups, so leaf groups are
tier 2 there, else tier 1; the site's levels follow. A HyperNode has Nodes or HyperNodes as
members, never both: in a leaf group with domains, a node in none is a HyperNode of its own.
https://volcano.sh/en/docs/network_topology_aware_scheduling/
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.fleet.exports.text import Exported, Quoted, commented, unique, yaml_text
from agent.fleet.exports.topology import INNER, Topology, topology
from agent.fleet.model import Fleet, FleetNode
from agent.labels.table import Naming
from agent.model import natural

MAX_NAME = 63
_OTHERS = re.compile(r"[^a-z0-9]+")
Index = dict[tuple[str, str | None], list["FleetNode"]]  # Nodes by one of their labels
Place = tuple[str | None, ...]  # what a HyperNode stands for: a kind, and the values of its path


class HyperNode(NamedTuple):
    """A HyperNode: its members are Nodes by labels or by name, or other HyperNodes."""

    place: Place
    tier: int
    labels: Mapping[str, str]  # the members are the Nodes with these
    nodes: tuple[str, ...] = ()
    children: tuple[Place, ...] = ()


def hypernodes(fleet: Fleet, naming: Naming) -> Exported:
    """Return the HyperNodes, the lowest tier first."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    notes = found.notes
    if found.relation not in {None, INNER}:
        notes += (f"{naming.accelerator} is no tier: domains cross leaf groups",)
    built = [*_groups(found, naming.accelerator), *_above(found)]
    names = unique(
        {one.place: _wanted(one.place) for one in built},
        MAX_NAME,
        lambda name: _OTHERS.sub("-", name.lower()).strip("-"),
    )
    tiers = [naming.accelerator] if found.relation == INNER else []
    tiers += [found.key, *reversed(found.levels)]
    of_tiers = [f"tier {tier}: {key}" for tier, key in enumerate(tiers, 1)]
    head = commented(["Volcano HyperNodes", *of_tiers, *notes])
    documents: list[dict[str, Any]] = []
    for one in built:
        exact = [("Node", name) for name in one.nodes]
        exact += [("HyperNode", names[place]) for place in one.children]
        members: list[dict[str, Any]] = [
            {"type": kind, "selector": {"exactMatch": {"name": Quoted(name)}}}
            for kind, name in exact
        ]
        if one.labels:
            labels = {Quoted(key): Quoted(value) for key, value in one.labels.items()}
            members = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}]
        documents.append(
            {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": Quoted(names[one.place])},
                "spec": {"tier": one.tier, "members": members},
            }
        )
    return Exported(head + yaml_text(documents), notes)


def _groups(found: Topology, accelerator: str) -> Iterator[HyperNode]:
    """Yield the NVLink domains if they lie within leaf groups, then the leaf groups."""
    index: Index = defaultdict(list)
    for key in (found.key, accelerator):
        for node in found.nodes:
            index[key, node.labels.get(key)].append(node)
    domain_of = {}
    if found.relation == INNER:
        domain_of = {node.name: value for value, nodes in found.domains.items() for node in nodes}
    groups = []
    for one in found.groups:
        place: Place = ("group", *one.path, one.value)
        if any(node.name in domain_of for node in one.nodes):
            parts: dict[Place, list[FleetNode]] = defaultdict(list)
            for node in one.nodes:
                value = domain_of.get(node.name)
                parts["domain" if value else "node", value or node.name].append(node)
            for part, nodes in parts.items():
                labels = {accelerator: part[1] or ""} if part[0] == "domain" else {}
                yield _leaf(part, 1, nodes, index, labels)
            groups.append(HyperNode(place, 2, {}, children=tuple(parts)))
        else:
            known = zip(found.levels, one.path, strict=True)
            labels = {found.key: one.value}
            exact = labels | {key: value for key, value in known if value}
            groups.append(_leaf(place, 2 if domain_of else 1, one.nodes, index, labels, exact))
    yield from groups


def _leaf(
    place: Place,
    tier: int,
    nodes: Sequence[FleetNode],
    index: Index,
    *choices: Mapping[str, str],
) -> HyperNode:
    """Return a HyperNode by the first labels that select these nodes and no others; else by name.

    The first of some labels is in the index. By labels, a Node that comes later is a member
    without another export.
    """
    wanted = {node.name for node in nodes}
    for labels in choices:
        near = index[next(iter(labels.items()))] if labels else []
        if {node.name for node in near if labels.items() <= node.labels.items()} == wanted:
            return HyperNode(place, tier, labels)
    return HyperNode(place, tier, {}, tuple(node.name for node in nodes))


def _above(found: Topology) -> Iterator[HyperNode]:
    """Yield the site's levels, the innermost first; an unknown one is passed over."""
    children: dict[Place, dict[Place, None]] = defaultdict(dict)
    for one in found.groups:
        below: Place = ("group", *one.path, one.value)
        for at in reversed(range(len(one.path))):
            if one.path[at]:
                place: Place = ("level", *one.path[: at + 1])
                children[place][below] = None
                below = place
    top = len(found.levels) + (2 if found.relation == INNER else 1)
    for place in sorted(children, key=lambda place: (-len(place), natural(_wanted(place)))):
        yield HyperNode(place, top + 2 - len(place), {}, children=tuple(children[place]))


def _wanted(place: Place) -> str:
    return "-".join(filter(None, place[1:]))
