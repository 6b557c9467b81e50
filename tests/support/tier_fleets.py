"""Fleets of agents with --tiers on a subnet, as `fleet verify` reads their Nodes."""

from __future__ import annotations

from collections.abc import Iterable

from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.fleet.model import INFINIBAND, Fleet, FleetNode, FleetPort
from agent.fleet.nodes import NodeReader
from agent.infiniband.exploration import Exploration
from agent.infiniband.fabric_memory import DAY, HOUR, NOTHING, FabricMemory, merge, text
from agent.infiniband.tiers import tiers
from tests.support.subnets import Seen, Subnet

NOW = 1_800_000_000
NAMING = Naming()
P = NAMING.prefix


def memory_of(
    subnet: Subnet,
    leaves: Iterable[str],
    seen: Seen | None = None,
    memory: FabricMemory = NOTHING,
    after: int = 0,
) -> FabricMemory:
    """Return what an agent on these leaves knows after three answers more."""
    told, start = seen or subnet.seen(), (memory.time or NOW - HOUR) + HOUR + after
    answer = Exploration(tiers({*leaves}, *told), switches=told.switches)
    for now in (start, start + HOUR, start + DAY):
        memory = merge(memory, answer, {*leaves}, now)
    return memory


def node_of(subnet: Subnet, name: str, memory: FabricMemory) -> FleetNode:
    """Return a Node by its labels and the annotation of the switches above."""
    leaves = sorted(subnet.leaves(name))
    labels = {f"{P}/flavor": INFINIBAND, f"{P}/leafgroup.current": f"group-{leaves[0]}"}
    known = {f"{P}/tier-{tier}.current": memory.label(tier) for tier in (1, 2)}
    labels |= {key: value for key, value in known.items() if value}
    metadata = {"name": name, "labels": labels, "annotations": {f"{P}/fabric": text(memory)}}
    node = NodeReader(NAMING, NOW + 9 * DAY).read({"metadata": metadata})
    assert node
    assert not node.problems
    ports = tuple(
        FleetPort(f"ibp{at}", f"0000:{16 + at:02x}:00.0", gbps=400.0, far_end=end, last_end=end)
        for at, leaf in enumerate(leaves)
        for end in [SeenEnd(subnet.names[leaf] or leaf, None, None, leaf, subnet.names[leaf])]
    )
    facts = {"name": name, "flavor": INFINIBAND, "labels": node.labels, "time": NOW}
    return FleetNode(
        **facts,  # type: ignore[arg-type]
        ports=ports,
        leaf_group=node.leaf_group,
        uplinks=node.uplinks,
    )


def fleet_of(subnet: Subnet, names: Iterable[str], fresh: Iterable[FleetNode] = ()) -> Fleet:
    """Return the fleet of these nodes, whose agents knew the healthy subnet; `fresh` are others."""
    memories: dict[frozenset[str], FabricMemory] = {}
    nodes = {}
    for name in names:
        leaves = subnet.leaves(name)
        if leaves not in memories:
            memories[leaves] = memory_of(subnet, leaves)
        nodes[name] = node_of(subnet, name, memories[leaves])
    nodes |= {node.name: node for node in fresh}
    return Fleet(tuple(nodes.values()), "a subnet", NOW)
