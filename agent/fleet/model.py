"""The data model of a fleet: what each Node says of its backend ports and their far ends.

Invariants:
- None is unknown. A text is what the Node has, unaltered: it may be hostile, and is escaped where
  it is printed (agent/text.py `visible`).
- `FarEnd.switch` is equal for two ports of one switch; names are for people. It is the switch's
  own identifier where the annotation has one, else its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

INFINIBAND, ROCE = "infiniband", "roce"
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class FarEnd(NamedTuple):
    """The switch port at the far end of a cable."""

    label: str  # value of the label `neighbors.current.{if}.device`: encoded, perhaps hashed
    port_id: str | None = None  # raw where the annotation agrees with the label, else the label
    port_name: str | None = None  # value of the label
    id: str | None = None  # switch node GUID (16 hex digits) or LLDP Chassis ID
    name: str | None = None  # the name alone (`L90.1.3` of a NodeDescription), or the System Name

    @property
    def device(self) -> str:
        """The name to show: unaltered if it is known, else the label's value."""
        return self.name or self.label

    @property
    def switch(self) -> str:
        """The identity of the switch."""
        return self.id or self.label

    @property
    def port(self) -> str | None:
        """The port to show."""
        return self.port_name or self.port_id


class FleetPort(NamedTuple):
    """One backend interface of a Node, from its labels and its row in the annotation."""

    interface: str  # as in label keys: ibp0, mlx5_0-3, mlx5_bond_0-eth2
    pci: str | None = None  # address of the PCI function, 0000:18:00.0
    port_guid: str | None = None
    node_guid: str | None = None  # of the HCA
    gbps: float | None = None  # what it counted last; 0: not ACTIVE
    far_end: FarEnd | None = None  # now; None: no neighbor label
    last_end: FarEnd | None = (
        None  # the last one known, of the annotation; equal to `far_end` or older
    )
    is_lost: bool = False  # left the bus


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One Node, read."""

    name: str
    uid: str | None = None
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
    problems: tuple[str, ...] = ()  # one line each: what could not be read of this Node


@dataclass(frozen=True, slots=True)
class Fleet:
    """All Nodes that were selected, in natural order of their names."""

    nodes: tuple[FleetNode, ...]
    source: str  # for messages: the file, the folder, or the cluster's address
    now: int  # seconds since the epoch: the clock that ages are measured by
    others: int = 0  # Nodes without any label or annotation of the agent, which are left out
    problems: tuple[str, ...] = ()
