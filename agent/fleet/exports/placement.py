"""The leaf groups of nodes with wrong cables: those in which they are once the cables are right.

A leaf group is made of all leaves of a node, so that one wrong cable makes a group of its own: a
switch with one node in Slurm, a HyperNode in Volcano, and NVLink domains that cross leaf groups.
A scheduler loses more by such a group than by a node with one rail on another leaf.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.fleet.exports.text import listed
from agent.fleet.pattern.infer import infer

if TYPE_CHECKING:
    from agent.fleet.model import Fleet

MOVES = frozenset({"swapped", "shifted", "miscabled"})  # codes of cables on another leaf


def placed(fleet: Fleet) -> tuple[Fleet, list[str]]:
    """Return the fleet with such nodes in the group of most of their neighbors, and the notes.

    They are the nodes of findings by the pattern; without a pattern none is moved.
    """
    pattern = infer(fleet)
    wrong = {port.node for one in pattern.findings if one.code in MOVES for port in one.ports}
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
