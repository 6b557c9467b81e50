"""The switches above the leaves of the InfiniBand backend ports (--tiers).

Each ACTIVE port that has a switch at its far end can ask the administrator of its subnet, and
agent/infiniband/exploration.py decides which do; the switch of one that cannot is a leaf all the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed, Pending, Unavailable
from agent.host import Host
from agent.infiniband.devices import AskingPort
from agent.model import Absent, Failed, IbNeighbor, Link, PortRole, Problem, Reading, Seen
from agent.sources.ib import sender_of, subnet_places

if TYPE_CHECKING:
    from agent.infiniband.exploration import Exploration

SOURCE = "tiers"
NO_LID = "its LID was not recorded (`capture --tiers` does)"


def read(
    host: Host, ports: tuple[PortRole, ...], links: Seen[tuple[Link, ...]] | Absent | Failed
) -> Reading[Exploration]:
    """Explore from the ports whose leaf is among `links`, those of the source of InfiniBand."""
    if not isinstance(links, Seen):
        return Reading(links)
    leaves = {
        link.interface: facts
        for link in links.value
        for facts in (neighbor.facts for neighbor in link.neighbors[:1])
        if isinstance(facts, IbNeighbor) and facts.node_type == "switch"
    }
    roles = [role for role in ports if role.interface in leaves]
    if host.explore is None or not roles:
        return Reading(Absent("no InfiniBand backend port has a switch at its far end"))
    asking, faults, problems = _asking(host, roles, leaves, ports)
    try:
        exploration = host.explore(asking, None, {})
    except (Malformed, Unavailable) as error:
        can_ask = any(port for port, _ in asking)
        text = str(error) if can_ask else next(iter(faults.values()))
        is_pending = can_ask and isinstance(error, Pending)
        return Reading(Failed(text, is_pending), tuple(problems))
    unexplored = (text for leaf, text in faults.items() if leaf not in exploration.tiers.leaves)
    problems += [Problem(SOURCE, SOURCE, None, text) for text in (*unexplored, *exploration.faults)]
    return Reading(Seen(exploration), tuple(problems))


def _asking(
    host: Host,
    roles: list[PortRole],
    leaves: dict[str, IbNeighbor],
    ports: tuple[PortRole, ...],
) -> tuple[list[AskingPort], dict[str, str], list[Problem]]:
    """Return each port with its leaf, and by leaf why its port cannot ask."""
    places, problems = subnet_places(host, roles)
    asking: list[AskingPort] = []
    faults: dict[str, str] = {}
    for role in roles:
        address, leaf = (role.device.name, role.port.number), leaves[role.interface]
        place, port = places.get(address), None
        fault = place.fault(role.port.state) if place else None
        text = fault.text if fault else "its LID could not be read"
        if place and place.lid is None:
            text = NO_LID
        elif place and not fault:  # one that does not send SMPs may be a virtual port
            is_virtual = leaf.via == "sa"
            port = place.port(address, may_be_virtual=is_virtual)
            port = port._replace(sender=None if is_virtual else sender_of(role, ports))
        if port is None:
            faults[leaf.node_guid] = f"{role.interface}: {text}"
        asking.append((port, leaf.node_guid))
    return asking, faults, problems
