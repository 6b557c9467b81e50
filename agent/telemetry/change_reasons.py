"""Reasons of label changes, for the log.

A changed label shows its old and new value; its reason names the port state, the missing neighbor
or the expired hold behind it. agent/labels/values.py decides the values themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.model import Failed, Seen
from agent.sources.interfaces import IN_USE

if TYPE_CHECKING:
    from agent.daemon.observer import Cycle
    from agent.kube.managed_fields import Keys
    from agent.model import Observation

MAX_PORTS_NAMED = 3


def reason_of(key: str, cycle: Cycle, keys: Keys, hold: float) -> str | None:
    """Return the reason for a label's new value or removal; None if the value itself explains it.

    `hold` is the value of --hold in seconds.
    """
    if key in cycle.expired:
        return f"not observed for {hold:g} s"
    if key == keys.accelerator:
        found = cycle.observation.accelerator
        return found.text or found.reason
    interface = keys.interface(key)
    return _of_link(cycle.observation, interface) if interface else _of_ports(cycle.observation)


def _of_link(seen: Observation, interface: str) -> str | None:
    """Return the reason for a neighbor label of one port."""
    for outcome in (seen.lldp, seen.ib):
        for link in outcome.value if isinstance(outcome, Seen) else ():
            if link.interface == interface:
                return link.missing
    if interface in seen.unbound:
        return "the RDMA device is gone, its PCI function is present"
    return f"{interface} is no longer a backend port"


def _of_ports(seen: Observation) -> str | None:
    """Return the reason for a node-wide label: the backend ports that are not ACTIVE."""
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    states = {role.interface: role.port.state or "unknown" for role in seen.ports if role.backend}
    if not states:
        return "no backend port"
    idle = [f"{name} is {state}" for name, state in states.items() if state != IN_USE]
    more = len(idle) - MAX_PORTS_NAMED
    named = ", ".join(idle[:MAX_PORTS_NAMED])
    return f"{named} and {more} more" if more > 0 else named or None
