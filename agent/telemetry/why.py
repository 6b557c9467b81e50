"""Why a label is what it is now, in a few words for the log: what changed is seen in the values, not why.

Words only: what a label says is decided in agent/labels/values.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.model import Failed, Seen
from agent.sources.backend import IN_USE

if TYPE_CHECKING:
    from agent.daemon.observer import Cycle
    from agent.kube.managed_fields import Keys
    from agent.model import Observation

MOST_NAMED = 3  # ports


def why(key: str, look: Cycle, keys: Keys, hold: float) -> str | None:
    """The reason for this label's value, or for its being gone; None: it speaks for itself."""
    if key in look.expired:
        return f"it could not be seen for {hold:g} s"
    if key == keys.accelerator:
        found = look.observation.accelerator
        return found.text or found.reason
    interface = keys.interface(key)
    return _of_link(look.observation, interface) if interface else _of_ports(look.observation)


def _of_link(seen: Observation, interface: str) -> str | None:
    for outcome in (seen.lldp, seen.ib):
        for link in outcome.value if isinstance(outcome, Seen) else ():
            if link.interface == interface:
                return link.missing
    if interface in seen.unbound:
        return "its device is gone, its PCI function is not"
    return f"{interface} is no backend port any more"


def _of_ports(seen: Observation) -> str | None:
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    states = {role.interface: role.port.state or "unknown" for role in seen.ports if role.backend}
    idle = [f"{name} is {state}" for name, state in states.items() if state != IN_USE]
    if not states:
        return "no backend port"
    more = f" and {len(idle) - MOST_NAMED} more" if len(idle) > MOST_NAMED else ""
    return ", ".join(idle[:MOST_NAMED]) + more or None
