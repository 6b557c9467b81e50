"""The port of each cable on its leaf: a place of the node, plus an offset of the interface.

    rail-optimized   the same port on each leaf      place 5: 5 5 5 5   offsets 0 0 0 0
    single leaf      neighboring ports               place 17: 17-20    offsets 0 1 2 3
    dual-plane       the same port on both leaves    place 9: 9 9       offsets 0 0

The places of a group's nodes lie on a line if neighbors in the order of names have neighboring
ports. The line decides where a node's own cables do not say which of them is wrong. A node whose
cables agree is where it is, on the line or not: then the node was moved and no cable.

Ports may wrap round: of 32 nodes, rail 1 has the ports 2, 3, ... 32, 1. All distances then count
modulo 32. A port is wanted only if it, or the same port of a leaf like that one, is seen.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from math import comb
from typing import NamedTuple

from agent.fleet.model import FleetNode
from agent.fleet.pattern.evidence import RIVALS, is_coincidence, is_habit, is_majority
from agent.fleet.pattern.grouping import Count, LeafRule, Leaves, Row, current
from agent.ids import SWITCH_PORT
from agent.verify.seen import SeenEnd

Names = tuple[str | None, str | None]  # port ID, port name
Parsed = tuple[str, tuple[int, ...]]  # template, numbers
Offsets = tuple[int | None, ...]
Seats = Sequence[int | None]  # the port of each column on the right leaf

MAX_CABLES = 8  # of a node that are evidence: more need no more than these
MIN_MIRRORED = 4  # nodes in the reverse order; two or three may have each other's names
MAX_PORT_NAME = 63  # characters
MAX_MODULI = 3  # that are tried
ALIKE = 0.8  # of the ports of two leaves: both have them, so they are of one kind
_NUMBER = re.compile(r"\d+", re.ASCII)
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$", re.ASCII)
_SEPARATOR = str.maketrans("/:._", "----")


class PortNumbers:
    """The place of each port on its switch as a number, in which neighbors are neighbors.

        3 -> 3    swp3 -> 3    Ethernet1/3 -> 3    swp2s1 of swp1s0 to swp9s1 -> 4    etp2b -> 4

    A name with several numbers counts them like the digits of a clock, with the ranges that occur
    in the fleet. A name that is not of this shape (a MAC address, a free description) has no
    number.
    """

    def __init__(self, nodes: Sequence[FleetNode]) -> None:
        """Read the names of all far ends."""
        seen = Counter(
            (end.label, end.port_id, end.port_name)
            for node in nodes
            for port in node.ports
            if (end := current(port))
        )
        names = {(port_id, port_name) for _, port_id, port_name in seen}
        self._parsed = {one: found for one in names if (found := _parsed(*one))}
        digits: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for template, numbers in self._parsed.values():
            digits[template].append(numbers)
        ranges = {
            template: [(min(column), max(column)) for column in zip(*some, strict=True)]
            for template, some in digits.items()
        }
        self._of: dict[Names, int] = {}
        for one, (template, numbers) in self._parsed.items():
            total = 0
            for (low, high), number in zip(ranges[template], numbers, strict=True):
                total = total * (high - low + 1) + number - low
            # The first port of the fleet has the number that it shows, or 0.
            self._of[one] = total + ranges[template][-1][0]
        templates: dict[str, Counter[str]] = defaultdict(Counter)
        for (label, *name), count in seen.items():
            if found := self._parsed.get((name[0], name[1])):
                templates[label][found[0]] += count
        self._template = {label: some.most_common(1)[0][0] for label, some in templates.items()}
        self._texts: dict[tuple[str, int], str] = {}

    def __getitem__(self, end: SeenEnd) -> int | None:
        """Return the number of a far end's port; None if its switch names most ports otherwise."""
        names = end.port_id, end.port_name
        found = self._of.get(names)
        if found is None or self._parsed[names][0] != self._template[end.label]:
            return None
        return found

    def text(self, like: SeenEnd, number: int) -> str | None:
        """Return the name of a port of the switch of another one; None if no node has it."""
        if not self._texts:
            self._texts = {
                (self._parsed[one][0], found): one[1] or one[0] or ""
                for one, found in self._of.items()
            }
        parsed = self._parsed.get((like.port_id, like.port_name))
        return self._texts.get((parsed[0], number)) if parsed else None


