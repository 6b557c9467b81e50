"""The nodes of a fleet as rows of tables, in groups: those that hang on the same leaves.

    table   nodes with the same interfaces, by PCI address
    group   nodes of a table that share leaves, whichever interface is on whichever leaf
    rule    the leaf of each interface of a group: that of the majority

A group grows around the commonest ways to be wired. A node joins the group with which it shares
more than half of its cables, counted by leaf; so that a wrong cable, or all cables of a node in
the wrong order, do not part it from its group. With exactly half, as of a pair of legs one of which
is wrong, its neighbors in the order of names decide, if they are in one of the groups only.

Invariants:
- The rows of one table have the same columns. Nodes with other interfaces, of another generation or
  link layer, are another table: no pattern covers both.
- A leaf is named alike on all rows, though some nodes know its identifier and others its name only.

A rule has to pass two tests: it is a majority, and it is no coincidence. Both are about one count:
of `n` nodes that could have shown otherwise, `m` agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import comb, factorial, log2, prod
from typing import NamedTuple

from agent.fleet import silent
from agent.fleet.model import Fleet, FleetNode, FleetPort, current

Column = tuple[str, int]  # PCI address (or else the name), the number of the port there
Generation = tuple[str | None, tuple[Column, ...]]  # flavor, columns
RowLeaves = tuple[str | None, ...]
Count = tuple[int, int]  # m of n nodes agree
Membership = int | tuple[int, ...]  # the number of a group; several: between them; none: unseen

MAJORITY = 0.7  # the least `confidence`: 4 of 5, 6 of 8, 23 of 32
NO_COINCIDENCE = 15.0  # the least `surprise` in bits: once in 30,000 groups wired at random
AMONG_OTHERS = 8.0  # of a group among others that are regular: once in 250
CREW = 2  # nodes of which most cables deviate alike, or 1/5 of the group: another crew
CREW_SHARE = 5
RIVALS = 4  # nodes that deviate alike: another way to wire, and no mistake ...
RIVAL_SHARE = 16  # ... or this part of a large group: 1/16
PAIR = 2
MAX_CENTERS = 8  # groups that are compared for one leaf: more than that are no groups


class NodeRow(NamedTuple):
    """A node."""

    node: FleetNode
    ports: tuple[FleetPort, ...]
    leaves: RowLeaves  # of each port now, or last; None: never known
    is_fresh: bool  # not silent; a silent node says nothing about today's cables
    is_whole: bool  # every port has a neighbor now


class RuledGroup(NamedTuple):
    """The nodes of a group, and the leaf of each column; None where no majority has it."""

    rows: Sequence[NodeRow]
    leaves: RowLeaves
    counts: tuple[Count, ...]  # the nodes on that leaf, of those that are on any
    bits: float  # how unlikely it is that nodes wired at random agree so well
    is_sure: bool  # no coincidence
    is_only: bool  # the cables of a node of this group could be on no other leaves

    @property
    def is_regular(self) -> bool:
        """Return True if the rule is no coincidence, or leaves no choice."""
        return any(self.leaves) and (self.is_sure or self.is_only)


def tables(fleet: Fleet) -> list[list[NodeRow]]:
    """Return the nodes of each generation, in the order in which their first nodes are listed."""
    ends_of = [[*map(current, node.ports)] for node in fleet.nodes]
    # The identifier that goes with each label; None if two switches have it.
    names: dict[str, str | None] = {}
    for label, number in {(end.label, end.id) for ends in ends_of for end in ends if end}:
        if number:
            names[label] = None if label in names else number
    by_kind: dict[Generation, list[NodeRow]] = defaultdict(list)
    for node, ends in zip(fleet.nodes, ends_of, strict=True):
        columns, order = columns_of(node)
        leaves = [end.id or names.get(end.label, end.label) if end else None for end in ends]
        row = NodeRow(
            node,
            tuple([node.ports[index] for index in order]),
            tuple([leaves[index] for index in order]),
            silent.cause(node, fleet.now) is None,
            all(port.far_end for port in node.ports),
        )
        by_kind[node.flavor, columns].append(row)
    return [*by_kind.values()]


def columns_of(node: FleetNode) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    """Return the columns of a node in their order, and the index of the port of each."""
    return _columns(tuple([port.pci or port.interface for port in node.ports]))


@lru_cache(1024)  # the nodes of a fleet have the same few sets of ports
def _columns(places: tuple[str, ...]) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    columns = [(place, places[:index].count(place)) for index, place in enumerate(places)]
    order = sorted(range(len(columns)), key=columns.__getitem__)
    return tuple([columns[index] for index in order]), tuple(order)


def grouped(rows: Sequence[NodeRow]) -> tuple[list[list[NodeRow]], list[NodeRow]]:
    """Return the groups, and the nodes of which no cable was ever seen.

    A wiring that RIVALS nodes share and that is not more than half that of another group is a group
    of its own.
    """
    fresh = Counter(row.leaves for row in rows if row.is_fresh)
    fresh.update({row.leaves: 0 for row in rows})
    centers: list[Counter[str]] = []  # of each group, the leaves of its commonest wiring
    of_leaf: dict[str, list[int]] = defaultdict(list)  # groups
    places: dict[RowLeaves, Membership] = {}
    for leaves, count in fresh.most_common():
        known = Counter(filter(None, leaves))
        near = dict.fromkeys(number for leaf in known for number in of_leaf[leaf])
        shares = {number: (centers[number] & known).total() for number in near}
        most = max(shares.values(), default=0)
        nearest = tuple(number for number, share in shares.items() if share == most)
        if not known:
            places[leaves] = ()
        elif 2 * most > known.total():  # more than half of the cables
            places[leaves] = nearest[0]
        elif nearest and 2 * most == known.total() and count < RIVALS:  # half each
            places[leaves] = nearest
        else:
            places[leaves] = len(centers)
            for leaf in known:
                if len(of_leaf[leaf]) < MAX_CENTERS:
                    of_leaf[leaf].append(len(centers))
            centers.append(known)
    undecided = [places[row.leaves] for row in rows]
    by_place: dict[Membership, list[NodeRow]] = defaultdict(list)
    for row, number in zip(rows, _settled(undecided), strict=True):
        by_place[number].append(row)
    unseen = by_place.pop((), [])
    return list(by_place.values()), unseen


def _settled(places: Sequence[Membership]) -> list[Membership]:
    """Settle the nodes between groups.

    A node is in a group if just that one of its groups has the node before or after it. Of two
    nodes between the same two groups, which then changed cables, the other is in the other group.
    """

    def last(kept: Membership, place: Membership) -> Membership:
        return place if isinstance(place, int) else kept

    before = accumulate(places, last)
    after = [*accumulate(reversed(places), last)][::-1]
    settled: list[Membership] = []
    for place, *neighbors in zip(places, before, after, strict=True):
        common = {*neighbors}.intersection(place) if isinstance(place, tuple) else set()
        settled.append(common.pop() if len(common) == 1 else place)
    between: dict[Membership, list[Membership]] = defaultdict(list)
    for place, number in zip(places, settled, strict=True):
        if isinstance(place, tuple) and len(place) == PAIR:
            between[tuple(sorted(place))].append(number)
    decided: list[Membership] = []
    for number in settled:
        both = between.get(tuple(sorted(number)), []) if isinstance(number, tuple) else []
        others = [group for group in both if isinstance(group, int)]
        if isinstance(number, tuple) and len(both) == PAIR and len(others) == 1:
            decided.append(next(group for group in number if group != others[0]))
        else:
            decided.append(number)
    return decided


def ruled(groups: Sequence[Sequence[NodeRow]]) -> list[RuledGroup]:
    """Return a table's groups with rules; where most are regular, the others need less proof."""
    leaves = len({leaf for rows in groups for row in rows for leaf in row.leaves if leaf})
    with_rules = [_ruled(rows, leaves) for rows in groups]
    judged = [group for group in with_rules if any(group.leaves)]
    if not is_majority(sum(1 for group in judged if group.is_sure), len(judged)):
        return with_rules
    return [group._replace(is_sure=group.bits >= AMONG_OTHERS) for group in with_rules]


