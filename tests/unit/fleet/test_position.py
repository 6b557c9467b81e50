"""Platform positions of nodes: in the sentences of findings, and on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.cabling.finding import INFO, Finding, Move, PortRef, Spot, finding
from agent.encode import Naming
from agent.fleet.judge import positioned
from agent.fleet.model import FleetNode
from agent.fleet.nodes import NodeReader
from agent.fleet.page.worklist import stops
from agent.model import PlatformPosition
from tests.support import judged
from tests.support.fleet_nodes import TIME, annotation, node

CHASSIS = "1823825185529"


def position(tray: int, chassis: str = CHASSIS) -> PlatformPosition:
    return PlatformPosition(chassis, slot=tray + 1, tray=tray, host=1)


def wrong(*numbers: int, **changes: Any) -> Finding:
    """Return a finding of one cable of each of these nodes."""
    refs = [PortRef(f"gpu-{number}", "ibp0") for number in numbers]
    return finding("missing", refs, "Plug it in.", **changes)


def sentence(found: Finding, *positions: PlatformPosition | None) -> str:
    nodes = [FleetNode(f"gpu-{number}", position=at) for number, at in enumerate(positions)]
    (with_position,) = positioned([found], nodes)
    assert with_position._replace(text=found.text) == found
    return with_position.text.removeprefix(found.text).strip()


def test_up_to_three_nodes_have_their_tray() -> None:
    assert sentence(wrong(0), position(4)) == f"gpu-0 is tray 4 of chassis {CHASSIS}."
    two = f"gpu-0 is tray 4 of chassis {CHASSIS}, gpu-1 is tray 0 of chassis B."
    assert sentence(wrong(0, 1), position(4), position(0, "B")) == two


def test_more_nodes_have_the_chassis_that_all_are_in() -> None:
    trays = [position(tray) for tray in range(4)]
    assert sentence(wrong(*range(4)), *trays) == f"All 4 nodes are in chassis {CHASSIS}."
    assert sentence(wrong(*range(4)), *trays[:3], position(3, "B")) == ""


def test_what_is_unknown_is_not_said() -> None:
    """Nor is anything said of remarks, and of ends whose rack the plan has."""
    assert sentence(wrong(0), None) == ""
    assert sentence(wrong(0, 1), position(4), None) == ""
    assert sentence(wrong(0, severity=INFO), position(4)) == ""
    ends = ("leaf01", "1"), ("leaf01", "2")
    move = Move(PortRef("gpu-0", "ibp0"), *ends, near_spot=Spot("A1", "17"))
    assert sentence(wrong(0, moves=(move,)), position(4)) == ""


def test_a_node_has_the_position_of_its_annotation() -> None:
    document = node(0, observed=annotation(0, position=position(4)))
    read = NodeReader(Naming(), TIME).read(document)
    assert read is not None
    assert read.position == position(4)


def test_on_paper_it_is_the_place_of_an_end_that_no_plan_has() -> None:
    fleet = judged.fleet(8, 8)
    nodes = tuple(replace(member, position=position(4)) for member in fleet.fleet.nodes)
    fleet = fleet._replace(fleet=replace(fleet.fleet, nodes=nodes))
    move = Move(PortRef("gpu-001", "mlx5_0"), ("leaf01", "1"), ("leaf02", "1"))
    found = finding("miscabled", [move.port], "look", moves=(move,))
    (stop,) = stops(judged.found(fleet, found))
    assert [line.place for line in stop.lines] == [f"tray 4 of chassis {CHASSIS}"]
