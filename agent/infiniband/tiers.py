"""Tier 1 and tier 2: the switches above the leaves of a node, by what a subnet manager tells.

A subnet is a set of switches with names, and for each switch the links of its ports. Nobody says
which switch is a leaf, a spine or a core, and a limited member of a partition sees few hosts. So
each rule counts links between switches:

    tier 1   the switches at the other ports of the leaves, and of some leaves beside them
    tier 2   the switches above tier 1: a part of their links leads beyond it

The value of a tier is its lowest switch in natural order. It stays the same for all leaves of a pod
though some lack a cable, and two pods have no switch in common. Where leaves are linked to leaves
(dragonfly, torus, mesh) there is no tier.

Links that are down are not listed, so an answer is that of the moment;
agent/infiniband/fabric_memory.py says what stays. Pure: `links` asks, and raises what it raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.errors import Unavailable
from agent.reasons import TierReason
from agent.text import natural

MAX_QUESTIONS = 300  # tables of links that one node asks for
# For tier 2: 32 leaves of 64 ports have 1,024 uplinks, and their lowest switches are all it takes.
MAX_TIER_1_QUESTIONS = 250

# A tree has no links within a tier, but for a few cables between two switches. Of a group of four
# routers that is fully linked, half of the links stay within it, of a group of sixteen still more.
LATERAL = 1 / 4
# A leaf knows all switches above it but for missing cables (up to 29 % of a leaf's, as published).
SIBLING = 3 / 4
# A switch above a leaf knows the leaves beside it, too. A cable of another pod knows none of them.
STRAY = 1 / 2
# A core has as many links into each pod. With two pods half of them leads beyond ours; a leaf
# beside ours has but stray cables there.
BEYOND = 1 / 4
# Storage and management hosts are on some spines and cores; a leaf has more of them.
HOSTS = 1 / 4
# Each switch of tier 1 is linked to cores, and a few have a stray cable to what is no leaf of ours.
UPWARD = 3 / 4
# A stray cable is one; a core has links to as many switches of tier 1 as another core.
TYPICAL = 1 / 2
LEAVES_BESIDE = 3  # two of them may lack the same cable; one beside each leaf of ours if more
MAX_TRIES = 12  # questions for them, and one for each leaf of ours


UNKNOWN = ""  # the GUID of a far end that is no switch


class LinkEnd(NamedTuple):
    """The far end of a link of a switch.

    A router, and the CA with which a switch computes (SHARP), is neither switch nor host.
    """

    port: int  # of the switch that was asked
    guid: str  # of the far node
    far_port: int
    is_switch: bool
    is_host: bool


class TreeLink(NamedTuple):
    """A link on the way from a leaf to the core."""

    guid: str
    port: int
    far_guid: str
    far_port: int


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers above some leaves; switches are GUIDs, in the order of labels."""

    leaves: tuple[str, ...]  # those that the subnet lists
    reason: TierReason | None  # why the last tiers are missing; None: there are two
    tier_1: tuple[str, ...] = ()
    tier_2: str | None = None
    above: frozenset[str] = frozenset()  # neighbors of tier 1 that are none of its leaves
    refused: frozenset[str] = frozenset()  # neighbors of tier 1 that were asked and are no tier 2
    # switches by leaf and port; one that is no tier 1 has a stray cable
    uplinks: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    paths: tuple[tuple[TreeLink, ...], ...] = ()  # one from each leaf to the highest tier
    names: Mapping[str, str] = field(default_factory=dict)  # those that no other switch has
    questions: int = 0

    def label(self, tier: int) -> str | None:
        """Return the value of tier 1 or 2: the name of a switch, else its GUID."""
        lowest = self.tier_1[0] if tier == 1 and self.tier_1 else self.tier_2 if tier == 2 else None
        return None if lowest is None else self.names.get(lowest, lowest)


def own_names(switches: Mapping[str, str | None]) -> dict[str, str]:
    """Return the names by GUID, without those that several switches have."""
    counts = Counter(switches.values())
    return {guid: name for guid, name in switches.items() if name and counts[name] == 1}


