"""Explore the switches around a port by SMPs over directed routes, where its SA refuses.

A route is the ports by which a packet leaves: that of the HCA, then one of each switch on the way.
The questions, one at a time, each a SubnGet (agent/infiniband/smp.py):

    NodeInfo           the far end of a link, once a link; and NodeDescription, once a switch
    PortInfo           a port whose far end is not known, of a switch whose links are asked for

Links are asked for as agent/infiniband/tiers.py does, so the walk ends where the tiers do.

Invariants:
- A walk has MAX_HOPS, MAX_SMPS and MAX_SILENT, whatever the answers are.
- A port that cannot be read, since a node does not answer or is busy, is one without a link.
- A link has two ends, and a switch one number of ports. An answer that contradicts another one, or
  is to another route, ends the walk with one line that names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from agent import node_description as nodedesc
from agent.errors import Malformed, Unavailable
from agent.infiniband import smp
from agent.infiniband.devices import AGGREGATION_NODE, SubnetPort
from agent.infiniband.smp import MAX_HOPS, Attribute, Busy, NodeInfo, PortUnavailable
from agent.infiniband.tiers import UNKNOWN, LinkEnd
from agent.reasons import NeighborReason

MAX_SMPS = 40_000  # the tables of 300 switches with 64 ports
MAX_SILENT = 16  # ports that cannot be read: each takes a second
_DOWN = 1  # PortState

AskSmp = Callable[[SubnetPort, bytes], bytes]  # returns the reply to a request; raises Unavailable


class _Node(NamedTuple):
    """A switch, and the way to it."""

    info: NodeInfo
    port: SubnetPort  # that asks
    route: tuple[int, ...]


class Walk:
    """The switches that were met, and their links; each is asked once.

    Adds their names to `switches`, by GUID.
    """

    def __init__(self, ask: AskSmp, tids: Iterator[int], switches: dict[str, str | None]) -> None:
        self._ask_smp, self._tids, self._switches = ask, tids, switches
        self._nodes: dict[str, _Node] = {}  # by GUID
        self._links: defaultdict[str, dict[int, LinkEnd]] = defaultdict(dict)  # by GUID and port
        self.walked: set[str] = set()  # switches all of whose ports were asked
        self._questions = self._silent = 0

    def begin(self, port: SubnetPort, leaf: str) -> None:
        """Find a leaf at the far end of a port with a sender; raises Malformed and Unavailable."""
        _, number = port.sender or port.address
        info = self._info(port, (number,))
        if (info.node_type, info.node_guid) != ("switch", leaf):
            text = f"the {info.node_type} {info.node_guid} is at the far end, not the leaf {leaf}"
            raise Unavailable(text)
        self._meet(info, port, (number,))
        own = LinkEnd(info.local_port, UNKNOWN, number, is_switch=False, is_host=True)
        self._links[leaf].setdefault(own.port, own)

    def has(self, guid: str, hops: int = MAX_HOPS) -> bool:
        """Return True for a switch that was met, over a route of up to so many hops."""
        return guid in self._nodes and len(self._nodes[guid].route) <= hops

    def links(self, guid: str) -> list[LinkEnd]:
        """Return the links of a switch in the order of its ports; raises as `begin`.

        A link from a switch to itself is left out, as is one whose far end does not answer.
        """
        node, links = self._nodes[guid], self._links[guid]
        if guid not in self.walked and len(node.route) < MAX_HOPS:
            for port in range(1, node.info.ports + 1):
                if port not in links:
                    self._cross(node, port)
        self.walked.add(guid)
        return [links[port] for port in sorted(links) if links[port].guid != guid]

    def _cross(self, node: _Node, at: int) -> None:
        """Find the far end of a port, if it is up and can be read."""
        guid, route = node.info.node_guid, (*node.route, at)
        try:
            port_info = self._get(node.port, node.route, Attribute.PORT_INFO, at)
            if smp.port_state(port_info) <= _DOWN:
                return
            far = self._info(node.port, route)
        except (Busy, PortUnavailable) as error:
            self._silent += 1
            is_silent = isinstance(error, Busy) or error.reason is NeighborReason.NO_ANSWER
            if not is_silent or self._silent > MAX_SILENT:
                raise
            return
        if far.local_port > far.ports or (far.node_guid, far.local_port) == (guid, at):
            text = f"from {guid} port {at} to {far.node_guid} port {far.local_port}"
            raise Malformed(f"SMP reply: a link {text} of {far.ports}")
        is_switch = far.node_type == "switch"
        is_host = far.node_type == "CA" and far.device_id != AGGREGATION_NODE
        far_guid = far.node_guid if is_switch else UNKNOWN
        self._links[guid][at] = LinkEnd(at, far_guid, far.local_port, is_switch, is_host)
        if is_switch:
            self._meet(far, node.port, route)
            back = LinkEnd(far.local_port, guid, at, is_switch=True, is_host=False)
            known = self._links[far_guid].setdefault(far.local_port, back)
            if known != back:
                text = f"{far_guid} port {far.local_port} leads to {guid} port {at}"
                other = f"{known.guid or 'a host'} port {known.far_port}"
                raise Malformed(f"SMP reply: {text}, and to {other}")

    def _meet(self, info: NodeInfo, port: SubnetPort, route: tuple[int, ...]) -> None:
        """Remember a switch by its shortest route; ask for its name when it is met first."""
        guid = info.node_guid
        known = self._nodes.get(guid)
        if known and known.info.ports != info.ports:
            text = f"switch {guid} has {known.info.ports} ports, and {info.ports}"
            raise Malformed(f"SMP reply: {text}")
        if known is None or len(route) < len(known.route):
            self._nodes[guid] = _Node(info, port, route)
        if guid not in self._switches:
            self._switches[guid] = None
            with suppress(Malformed, PortUnavailable):  # a busy switch may drop it
                description = self._get(port, route, Attribute.NODE_DESCRIPTION)
                self._switches[guid] = nodedesc.switch_name(nodedesc.text(description))

    def _info(self, port: SubnetPort, route: tuple[int, ...]) -> NodeInfo:
        return smp.node_info(self._get(port, route, Attribute.NODE_INFO))

    def _get(
        self, port: SubnetPort, route: tuple[int, ...], attribute: Attribute, modifier: int = 0
    ) -> bytes:
        """Return the attribute's 64 octets of the node at the end of a route."""
        if self._questions == MAX_SMPS:
            raise Unavailable(f"more than {MAX_SMPS:,} questions")
        self._questions += 1
        request = smp.get(attribute, next(self._tids), *route, modifier=modifier)
        return smp.decode(self._ask_smp(port, request), request)
