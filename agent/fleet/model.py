"""The data model of a fleet: what each Node says of its backend ports, and how it is judged.

Invariants:
- None is unknown. A text is what the Node has, unaltered: it may be hostile, and is escaped where
  it is printed (agent/text.py `visible`).
- `SeenEnd.switch` is the switch's own identifier where the annotation has one, else its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from agent.cabling.baseline import Accepted
from agent.cabling.finding import Finding, PortRef
from agent.cabling.seen import SeenEnd
from agent.model import PlatformPosition
from agent.reasons import BadLink

INFINIBAND, ROCE = "infiniband", "roce"
NO_LABELS: Mapping[str, str] = MappingProxyType({})


def place_text(device: str | None, port: str | None) -> str:
    """Return a port of a switch as `leaf07/12`."""
    return f"{device or '?'}/{port}" if port else device or "?"


class Nic(NamedTuple):
    """The model of a NIC and its firmware."""

    model: str  # PSID, else PCI ids
    firmware: str


class FleetPort(NamedTuple):
    """One backend interface of a Node, from its labels and its row in the annotation."""

    interface: str  # as in label keys: ibp0, mlx5_0-3, mlx5_bond_0-eth2
    pci: str | None = None  # address of the PCI function, 0000:18:00.0
    node_guid: str | None = None  # of the HCA
    gbps: float | None = None  # what it counted last; 0: not ACTIVE
    far_end: SeenEnd | None = None  # now; None: no neighbor label
    last_end: SeenEnd | None = (
        None  # the last known far end, of the annotation; equal to `far_end` or older
    )
    is_lost: bool = False  # left the bus, and has no far end
    netdev: str | None = None  # enp26s0np0, by which plans of RoCE fabrics name a port
    # the neighbor now, in place of `far_end`, if that says that it is no switch
    station: SeenEnd | None = None
    nic: Nic | None = None  # of a capture; no Node has it
    bad_link: BadLink | None = None


class LeafUplinks(NamedTuple):
    """The uplinks of a leaf that its last answer had."""

    time: int  # of the answer, seconds since the epoch
    ports: Mapping[int, str]  # the name of the switch at each


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One Node, read."""

    name: str
    flavor: str | None = None  # INFINIBAND or ROCE
    speed_gbps: float | None = None  # `speed.current`
    ports: tuple[FleetPort, ...] = ()  # in natural order of the interfaces
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)  # all labels of the Node
    leaf_group: str | None = None  # `leafgroup.current`
    accelerator: str | None = None
    time: int | None = None  # of the last observation, seconds since the epoch
    boot_id: str | None = None  # the boot of that observation
    node_boot_id: str | None = None  # status.nodeInfo.bootID; only where whole Nodes are read
    agent: str | None = None  # version
    position: PlatformPosition | None = None  # in its chassis
    problems: tuple[str, ...] = ()  # one line each: what could not be read of this Node
    # with --tiers, of a few nodes of a leaf group, by leaf (GUID)
    uplinks: Mapping[str, LeafUplinks] = field(default_factory=dict)


class Wire(NamedTuple):
    """The cable of a port that has a neighbor now."""

    node: FleetNode
    port: FleetPort
    end: SeenEnd

    @property
    def ref(self) -> PortRef:
        return PortRef(self.node.name, self.port.interface)


def current(port: FleetPort) -> SeenEnd | None:
    """Return the far end that a port has now, or had last."""
    return None if port.is_lost else port.far_end or port.last_end


def wires(nodes: Iterable[FleetNode]) -> Iterator[Wire]:
    """Yield the cables of nodes."""
    for node in nodes:
        for port in node.ports:
            if port.far_end:
                yield Wire(node, port, port.far_end)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All Nodes that were selected, in natural order of their names."""

    nodes: tuple[FleetNode, ...]
    source: str  # for messages: the file, the folder, or the cluster's address
    now: int  # seconds since the epoch: the clock that ages are measured by
    others: int = 0  # Nodes without any label or annotation of the agent, which are left out
    problems: tuple[str, ...] = ()


class Group(NamedTuple):
    """The nodes that hang on one set of leaves, or share the pattern of such a group."""

    name: str  # for people: the leaves, or their first and last
    nodes: tuple[str, ...]  # in natural order
    leaves: tuple[str, ...]  # identities of the switches (SeenEnd.switch), in rail order
    pattern: str | None  # in words: "rail-optimized: interface i on leaf i"; None: no pattern


class Gap(NamedTuple):
    """The cables that nothing was compared with: green is not whole."""

    nodes: tuple[str, ...] = ()  # with backend ports of which nothing is expected
    hosts: tuple[str, ...] = ()  # of the plan, without a Node
    nearest: tuple[str, ...] = ()  # names of the plan that are like the first of these nodes
    compared: int = 0  # cables
    cables: int = 0


class Judged(NamedTuple):
    """The result of `fleet verify`."""

    fleet: Fleet
    findings: tuple[Finding, ...]  # in the order in which they are listed
    groups: tuple[Group, ...]  # every node is in exactly one
    notes: tuple[
        str, ...
    ] = ()  # one line each: plans, what was left out, why a group has no pattern
    planned: int = 0  # cables that a plan names, or the pattern covers
    as_planned: int = 0
    by_pattern: bool = True  # False: compared with a plan or expected labels
    gap: Gap | None = None  # None: all was compared, or --partial says that not all is meant
    has_plan: bool = False  # compared with a plan, not with expected labels
    accepted: tuple[Accepted, ...] = ()  # findings of --baseline
