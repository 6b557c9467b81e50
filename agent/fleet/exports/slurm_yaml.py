"""topology.yaml of Slurm 25.05 and newer: the tree of switches, and the blocks beside it.

topology.yaml(5). The names of the topologies are those of Slinky's documentation.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.exported import Exported, commented, joined, quoted
from agent.fleet.exports.hostlist import hostlist
from agent.fleet.exports.hosts import hosts
from agent.fleet.exports.topology import topology
from agent.fleet.exports.tree import Block, Switch, Tree, block_sizes, blocks, tree, uneven

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.fleet.exports.topology import Topology
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming

TREE, BLOCKS = "topo-switch", "topo-block"


class Topologies(NamedTuple):
    """The topologies of one file."""

    text: str
    tree: Tree
    blocks: tuple[Block, ...]  # none in a fleet without NVLink domains
    notes: tuple[str, ...]


def topology_yaml(fleet: Fleet, naming: Naming) -> Exported:
    """Return topology.yaml."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    built = topologies(found)
    head = commented([f"topology.yaml: leaf groups by {found.key}", *built.notes])
    return Exported(head + built.text, built.notes)


def topologies(found: Topology) -> Topologies:
    """Return the tree, and the blocks if there are NVLink domains."""
    names, odd = hosts(found.nodes)
    built = tree(found, names)
    parts, left = blocks(found, names) if found.domains else ([], [])
    notes = (*found.notes, *odd, *built.notes, *left, *(uneven(parts) if parts else ()))
    return Topologies(joined(chain(_tree(built), _blocks(parts))), built, tuple(parts), notes)


def _tree(built: Tree) -> Iterator[str]:
    yield f"- topology: {TREE}"
    yield "  cluster_default: true"
    yield "  tree:"
    yield "    switches:"
    for one in built.switches:
        yield from _switch(one)
    if len(built.tops) > 1:
        yield "    # If all of them are one network, these lines let a job span them:"
        for line in _switch(Switch(built.root, children=built.tops)):
            yield f"    # {line[4:]}"


def _switch(one: Switch) -> Iterator[str]:
    yield f"    - switch: {quoted(one.name)}"
    key, names = ("nodes", one.nodes) if one.nodes else ("children", one.children)
    yield f"      {key}: {quoted(hostlist(names))}"


def _blocks(parts: Sequence[Block]) -> Iterator[str]:
    if not parts:
        return
    yield f"- topology: {BLOCKS}"
    yield "  cluster_default: false"
    yield "  block:"
    yield "    block_sizes:"
    yield from (f"    - {size}" for size in block_sizes(parts))
    yield "    blocks:"
    for one in parts:
        yield f"    - block: {quoted(one.name)}"
        yield f"      nodes: {quoted(hostlist(one.nodes))}"
