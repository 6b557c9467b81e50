"""The topology as a tree of switches and as blocks, with the names that Slurm takes.

A switch is a leaf group, or a value of one of the site's levels above. Slurm takes any name of up
to 64 characters that its hostlists can hold: a leaf group keeps its label value, so that
`scontrol show topology` shows what the Nodes do. A level is named with the levels above it,
`fabric.superpod`, and so is a leaf group whose value occurs in two places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.exported import listed
from agent.fleet.exports.names import unique
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.fleet.exports.topology import LeafGroup, Path, Topology
    from agent.fleet.model import FleetNode

MAX_NAME = 64  # HOST_NAME_MAX, for switches
MAX_DOUBLINGS = 15  # levels of blocks above the base
Place = tuple["Path", str | None]  # a level's value at the end of a path; of a leaf group, its own


class Switch(NamedTuple):
    """A switch of the tree: a leaf with nodes, or one above with children."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


class Block(NamedTuple):
    """A block: an NVLink domain, or a leaf group in a fleet without domains."""

    name: str
    nodes: tuple[str, ...]


class Tree(NamedTuple):
    """The tree that the formats of Slurm print."""

    switches: tuple[Switch, ...]  # leaves first, then the level above them, and so on
    tops: tuple[str, ...]  # names of the switches without a parent
    switch_of: Mapping[str, str]  # leaf switch by Node name
    notes: tuple[str, ...]

    @property
    def root(self) -> str:
        """The name of a switch that would join all others: `root`, unless one bears that."""
        taken = {one.name for one in self.switches}
        more = (f"root-{number}" for number in range(1, len(taken) + 1))
        return next(name for name in chain(["root"], more) if name not in taken)


def tree(found: Topology, hosts: Mapping[str, str]) -> Tree:
    """Return the tree of switches; `hosts` are the names of nodes in Slurm by Node name."""
    names = _names(found.groups)
    leaves = [
        Switch(names[_place(one)], tuple(hosts[node.name] for node in one.nodes))
        for one in found.groups
    ]
    above, tops = _above(found.groups, names)
    switch_of = {node.name: names[_place(one)] for one in found.groups for node in one.nodes}
    notes = _apart(tops, found.levels)
    return Tree((*leaves, *above), tuple(tops), switch_of, tuple(notes))


def _place(one: LeafGroup) -> Place:
    return one.path, one.value


def _parents(one: LeafGroup) -> list[Place]:
    """Return the places above a leaf group, innermost first."""
    known = [at for at, value in enumerate(one.path) if value]
    return [(one.path[: at + 1], None) for at in reversed(known)]


def _names(groups: Sequence[LeafGroup]) -> dict[Place, str]:
    times = Counter(one.value for one in groups)
    wanted = {_place(one): _joined(one.path, one.value, times) for one in groups}
    wanted |= {place: _joined(place[0]) for one in groups for place in _parents(one)}
    return unique(wanted, MAX_NAME)


def _joined(path: Path, value: str | None = None, times: Mapping[str, int] | None = None) -> str:
    if value and times and times[value] == 1:
        return value
    return ".".join(filter(None, (*path, value)))


def _above(
    groups: Sequence[LeafGroup], names: Mapping[Place, str]
) -> tuple[list[Switch], list[str]]:
    """Return the switches above the leaves, and the names of all without a parent."""
    children: dict[Place, dict[str, None]] = defaultdict(dict)  # in the order of the leaves
    tops: dict[str, None] = {}
    for one in groups:
        line = [_place(one), *_parents(one)]
        for below, place in pairwise(line):
            children[place][names[below]] = None
        tops[names[line[-1]]] = None
    ordered = sorted(children, key=lambda place: (-len(place[0]), natural(names[place])))
    return [Switch(names[place], children=tuple(children[place])) for place in ordered], list(tops)


def _apart(tops: Sequence[str], levels: Sequence[str]) -> Iterator[str]:
    if len(tops) > 1:
        why = "no label has a level above" if not levels else "the site's labels have them apart"
        yield f"no job can span two of these, {why}: {listed(tops, 'switch tree')}"


def blocks(found: Topology, hosts: Mapping[str, str]) -> tuple[list[Block], list[str]]:
    """Return the blocks, and a note on the nodes that are in none.

    In a fleet with NVLink domains only these are blocks: a block promises what NVLink gives.
    """
    if not found.domains:
        names = _names(found.groups)
        return [_block(names[_place(one)], one.nodes, hosts) for one in found.groups], []
    inside = {node.name for nodes in found.domains.values() for node in nodes}
    outside = [node.name for node in found.nodes if node.name not in inside]
    notes = [f"in no block, without an NVLink domain: {listed(outside)}"] if outside else []
    return [_block(value, nodes, hosts) for value, nodes in found.domains.items()], notes


def _block(name: str, nodes: Iterable[FleetNode], hosts: Mapping[str, str]) -> Block:
    return Block(name, tuple(hosts[node.name] for node in nodes))


def block_sizes(found: Sequence[Block]) -> list[int]:
    """Return the size of the smallest block, and its doublings up to the number of blocks."""
    smallest = min(len(one.nodes) for one in found)
    doublings = min(len(found).bit_length(), MAX_DOUBLINGS + 1)
    return [smallest << level for level in range(doublings)]


def uneven(found: Sequence[Block]) -> list[str]:
    """Return a note if one block is smaller than most are: it decides the base block size."""
    sizes = Counter(len(one.nodes) for one in found)
    usual, smallest = max(sizes, key=lambda size: (sizes[size], size)), min(sizes)
    if usual == smallest:
        return []
    small = [one.name for one in found if len(one.nodes) == smallest]
    return [f"the base block size is {smallest}, where {usual} is usual: {listed(small, 'block')}"]