def _ruled(rows: Sequence[NodeRow], all_leaves: int) -> RuledGroup:
    """Return a group with its rule, by its fresh nodes; `all_leaves` is the table's number."""
    wirings = Counter(row.leaves for row in rows if row.is_fresh)
    leaves: list[str | None] = []
    counts: list[Count] = []
    columns = [*zip(*wirings.elements(), strict=True)] or [()] * len(rows[0].ports)
    for column in columns:
        counted = Counter(column)
        counted.pop(None, None)
        (leaf, most), *others = counted.most_common(2) or [(None, 0)]
        total, rivals = counted.total(), others[0][1] if others else 0
        is_ruled = is_majority(most, total) and not is_habit(rivals, total)
        leaves.append(leaf if is_ruled else None)
        counts.append((most, total))
    rule = tuple(leaves)
    bits, is_only = 0.0, False
    if 2 * rule.count(None) < len(columns) and not _has_rival(wirings, rule):
        followers = sum(count for wiring, count in wirings.items() if _follows(wiring, rule))
        # In how many ways at least a node of this group might be wired: its cables in any order,
        # and a cable on another leaf of the fleet; not of two cables, which would not be half
        # in the group.
        times = Counter(leaf for leaf in rule if leaf)
        cables = times.total()
        ways = factorial(cables) // prod(map(factorial, times.values()))
        ways += cables * (all_leaves - 1) if cables > PAIR else 0
        bits = surprise(followers, wirings.total(), ways)
        is_only = ways == 1 and cables > 1
    return RuledGroup(rows, rule, tuple(counts), bits, bits >= NO_COINCIDENCE, is_only)