def _parsed(port_id: str | None, port_name: str | None) -> Parsed | None:
    """Return the template and the numbers of a name; a bare number may be an ifIndex."""
    texts = [text for text in (port_id, port_name) if text and len(text) <= MAX_PORT_NAME]
    found = [match for text in texts if (match := SWITCH_PORT.fullmatch(text))]
    named = [match for match in found if match[1]] or found
    if not named:
        return None
    word, digits, lane = (part.lower() for part in named[0].groups())
    template = word + _NUMBER.sub("#", digits).translate(_SEPARATOR) + ("a" if lane else "")
    numbers = [*map(int, _NUMBER.findall(digits)), *([ord(lane) - ord("a")] if lane else [])]
    return template, tuple(numbers)


class Seen:
    """The ports that are seen on each leaf of a fleet."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Keep the rows; they are read when the first port is asked for."""
        self._rows = rows
        self._ports: dict[str, set[int]] = defaultdict(set)
        self._kinds: dict[int, list[frozenset[int]]] = defaultdict(list)  # of leaves, by port

    def port(self, leaf: str, number: int, modulus: int, strays: AbstractSet[int]) -> int | None:
        """Return the port of a leaf with this number, modulo some; None if there may be none.

        One that is not seen there may be there if a leaf with nearly the same ports has it. The
        strays are the leaf's ports that only wrong cables are on: they are not compared.
        """
        if not self._ports:
            for row in self._rows:
                seats = zip(row.leaves, row.numbers, strict=True) if row.is_fresh else ()
                for seen, port in seats:
                    if seen and port is not None:
                        self._ports[seen].add(port)
            # Most leaves of a fleet have the ports of another one: few kinds, the commonest first.
            kinds = Counter(map(frozenset, self._ports.values()))
            for kind, _ in kinds.most_common():
                for port in kind:
                    self._kinds[port].append(kind)
        ports = self._ports[leaf]
        usual = ports - strays
        if not modulus:
            return number if number in ports or self._has_like(usual, number) else None
        found = [port for port in ports if (port - number) % modulus == 0]
        if not found and usual:
            low, high = min(usual), max(usual)
            near = {low + (number - low) % modulus, high - (high - number) % modulus}
            found = [port for port in near if self._has_like(usual, port)]
        return found[0] if len(found) == 1 else None

    def _has_like(self, ports: AbstractSet[int], number: int) -> bool:
        """Return True if a leaf with this port has nearly these, apart from it."""
        for kind in self._kinds.get(number, ()):
            shared = len(ports & kind)
            if shared and shared >= ALIKE * (len(ports) + len(kind) - 1 - shared):
                return True
        return False


class PortRule(NamedTuple):
    """The offset of each column; None where the ports follow no rule."""

    offsets: Offsets
    counts: tuple[Count, ...]  # the cables on that port, of those on the right leaf
    votes: tuple[tuple[int, ...], ...]  # for each row, its place by each of its cables
    modulus: int  # number of ports after which they wrap round; 0: they do not


def moduli(groups: Iterable[tuple[Sequence[Row], LeafRule]]) -> list[int]:
    """Return the numbers of ports after which those of a table may wrap round, likeliest first.

    Where they do, the distance of two columns has two values that differ by that number.
    """
    found: Counter[int] = Counter()
    for rows, rule in groups:
        fresh = [_seats(row, rule.leaves) for row in rows if row.is_fresh]
        for column, other in pairwise(zip(*fresh, strict=True)):
            (one, _), (two, count), *_ = [*_distances(column, other).most_common(2), (0, 0), (0, 0)]
            found[abs(one - two)] += count
    return [number for number, count in found.most_common(MAX_MODULI) if count >= RIVALS]


