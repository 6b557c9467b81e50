"""topology.conf of Slurm: the leaf groups as a tree of switches, or NVLink domains as blocks.

topology.conf(5). A line ends an entry, `#` begins a comment. Every name here is of letters,
digits, dots, underscores and dashes; see topology.py and tree.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.exports.exported import Exported, commented
from agent.fleet.exports.hostlist import hostlist
from agent.fleet.exports.hosts import hosts
from agent.fleet.exports.topology import topology
from agent.fleet.exports.tree import block_sizes, blocks, tree, uneven

if TYPE_CHECKING:
    from agent.fleet.exports.tree import Block, Switch, Tree
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming


def tree_conf(fleet: Fleet, naming: Naming) -> Exported:
    """Return topology.conf for TopologyPlugin=topology/tree."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    names, odd = hosts(found.nodes)
    built = tree(found, names)
    notes = (*found.notes, *odd, *built.notes)
    head = f"topology.conf, topology/tree: leaf groups by {found.key}"
    lines = "".join(_switch(one) for one in built.switches)
    return Exported(commented([head, *notes]) + lines + root_line(built), notes)


def _switch(one: Switch) -> str:
    if one.nodes:
        return f"SwitchName={one.name} Nodes={hostlist(one.nodes)}\n"
    return f"SwitchName={one.name} Switches={hostlist(one.children)}\n"


def root_line(built: Tree) -> str:
    """Return the switch that would join all others, as a comment: no label says that it exists."""
    if len(built.tops) < 2:
        return ""
    return commented(
        [
            "If all of them are one network, this line lets a job span them:",
            f"SwitchName={built.root} Switches={hostlist(built.tops)}",
        ]
    )


def block_conf(fleet: Fleet, naming: Naming) -> Exported:
    """Return topology.conf for TopologyPlugin=topology/block."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    names, odd = hosts(found.nodes)
    parts, left = blocks(found, names)
    notes = (*found.notes, *odd, *left, *uneven(parts))
    by = naming.accelerator if found.domains else found.key
    lines = "".join(_block(one) for one in parts)
    sizes = ",".join(str(size) for size in block_sizes(parts))
    head = commented([f"topology.conf, topology/block: blocks by {by}", *notes])
    return Exported(f"{head}{lines}BlockSizes={sizes}\n", notes)


def _block(one: Block) -> str:
    return f"BlockName={one.name} Nodes={hostlist(one.nodes)}\n"
