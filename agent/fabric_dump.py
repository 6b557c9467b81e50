"""The switches above a node by a dump of its fabric, for sites whose nodes cannot ask.

An administrator of the fabric adds the output of ibnetdiscover to a capture, as
sa/ibnetdiscover.txt. It is explored in place of recorded answers, from the leaves that the capture
has as neighbors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.cabling.plans.ib_dump import discovered
from agent.cabling.plans.source import MAX_SIZE, PlanContent
from agent.errors import Malformed
from agent.infiniband.exploration import Exploration
from agent.infiniband.tiers import UNKNOWN, LinkEnd, tiers
from agent.node_description import switch_name

if TYPE_CHECKING:
    from agent.host import Host
    from agent.infiniband.devices import AskingPort

PATH = "sa/ibnetdiscover.txt"
INSIDE = "Aggregation Node"  # in the NodeDescription of the CA inside a switch (SHARP)


def with_dump(host: Host) -> Host:
    """Return the host of a snapshot, which explores its dump if it has one."""
    try:
        data = host.root.read(PATH, MAX_SIZE + 1)
    except OSError:
        return host

    def explore(ports: Sequence[AskingPort], *_others: object) -> Exploration:
        return _explored({leaf for _, leaf in ports}, PlanContent(PATH, data))

    return host._replace(explore=explore)


def _explored(leaves: set[str], dump: PlanContent) -> Exploration:
    """Explore a dump; raises Malformed and Unavailable."""
    switches: dict[str, str | None] = {}
    links: defaultdict[str, dict[int, LinkEnd]] = defaultdict(dict)
    for row, *ends, _ in discovered(dump, set()):
        for near, far in (ends, ends[::-1]):
            if not near.is_switch:
                continue
            port, guid = int(near.port), far.guid if far.is_switch else UNKNOWN
            is_host = not far.is_switch and INSIDE not in far.text
            link = LinkEnd(port, guid, int(far.port), is_switch=far.is_switch, is_host=is_host)
            switches[near.guid] = switch_name(near.text)
            if links[near.guid].setdefault(port, link)[:3] != link[:3]:
                raise Malformed(f"{PATH}, row {row}: port {port} of {near.guid} has two links")
    return Exploration(
        tiers(leaves, switches, lambda guid: [links[guid][port] for port in sorted(links[guid])])
    )
