"""The pattern of a fleet without a plan, and the cables that break it.

    rows       nodes with the same interfaces, by PCI address: a table
    grouping   nodes of a table that hang on the same leaves: a group
    leaf_rule  the leaf of each interface of a group, port_rule and order the port there
    odd        the cables that follow no rule, missing those that lead nowhere
    causes     odd cables that are one mistake, words its sentence

A fleet may be wired without a pattern, and a wrong finding sends somebody to a data hall in vain.
So each rule must be that of a majority and no coincidence, or it is none (evidence).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import RANK
from agent.fleet.pattern import order
from agent.fleet.pattern.causes import causes
from agent.fleet.pattern.evidence import RIVALS, is_majority
from agent.fleet.pattern.grouping import grouped
from agent.fleet.pattern.groups import groups_of
from agent.fleet.pattern.leaf_rule import leaf_rule, with_others
from agent.fleet.pattern.missing import leaves_down, missing
from agent.fleet.pattern.odd import Odd, Ruled, Seat, odd_cables, ruled
from agent.fleet.pattern.port_numbers import PortNumbers
from agent.fleet.pattern.port_rule import port_rule
from agent.fleet.pattern.rows import tables
from agent.fleet.pattern.words import Ports, of_cause, of_down, of_mirrored
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.findings.finding import Finding
    from agent.fleet.judged import Group
    from agent.fleet.model import Fleet
    from agent.fleet.pattern.rows import Row, Table


class Pattern(NamedTuple):
    """The wiring of a fleet, and the exceptions to it."""

    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()  # every node is in exactly one
    notes: tuple[str, ...] = ()  # one line each: why there is no pattern, or no evidence
    covered: int = 0  # cables of fresh nodes that a rule is about
    regular: int = 0  # of these, the ones that follow it


def infer(fleet: Fleet) -> Pattern:
    """Return the pattern of a fleet."""
    numbers = PortNumbers(fleet.nodes)
    found: list[Ruled] = []
    unseen: list[Row] = []
    for table in tables(fleet, numbers):
        groups, nothing = _ruled_groups(table)
        found += groups
        unseen += nothing
    ports = Ports(found, numbers)
    findings, odd, never = _findings(found, ports)
    covered = sum(map(_covered, found)) + never
    listed, notes = groups_of(found, unseen, ports)
    return Pattern(findings, listed, notes, covered, covered - odd - never)


def _ruled_groups(table: Table) -> tuple[list[Ruled], list[Row]]:
    """Return the groups of a table with their rules, and the nodes of which no cable is known."""
    groups, unseen = grouped(table.rows, RIVALS)
    leaves = len({leaf for row in table.rows for leaf in row.leaves if leaf})
    rules = with_others([leaf_rule(rows, leaves) for rows in groups])
    found = [
        ruled(rows, rule, port_rule(rows, rule)) for rows, rule in zip(groups, rules, strict=True)
    ]
    return _with_lines(found), unseen


def _with_lines(groups: list[Ruled]) -> list[Ruled]:
    """Give groups without a line that of the other groups, if most of those have the same one."""
    shapes = Counter(group.line.shape for group in groups if group.line)
    (shape, count), *_ = shapes.most_common(1) or [(None, 0)]
    if not shape or not is_majority(count, shapes.total()):
        return groups
    return [
        group._replace(line=order.along(shape, group.places))
        if group.port_rule and not group.line
        else group
        for group in groups
    ]


def _findings(groups: Sequence[Ruled], ports: Ports) -> tuple[tuple[Finding, ...], int, int]:
    """Return the findings in the order in which they are listed, and the number of odd cables.

    Last the number of missing ones that never had a neighbor, which are not among these.
    """
    odds = {id(group): list(odd_cables(group)) for group in groups}
    down = leaves_down(groups, [odd for some in odds.values() for odd in some])
    dead = {id(odd) for one in down for odd in one.odds}
    left: list[Odd] = []
    for group in groups:
        left += missing(group, [odd for odd in odds[id(group)] if id(odd) not in dead])
    found = [of_down(one, ports) for one in down]
    mirrored = [*_mirrored(groups, ports)]
    found += mirrored
    found += [of_cause(cause, ports) for cause in causes(left, _taken(groups, left))]
    found.sort(key=_listing)
    odd = sum(1 for some in odds.values() for one in some if one.row.leaves[one.column])
    never = sum(1 for one in left if not one.row.leaves[one.column])
    return tuple(found), odd + sum(len(one.ports) for one in mirrored), never


def _listing(one: Finding) -> tuple[object, ...]:
    names = [natural(part) for port in one.ports[:1] for part in port]
    return RANK[one.code], *names, one.id


def _mirrored(groups: Iterable[Ruled], ports: Ports) -> Iterator[Finding]:
    for group in groups:
        if not (group.line and group.port_rule):
            continue
        runs = order.mirrored(group.line, group.places)
        if runs and _is_explained(group, runs):
            yield from (of_mirrored(group, run, ports) for run in runs)


def _is_explained(group: Ruled, runs: Sequence[range]) -> bool:
    """Return True if most nodes lie on the line once the runs are turned."""
    line = group.line
    turned = {rank for run in runs for rank in run}
    even = [
        rank in turned or place == wanted
        for rank, (place, wanted) in enumerate(
            zip(group.places, line.places if line else (), strict=True)
        )
        if place is not None
    ]
    return is_majority(sum(even), len(even))


def _taken(groups: Iterable[Ruled], odds: Sequence[Odd]) -> set[Seat]:
    """Return the wanted ports that have a cable that follows the rules."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for odd in odds:
        if odd.wanted.number is not None:
            wanted[odd.wanted.leaf].add(odd.wanted.number)
    moved = {odd.actual for odd in odds}
    used = {
        Seat(leaf, number)
        for group in groups
        if not wanted.keys().isdisjoint(group.leaf_rule.leaves)
        for row in group.rows
        if row.is_fresh
        for leaf, number, port in zip(row.leaves, row.numbers, row.ports, strict=True)
        if leaf in wanted and number in wanted[leaf] and port.far_end
    }
    return used - moved


def _covered(group: Ruled) -> int:
    """Return the number of cables that the rules of a group are about."""
    if not group.is_regular:
        return 0
    ruled_columns = [index for index, leaf in enumerate(group.leaf_rule.leaves) if leaf]
    return sum(
        1 for row in group.rows if row.is_fresh for index in ruled_columns if row.leaves[index]
    )
