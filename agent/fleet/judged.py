"""The judgement of a fleet: the findings, and the groups by which the page is laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agent.findings.finding import Finding
    from agent.fleet.model import Fleet


class Group(NamedTuple):
    """The nodes that hang on one set of leaves, or share the pattern of one."""

    name: str  # for people: the leaves, or their first and last
    nodes: tuple[str, ...]  # in natural order
    leaves: tuple[str, ...]  # identities of the switches (FarEnd.switch), in rail order
    pattern: str | None  # in words: "rail-optimized: interface i on leaf i"; None: no pattern


class Judged(NamedTuple):
    """The result of `fleet verify`."""

    fleet: Fleet
    findings: tuple[Finding, ...]  # in the order in which they are listed
    groups: tuple[Group, ...]  # every node is in exactly one
    notes: tuple[
        str, ...
    ] = ()  # one line each: plans, what was left out, why a group has no pattern
    planned: int = 0  # cables that a plan names, or the pattern covers
    as_planned: int = 0
    by_pattern: bool = True  # False: compared with a plan or expected labels
