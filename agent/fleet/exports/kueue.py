"""The topologies of Kueue, which name Node labels.

They hold no nodes: the scheduler reads their labels itself. Levels go from the outermost to the
Node, which is the last. Nodes that lack a label of a level are not part of a topology: Kueue
places nothing there that asks for it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agent.encode import Naming
from agent.fleet.exports.text import Exported, Quoted, commented, listed, unique, yaml_text
from agent.fleet.exports.topology import (
    CROSSING,
    HOST,
    INNER,
    OUTER,
    Levels,
    Topology,
    by_value,
    labeled,
)
from agent.fleet.exports.topology import topology as topology_of
from agent.fleet.model import INFINIBAND, ROCE, Fleet

NAME = "bwagent"
FLAVORS = (INFINIBAND, ROCE)
# Labels of the kind of machine: of NVIDIA's and AMD's node labelers, and of clouds.
PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "node.kubernetes.io/instance-type",
)
MAX_NAME = 253  # characters of an object's name
_OTHER = re.compile("[^a-z0-9]+")
KUEUE = "kueue.x-k8s.io/v1beta2"


class Flavor(NamedTuple):
    """The nodes of one ResourceFlavor."""

    labels: tuple[tuple[str, str], ...]  # that they have
    keys: tuple[str, ...]  # of their levels, outermost first
    notes: tuple[str, ...]


def kueue(fleet: Fleet, naming: Naming, given: Levels = ()) -> Exported:
    """Return a ResourceFlavor for each kind of machine, and their Topology (v1beta2).

    Kinds with different levels have a Topology each.
    """
    topology = topology_of(fleet, naming, given)
    kinds, notes = _kinds(topology, naming)
    is_one = len({kind.keys for kind in kinds}) == 1
    texts = {kind: "-".join(value for _, value in kind.labels) for kind in kinds}
    wanted = {kind: f"{NAME}-{_OTHER.sub('-', text.lower())}" for kind, text in texts.items()}
    names = unique(wanted, MAX_NAME)
    notes += [note if is_one else f"{names[kind]}: {note}" for kind in kinds for note in kind.notes]
    if not kinds:
        return Exported("", tuple(notes))
    topologies = {NAME: kinds[0]} if is_one else {names[kind]: kind for kind in kinds}
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": KUEUE,
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": Quoted(key)} for key in kind.keys]},
        }
        for name, kind in topologies.items()
    ]
    documents += [
        {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": {"name": names[kind]},
            "spec": {
                "nodeLabels": {Quoted(key): Quoted(value) for key, value in kind.labels},
                "topologyName": NAME if is_one else names[kind],
            },
        }
        for kind in kinds
    ]
    head = commented([f"Kueue: leaf groups by {topology.key}", *notes])
    return Exported(head + yaml_text(documents), tuple(notes))


def _kinds(topology: Topology, naming: Naming) -> tuple[list[Flavor], list[str]]:
    """Return the kinds of machines, and notes on the nodes of none.

    A kind is a fabric. Where the products in a fabric have different levels, as with NVLink domains
    and without, each product is a kind: a node that lacks the label of a level is in no topology.
    """
    nodes, key = topology.nodes, f"{naming.prefix}/flavor"
    notes, kinds = list(topology.notes), list[Flavor]()
    most = (name for name in PRODUCTS if 2 * len(labeled(nodes, name)[0]) > len(nodes))
    product = next(most, "")
    if without := [node.name for node in nodes if node.flavor not in FLAVORS]:
        notes.append(f"in no ResourceFlavor, no {key}: {listed(without)}")
    for flavor in FLAVORS:
        of_fabric = [node for node in nodes if node.flavor == flavor]
        lack = labeled(of_fabric, product)[1]
        parts = [
            Flavor(((key, flavor), (product, value)), *_levels(topology.part(members), naming))
            for value, members in sorted(by_value(of_fabric, product).items())
        ]
        if len({kind.keys for kind in parts}) > 1:
            kinds += parts
            notes += [f"in no ResourceFlavor, no {product}: {listed(lack)}"] if lack else []
        elif of_fabric:
            kinds.append(Flavor(((key, flavor),), *_levels(topology.part(of_fabric), naming)))
    return kinds, notes


def _levels(topology: Topology, naming: Naming) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of the levels, outermost first, and the notes.

    NVLink domains are a level if they nest with the leaf groups, and most nodes are in one. What no
    node has is no level, such as the tiers of InfiniBand on RoCE.
    """
    checked = [key for key in topology.levels if labeled(topology.nodes, key)[0]]
    keys, notes = [*checked, topology.key], list[str]()
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
    return (*keys, HOST), tuple(notes)
