"""The switches above the leaves of the InfiniBand backend ports (--tiers).

Each port that is up and has a switch at its far end can ask the administrator of its subnet;
agent/infiniband/exploration.py says which are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.model import Absent, Failed, IbNeighbor, Link, PortRole, Problem, Reading, Seen
from agent.sources.ib import subnet_places

if TYPE_CHECKING:
    from agent.infiniband.tiers import Tiers

SOURCE = "tiers"


def read(
    host: Host, ports: tuple[PortRole, ...], links: Seen[tuple[Link, ...]] | Absent | Failed
) -> Reading[Tiers]:
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
    places, problems = subnet_places(host, roles)
    asked, faults = [], []
    for role in roles:
        address, leaf = (role.device.name, role.port.number), leaves[role.interface]
        place = places.get(address)
        fault = place.fault(role.port.state) if place else None
        if place and not fault:  # one that does not send SMPs may be a virtual port
            port = place.port(address, may_be_virtual=leaf.via == "sa")
            asked.append((port, leaf.node_guid))
        else:
            text = fault.text if fault else "its LID could not be read"
            faults.append(f"{role.interface}: {text}")
    if not asked:
        return Reading(Failed(faults[0]), tuple(problems))
    try:
        found = host.explore(asked, None)
    except (Malformed, Unavailable) as error:
        return Reading(Failed(str(error)), tuple(problems))
    problems += [Problem(SOURCE, SOURCE, None, text) for text in (*faults, *found.faults)]
    return Reading(Seen(found.tiers), tuple(problems))
