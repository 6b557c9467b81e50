"""Slinky (Slurm in Pods): a ConfigMap with topology.yaml, and the annotation of each Node.

The manifests are for `kubectl apply --server-side`: that sets the annotation and leaves the rest
of a Node alone. Each Node bears its UID, so that a Node that is gone, or new under its old name, is
an error instead of a new object.
https://slinky.schedmd.com/projects/slurm-operator/en/latest/usage/topology.html
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from agent.fleet.exports.exported import Exported, commented, listed, quoted
from agent.fleet.exports.slurm_yaml import BLOCKS, TREE, topologies
from agent.fleet.exports.topology import is_value, topology

if TYPE_CHECKING:
    from agent.fleet.exports.slurm_yaml import Topologies
    from agent.fleet.exports.topology import Topology
    from agent.fleet.model import Fleet, FleetNode
    from agent.labels.table import Naming

ANNOTATION = "topology.slinky.slurm.net/spec"
CONFIG_MAP, FILE = "slurm-topology", "topology.yaml"


def manifests(fleet: Fleet, naming: Naming) -> Exported:
    """Return the ConfigMap and a manifest of each Node whose UID is known."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    built = topologies(found)
    unknown = [node.name for node in found.nodes if not is_value(node.uid)]
    notes = built.notes
    if unknown:
        notes += (f"not annotated, of unknown UID: {listed(unknown)}",)
    head = commented([f"Slinky: leaf groups by {found.key}", *notes])
    texts = [_config_map(built.text), *_annotated(found, built)]
    return Exported(head + "---\n".join(texts), notes)


def _config_map(text: str) -> str:
    return (
        "apiVersion: v1\n"
        "kind: ConfigMap\n"
        f"metadata:\n  name: {CONFIG_MAP}\n"
        f"data:\n  {FILE}: |\n{textwrap.indent(text, '    ')}"
    )


def _annotated(found: Topology, built: Topologies) -> list[str]:
    block_of = {node.name: value for value, nodes in found.domains.items() for node in nodes}
    return [
        _node(node, built.tree.switch_of[node.name], block_of.get(node.name))
        for node in found.nodes
        if is_value(node.uid)
    ]


def _node(node: FleetNode, switch: str, block: str | None) -> str:
    spec = f"{TREE}:{switch}" + (f",{BLOCKS}:{block}" if block else "")
    return (
        "apiVersion: v1\n"
        "kind: Node\n"
        "metadata:\n"
        f"  name: {quoted(node.name)}\n"
        f"  uid: {quoted(node.uid or '')}\n"
        f"  annotations:\n    {ANNOTATION}: {quoted(spec)}\n"
    )