def by_label(names: Mapping[str, str]) -> Callable[[str], tuple[bool, object, str]]:
    """Return the sort key of GUIDs: names in natural order, then the GUIDs of unnamed switches."""

    def key(guid: str) -> tuple[bool, object, str]:
        name = names.get(guid)
        return name is None, natural(name or ""), guid

    return key


def tiers(
    leaves: Collection[str],
    switches: Mapping[str, str | None],
    links: Callable[[str], Sequence[LinkEnd]],
) -> Tiers:
    """Return the tiers above the leaves of a node.

    `switches` are the names of all switches of the subnet by GUID, of all its subnets if it has
    several; None is unnamed. `links` returns those of one switch. It is called once for a switch at
    most, MAX_QUESTIONS times, in an order that depends on the answers alone. Raises what `links`
    raises, and Unavailable if no leaf is listed.
    """
    subnet = _Answers(switches, links)
    ours = subnet.sorted(set(leaves) & switches.keys())
    if not ours:
        raise Unavailable("the subnet administrator lists none of the node's leaf switches")
    first = _tier_1(subnet, ours)
    second = _Tier2(first.reason) if first.reason else _tier_2(subnet, ours, first)
    tier_1 = subnet.sorted(first.switches)
    uplinks = {leaf: subnet.uplinks(leaf, ours) for leaf in ours}
    known = {*ours, *tier_1, second.switch}
    known |= {guid for ports in uplinks.values() for guid in ports.values()}
    paths = (_path(subnet, leaf, tier_1, second.switch) for leaf in ours)
    return Tiers(
        tuple(ours),
        second.reason,
        tuple(tier_1),
        second.switch,
        above=second.above,
        refused=second.refused,
        uplinks=uplinks,
        paths=tuple(filter(None, paths)),
        names={guid: name for guid, name in subnet.names.items() if guid in known},
        questions=len(subnet.tables),
    )


class _Tier1(NamedTuple):
    reason: TierReason | None  # why there is none
    switches: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()  # what may be leaves beside ours


class _Tier2(NamedTuple):
    reason: TierReason | None
    switch: str | None = None
    above: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


class _Answers:
    """The answers so far: each switch is asked once."""

    def __init__(
        self, switches: Mapping[str, str | None], links: Callable[[str], Sequence[LinkEnd]]
    ) -> None:
        self.switches = switches
        self.names = own_names(switches)
        self._key = by_label(self.names)
        self._links = links
        self.tables: dict[str, Sequence[LinkEnd]] = {}  # links of the switches that were asked
        self._neighbors: dict[str, Counter[str]] = {}

    def sorted(self, guids: Iterable[str]) -> list[str]:
        """Return the switches in the order of labels."""
        return sorted(guids, key=self._key)

    def ask(self, guids: Iterable[str], most: int = MAX_QUESTIONS) -> set[str]:
        """Ask for the links of these switches, the lowest first; return those that answered."""
        for guid in self.sorted(guids):
            if guid not in self.tables and len(self.tables) < most:
                self.tables[guid] = table = self._links(guid)
                ends = (far.guid for far in table if far.is_switch and far.guid != guid)
                self._neighbors[guid] = Counter(end for end in ends if end in self.switches)
        return {guid for guid in guids if guid in self.tables}

    def neighbors(self, guid: str) -> Counter[str]:
        """Return the switches at the ports of a switch that was asked, and how many links each."""
        return self._neighbors.get(guid, Counter())

    def uplinks(self, leaf: str, leaves: Collection[str]) -> dict[int, str]:
        """Return the switches at the ports of a leaf that are none of these leaves."""
        above = self.neighbors(leaf).keys() - set(leaves)
        return {far.port: far.guid for far in self.tables.get(leaf, ()) if far.guid in above}

    def part(self, guids: Iterable[str], into: Collection[str]) -> float:
        """Return the part of the links of some switches that leads into a set."""
        counts = [self.neighbors(guid) for guid in guids]
        total = sum(count.total() for count in counts)
        return sum(count[guid] for count in counts for guid in into) / total if total else 0.0

    def hosts(self, guids: Iterable[str]) -> float:
        """Return the part of all links of some switches that leads to hosts."""
        ends = [far for guid in guids for far in self.tables.get(guid, ())]
        return sum(far.is_host for far in ends) / len(ends) if ends else 0.0

    def links_between(self, guid: str, far_guid: str) -> list[TreeLink]:
        """Return the links from one switch to another."""
        ends = (far for far in self.tables.get(guid, ()) if far.guid == far_guid)
        return [TreeLink(guid, far.port, far_guid, far.far_port) for far in ends]


