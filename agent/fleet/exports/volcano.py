"""HyperNodes of Volcano (topology.volcano.sh/v1alpha1): leaf groups and what is above them.

Tier 1 has the NVLink domains where a fleet has any within its leaf groups, so leaf groups are
tier 2 there, else tier 1; the site's levels follow. A HyperNode has Nodes or HyperNodes as
members, never both: in a leaf group with domains, a node in none is a HyperNode of its own.
https://volcano.sh/en/docs/network_topology_aware_scheduling/
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.exported import Exported, commented, quoted
from agent.fleet.exports.names import unique
from agent.fleet.exports.topology import INNER, topology
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.fleet.exports.topology import LeafGroup, Topology
    from agent.fleet.model import Fleet, FleetNode
    from agent.labels.table import Naming

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
    built = list(_built(found, naming))
    names = unique({one.place: _wanted(one.place) for one in built}, MAX_NAME, _shaped)
    head = commented([*_heading(found, naming), *notes])
    return Exported(head + "---\n".join(_manifest(one, names) for one in built), notes)


def _heading(found: Topology, naming: Naming) -> Iterator[str]:
    tiers = [*([naming.accelerator] if found.relation == INNER else []), found.key]
    tiers += reversed(found.levels)
    yield "Volcano HyperNodes"
    yield from (f"tier {tier}: {key}" for tier, key in enumerate(tiers, 1))


def _built(found: Topology, naming: Naming) -> Iterator[HyperNode]:
    inner = {node.name: value for value, nodes in found.domains.items() for node in nodes}
    if found.relation != INNER:
        inner = {}
    tier = 2 if inner else 1
    index = _index(found.nodes, (found.key, naming.accelerator))
    for one in found.groups:
        yield from _domains(one, naming.accelerator, index, inner)
    for one in found.groups:
        yield _group(one, found, tier, index, inner)
    yield from _above(found, tier)


def _index(nodes: Iterable[FleetNode], keys: Iterable[str]) -> Index:
    index: Index = defaultdict(list)
    for key in keys:
        for node in nodes:
            index[key, node.labels.get(key)].append(node)
    return index


def _group(
    one: LeafGroup, found: Topology, tier: int, index: Index, inner: Mapping[str, str]
) -> HyperNode:
    place: Place = ("group", *one.path, one.value)
    if any(node.name in inner for node in one.nodes):
        return HyperNode(place, tier, {}, children=tuple(_parts(one, inner)))
    known = zip(found.levels, one.path, strict=True)
    labels = {found.key: one.value, **{key: value for key, value in known if value}}
    return _leaf(place, tier, one.nodes, index, {found.key: one.value}, labels)


def _parts(one: LeafGroup, inner: Mapping[str, str]) -> dict[Place, list[FleetNode]]:
    """Return the nodes of a leaf group by domain; one in no domain by itself."""
    parts: dict[Place, list[FleetNode]] = defaultdict(list)
    for node in one.nodes:
        value = inner.get(node.name)
        parts["domain" if value else "node", value or node.name].append(node)
    return parts


def _domains(
    one: LeafGroup, key: str, index: Index, inner: Mapping[str, str]
) -> Iterator[HyperNode]:
    if any(node.name in inner for node in one.nodes):
        for place, nodes in _parts(one, inner).items():
            labels = {key: place[1] or ""} if place[0] == "domain" else {}
            yield _leaf(place, 1, nodes, index, labels)


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
        near = [node for pair in [*labels.items()][:1] for node in index[pair]]
        if labels and {node.name for node in near if _has(node, labels)} == wanted:
            return HyperNode(place, tier, labels)
    return HyperNode(place, tier, {}, tuple(node.name for node in nodes))


def _has(node: FleetNode, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())


def _above(found: Topology, tier: int) -> Iterator[HyperNode]:
    """Yield the site's levels, the innermost first; an unknown one is passed over."""
    children: dict[Place, dict[Place, None]] = defaultdict(dict)
    for one in found.groups:
        below: Place = ("group", *one.path, one.value)
        for at in reversed(range(len(one.path))):
            if one.path[at]:
                place: Place = ("level", *one.path[: at + 1])
                children[place][below] = None
                below = place
    depth = len(found.levels)
    for place in sorted(children, key=lambda place: (-len(place), natural(_wanted(place)))):
        at = tier + depth + 2 - len(place)
        yield HyperNode(place, at, {}, children=tuple(children[place]))


def _wanted(place: Place) -> str:
    return "-".join(filter(None, place[1:]))


def _shaped(name: str) -> str:
    return _OTHERS.sub("-", name.lower()).strip("-")


def _manifest(one: HyperNode, names: Mapping[Place, str]) -> str:
    return (
        "apiVersion: topology.volcano.sh/v1alpha1\n"
        "kind: HyperNode\n"
        f"metadata:\n  name: {quoted(names[one.place])}\n"
        f"spec:\n  tier: {one.tier}\n  members:\n{''.join(_members(one, names))}"
    )


def _members(one: HyperNode, names: Mapping[Place, str]) -> Iterator[str]:
    if one.labels:
        pairs = "".join(f"          {quoted(k)}: {quoted(v)}\n" for k, v in one.labels.items())
        yield f"  - type: Node\n    selector:\n      labelMatch:\n        matchLabels:\n{pairs}"
    yield from _exact("Node", one.nodes)
    yield from _exact("HyperNode", [names[place] for place in one.children])


def _exact(kind: str, members: Iterable[str]) -> Iterator[str]:
    for name in members:
        yield f"  - type: {kind}\n    selector:\n      exactMatch:\n        name: {quoted(name)}\n"
