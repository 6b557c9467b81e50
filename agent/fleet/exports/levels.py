"""The topology of Kueue, which names Node labels.

It holds no nodes: the scheduler reads their labels itself. Levels go from the outermost to the
Node, which is the last. Nodes that lack a label of a level are not part of the topology: Kueue
places nothing there that asks for it.
"""

from __future__ import annotations

from agent.encode import Naming, is_subdomain, key_fault
from agent.fleet.exports.text import Exported, Quoted, commented, listed, yaml_text
from agent.fleet.exports.topology import (
    CROSSING,
    INNER,
    LEAF_GROUP,
    OUTER,
    Levels,
    Topology,
    labeled,
)
from agent.fleet.exports.topology import topology as topology_of
from agent.fleet.model import INFINIBAND, ROCE, Fleet

NAME = "bwagent"
FLAVORS = (INFINIBAND, ROCE)
HOST = "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io/v1beta2"


def kueue(fleet: Fleet, naming: Naming, given: Levels = ()) -> Exported:
    """Return a Topology and a ResourceFlavor for each kind of fabric (kueue.x-k8s.io/v1beta2)."""
    topology = topology_of(fleet, naming, given)
    keys, notes = _levels(topology, naming)
    key = f"{naming.prefix}/flavor"
    if without := [node.name for node in topology.nodes if node.flavor not in FLAVORS]:
        notes.append(f"in no ResourceFlavor, no {key}: {listed(without)}")
    flavors = sorted({node.flavor for node in topology.nodes if node.flavor in FLAVORS})
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
    head = commented([f"Kueue: leaf groups by {topology.key}", *notes])
    return Exported(head + yaml_text(documents), tuple(notes))


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


def _levels(topology: Topology, naming: Naming) -> tuple[list[str], list[str]]:
    """Return the keys of the levels, outermost first, and the notes.

    NVLink domains are a level if they nest with the leaf groups, and most nodes are in one.
    """
    keys, notes = [*topology.levels, topology.key], list(topology.notes)
    checked = list(topology.levels)
    inside = sum(len(nodes) for nodes in topology.domains.values())
    if topology.relation == CROSSING:
        notes.append(f"{naming.accelerator} is no level: domains cross leaf groups")
    elif topology.relation and 2 * inside <= len(topology.nodes):
        share = f"only {inside} of {len(topology.nodes)} Nodes have it"
        notes.append(f"{naming.accelerator} is no level, {share}")
    elif topology.relation in {INNER, OUTER}:
        keys.insert(len(keys) - (topology.relation == OUTER), naming.accelerator)
        checked.append(naming.accelerator)
    for key in checked:
        _, lack = labeled(topology.nodes, key)
        if lack:
            notes.append(f"not in the topology, no {key}: {listed(lack)}")
    return [*keys, HOST], notes
