"""Explore the switches above a node, by the subnet administrators (SA) of its subnets.

The questions, one at a time, each a SubnAdmGetTable (agent/infiniband/sa.py):

    NodeRecords of all switches           once a subnet: their GUIDs, LIDs and names
    LinkRecords from a switch's LID       once a switch that agent/infiniband/tiers.py asks for
    NodeRecords of the CAs in switches    once a subnet, if a link leads to a LID of no switch

A look at the leaves alone is one question a leaf. It asks for the switches of a subnet, too, where
the LIDs are not known, or the subnet manager has given others.

Where the SA refuses, does not answer, or does not list the leaf, the port's subnet is walked by
SMPs (agent/infiniband/walk.py). A silent SA takes seconds, so the other ports with its LID and
prefix walk first. A walk does not show all switches, so UNKNOWN stands for the others,
and the tiers are decided again until the walk meets no other switch.

A LinkRecord names its far end by LID alone. One that is no switch's and no CA's inside a switch
counts as a host; a router or gateway does, too. Asking for each such LID would cost a question a
host.

Invariants:
- A subnet is known by its switches: two that a node is in may have one GID prefix. A port is asked
  for its table only if no table so far lists its leaf.
- The links of a switch are all there, and each can be: its own port once, ports that the switches
  have. Anything else ends the exploration with one line that names it.
- The reply to a question is the same bytes live and recorded, so a replay has the same result.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import asdict, dataclass
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from agent import node_description as nodedesc
from agent.errors import Malformed, Unavailable
from agent.infiniband import sa
from agent.infiniband.devices import Address, AskingPort, Entries, SubnetPort, unanswered
from agent.infiniband.smp import Exchange, PortUnavailable, is_smp
from agent.infiniband.tiers import UNKNOWN, LinkEnd, Tiers, TreeLink, tiers
from agent.infiniband.walk import Walk
from agent.reasons import NeighborReason, TierReason
from agent.text import Json

# returns the reply to a request, of the SA or to an SMP; raises Unavailable
AskSa = Callable[[SubnetPort, bytes], bytes]
# why a port is walked: "the SA refuses"
REFUSALS = frozenset(
    {NeighborReason.SA_REFUSED, NeighborReason.NO_ANSWER, NeighborReason.SEND_FAILED}
)
MAX_ROUNDS = 16  # of deciding the tiers while a walk meets more switches
# the outcomes of a question that have no NeighborReason; an SMP is counted, however it ends
ANSWERED, SMPS = "answered", "smps"
_TID = slice(12, 16)  # octets of a MAD: the lower half of TransactionID


KnownNames = Mapping[str, str | None]  # switches that are remembered: names by GUID
Uplinks = Mapping[str, Mapping[int, str]]  # switches by leaf and port
Lids = Mapping[str, int]  # by GUID; 0: the subnet manager lists no such switch, or no LID
Outcomes = Mapping[str, int]  # how many questions: ANSWERED, SMPS, or the NeighborReason


class Exploration(NamedTuple):
    """The tiers, and what the table of switches says that is of use for a memory of them."""

    tiers: Tiers
    faults: tuple[str, ...] = ()  # why a subnet was not explored
    # the names of listed switches: of the tiers, at the uplinks, known ones, and all that have the
    # same name as one of these
    switches: KnownNames = MappingProxyType({})
    lids: Lids = MappingProxyType({})  # of the leaves, and of the switches at their uplinks
    walked: tuple[str, ...] = ()  # why a subnet was explored by SMPs
    by_smps: tuple[str, ...] = ()  # switches whose links were asked for so
    outcomes: Outcomes = MappingProxyType({})


class LeafLook(NamedTuple):
    """What the links of the leaves say of the uplinks that are remembered."""

    agrees: bool  # False: a port of a leaf leads to another switch
    lids: Lids  # as those of an exploration
    up: Mapping[str, Sequence[int]]  # known uplinks that are up, by leaf
    outcomes: Outcomes = MappingProxyType({})


class Unexplored(Unavailable):
    """An exploration, or a look at the leaves, that failed."""

    def __init__(self, text: str, outcomes: Outcomes) -> None:
        super().__init__(text)
        self.outcomes = outcomes


def explore(
    ports: Iterable[AskingPort],
    ask: AskSa,
    tid: int,
    known: KnownNames = MappingProxyType({}),
) -> Exploration:
    """Explore above the leaves of these ports, by the ports that can ask.

    Takes transaction IDs from `tid` on. Raises Unavailable if a question is not answered, refused
    or its answer is malformed; for the table of a subnet, only if no other one lists a leaf.
    """
    ports, subnets = list(ports), Subnets(ask, tid)
    faults = dict.fromkeys(filter(None, (_listed(subnets, *asking) for asking in ports)))
    leaves = {leaf for _, leaf in ports} & subnets.switches.keys()
    if faults and not leaves:
        raise Unavailable(next(iter(faults)))
    try:
        tree = _decided(leaves, subnets)
    except Malformed as error:
        raise Unavailable(str(error)) from error
    near = {*tree.leaves, *(guid for at in tree.uplinks.values() for guid in at.values())}
    of_use = {*near, *tree.tier_1, *known, *([tree.tier_2] if tree.tier_2 else ())}
    names = {*known.values(), *map(subnets.switches.get, of_use)} - {None}
    listed = {
        guid: name for guid, name in subnets.switches.items() if guid in of_use or name in names
    }
    lids = {guid: subnets.lid(guid) for guid in near}
    by_smps = tuple(sorted(subnets.smp_walk.walked))
    return Exploration(tree, tuple(faults), listed, lids, tuple(subnets.walked), by_smps)


def _decided(leaves: Collection[str], subnets: Subnets) -> Tiers:
    """Return the tiers, once all switches are known that they depend on."""
    for _ in range(MAX_ROUNDS):
        switches = subnets.switches | ({UNKNOWN: None} if subnets.walked else {})
        tree, number = tiers(leaves, switches, subnets.links), len(subnets.switches)
        if UNKNOWN not in switches or number < len(switches):
            return tree
    raise Unavailable(f"{number:,} switches were met, and more each time")


def _listed(subnets: Subnets, port: SubnetPort | None, leaf: str) -> str | None:
    """Ask for the switches of a port's subnet; return why its leaf is not known."""
    if port is None or subnets.has(leaf) or subnets.walks_first(port, leaf):
        return None
    try:
        number = subnets.add(port)
    except Malformed as error:
        return str(error)
    except Unavailable as error:
        text = str(error)
        return subnets.walk(port, leaf, text) if _is_refusal(error) else text
    if subnets.has(leaf):
        return None
    limited = "" if number else " (limited members of a partition see only full members)"
    text = f"leaf switch {leaf} is none of {number:,} that the subnet administrator lists"
    return subnets.walk(port, leaf, f"{port.name}: {text}{limited}")


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "reason", None) in REFUSALS