def _tier_1(subnet: _Answers, ours: Sequence[str]) -> _Tier1:
    """Return the switches above the leaves."""
    subnet.ask(ours)
    if subnet.part(ours, ours) >= LATERAL:
        return _Tier1(TierReason.NO_TIERS)
    first = {guid for leaf in ours for guid in subnet.neighbors(leaf)} - set(ours)
    if not first:
        return _Tier1(TierReason.TOP)
    asked = subnet.ask(first, MAX_TIER_1_QUESTIONS)
    beside = {leaf: _beside(subnet, leaf, ours) for leaf in ours}
    if subnet.part(asked, first) >= LATERAL or _is_alone(subnet, ours, asked, beside):
        return _Tier1(TierReason.NO_TIERS)
    return _completed(subnet, ours, first, beside)


def _completed(
    subnet: _Answers,
    ours: Sequence[str],
    first: Collection[str],
    beside: dict[str, frozenset[str] | None],
) -> _Tier1:
    """Return tier 1 from what is `first` above our leaves.

    Some leaves beside ours complete what missing cables hide. A stray cable is left out.
    """
    pairs = ((leaf, guid) for leaf in ours for guid in subnet.neighbors(leaf).keys() & {*first})
    sure = {guid for leaf, guid in pairs if not _is_stray(subnet, guid, beside[leaf])}
    others = _others(subnet, ours, sure or first, beside)
    beside |= {leaf: _beside(subnet, leaf, ours) for leaf in others}
    above = ((leaf, guid) for leaf in beside for guid in subnet.neighbors(leaf).keys() - {*ours})
    tier_1 = {
        guid
        for leaf, guid in above
        if not _is_stray(subnet, guid, beside[leaf]) and not _is_single(subnet, leaf, guid, beside)
    }
    of_ours = (beside[leaf] or () for leaf in ours)
    return _Tier1(None, frozenset(tier_1 or first), frozenset().union(*of_ours))


def _beside(subnet: _Answers, leaf: str, ours: Collection[str]) -> frozenset[str] | None:
    """Return what may be a leaf beside this one: three quarters of its uplink switches know it.

    None: it has a single one, which cannot tell a leaf from a core.
    """
    uplinks = subnet.neighbors(leaf).keys() - set(ours)
    asked = subnet.ask(uplinks, MAX_TIER_1_QUESTIONS)
    if len(asked) < 2:
        return None
    counts = Counter(guid for switch in asked for guid in subnet.neighbors(switch))
    known = {guid for guid, count in counts.items() if count >= SIBLING * len(asked)}
    return frozenset(known - {leaf} - uplinks)


def _is_stray(subnet: _Answers, guid: str, beside: Collection[str] | None) -> bool:
    """Return True for an uplink switch that does not know the leaves which the others know.

    Cores may be among these leaves: it knows them, too, if each is linked to each pod.
    """
    if not beside or guid not in subnet.tables:
        return False
    return len(subnet.neighbors(guid).keys() & set(beside)) < STRAY * len(beside)


def _is_single(subnet: _Answers, leaf: str, guid: str, leaves: Collection[str]) -> bool:
    """Return True for an uplink switch of one leaf alone, of three or more of the same kind."""
    mates = [
        other
        for other in leaves
        if other != leaf and subnet.part([leaf], subnet.neighbors(other)) >= SIBLING
    ]
    return len(mates) > 1 and not any(guid in subnet.neighbors(other) for other in mates)


