"""The pattern of a fleet without a plan, and the cables that break it.

    grouping   nodes with the same interfaces that hang on the same leaves, and their leaf rule
    ports      the port of each cable on its leaf, and the line of the nodes
    causes     the cables that follow no rule, and those that are one mistake
    words      the sentences

A fleet may be wired without a pattern, and a wrong finding sends somebody to a data hall in vain.
So each rule must be that of a majority and no coincidence, or it is none (evidence).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agent.findings.finding import RANK, Finding
from agent.fleet import leaf_causes, silent
from agent.fleet.leaf_causes import Explained
from agent.fleet.model import Fleet, Group
from agent.fleet.pattern.causes import (
    Odd,
    Ruled,
    causes,
    odd_cables,
    ruled,
    without_spares,
)
from agent.fleet.pattern.evidence import RIVALS, is_majority
from agent.fleet.pattern.grouping import Row, grouped, leaf_rules, tables
from agent.fleet.pattern.ports import PortNumbers, Seen, along, mirrored, moduli, port_rule
from agent.fleet.pattern.words import Ports, groups_of, of_cause, of_mirrored
from agent.model import natural


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
    groups: list[Ruled] = []
    unseen: list[Row] = []
    kinds = tables(fleet, numbers)
    seen = Seen([row for rows in kinds for row in rows])
    for rows in kinds:
        found, nothing = grouped(rows, RIVALS)
        rules = [*zip(found, leaf_rules(found), strict=True)]
        wraps = moduli(rules)
        of_kind = [
            ruled(some, rule, port_rule(some, rule, [*moduli([(some, rule)]), *wraps]), seen)
            for some, rule in rules
        ]
        # Groups without a line have that of the others, if most of those have the same one.
        shapes = Counter(group.line.shape for group in of_kind if group.line)
        (shape, count), *_ = shapes.most_common(1) or [(None, 0)]
        for group in of_kind:
            is_like = shape and group.port_rule and not group.line
            if shape and is_like and is_majority(count, shapes.total()):
                groups.append(group._replace(line=along(shape, group.places)))
            else:
                groups.append(group)
        unseen += nothing
    ports = Ports(groups, numbers)
    fresh = [node for node in fleet.nodes if silent.cause(node, fleet.now) is None]
    lost = [*leaf_causes.down_without_plan(fresh)]
    findings, odd, never = _findings(groups, ports, lost)
    covered = never + sum(
        1
        for group in groups
        if group.is_regular
        for row in group.rows
        if row.is_fresh
        for leaf, rule in zip(row.leaves, group.leaf_rule.leaves, strict=True)
        if leaf and rule
    )
    listed, notes = groups_of(groups, unseen, ports)
    return Pattern(findings, listed, notes, covered, covered - odd - never)


def _findings(
    groups: Sequence[Ruled], ports: Ports, lost: Sequence[Explained]
) -> tuple[tuple[Finding, ...], int, int]:
    """Return the findings in the order in which they are listed, and the number of odd cables.

    `lost` are the leaves and nodes without a link, whose ports are odd no more. Last the number of
    missing ones that never had a neighbor, which are not among these.
    """
    odds = [odd_cables(group) for group in groups]
    dead = {tuple(port) for one, ports in lost if one.code == "leaf-down" for port in ports}
    left: list[Odd] = []
    for group, some in zip(groups, odds, strict=True):
        alive = [odd for odd in some if (odd.row.node.name, odd.interface) not in dead]
        left += without_spares(group, alive)
    turned = [
        of_mirrored(group, run, ports)
        for group in groups
        if group.line and group.port_rule
        for run in mirrored(group.line, group.places)
    ]
    explained = {port for _, same in lost for port in same}
    found = [one for one, _ in lost] + turned
    for one in (of_cause(cause, ports) for cause in causes(groups, left)):
        is_told = one.code == "missing" and explained.issuperset(one.ports)
        has_no_name = one.code == "wrong-port" and not one.expected[1]
        if not (is_told or has_no_name):
            found.append(one)
    found.sort(
        key=lambda one: (
            RANK[one.code],
            *(natural(part) for port in one.ports[:1] for part in port),
            one.id,
        )
    )
    odd = sum(1 for some in odds for one in some if one.row.leaves[one.column])
    never = sum(1 for one in left if not one.row.leaves[one.column])
    return tuple(found), odd + sum(len(one.ports) for one in turned), never