def _follows(wiring: RowLeaves, leaves: RowLeaves) -> bool:
    """Return True if every known cable is as the rule has it, and more than half are known."""
    ruled = [(seen, leaf) for seen, leaf in zip(wiring, leaves, strict=True) if leaf]
    known = [(seen, leaf) for seen, leaf in ruled if seen]
    return wiring == leaves or (
        2 * len(known) > len(ruled) and all(seen == leaf for seen, leaf in known)
    )


def _has_rival(wirings: Counter[RowLeaves], leaves: RowLeaves) -> bool:
    """Return True if others are wired alike, and otherwise than the rule has it: another crew."""
    total = wirings.total()
    for wiring, count in wirings.items():
        followed = sum(
            1 for seen, leaf in zip(wiring, leaves, strict=True) if seen and seen == leaf
        )
        known = len(leaves) - wiring.count(None)
        if wiring != leaves and is_crew(count, total) and 2 * followed < known:
            return True
    return False


# majority and coincidence


def confidence(m: int, n: int) -> float:
    """Return the chance that one more node agrees, by Laplace's rule of succession.

    3 of 3 and 3 of 4 are no majority, 31 of 32 is 0.94, and nothing is ever certain.
    """
    return (m + 1) / (n + 2)


def is_majority(m: int, n: int) -> bool:
    """Return True if `m` of `n` are enough to call the others odd."""
    return n >= RIVALS and confidence(m, n) >= MAJORITY


def surprise(m: int, n: int, alternatives: float) -> float:
    """Return how unlikely it is, in bits, that nodes wired at random agree so well.

    Each node has that many equally probable ways to be wired. The first node sets the pattern, and
    which of the nodes agree is not given in advance.
    """
    if m < 1 or alternatives < 1:
        return 0.0
    return (m - 1) * log2(alternatives) - log2(comb(n, m))


def is_habit(rivals: int, n: int) -> bool:
    """Return True if so many of `n` nodes deviate alike that it is no mistake."""
    return rivals >= max(RIVALS, n / RIVAL_SHARE)


def is_crew(nodes: int, n: int) -> bool:
    """Return True if nodes that are wired alike, but not like the others, are no single mistakes.

    One cable that is off like another's is likelier than all cables of two nodes.
    """
    return nodes >= max(CREW, n / CREW_SHARE)