def port_rule(rows: Sequence[Row], rule: LeafRule, wraps: Sequence[int] = ()) -> PortRule | None:
    """Return the rule of a group, None if its ports follow none."""
    if not any(rule.leaves):
        return None
    seats = [_seats(row, rule.leaves) for row in rows]
    known = [one for one, row in zip(seats, rows, strict=True) if row.is_fresh]
    span = _span(known, rule.leaves) if wraps else 0
    tried = [0, *dict.fromkeys(number for number in wraps if number >= span)]
    votes_of = {number: _votes(known, _offsets(known, number), number) for number in tried}
    agreed = {  # the cables that agree with most of their node's
        number: sum(max(Counter(one).values(), default=0) for one in votes)
        for number, votes in votes_of.items()
    }
    modulus = max(tried, key=agreed.__getitem__)
    offsets = _offsets(known, modulus)
    votes = _votes(seats, offsets, modulus)
    fresh = [
        (one, vote)
        for one, vote, row in zip(seats, votes, rows, strict=True)
        if row.is_fresh and len(vote) > 1
    ]
    placed = [(one, where) for one, vote in fresh if (where := place(vote)) is not None]
    ports = len({vote[0] for _, vote in fresh})
    ways = _alternatives(len(offsets) - offsets.count(None), ports)
    if is_coincidence(len(placed), len(fresh), ways) or not is_majority(len(placed), len(fresh)):
        return None
    judged: list[int | None] = []
    counts: list[Count] = []
    for column, offset in enumerate(offsets):
        distances = Counter(
            modulo(seat - where - offset, modulus)
            for one, where in placed
            if offset is not None and (seat := one[column]) is not None
        )
        follow, total = distances[0], distances.total()
        rivals = max((number for off, number in distances.items() if off), default=0)
        is_ruled = is_majority(follow, total) and not is_habit(rivals, total)
        judged.append(offset if is_ruled else None)
        counts.append((follow, total))
    return PortRule(tuple(judged), tuple(counts), votes, modulus)


def _votes(seats: Iterable[Seats], offsets: Offsets, modulus: int) -> tuple[tuple[int, ...], ...]:
    """Return the place of each node by each of its cables."""
    return tuple(
        tuple(
            [
                modulo(seat - offset, modulus)
                for seat, offset in zip(one, offsets, strict=True)
                if seat is not None and offset is not None
            ]
        )
        for one in seats
    )


def modulo(number: int, modulus: int) -> int:
    """Return a number, modulo some unless that is 0."""
    return number % modulus if modulus else number


def _span(seats: Iterable[Seats], leaves: Leaves) -> int:
    """Return from how many neighboring ports of a leaf those of a group are.

    A port that far fewer leaves have than have others is that of a wrong cable.
    """
    ports: dict[str, set[int]] = defaultdict(set)
    for one in seats:
        for seat, leaf in zip(one, leaves, strict=True):
            if seat is not None and leaf:
                ports[leaf].add(seat)
    shared = Counter(port for some in ports.values() for port in some)
    most = max(shared.values(), default=0)
    usual = [[port for port in some if 4 * shared[port] > most] for some in ports.values()]
    return max((max(some) - min(some) + 1 for some in usual if some), default=0)


def place(votes: Sequence[int]) -> int | None:
    """Return the place on which more than half of a node's cables agree, at least two."""
    if not votes:
        return None
    found, count = Counter(votes).most_common(1)[0]
    return found if count > 1 and 2 * count > len(votes) else None


def _seats(row: Row, leaves: Leaves) -> Seats:
    if row.leaves == leaves:
        return row.numbers
    return [
        number if leaf and leaf == wanted else None
        for number, leaf, wanted in zip(row.numbers, row.leaves, leaves, strict=True)
    ]


def _offsets(seats: Sequence[Seats], modulus: int) -> Offsets:
    """Return the offsets from the column by which most columns have one.

    It is the commonest distance of two columns, if half of the nodes have it.
    """
    columns = [*zip(*seats, strict=True)]
    best: Offsets = (None,) * len(columns)
    for reference in columns:
        found: list[int | None] = []
        for column in columns:
            counted = _distances(reference, column, modulus)
            distance, count = counted.most_common(1)[0] if counted else (0, 0)
            is_usual = count >= RIVALS and 2 * count >= counted.total()
            found.append(distance if is_usual else None)
        if found.count(None) < best.count(None):
            best = tuple(found)
        if 2 * best.count(None) < len(best):
            break
    known = len(best) - best.count(None)
    return best if known > 1 and 2 * known >= len(best) else (None,) * len(columns)


