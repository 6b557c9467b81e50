"""The topology of Kueue, which names Node labels.

It holds no nodes: the scheduler reads their labels itself. Levels go from the outermost to the
Node, which is the last. Nodes that lack a label of a level are not part of the topology: Kueue
places nothing there that asks for it.
"""

from __future__ import annotations

from agent.fleet.exports.text import Exported, Quoted, commented, listed, yaml_text
from agent.fleet.exports.topology import CROSSING, INNER, OUTER, Topology, labeled, topology
from agent.fleet.model import INFINIBAND, ROCE, Fleet
from agent.labels.table import Naming

NAME = "bwagent"
FLAVORS = (INFINIBAND, ROCE)
HOST = "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io/v1beta2"


def kueue(fleet: Fleet, naming: Naming) -> Exported:
    """Return a Topology and a ResourceFlavor for each kind of fabric (kueue.x-k8s.io/v1beta2)."""
    found = topology(fleet, naming)
    keys, notes = _levels(found, naming)
    key = f"{naming.prefix}/flavor"
    if without := [node.name for node in found.nodes if node.flavor not in FLAVORS]:
        notes.append(f"in no ResourceFlavor, no {key}: {listed(without)}")
    flavors = sorted({node.flavor for node in found.nodes if node.flavor in FLAVORS})
    if not flavors:
        return Exported("", tuple(notes))
    levels = [{"nodeLabel": Quoted(key)} for key in keys]
    documents = [
        {
            "apiVersion": KUEUE,
            "kind": "Topology",
            "metadata": {"name": NAME},
            "spec": {"levels": levels},
        }
    ]
    for flavor in flavors:
        labels = {Quoted(key): Quoted(flavor)}
        documents.append(
            {
                "apiVersion": KUEUE,
                "kind": "ResourceFlavor",
                "metadata": {"name": f"{NAME}-{flavor}"},
                "spec": {"nodeLabels": labels, "topologyName": NAME},
            }
        )
    head = commented([f"Kueue: leaf groups by {found.key}", *notes])
    return Exported(head + yaml_text(documents), tuple(notes))


def _levels(found: Topology, naming: Naming) -> tuple[list[str], list[str]]:
    """Return the keys of the levels, outermost first, and the notes.

    NVLink domains are a level if they nest with the leaf groups, and most nodes are in one.
    """
    keys, notes = [*found.levels, found.key], list(found.notes)
    checked = list(found.levels)
    inside = sum(len(nodes) for nodes in found.domains.values())
    if found.relation == CROSSING:
        notes.append(f"{naming.accelerator} is no level: domains cross leaf groups")
    elif found.relation and 2 * inside <= len(found.nodes):
        share = f"only {inside} of {len(found.nodes)} Nodes have it"
        notes.append(f"{naming.accelerator} is no level, {share}")
    elif found.relation in {INNER, OUTER}:
        keys.insert(len(keys) - (found.relation == OUTER), naming.accelerator)
        checked.append(naming.accelerator)
    for key in checked:
        _, lack = labeled(found.nodes, key)
        if lack:
            notes.append(f"not in the topology, no {key}: {listed(lack)}")
    return [*keys, HOST], notes
