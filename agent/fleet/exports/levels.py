"""Topologies that name Node labels: those of Kueue and of the KAI Scheduler.

Such a topology holds no nodes: the scheduler reads their labels itself. Levels go from the
outermost to the Node, and both schedulers want the Node last. Nodes that lack a label of a level
are not part of the topology: Kueue places nothing there that asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.exported import Exported, commented, listed, quoted
from agent.fleet.exports.topology import CROSSING, INNER, OUTER, labeled, topology
from agent.fleet.model import INFINIBAND, ROCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.exports.topology import Topology
    from agent.fleet.model import Fleet, FleetNode
    from agent.labels.table import Naming

NAME = "bwagent"
FLAVORS = (INFINIBAND, ROCE)
HOST = "kubernetes.io/hostname"


class Levels(NamedTuple):
    """The keys of the levels, outermost first, and notes."""

    keys: tuple[str, ...]
    notes: tuple[str, ...]


def kueue(fleet: Fleet, naming: Naming) -> Exported:
    """Return a Topology and a ResourceFlavor for each kind of fabric (kueue.x-k8s.io/v1beta1)."""
    found = topology(fleet, naming)
    levels = _levels(found, naming)
    key = f"{naming.prefix}/flavor"
    flavors = sorted({node.flavor for node in found.nodes if node.flavor in FLAVORS})
    without = [node.name for node in found.nodes if node.flavor not in FLAVORS]
    notes = levels.notes
    if without:
        notes += (f"in no ResourceFlavor, no {key}: {listed(without)}",)
    if not flavors:
        return Exported("", notes)
    head = commented([f"Kueue: leaf groups by {found.key}", *notes])
    texts = [_topology("kueue.x-k8s.io/v1beta1", levels.keys)]
    texts += [_flavor(flavor, key) for flavor in flavors]
    return Exported(head + "---\n".join(texts), notes)


def kai(fleet: Fleet, naming: Naming) -> Exported:
    """Return a Topology (kai.scheduler/v1alpha1)."""
    found = topology(fleet, naming)
    if not found.groups:
        return Exported("", found.notes)
    levels = _levels(found, naming)
    head = commented([f"KAI Scheduler: leaf groups by {found.key}", *levels.notes])
    return Exported(head + _topology("kai.scheduler/v1alpha1", levels.keys), levels.notes)


def _levels(found: Topology, naming: Naming) -> Levels:
    keys, notes = [*found.levels, found.key], list(found.notes)
    checked = list(found.levels)
    if _has_domains(found, naming, notes):
        keys.insert(len(keys) - (found.relation == OUTER), naming.accelerator)
        checked.append(naming.accelerator)
    notes += _lacking(found.nodes, checked)
    return Levels((*keys, HOST), tuple(notes))


def _has_domains(found: Topology, naming: Naming, notes: list[str]) -> bool:
    """Return True if NVLink domains are a level: they nest, and most nodes are in one."""
    inside = sum(len(nodes) for nodes in found.domains.values())
    if found.relation == CROSSING:
        notes.append(f"{naming.accelerator} is no level: domains cross leaf groups")
    elif found.relation and 2 * inside <= len(found.nodes):
        total = len(found.nodes)
        notes.append(f"{naming.accelerator} is no level, only {inside} of {total} Nodes have it")
    else:
        return found.relation in {INNER, OUTER}
    return False


def _lacking(nodes: Sequence[FleetNode], keys: Iterable[str]) -> Iterable[str]:
    for key in keys:
        _, lack = labeled(nodes, key)
        if lack:
            yield f"not in the topology, no {key}: {listed(lack)}"


def _topology(version: str, keys: Iterable[str]) -> str:
    levels = "".join(f"  - nodeLabel: {quoted(key)}\n" for key in keys)
    return (
        f"apiVersion: {version}\n"
        "kind: Topology\n"
        f"metadata:\n  name: {NAME}\n"
        f"spec:\n  levels:\n{levels}"
    )


def _flavor(flavor: str, key: str) -> str:
    return (
        "apiVersion: kueue.x-k8s.io/v1beta1\n"
        "kind: ResourceFlavor\n"
        f"metadata:\n  name: {NAME}-{flavor}\n"
        f"spec:\n  nodeLabels:\n    {quoted(key)}: {quoted(flavor)}\n"
        f"  topologyName: {NAME}\n"
    )
