"""Slurm: topology.conf as a tree or as blocks, and topology.yaml.

topology.conf(5), topology.yaml(5) of Slurm 25.05 and newer.

A switch is a leaf group, or a value of one of the site's levels above. Slurm takes any name of up
to 64 characters that its hostlists can hold: a leaf group keeps its label value, so that
`scontrol show topology` shows what the Nodes do. A level is named with the levels above it,
`fabric.superpod`, and so is a leaf group whose value occurs in two places. In topology.conf a line
ends an entry and `#` begins a comment: no name here has either (topology.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, pairwise
from typing import NamedTuple

from agent.encode import Naming
from agent.fleet.exports.text import (
    Exported,
    Quoted,
    commented,
    hostlist,
    listed,
    unique,
    yaml_text,
)
from agent.fleet.exports.topology import LeafGroup, Levels, Path, Topology
from agent.fleet.exports.topology import topology as topology_of
from agent.fleet.model import Fleet, FleetNode
from agent.text import natural

MAX_NAME = 64  # HOST_NAME_MAX, for switches
MAX_DOUBLINGS = 15  # levels of blocks above the base
TREE, BLOCKS = "topo-switch", "topo-block"  # names of Slinky's documentation
JOINS = "If all of them are one network, {} a job span them:"
# A level's value at the end of a path; of a leaf group, its own.
TreePlace = tuple["Path", str | None]


class SlurmSwitch(NamedTuple):
    """A leaf switch with nodes, an upper switch with children, or a block of nodes."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()

    @property
    def as_conf(self) -> str:
        key, names = ("Nodes", self.nodes) if self.nodes else ("Switches", self.children)
        return f"SwitchName={self.name} {key}={hostlist(names)}\n"

    @property
    def as_yaml(self) -> dict[str, str]:
        key, names = ("nodes", self.nodes) if self.nodes else ("children", self.children)
        return {"switch": Quoted(self.name), key: Quoted(hostlist(names))}


class SwitchTree(NamedTuple):
    """The tree of switches, and what is to be said of it."""

    leaves: list[SlurmSwitch]  # one for each leaf group
    above: list[SlurmSwitch]  # the level above them, and so on
    # The switch that would join all others; None if a switch does. It is printed as a comment, for
    # no label says that it exists.
    root: SlurmSwitch | None
    notes: list[str]


def tree_conf(fleet: Fleet, naming: Naming, given: Levels = ()) -> Exported:
    """Return topology.conf for TopologyPlugin=topology/tree."""
    topology = topology_of(fleet, naming, given)
    if not topology.groups:
        return Exported("", topology.notes)
    hosts, odd = _hosts(topology.nodes)
    tree = _tree(topology, hosts)
    notes = (*topology.notes, *odd, *tree.notes)
    head = commented([f"topology.conf, topology/tree: leaf groups by {topology.key}", *notes])
    lines = "".join(switch.as_conf for switch in (*tree.leaves, *tree.above))
    root = [JOINS.format("this line lets"), tree.root.as_conf.rstrip()] if tree.root else []
    return Exported(head + lines + commented(root), notes)


def block_conf(fleet: Fleet, naming: Naming, given: Levels = ()) -> Exported:
    """Return topology.conf for TopologyPlugin=topology/block."""
    topology = topology_of(fleet, naming, given)
    if not topology.groups:
        return Exported("", topology.notes)
    hosts, odd = _hosts(topology.nodes)
    blocks, of_blocks = _blocks(topology, hosts)
    notes = (*topology.notes, *odd, *of_blocks)
    by = naming.accelerator if topology.domains else topology.key
    head = commented([f"topology.conf, topology/block: blocks by {by}", *notes])
    lines = "".join(f"BlockName={block.name} Nodes={hostlist(block.nodes)}\n" for block in blocks)
    sizes = ",".join(map(str, _block_sizes(blocks)))
    return Exported(f"{head}{lines}BlockSizes={sizes}\n", notes)


def topology_yaml(fleet: Fleet, naming: Naming, given: Levels = ()) -> Exported:
    """Return topology.yaml: blocks only of NVLink domains."""
    topology = topology_of(fleet, naming, given)
    if not topology.groups:
        return Exported("", topology.notes)
    hosts, odd = _hosts(topology.nodes)
    tree = _tree(topology, hosts)
    blocks, of_blocks = _blocks(topology, hosts) if topology.domains else ([], [])
    notes = (*topology.notes, *odd, *tree.notes, *of_blocks)
    head = commented([f"topology.yaml: leaf groups by {topology.key}", *notes])
    switches = [switch.as_yaml for switch in (*tree.leaves, *tree.above)]
    body = yaml_text(
        [[{"topology": TREE, "cluster_default": True, "tree": {"switches": switches}}]]
    )
    if tree.root:
        lines = [JOINS.format("these lines let"), *yaml_text([[tree.root.as_yaml]]).splitlines()]
        body += commented(lines, "    #")
    if blocks:
        parts = [
            {"block": Quoted(block.name), "nodes": Quoted(hostlist(block.nodes))}
            for block in blocks
        ]
        of_sizes = {"block_sizes": _block_sizes(blocks), "blocks": parts}
        body += yaml_text([[{"topology": BLOCKS, "cluster_default": False, "block": of_sizes}]])
    return Exported(head + body, notes)


