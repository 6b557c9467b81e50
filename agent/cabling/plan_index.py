"""The cables of plans by the nodes at their ends, and by the ports that they take.

Built once for one node (`verify`, the daemon) or for a fleet, so that a fleet costs as much as its
cables.

Invariant: agent.cabling.judge.verify returns the same for the whole half of a node and for the part
that `PlanIndex.of` returns for its far ends; for the part of `of_any`, too, but for the owner of a
wrong cable's port. Of other nodes' rows a comparison reads the owner of a port that this node sees
or expects, the numbers that HCAs have, and whether the names of switches have the form of those
that are seen: all of it is small, where a plan of 1 MiB is tens of megabytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from operator import itemgetter

from agent.cabling.cables import shapes
from agent.cabling.expected import (
    NO_SPOTS,
    Expected,
    ExpectedRow,
    FarPort,
    LeafSpots,
    distinct,
    end_key,
)
from agent.cabling.finding import Spot, spot
from agent.cabling.interfaces import numbers
from agent.cabling.names import (
    Off,
    device_key,
    hosts,
    node_key,
    same_name,
    unpadded,
)
from agent.cabling.plans.model import IGNORE, End, FilePlace, Plan, PlanCable
from agent.errors import Malformed
from agent.grouped import grouped


class PlanIndex:
    """The rows of each node, and who has each port; `node_of` tells which node a host is."""

    def __init__(self, cables: Iterable[PlanCable], node_of: Callable[[str], str | None]) -> None:
        self._node_of = node_of
        self.rows: dict[str, list[ExpectedRow]] = {}  # by node
        self.names: dict[str, None] = {}  # of hosts and switches
        interfaces: set[str] = set()
        # by device, then port, as `end_key`
        self._users = defaultdict[str, dict[str, list[End]]](lambda: defaultdict(list))
        self._like: dict[str, frozenset[str]] = {}
        spots: dict[str, Spot] = {}  # by the name of the switch
        for cable in cables:
            for near, far in ((cable.a, cable.b), (cable.b, cable.a)):
                node = node_of(near.node)
                if node is not None:
                    row = ExpectedRow(
                        near.interface,
                        cable.place,
                        far.node or None,  # `device`
                        far.interface or None,  # `port_id`
                        far.port_name,
                        near,
                        far,
                        cable.rate_gbps,
                        cable.mark,
                        cable.fields,
                    )
                    self.rows.setdefault(node, []).append(row)
                elif near.rack or near.unit:
                    spots[near.node] = spot(near)
                if cable.mark != IGNORE:
                    device, port = end_key(far.node, far.interface)
                    self._users[device][port].append(near)
                self.names[near.node] = None
                interfaces.add(near.interface)
        self.spots = LeafSpots(spots)
        self._numbers = numbers(interfaces)
        self.off = unsafe(self.names)

    def of(self, node: str, ends: Iterable[FarPort] | None = None) -> Expected:
        """Return the expected half of a node; `ends` are those that it sees, None: any."""
        if ends is None:
            every = ((device, port) for device, ports in self._users.items() for port in ports)
            devices = frozenset(name for name in self.names if self._node_of(name) != node)
            return self._part(node, every, devices, self.spots)
        ends = {*ends}
        like = set[str]()  # a name for each form of a seen one, and one that may be equal to it
        for device in {device for device, _ in ends}:
            if device not in self._like:
                keys = [*((True, shape) for shape in shapes([device])), (False, device_key(device))]
                alike = (self._alike[key] for key in keys if key in self._alike)
                self._like[device] = frozenset(alike)
            like |= self._like[device]
        return self._part(node, ends, frozenset(like), self.spots)

    def of_any(self, node: str, planned: Iterable[FarPort] = ()) -> Expected:
        """Return the part of the expected half that is the same whatever the node sees.

        `planned` are the far ends of other plans' rows. Not known is who has the port of a wrong
        cable, unless that port is planned for this node, too.
        """
        by_shape = frozenset(name for (is_shape, _), name in self._alike.items() if is_shape)
        return self._part(node, planned, by_shape, NO_SPOTS)

    def _part(
        self, node: str, ends: Iterable[FarPort], devices: frozenset[str], spots: LeafSpots
    ) -> Expected:
        rows = distinct(self.rows.get(node, ()))
        taken: dict[FarPort, str] = {}  # the last row of a port that is not ours
        for device, port in {end_key(*end) for end in Expected(rows).far_ports.union(ends)}:
            for near in reversed(self._users.get(device, {}).get(port, ())):
                if self._node_of(near.node) != node:
                    taken[device, port] = f"{near.node} {near.interface}"
                    break
        return Expected(
            rows,
            taken=taken,
            devices=devices,
            spots=spots,
            numbers=self._numbers,
            off=self.off,
        )

    @cached_property
    def _alike(self) -> Mapping[tuple[bool, str | None], str]:
        """The names by their forms, and by their keys: one stands for all that are like it."""
        by_shape = {(True, shape): name for name in self.names for shape in shapes([name])}
        return by_shape | {(False, device_key(name)): name for name in self.names}


def unsafe(switches: Iterable[str]) -> Off:
    """Return `padding` if two switches differ in leading zeros only."""
    names = {*switches}
    is_safe = len({unpadded(name) for name in names}) == len(names)
    return frozenset() if is_safe else frozenset({"padding"})


def index_of(
    cables: Iterable[PlanCable], names: Sequence[str], off: Off = frozenset()
) -> PlanIndex:
    """Return the index of one node, which a plan names by its host name, FQDN or Node name."""

    @cache
    def node_of(host: str) -> str | None:
        return names[0] if any(same_name(host, name, off) for name in names) else None

    def checked() -> Iterator[PlanCable]:
        """Yield the cables; raises Malformed if two hosts of the plan may be this node."""
        used: dict[str, FilePlace] = {}
        for cable in cables:
            here = [end.node for end in (cable.a, cable.b) if node_of(end.node)]
            if len(here) == 2:
                raise Malformed(f"{cable.place}: both ends are this node, {here[0]}")
            for name in here:
                other = next((other for other in used if not same_name(name, other)), None)
                if other:
                    first = f"{other} of {used[other]}"
                    raise Malformed(f"{cable.place}: {name} may be this node, and so may {first}")
                used.setdefault(name, cable.place)
            yield cable

    return PlanIndex(checked(), node_of)


def from_plans(plans: Iterable[Plan], names: Sequence[str], off: Off = frozenset()) -> Expected:
    """Return the rows of the node with these names, and the ports of all others."""
    cables = (cable for plan in plans for cable in plan.cables)
    return index_of(cables, names, off).of(names[0])


class Hosts:
    """The Nodes of the names in a plan.

    A host that may be several Nodes is none of them, unless it has the very name of one; and of
    several hosts that may be one Node, the one with its very name is it.
    """

    def __init__(self, nodes: Sequence[str], names: Iterable[str], off: Off = frozenset()) -> None:
        by_name = grouped(nodes, node_key)
        shorts = ((node_key(short), node) for node in nodes for short in hosts(node))
        by_short = grouped(shorts, itemgetter(0))
        self.ambiguous: dict[str, list[str]] = {}  # host to Nodes, and Node to hosts
        known = frozenset(nodes)
        self._node_by_host: dict[str, str] = {}
        for host in names:
            if host in known:
                self._node_by_host[host] = host
                continue
            keys = [*map(node_key, (host, *hosts(host)))]
            candidates = {node for key in keys for node in by_name.get(key, ())}
            candidates.update(node for _, node in by_short.get(keys[0], ()))
            matches = sorted(node for node in candidates if same_name(host, node, off))
            if len(matches) == 1:
                self._node_by_host[host] = matches[0]
            elif matches:
                self.ambiguous[host] = matches
        for node, rivals in grouped(self._node_by_host, self._node_by_host.__getitem__).items():
            longest = max(rivals, key=len)
            # unless they are spellings of one name, the host with the Node's very name is it
            if len(rivals) > 1 and not all(same_name(longest, other, off) for other in rivals):
                for host in {*rivals} - {node}:
                    del self._node_by_host[host]
                if node not in rivals:
                    self.ambiguous[node] = rivals

    def node(self, host: str) -> str | None:
        """Return the Node that a host is; None for a switch, or a host without a Node."""
        return self._node_by_host.get(host)