def look(
    ports: Iterable[AskingPort], ask: AskSa, tid: int, uplinks: Uplinks, lids: Lids
) -> LeafLook:
    """Ask for the links of the leaves alone, and compare them with the remembered ones.

    One that is down contradicts nothing. Takes transaction IDs from `tid` on; raises Unavailable.
    """
    subnets, known, up = Subnets(ask, tid), dict(lids), dict[str, dict[int, bool]]()
    for port, leaf in ports:
        if port is None or leaf in up or not uplinks.get(leaf):
            continue
        try:
            up[leaf] = _up(subnets, port, leaf, uplinks[leaf], known)
        except Malformed as error:
            raise Unavailable(f"{port.name}: {error}") from error
    agrees = all(is_same for ports in up.values() for is_same in ports.values())
    return LeafLook(agrees, known, {leaf: sorted(ports) for leaf, ports in up.items()})


def _up(
    subnets: Subnets, port: SubnetPort, leaf: str, uplinks: Mapping[int, str], lids: dict[str, int]
) -> dict[int, bool]:
    """Return `Subnets.up` of a leaf; with LIDs that are asked for, or by SMPs, if it tells more."""
    try:
        subnets.walks_first(port, leaf)
        up = subnets.up(port, leaf, uplinks, lids)
        if up and all(up.values()):
            return up
        if not subnets.has(leaf):
            subnets.add(port)
        if not subnets.has(leaf):
            subnets.walk(port, leaf, "not listed")
    except PortUnavailable as error:
        fault = subnets.walk(port, leaf, str(error)) if _is_refusal(error) else str(error)
        if fault:
            raise Unavailable(fault) from error
    lids |= {guid: subnets.lid(guid) for guid in (leaf, *uplinks.values())}
    return subnets.up(port, leaf, uplinks, lids)


@dataclass(slots=True)
class _Subnet:
    port: SubnetPort
    guids: dict[int, str]  # of its switches by LID
    inside: frozenset[int] | None = None  # the LIDs of CAs inside switches; None: not asked


