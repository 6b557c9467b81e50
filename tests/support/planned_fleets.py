"""Plans of the racks of tests/support/small_fleets.py, and fleets judged by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agent.cabling.finding import Finding
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable
from agent.fleet import judge as module
from agent.fleet.model import Fleet, FleetNode, Group, Judged, wires
from agent.fleet.pattern.infer import Pattern
from tests.support.small_fleets import cabled, far_end, fleet

FILE = "plan.csv"
CHOICES = ("options", "naming", "is_partial", "is_selected")


def no_pattern(members: Fleet) -> Pattern:
    """Infer nothing: one group of all nodes."""
    return Pattern(groups=(Group("all", tuple(one.name for one in members.nodes), (), None),))


def cables(nodes: Iterable[FleetNode]) -> list[PlanCable]:
    """The cables of nodes, each with its place and racks."""
    return [
        PlanCable(
            End(*wire.ref, None, "A1", str(row)),
            End(wire.end.device, wire.end.port or "", None, "B3", "40"),
            FilePlace(FILE, None, row),
        )
        for row, wire in enumerate(wires(nodes), 2)
    ]


def plan_of(nodes: Iterable[FleetNode], *others: PlanCable) -> Plan:
    """The plan that has the nodes as they are."""
    return Plan(FILE, "own", None, (*cables(nodes), *others))


def row(near: tuple[str, str], far: tuple[str, str], number: int = 99) -> PlanCable:
    """A row of the plan."""
    return PlanCable(End(*near), End(*far), FilePlace(FILE, None, number))


def in_place_of(nodes: list[FleetNode], places: dict[str, str]) -> list[FleetNode]:
    """The nodes, each of these with the cables of another."""
    ports = {one.name: one.ports for one in nodes}
    return [replace(one, ports=ports[places.get(one.name, one.name)]) for one in nodes]


def exchanged(nodes: list[FleetNode], *ports: tuple[str, str]) -> list[FleetNode]:
    """The nodes with these far ends in a ring: each port has that of the next."""
    ends = {(one.name, two.interface): two.far_end for one in nodes for two in one.ports}
    for place, (name, interface) in enumerate(ports):
        nodes = cabled(nodes, name, interface, far_end=ends[ports[(place + 1) % len(ports)]])
    return nodes


def renamed(nodes: list[FleetNode], names: dict[str, str]) -> list[FleetNode]:
    """The nodes with other names of leaves at the same ports."""
    for one in nodes:
        for two in one.ports:
            if two.far_end and two.far_end.device in names:
                end = far_end(names[two.far_end.device], two.far_end.port_id)
                nodes = cabled(nodes, one.name, two.interface, far_end=end)
    return nodes


def pulled(nodes: list[FleetNode], *ports: tuple[str, str]) -> list[FleetNode]:
    """The nodes without a link at these ports."""
    for name, interface in ports:
        nodes = cabled(nodes, name, interface, far_end=None, gbps=0.0)
    return nodes


def judge(
    nodes: Sequence[FleetNode], *plans: Plan, pattern: Pattern | None = None, **more: Any
) -> Judged:
    """Judge nodes by plans, without a pattern unless one is given."""
    choices = {key: more.pop(key) for key in CHOICES if key in more}
    infer = (lambda _: pattern) if pattern else no_pattern
    return module.judge(fleet(nodes, **more), plans, infer=infer, **choices)


def codes(judged: Judged) -> list[str]:
    """The codes of the findings."""
    return [one.code for one in judged.findings]


def only(judged: Judged) -> Finding:
    """The only finding."""
    (found,) = judged.findings
    return found