def _hosts(nodes: Sequence[FleetNode]) -> tuple[dict[str, str], list[str]]:
    """Return the name of each Node in Slurm, and a note on those that could not be shortened.

    slurmd finds its NodeName by what `hostname -s` prints: the first label of a fully qualified
    name. Nodes whose first labels are equal, and addresses, keep the whole name.
    """
    short = {}
    for node in nodes:
        host = node.name.partition(".")[0]
        short[node.name] = node.name if host.isdigit() else host
    times = Counter(short.values())
    twice = [name for name, host in short.items() if times[host] > 1]
    notes = [f"equal up to the first dot, so with whole names: {listed(twice)}"] if twice else []
    return short | {name: name for name in twice}, notes


def _tree(topology: Topology, hosts: Mapping[str, str]) -> SwitchTree:
    """Return the tree of switches; `hosts` are the names of nodes in Slurm by Node name."""
    lines: list[list[TreePlace]] = []  # each leaf group, and the places above it, innermost first
    for group in topology.groups:
        known = [at for at, value in enumerate(group.path) if value]
        above = [(group.path[: at + 1], None) for at in reversed(known)]
        lines.append([(group.path, group.value), *above])
    names = _names({place for line in lines for place in line}, topology.groups)
    children: dict[TreePlace, dict[str, None]] = defaultdict(dict)  # in the order of the leaves
    for line in lines:
        for below, place in pairwise(line):
            children[place][names[below]] = None
    tree = SwitchTree(
        [
            SlurmSwitch(names[line[0]], tuple(hosts[node.name] for node in group.nodes))
            for group, line in zip(topology.groups, lines, strict=True)
        ],
        [
            SlurmSwitch(names[place], children=tuple(children[place]))
            for place in sorted(children, key=lambda at: (-len(at[0]), natural(names[at])))
        ],
        None,
        [],
    )
    tops = tuple(dict.fromkeys(names[line[-1]] for line in lines))
    if len(tops) < 2:
        return tree
    why = "the labels have them apart" if topology.levels else "no label has a level above"
    notes = [f"no job can span two of these, {why}: {listed(tops, 'switch tree')}"]
    more = (f"root-{number}" for number in count(1))
    name = next(name for name in chain(["root"], more) if name not in {*names.values()})
    return tree._replace(root=SlurmSwitch(name, children=tops), notes=notes)


def _names(places: Iterable[TreePlace], groups: Iterable[LeafGroup]) -> dict[TreePlace, str]:
    """Return the names of switches: a leaf group's value if it is in one place, else the path."""
    times = Counter(group.value for group in groups)
    return unique(
        {
            (path, value): value
            if value and times[value] == 1
            else ".".join(filter(None, (*path, value)))
            for path, value in places
        },
        MAX_NAME,
    )


def _blocks(topology: Topology, hosts: Mapping[str, str]) -> tuple[list[SlurmSwitch], list[str]]:
    """Return the blocks, and notes on the nodes that are in none and on small blocks.

    In a fleet with NVLink domains only these are blocks: a block promises what NVLink gives.
    """
    notes = []
    if topology.domains:
        blocks = [
            SlurmSwitch(name, tuple(hosts[node.name] for node in nodes))
            for name, nodes in topology.domains.items()
        ]
        inside = {node.name for nodes in topology.domains.values() for node in nodes}
        if outside := [node.name for node in topology.nodes if node.name not in inside]:
            notes.append(f"in no block, without an NVLink domain: {listed(outside)}")
    else:
        blocks = _tree(topology, hosts).leaves
    sizes = Counter(len(block.nodes) for block in blocks)
    usual, smallest = max(sizes, key=lambda size: (sizes[size], size)), min(sizes)
    if usual != smallest:  # the smallest block decides the base block size
        small = listed([block.name for block in blocks if len(block.nodes) == smallest], "block")
        notes.append(f"the base block size is {smallest}, where {usual} is usual: {small}")
    return blocks, notes


def _block_sizes(blocks: Sequence[SlurmSwitch]) -> list[int]:
    """Return the size of the smallest block, and its doublings up to the number of blocks."""
    smallest = min(len(block.nodes) for block in blocks)
    doublings = min(len(blocks).bit_length(), MAX_DOUBLINGS + 1)
    return [smallest << level for level in range(doublings)]