class Subnets:
    """The switches of all subnets that are asked for, and their links; each is asked once."""

    def __init__(self, ask: AskSa, tid: int) -> None:
        self._ask, self._tids = ask, count(tid)
        self.switches: dict[str, str | None] = {}  # GUID -> name
        self.walked: list[str] = []  # why subnets were walked
        self.smp_walk = Walk(ask, self._tids, self.switches)
        self._nodes: dict[str, tuple[_Subnet, sa.SubnetNode]] = {}  # by GUID
        self._links: dict[str, list[LinkEnd]] = {}
        self._silent: dict[tuple[int, int | None], str] = {}  # SAs by LID and prefix: the fault

    def add(self, port: SubnetPort) -> int:
        """Ask for the switches of a port's subnet, and return their number.

        Raises Malformed and Unavailable.
        """
        subnet, nodes = _Subnet(port, {}), dict[str, sa.SubnetNode]()
        for node in self._table(port, sa.get_switches):
            guid = node.info.node_guid
            if nodes.setdefault(guid, node) != node:
                raise Malformed(f"SA reply: two NodeRecords of the switch {guid}")
            if node.lid and subnet.guids.setdefault(node.lid, guid) != guid:
                raise Malformed(f"SA reply: two switches have LID {node.lid}")
        self._nodes |= {guid: (subnet, node) for guid, node in nodes.items()}
        names = {guid: nodedesc.switch_name(node.description) for guid, node in nodes.items()}
        self.switches |= names
        return len(nodes)

    def has(self, leaf: str) -> bool:
        """Return True for a leaf that is listed, or at the far end of a port that walks."""
        return leaf in self._nodes or self.smp_walk.has(leaf, 1)

    def walks_first(self, port: SubnetPort, leaf: str) -> bool:
        """Begin to walk from a port whose administrator was silent to another port; True if so."""
        if not (silence := self._silent.get((port.sm_lid, port.subnet_prefix))):
            return False
        return self.walk(port, leaf, f"{port.name}: not asked, since {silence}") is None

    def walk(self, port: SubnetPort, leaf: str, why: str) -> str | None:
        """Begin to walk from a port by SMPs; return why its leaf is not known all the same."""
        if port.sender is None:
            return why
        try:
            self.smp_walk.begin(port, leaf)
        except (Malformed, Unavailable) as error:
            return f"{why}; by SMPs: {error}"
        self.walked.append(why)
        return None

    def lid(self, guid: str) -> int:
        """Return the LID of a switch; 0: it has none yet, or is not listed."""
        return self._nodes[guid][1].lid if guid in self._nodes else 0

    def up(
        self, port: SubnetPort, leaf: str, uplinks: Mapping[int, str], lids: Lids
    ) -> dict[int, bool]:
        """Return which known ports of a leaf are up: True if to these switches.

        None is where the LID of the leaf is not known, unless it is walked. Raises as `add`.
        """
        if self.smp_walk.has(leaf, 1):
            far = {end.port: end.guid for end in self.smp_walk.links(leaf)}
            return {at: uplinks[at] == far[at] for at in uplinks.keys() & far.keys()}
        lid = lids.get(leaf, 0)
        up = {row.from_port: row.to_lid for row in self._records(port, lid)} if lid else {}
        return {at: lids.get(uplinks[at]) == up[at] for at in uplinks.keys() & up.keys()}

    def links(self, guid: str) -> list[LinkEnd]:
        """Return the links of a switch in the order of its ports; raises as `add`.

        A link from a switch to itself is left out.
        """
        if self.smp_walk.has(guid):
            return self.smp_walk.links(guid)
        if guid in self._links:
            return self._links[guid]
        ends: list[LinkEnd] = []
        subnet, node = self._nodes[guid]
        name, previous = f"SA reply: LinkRecord of {guid}", -1
        for link in self._records(subnet.port, node.lid) if node.lid else ():
            if link.from_port == previous:
                raise Malformed(f"{name}: two from port {link.from_port}")
            if not 1 <= link.from_port <= node.info.ports:
                raise Malformed(f"{name}: from port {link.from_port} of {node.info.ports}")
            if (link.from_lid, link.from_port) == (link.to_lid, link.to_port):
                raise Malformed(f"{name}: from port {link.from_port} to itself")
            previous, far_guid = link.from_port, subnet.guids.get(link.to_lid)
            if far_guid is None:
                if subnet.inside is None:
                    nodes = self._table(subnet.port, sa.get_aggregation_nodes)
                    subnet.inside = frozenset(node.lid for node in nodes)
                is_host = link.to_lid not in subnet.inside
            elif link.to_port in range(1, (ports := self._nodes[far_guid][1].info.ports) + 1):
                is_host = False
            else:
                raise Malformed(f"{name}: to port {link.to_port} of {ports}")
            far = link.from_port, far_guid or UNKNOWN, link.to_port
            if far_guid != guid:
                ends.append(LinkEnd(*far, is_switch=far_guid is not None, is_host=is_host))
        self._links[guid] = ends
        return ends

    def _records(self, port: SubnetPort, lid: int) -> list[sa.LinkRecord]:
        request = sa.get_table(sa.RecordType.LINK_RECORD, next(self._tids), lid)
        return sa.links(self._asked(port, request), request)

    def _table(self, port: SubnetPort, build: Callable[[int], bytes]) -> Iterator[sa.SubnetNode]:
        request = build(next(self._tids))
        return sa.nodes(self._asked(port, request), request)

    def _asked(self, port: SubnetPort, request: bytes) -> bytes:
        try:
            return self._ask(port, request)
        except PortUnavailable as error:
            if error.reason is NeighborReason.NO_ANSWER:
                self._silent.setdefault((port.sm_lid, port.subnet_prefix), str(error))
            raise


