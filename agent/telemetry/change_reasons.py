"""Reasons of label changes, for the log.

A changed label shows its old and new value; its reason names the port state or the missing neighbor
behind it. agent/labels/values.py decides the values themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.managed_fields import FORMER, LABEL, Field
from agent.model import Failed
from agent.output.document import links_of
from agent.sources.interfaces import IN_USE
from agent.telemetry.samples import backend

if TYPE_CHECKING:
    from agent.kube.managed_fields import Keys
    from agent.model import Observation

MAX_PORTS_NAMED = 3


def reason_of(key: str, seen: Observation, keys: Keys) -> str | None:
    """Return the reason for a label's new value or removal; None if the value itself explains it.

    The reason for the expiry of a hold is in agent/telemetry/held_labels.py.
    """
    if key == keys.accelerator:
        return seen.accelerator.text or seen.accelerator.reason
    if keys.family(Field(LABEL, key)) == FORMER:
        return "its prefix is a former one"
    interface = keys.interface(key)
    return _of_link(seen, interface) if interface else _of_ports(seen)


def _of_link(seen: Observation, interface: str) -> str | None:
    """Return the reason for a neighbor label of one port."""
    for link in links_of(seen):
        if link.interface == interface:
            return link.missing
    if interface in seen.unbound:
        return "the RDMA device is gone, its PCI function is present"
    lost = [one for one in seen.lost or () if one.interface == interface]
    return f"{lost[0]} is gone from the bus" if lost else f"{interface} is no longer a backend port"


def _of_ports(seen: Observation) -> str | None:
    """Return the reason for a node-wide label: the backend ports that do not count."""
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    states = {one.interface: "not read any more" for one in seen.held_counts if one.has_ended}
    states |= {str(one): "gone from the bus" for one in seen.lost or ()}
    states |= {role.interface: role.port.state or "unknown" for role in backend(seen)}
    if not states:
        return "no backend port"
    return _named([f"{name} is {state}" for name, state in states.items() if state != IN_USE])


def _named(idle: list[str]) -> str | None:
    """Return the first MAX_PORTS_NAMED ports and the number of the others; None if all are used."""
    named = ", ".join(idle[:MAX_PORTS_NAMED])
    more = len(idle) - MAX_PORTS_NAMED
    return f"{named} and {more} more" if more > 0 else named or None
