"""The work list on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.findings.finding import Move, PortRef, Spot, finding
from agent.fleet.page.lookup import Marks
from agent.fleet.page.worklist import Line, Stop, stops
from tests.support import judged
from tests.support.judged import changed

if TYPE_CHECKING:
    from agent.fleet.model import FleetPort, Judged

DOMAIN = ".dc1.example.com"


def sheet(fleet: Judged) -> list[Stop]:
    """Return the work list of a fleet."""
    return stops(fleet, Marks(fleet.findings).findings)


def test_a_swap_has_two_rows_with_each_end_once() -> None:
    """Rack, unit and label of both cables; the leaf is the heading."""
    refs = PortRef("gpu-001", "mlx5_0"), PortRef("gpu-009", "mlx5_0")
    ends = ("leaf01", "1"), ("leaf01", "9")
    spots = Spot("A1", "17", "C1"), Spot("A2", "3", "C9")
    moves = (
        Move(refs[0], ends[1], ends[0], spots[0], Spot("B3", "40")),
        Move(refs[1], ends[0], ends[1], spots[1], Spot("B3", "40")),
    )
    one = finding("swapped", refs, "swap", moves=moves, facts={"far-rack": "B3"})
    (stop,) = sheet(judged.found(judged.fleet(16, 16), one))
    assert stop.title == "Rack B3, leaf01"
    assert stop.lines == (
        Line(
            *(1, "swapped", "gpu-001 mlx5_0", "rack A1, unit 17, cable C1"),
            *("leaf01/9", "leaf01/1", "rack B3, unit 40"),
        ),
        Line(
            *(1, "swapped", "gpu-009 mlx5_0", "rack A2, unit 3, cable C9"),
            *("leaf01/1", "leaf01/9", "rack B3, unit 40"),
        ),
    )


def test_a_pulled_cable_goes_from_nowhere() -> None:
    """By a plan it has no move; its places are facts."""
    ref = PortRef("gpu-001", "mlx5_0")
    facts = {"Cable Label": "C1", "rack": "A1", "unit": "17", "far-rack": "B3", "far-unit": "40"}
    one = finding("missing", [ref], "look", expected=("leaf01", "1"), facts=facts)
    (stop,) = sheet(judged.found(judged.fleet(8, 8), one))
    near, far = "rack A1, unit 17, cable C1", "rack B3, unit 40"
    assert stop.lines[0][3:7] == (near, "no link", "leaf01/1", far)


def test_other_findings_are_sentences_and_silent_nodes_are_apart() -> None:
    """A dead leaf has no cable to move."""
    fleet = judged.silent(judged.leaf_down(judged.fleet(16, 8), 1, 7), "gpu-001")
    (stop,) = sheet(fleet)
    assert stop.title == "su02-leaf08"
    assert [line.text for line in stop.lines] == [fleet.findings[0].text]


def test_the_domain_that_all_have_is_cut() -> None:
    """In names and sentences; a name that only begins with it stays."""
    fleet = judged.fleet(2, 2)
    nodes = tuple(replace(one, name=one.name + DOMAIN) for one in fleet.fleet.nodes)
    refs = [PortRef(one.name, port.interface) for one in nodes for port in one.ports]
    fleet = fleet._replace(fleet=replace(fleet.fleet, nodes=nodes))

    def qualified(port: FleetPort) -> FleetPort:
        end = port.far_end
        return port._replace(far_end=end and end._replace(name=end.label + DOMAIN))

    fleet = changed(fleet, refs, qualified)
    text = f"Look at leaf1{DOMAIN} and leaf1{DOMAIN}.au, {DOMAIN}."
    end = f"su01-leaf01{DOMAIN}", "1"
    fleet = judged.found(fleet, finding("leaf-down", refs[:3], text, expected=end))
    fleet = judged.found(fleet, finding("missing", refs[:1], "look", expected=end))
    (stop,) = sheet(fleet)
    assert stop.title == "su01-leaf01"
    assert stop.lines[0].text == f"Look at leaf1 and leaf1{DOMAIN}.au, {DOMAIN}."
    assert (stop.lines[1].cable, stop.lines[1].wanted) == ("gpu-001 mlx5_0", "su01-leaf01/1")