def as_json(exploration: Exploration) -> Json:
    """Return an exploration as the helper writes it."""
    tree = exploration.tiers
    uplinks = {leaf: [*ports.items()] for leaf, ports in tree.uplinks.items()}
    sets = {"above": sorted(tree.above), "refused": sorted(tree.refused)}
    row = asdict(tree) | sets | {"uplinks": uplinks}
    mappings = {name: dict(getattr(exploration, name)) for name in ("switches", "lids", "outcomes")}
    return exploration._asdict() | {"tiers": row} | mappings


def loaded(answer: Json) -> Exploration:
    """Return the exploration that `as_json` wrote."""
    row = dict(answer["tiers"])
    row["reason"] = row["reason"] and TierReason.of(row["reason"])
    for key in ("leaves", "tier_1"):
        row[key] = tuple(row[key])
    for key in ("above", "refused"):
        row[key] = frozenset(row[key])
    row["uplinks"] = {leaf: dict(ports) for leaf, ports in row["uplinks"].items()}
    row["paths"] = tuple(tuple(TreeLink(*hop) for hop in path) for path in row["paths"])
    tuples = {name: tuple(answer[name]) for name in ("faults", "walked", "by_smps")}
    fields = {name: answer[name] for name in Exploration._fields} | tuples
    return Exploration(**fields | {"tiers": Tiers(**row)})


def counting(ask: AskSa, outcomes: MutableMapping[str, int]) -> AskSa:
    """Return an `AskSa` that counts its questions by outcome."""

    def counted(port: SubnetPort, request: bytes) -> bytes:
        if is_smp(request):
            outcomes[SMPS] = outcomes.get(SMPS, 0) + 1
            return ask(port, request)
        outcome: str = NeighborReason.MALFORMED
        try:
            reply = ask(port, request)
            sa.decode(reply, request)
            outcome = ANSWERED
        except PortUnavailable as error:
            outcome = error.reason
            raise
        finally:
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return reply

    return counted


def recording(ask: AskSa, entries: Entries) -> AskSa:
    """Return an `AskSa` that adds each question and its result to the entry of its port."""

    def recorded(port: SubnetPort, request: bytes) -> bytes:
        entry = entries.setdefault(port.address, unanswered(port.address) | {"error": None})
        try:
            reply = ask(port, request)
        except Unavailable as error:
            reason = getattr(error, "reason", "no-answer")
            entry["exchanges"].append(Exchange(request, None, reason).as_json())
            raise
        entry["exchanges"].append(Exchange(request, reply).as_json())
        return reply

    return recorded


def replaying(entries: Mapping[Address, Json]) -> AskSa:
    """Return an `AskSa` that answers by recorded exchanges, under any TransactionID.

    Raises Malformed for other content.
    """
    replies: dict[tuple[Address, bytes], Exchange] = {}
    for address, entry in entries.items():
        try:
            exchanges = [Exchange.from_json(exchange) for exchange in entry["exchanges"]]
        except (KeyError, TypeError) as error:
            raise Malformed(f"a recorded exchange is malformed: {error}") from error
        for exchange in exchanges:
            replies[address, _with_tid(exchange.request, bytes(4))] = exchange

    def ask(port: SubnetPort, request: bytes) -> bytes:
        exchange = replies.get((port.address, _with_tid(request, bytes(4))))
        if exchange is None or exchange.reply is None:
            error = (exchange and exchange.error) or NeighborReason.NOT_RECORDED
            reason = NeighborReason.of(error) or NeighborReason.NOT_RECORDED
            raise PortUnavailable(reason, f"{port.name}: {error}")
        return _with_tid(exchange.reply, request[_TID])

    return ask


def _with_tid(mad: bytes, tid: bytes) -> bytes:
    return mad[: _TID.start] + tid + mad[_TID.stop :]