def _distances(column: Seats, other: Seats, modulus: int = 0) -> Counter[int]:
    """Count the distances from the ports of a column to those of another."""
    return Counter(
        [
            (two - one) % modulus if modulus else two - one
            for one, two in zip(column, other, strict=True)
            if one is not None and two is not None
        ]
    )


def _alternatives(cables: int, ports: int) -> float:
    """Return one to how many more than half of a node's cables agree by chance."""
    if cables < 2 or not ports:
        return 1.0
    most = min(cables // 2 + 1, MAX_CABLES)
    return float(ports) ** (most - 1) / comb(cables, most)


class Line(NamedTuple):
    """Node number `rank` of the group has the place `first` + `step` * rank, modulo some."""

    places: tuple[int, ...]  # of each node
    shape: tuple[int, int, int] | None  # (first, step, modulus) by rank; None: by number in names
    agreed: Count  # nodes that lie on it, of those with a place


def line_of(names: Sequence[str], places: Sequence[int | None], modulus: int) -> Line | None:
    """Return the line of most nodes, by rank or by the number in their names; None without one."""
    lines = [_line(range(len(names)), places, modulus)]
    numbers = [int(found[1]) for name in names if (found := _LAST_NUMBER.search(name))]
    if len(numbers) == len(names) and (by_number := _line(numbers, places, modulus)):
        lines.append(by_number._replace(shape=None))
    best = max(lines, key=lambda one: one.agreed[0] if one else 0)
    if not best or not is_majority(*best.agreed) or is_coincidence(*best.agreed, best.agreed[1]):
        return None
    return best


def _line(ranks: Sequence[int], places: Sequence[int | None], modulus: int) -> Line | None:
    """Return the line with the commonest step."""
    known = [(rank, place) for rank, place in zip(ranks, places, strict=True) if place is not None]
    step = _commonest(
        modulo((other - one) // (after - before), modulus)
        for (before, one), (after, other) in pairwise(known)
        if after > before and (other - one) % (after - before) == 0
    )
    first = _commonest(modulo(place - (step or 0) * rank, modulus) for rank, place in known)
    return along((first, step, modulus), places, ranks) if step and first is not None else None


def along(
    shape: tuple[int, int, int], places: Sequence[int | None], ranks: Sequence[int] | None = None
) -> Line:
    """Return the line of this shape, and how many of the nodes lie on it."""
    first, step, modulus = shape
    wanted = tuple(modulo(first + step * rank, modulus) for rank in ranks or range(len(places)))
    known = [(one, other) for one, other in zip(wanted, places, strict=True) if other is not None]
    return Line(wanted, shape, (sum(1 for one, other in known if one == other), len(known)))


def _commonest(numbers: Iterable[int]) -> int | None:
    counted = Counter(numbers)
    return counted.most_common(1)[0][0] if counted.total() >= RIVALS else None


def mirrored(line: Line, places: Sequence[int | None]) -> list[range]:
    """Return the runs of nodes whose places are in the reverse order.

    None unless most nodes lie on the line once the runs are turned.
    """
    inverse = {place: rank for rank, place in enumerate(line.places)}
    runs: list[range] = []
    for rank, place in enumerate(places):
        last = inverse.get(place, rank) if place is not None else rank
        run = range(rank, last + 1)
        is_new = not runs or rank >= runs[-1].stop
        if len(run) < MIN_MIRRORED or not is_new:
            continue
        pairs = zip(run, reversed(run), strict=True)
        if all(places[one] == line.places[other] for one, other in pairs):
            runs.append(run)
    turned = {rank for run in runs for rank in run}
    even = [
        rank in turned or place == wanted
        for rank, (place, wanted) in enumerate(zip(places, line.places, strict=True))
        if place is not None
    ]
    return runs if is_majority(sum(even), len(even)) else []
