"""Labeled ports without an RDMA device: those that left the bus, and those without a driver."""

from __future__ import annotations

from typing import NamedTuple

from agent.model import Observation
from agent.reasons import HoldReason
from agent.text import missing_since

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
    lost = [
        AbsentPort(
            f"{one.interface}@{one.pci}" if one.interface in names else one.interface,
            f"gone from the bus, {missing_since(one.since)}",
            0.0,
            one.pci,
            one.port_guid,
        )
        for one in observation.lost or ()
    ]
    return [*lost, *unbound]