def _is_alone(
    subnet: _Answers,
    ours: Sequence[str],
    first: Collection[str],
    beside: Mapping[str, frozenset[str] | None],
) -> bool:
    """Return True where no leaf beside ours can be told, and nothing says that this is a tree.

    In a torus the neighbors of a switch have no other neighbor in common; in a pod of one leaf
    group neither. There hosts tell: a torus has them on every switch.
    """
    others = [None if known is None else known - set(ours) for known in beside.values()]
    if any(known is None or known for known in others):
        return False
    if not {guid for switch in first for guid in subnet.neighbors(switch)} - {*ours, *first}:
        return False  # nothing beyond: these leaves and their spines are all
    return not subnet.hosts(ours) or subnet.hosts(first) >= HOSTS


def _others(
    subnet: _Answers,
    ours: Sequence[str],
    tier_1: Collection[str],
    beside: Mapping[str, frozenset[str] | None],
) -> list[str]:
    """Return leaves beside ours.

    Those are asked first that most of tier 1 knows. Cores may be known as well; they are before the
    leaves in natural order or after them, so both ends are tried in turn.
    """
    counts = Counter(guid for switch in tier_1 for guid in subnet.neighbors(switch))
    ranks = {
        leaf: sorted(
            subnet.sorted((known or counts.keys() - set(tier_1)) - set(ours)),
            key=lambda guid: -counts[guid],
        )
        for leaf, known in beside.items()
    }
    asked, others = set[str](), list[str]()
    for turn, leaf in enumerate([*ours] * MAX_TRIES):
        left = [guid for guid in ranks[leaf] if guid not in asked]
        left = left[-1:] if turn // len(ours) % 2 else left[:1]
        if len(others) >= max(LEAVES_BESIDE, len(ours)) or len(asked) >= MAX_TRIES + len(ours):
            break
        subnet.ask(left)
        asked |= {*left}
        others += [guid for guid in left if subnet.part([guid], tier_1) >= SIBLING]
    return others


def _tier_2(subnet: _Answers, ours: Sequence[str], first: _Tier1) -> _Tier2:
    """Return the lowest switch above tier 1: a quarter of its links leads beyond."""
    tier_1 = first.switches
    below = {*tier_1, *ours}
    asked = subnet.ask(tier_1, MAX_TIER_1_QUESTIONS)
    counts = Counter(g for switch in asked for g in subnet.neighbors(switch) if g not in below)
    above = frozenset(counts)
    if subnet.switches.keys() <= below | above:
        return _Tier2(TierReason.TOP, above=above)  # nothing is farther than that
    upward = counts.keys() - first.beside
    linked = sum(bool(subnet.neighbors(guid).keys() & upward) for guid in asked)
    if linked < UPWARD * len(asked):
        upward = set(above)  # each switch of tier 1 is linked to each core, as to each leaf
    ranked = sorted(counts[guid] for guid in upward)  # `statistics` is 0.6 MB in each agent
    least = TYPICAL * ranked[(len(ranked) - 1) // 2] if ranked else 0
    refused = set[str]()
    for guid in subnet.sorted(guid for guid in upward if counts[guid] >= least):
        if not subnet.ask([guid]):
            break
        beyond = subnet.neighbors(guid).keys() - below
        if subnet.part([guid], beyond) >= BEYOND and subnet.hosts([guid]) < HOSTS:
            if subnet.part([guid], above) >= LATERAL:
                return _Tier2(TierReason.PEERS, above=above)
            return _Tier2(None, guid, above, frozenset(refused))
        refused.add(guid)
    return _Tier2(TierReason.TOP, above=above, refused=frozenset(refused))


def _path(
    subnet: _Answers, leaf: str, tier_1: Sequence[str], core: str | None
) -> tuple[TreeLink, ...]:
    """Return the links from a leaf to the core, or to tier 1: by the lowest switches and ports."""
    above = [guid for guid in tier_1 if guid in subnet.neighbors(leaf)]
    below_core = [guid for guid in above if core in subnet.neighbors(guid)]
    for guid in below_core or above:
        up = min(subnet.links_between(leaf, guid))
        return (up, min(subnet.links_between(guid, core))) if core and below_core else (up,)
    return ()
