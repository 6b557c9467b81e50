"""The pattern of a fleet without a plan, and the cables that break it.

    grouping   nodes with the same interfaces that hang on the same leaves, and their leaf rule
    causes     the cables that do not follow it, those that are one mistake, and those that are none
    words      the sentences

A fleet may be wired without a pattern, and a wrong finding sends somebody to a data hall in vain.
So each rule must be that of a majority and no coincidence, or it is none (evidence).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from agent.cabling.finding import RANK, Finding
from agent.fleet import silent, whole_causes
from agent.fleet.model import Fleet, Group
from agent.fleet.pattern.causes import (
    MISCABLED,
    MISSING,
    Odd,
    by_design,
    causes,
    odd_cables,
    without_spares,
)
from agent.fleet.pattern.evidence import RIVALS
from agent.fleet.pattern.grouping import NodeRow, RuledGroup, grouped, ruled, tables
from agent.fleet.pattern.words import groups_of, names_of, of_cause
from agent.text import natural


class Pattern(NamedTuple):
    """The wiring of a fleet, and the exceptions to it."""

    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()  # every node is in exactly one
    notes: tuple[str, ...] = ()  # one line each: why there is no pattern, or no evidence
    covered: int = 0  # cables of fresh nodes that a rule is about
    regular: int = 0  # of these, the cables that follow it


def infer(fleet: Fleet) -> Pattern:
    """Return the pattern of a fleet."""
    groups: list[RuledGroup] = []
    unseen: list[NodeRow] = []
    odds: list[list[Odd]] = []  # of each group
    designed: set[tuple[str, int]] = set()
    for rows in tables(fleet):
        members, nothing = grouped(rows, RIVALS)
        of_rows = ruled(members)
        of_table = [*map(odd_cables, of_rows)]
        astray = {odd.column for some in of_table for odd in some if odd.code == MISCABLED}
        if astray:
            designed.update(by_design(rows, of_rows, astray))
        groups += of_rows
        odds += of_table
        unseen += nothing
    names = names_of(groups)
    fresh = [node for node in fleet.nodes if silent.cause(node, fleet.now) is None]
    lost = whole_causes.without_plan(fresh)
    findings, odd, never = _findings(groups, odds, names, lost, designed)
    covered = never + sum(
        1
        for group in groups
        if group.is_regular
        for row in group.rows
        if row.is_fresh
        for leaf, rule in zip(row.leaves, group.leaves, strict=True)
        if leaf and rule
    )
    listed, notes = groups_of(groups, unseen, names)
    return Pattern(findings, listed, notes, covered, covered - odd - never)


def _findings(
    groups: Sequence[RuledGroup],
    odds: Sequence[Sequence[Odd]],
    names: Mapping[str, str],
    lost: Sequence[Finding],
    designed: Collection[tuple[str, int]],
) -> tuple[tuple[Finding, ...], int, int]:
    """Return the findings in the order in which they are listed, and the number of odd cables.

    `odds` are those of each group, `lost` the leaves and nodes without a link, whose ports are odd
    no more, `designed` the cables that are no mistake by themselves (causes). Counted are the odd
    cables of regular groups; last the number of missing ones that never had a neighbor, which are
    not among these.
    """
    dead = {tuple(port) for cause in lost if cause.code == "leaf-down" for port in cause.ports}
    left: list[Odd] = []
    for group, some in zip(groups, odds, strict=True):
        alive = [odd for odd in some if (odd.row.node.name, odd.interface) not in dead]
        left += without_spares(group, alive)
    explained = {port for cause in lost for port in cause.ports}
    mistakes, by_border = [], 0
    for code, same in causes(left):
        if code == MISCABLED and same[0].key in designed:
            by_border += 1
        else:
            mistakes.append(of_cause(code, same, names))
    findings = [
        each for each in mistakes if each.code != MISSING or not explained.issuperset(each.ports)
    ]
    findings += lost
    findings.sort(
        key=lambda finding: (
            RANK[finding.code],
            *(natural(part) for port in finding.ports[:1] for part in port),
            finding.id,
        )
    )
    regular = [some for group, some in zip(groups, odds, strict=True) if group.is_regular]
    odd = sum(1 for some in regular for cable in some if cable.leaf) - by_border
    never = sum(1 for cable in left if not cable.leaf)
    return tuple(findings), odd, never
