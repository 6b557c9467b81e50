"""Reasons of label changes, for the log.

A changed label shows its old and new value; its reason names the port state or the missing neighbor
behind it, compared with the observation that was applied before. agent/labels/values.py decides the
values themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kube.managed_fields import FORMER, LABEL, Field
from agent.model import Failed, natural
from agent.output.document import links_of
from agent.sources.roles import IN_USE
from agent.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.kube.managed_fields import Keys
    from agent.model import Link, Observation

    # From the present observation and the one applied before; None: none since the start.
    Explain = Callable[[Observation, Observation | None], str | None]

MAX_NAMED = 3  # ports
GONE = "gone from the bus"


def reason_of(
    key: str, seen: Observation, keys: Keys, before: Observation | None = None
) -> str | None:
    """Return the reason for a label's new value or removal; None if the value itself explains it.

    The reason for the expiry of a hold is in agent/telemetry/held_labels.py.
    """
    if key == keys.accelerator:
        return seen.accelerator.text or seen.accelerator.reason
    if keys.family(Field(LABEL, key)) == FORMER:
        return "its prefix is a former one"
    interface = keys.interface(key)
    if interface:
        return _of_link(interface, seen)
    explain = _NODE_WIDE.get(key.rpartition("/")[2], _of_absence)
    return explain(seen, before)


def _of_link(interface: str, seen: Observation) -> str | None:
    """Return the reason for a neighbor label of one port."""
    for link in links_of(seen):
        if link.interface == interface:
            return link.missing
    if interface in seen.unbound:
        return "the RDMA device is gone, its PCI function is present"
    lost = [one for one in seen.lost or () if one.interface == interface]
    return f"{lost[0]} is {GONE}" if lost else f"{interface} is no longer a backend port"


def _of_absence(seen: Observation, _before: Observation | None) -> str | None:
    """Return the reason why no node-wide label has a value."""
    if isinstance(seen.rdma, Failed):
        return seen.rdma.reason
    return None if _states(seen) else "no backend port"


def _of_speed(seen: Observation, before: Observation | None) -> str | None:
    """Return the ports that count otherwise than before; at the start, those that do not count."""
    absent = _of_absence(seen, before)
    if absent:
        return absent
    changed = _changed_counts(seen, before) if before else []
    return listed(changed or _idle(seen), MAX_NAMED) or None


def _changed_counts(seen: Observation, before: Observation) -> list[str]:
    now, then, states, last = _counts(seen), _counts(before), _states(seen), _states(before)
    changed = {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}
    return [
        _changed_count(name, states.get(name), last.get(name), now.get(name))
        for name in sorted(changed, key=natural)
    ]


def _changed_count(name: str, state: str | None, last: str | None, counted: float | None) -> str:
    """Return the reason why one port counts otherwise than before."""
    if state is None:
        return f"{name} is no longer a backend port"
    if state == last and counted is not None:
        return f"{name} has {counted:g} Gb/s"
    return f"{name} is {state}"


def _idle(seen: Observation) -> list[str]:
    return [f"{name} is {state}" for name, state in _states(seen).items() if state != IN_USE]


def _states(seen: Observation) -> dict[str, str]:
    """Return the state of each interface that counts, or did, in words."""
    states = {one.interface: "not read any more" for one in seen.held_counts if one.has_ended}
    states |= {one.interface: GONE for one in seen.lost or ()}
    return states | {role.interface: role.port.state or "unknown" for role in seen.backend}


def _counts(seen: Observation) -> dict[str, float | None]:
    """Return the part of the speed label of each interface."""
    held: dict[str, float | None] = {one.interface: one.gbps for one in seen.held_counts}
    return held | {role.interface: role.counted_gbps for role in seen.backend}


def _of_neighbors(seen: Observation, before: Observation | None) -> str | None:
    """Return the ports with another neighbor than before; at the start, those without one."""
    if before is None:
        missing = [f"{link.interface}: {link.missing}" for link in links_of(seen) if link.missing]
        return listed(missing, MAX_NAMED) or None
    now = _neighbors(seen)
    changed = {name for name, _ in now.items() ^ _neighbors(before).items()}
    ports = sorted(changed, key=natural)
    changes = [f"{name}: {now.get(name, 'no longer a backend port')}" for name in ports]
    return listed(changes, MAX_NAMED) or None


def _neighbors(seen: Observation) -> dict[str, str]:
    """Return device and port of each port's neighbor, or the reason why it is missing."""
    return {link.interface: _neighbor(link) for link in links_of(seen)}


def _neighbor(link: Link) -> str:
    if link.neighbors:
        return f"{link.neighbors[0].device} {link.neighbors[0].port_id}"
    # Labels do not say yet what is held: its end is a change.
    return f"{link.missing}, held" if link.hold else str(link.missing)


# By the name of the label below its prefix.
_NODE_WIDE: Mapping[str, Explain] = {
    "flavor": _of_absence,
    "speed.current": _of_speed,
    "leaves.current": _of_neighbors,
    "ports.current": _of_neighbors,
    "leafgroup.current": _of_neighbors,
}
