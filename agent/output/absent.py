"""Labeled ports without an RDMA device: those that left the bus, and those without a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.reasons import HoldReason
from agent.text import missing_since

if TYPE_CHECKING:
    from agent.model import LostPort, Observation

ABSENT = "absent"  # the state of such a port


class AbsentPort(NamedTuple):
    """A labeled port that an observation does not have."""

    interface: str  # its last name; `{name}@{pci}` if another port has that now
    reason: str
    counted_gbps: float | None  # its part of the speed label; None: unknown
    pci: str | None = None
    port_guid: str | None = None


def absent_ports(observation: Observation) -> list[AbsentPort]:
    """Return the labeled ports that the observation does not have."""
    names = {role.interface for role in observation.ports}
    held = {one.interface: one.gbps for one in observation.held_counts}
    unbound = [
        AbsentPort(name, HoldReason.DEVICE_GONE.text, held.get(name))
        for name in observation.unbound
        if name not in names
    ]
    names |= {one.interface for one in unbound}
    return [*(_of_lost(one, names) for one in observation.lost or ()), *unbound]


def _of_lost(lost: LostPort, names: set[str]) -> AbsentPort:
    is_taken = lost.interface in names
    name = f"{lost.interface}@{lost.pci}" if is_taken else lost.interface
    reason = f"gone from the bus, {missing_since(lost.since)}"
    return AbsentPort(name, reason, 0.0, lost.pci, lost.port_guid)
