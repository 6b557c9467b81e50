"""The work list, on screen and on paper, the silent nodes, the speeds and the summary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cabling.findings.finding import Move, PortRef, Spot, finding
from agent.fleet.model import FleetPort, Gap, Judged
from agent.fleet.page import worklist
from agent.fleet.page.worklist import Silent, entries, speeds, stops, summary, verdict
from tests.support import judged


def silent(fleet: Judged) -> list[Silent]:
    return worklist.silent(fleet.fleet, entries(fleet))


def test_an_entry() -> None:
    fleet = judged.fleet(16, 8)
    fleet = judged.swapped(fleet, PortRef("gpu-001", "mlx5_0"), PortRef("gpu-009", "mlx5_1"))
    (one,) = entries(fleet)
    assert (one.number, one.groups) == (1, (1, 2))
    assert one.where == (("gpu-001", "mlx5_0"), ("gpu-009", "mlx5_1"))
    assert (one.places, one.facts) == ((("rack", "R12"), ("unit", "17")), ())
    assert one.moves == (
        ("gpu-001 mlx5_0", "su02-leaf02/1", "su01-leaf01/1"),
        ("gpu-009 mlx5_1", "su01-leaf01/1", "su02-leaf02/1"),
    )
    assert (one.confidence, one.expected, one.actual) == ("97 %", None, None)


def test_ends_without_a_move() -> None:
    ref = PortRef("gpu-001", "mlx5_0")
    found = finding("miscabled", [ref], "look", expected=("leaf01", "1"), actual=("leaf02", None))
    (one,) = entries(judged.found(judged.fleet(8, 8), found))
    assert (one.expected, one.actual) == ("leaf01/1", "leaf02")


@pytest.mark.parametrize(
    ("confidence", "by_pattern", "code", "text"),
    [
        (1.0, True, "swapped", "100 %"),
        (0.9999, True, "swapped", "99.9 %"),
        (0.5, True, "swapped", "50 %"),
        (None, True, "swapped", "fact"),
        (None, False, "swapped", "plan"),
        (None, False, "cloned", "fact"),
    ],
)
def test_confidence(confidence: float | None, by_pattern: bool, code: str, text: str) -> None:
    """A share, never rounded up to certainty; else what the finding rests on."""
    found = finding(code, [PortRef("gpu-001", "mlx5_0")], "look", confidence=confidence)
    fleet = judged.found(judged.fleet(8, 8), found)._replace(by_pattern=by_pattern)
    assert entries(fleet)[0].confidence == text


def test_many_nodes_are_joined() -> None:
    """A finding of many nodes has runs with the same interface; many runs are folded."""
    (one,) = entries(judged.leaf_down(judged.fleet(64, 64), 0, 0))
    assert one.where == (("gpu-001 to gpu-064 (64)", "mlx5_0"),)
    assert not one.is_folded
    odd = [PortRef(f"gpu-{number:03}", f"mlx5_{number % 2}") for number in range(1, 9)]
    found = finding("slow", odd, "look", nodes=["gone", *(port.node for port in odd)])
    (one,) = entries(judged.found(judged.fleet(64, 64), found))
    assert one.is_folded
    assert {*one.where} == {("gone", ""), *odd}


def test_silent_nodes() -> None:
    """A row for each node, with the age of its last report where there is one."""
    fleet = judged.silent(judged.fleet(8, 8), "gpu-002", "gpu-003", "gone")
    first, second, third, *others = fleet.fleet.nodes
    nodes = (first, second, replace(third, time=None), *others)
    found = silent(fleet._replace(fleet=replace(fleet.fleet, nodes=nodes)))
    assert [(one.node, one.is_first, one.age) for one in found] == [
        ("gpu-002", True, "3 h"),
        ("gpu-003", False, "unknown"),
        ("gone", False, "unknown"),
    ]
    assert found[0].time == "2025-11-22T05:23:20Z"


def test_silence_without_nodes() -> None:
    """A finding that names no node is on the page all the same."""
    fleet = judged.found(judged.fleet(8, 8), finding("unreadable", (), "look", key=["x"]))
    assert [one.node for one in silent(fleet)] == [""]


def test_speeds() -> None:
    """Nodes and ports by rate, the most common first; runs of names as one."""
    fleet = judged.pulled(judged.fleet(16, 8), PortRef("gpu-003", "mlx5_0"))
    every = ("gpu-001 to gpu-016 (16)",)
    of_nodes, of_ports = speeds(fleet.fleet.nodes).values()
    assert of_nodes == [("3200G", 16, every)]
    assert of_ports == [("400G", 127, every), ("0G", 1, ("gpu-003",))]


def test_runs() -> None:
    """Two are named, three are a run."""
    nodes = judged.fleet(9, 9).fleet.nodes
    assert worklist.runs(nodes, [0, 1, 3, 5, 6, 7]) == [
        *("gpu-001", "gpu-002", "gpu-004"),
        "gpu-006 to gpu-008 (3)",
    ]


def test_the_summary() -> None:
    assert summary(judged.faulty()) == (
        "24 nodes in 3 groups; 179 of 192 cables are as the pattern has them; "
        "5 findings (4 errors, 1 warning); 2 silent nodes."
    )
    assert summary(judged.fleet(1, 1)._replace(by_pattern=False)) == (
        "1 node in 1 group; 8 of 8 cables are as planned; no findings."
    )
    assert "nothing to compare with: no plan and no pattern" in summary(
        judged.fleet(8, 8)._replace(planned=0, as_planned=0)
    )


def test_what_was_not_compared_is_not_good() -> None:
    """The page says it in its first line, as the table does."""
    gap = Gap(("gpu-007", "gpu-008"), (), ("gpu-7",), 48, 64)
    fleet = judged.fleet(8, 8)._replace(by_pattern=False, has_plan=True, gap=gap)
    assert (
        "48 of 64 cables compared: 2 Nodes are not in the plan, the nearest name there is gpu-7;"
    ) in summary(fleet)
    assert verdict(fleet) == "unknown"


def test_nothing_to_compare_with_is_not_good() -> None:
    """Neither a fleet without plan and pattern, nor one of which a Node could not be read."""
    fleet = judged.fleet(8, 8)
    bare = fleet._replace(planned=0, as_planned=0)
    cut = fleet._replace(fleet=replace(fleet.fleet, problems=("node7: no JSON",)))
    assert [verdict(one) for one in (bare, cut)] == ["unknown", "unknown"]


def test_the_verdict() -> None:
    fleet = judged.fleet(8, 8)
    assert verdict(fleet) == "good"
    fleet = judged.silent(fleet, "gpu-001")
    assert verdict(fleet) == "unknown"
    fleet = judged.slow(fleet, PortRef("gpu-001", "mlx5_0"))
    assert verdict(fleet) == "warning"


# on paper


DOMAIN = ".dc1.example.com"


def test_a_swap_has_two_rows_with_each_end_once() -> None:
    """Rack, unit and label of both cables; the leaf is the heading."""
    refs = PortRef("gpu-001", "mlx5_0"), PortRef("gpu-009", "mlx5_0")
    ends = ("leaf01", "1"), ("leaf01", "9")
    spots = Spot("A1", "17", "C1"), Spot("A2", "3", "C9")
    moves = (
        Move(refs[0], ends[1], ends[0], spots[0], Spot("B3", "40"), Spot("B3", "40")),
        Move(refs[1], ends[0], ends[1], spots[1], Spot("B3", "40"), Spot("B3", "41")),
    )
    one = finding("swapped", refs, "swap", moves=moves, facts={"far-rack": "B3"})
    (stop,) = stops(judged.found(judged.fleet(16, 16), one))
    assert stop.title == "Rack B3, leaf01"
    assert stop.lines == (
        worklist.Line(
            *(1, "swapped", "gpu-001 mlx5_0", "rack A1, unit 17, cable C1"),
            *("leaf01/9", "", "leaf01/1", "rack B3, unit 40"),
        ),
        worklist.Line(
            *(1, "swapped", "gpu-009 mlx5_0", "rack A2, unit 3, cable C9"),
            *("leaf01/1", "rack B3, unit 41", "leaf01/9", "rack B3, unit 40"),
        ),
    )


def test_a_pulled_cable_goes_from_nowhere() -> None:
    ref = PortRef("gpu-001", "mlx5_0")
    near, far = Spot("A1", "17", "C1"), Spot("B3", "40")
    move = Move(ref, (None, None), ("leaf01", "1"), near, far)
    one = finding("missing", [ref], "look", expected=("leaf01", "1"), moves=(move,))
    (stop,) = stops(judged.found(judged.fleet(8, 8), one))
    assert stop.lines[0][3:8] == (near.text, "no link", "", "leaf01/1", far.text)


@pytest.mark.parametrize("code", ["moved", "unstable"])
def test_what_cables_do_not_say_has_its_sentence_before_them(code: str) -> None:
    """The name of a node or the plan may be wrong, and no cable; one end of a cable may be bad."""
    ref = PortRef("gpu-001", "mlx5_0")
    one = finding(code, [ref], "look", moves=(Move(ref, ("leaf02", "1"), ("leaf01", "1")),))
    (stop,) = stops(judged.found(judged.fleet(8, 8), one))
    assert [(line.text, line.cable) for line in stop.lines] == [
        ("look", ""),
        ("", "gpu-001 mlx5_0"),
    ]


def test_a_slow_cable_stays() -> None:
    ref, end = PortRef("gpu-001", "mlx5_0"), ("leaf01", "1")
    one = finding("slow", [ref], "reseat", moves=(Move(ref, end, end),))
    (stop,) = stops(judged.found(judged.fleet(8, 8), one))
    assert (stop.title, stop.lines[0].seen, stop.lines[0].wanted) == ("leaf01", "leaf01/1", "stays")


def test_other_findings_are_sentences_and_silent_nodes_are_apart() -> None:
    """A dead leaf has no cable to move."""
    fleet = judged.silent(judged.leaf_down(judged.fleet(16, 8), 1, 7), "gpu-001")
    (stop,) = stops(fleet)
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

    fleet = judged.changed(fleet, refs, qualified)
    text = f"Look at leaf1{DOMAIN} and leaf1{DOMAIN}.au, {DOMAIN}."
    end = f"su01-leaf01{DOMAIN}", "1"
    fleet = judged.found(fleet, finding("leaf-down", refs[:3], text, expected=end))
    move = Move(refs[0], (None, None), end)
    fleet = judged.found(fleet, finding("missing", refs[:1], "look", expected=end, moves=(move,)))
    (stop,) = stops(fleet)
    assert stop.title == "su01-leaf01"
    assert stop.lines[0].text == f"Look at leaf1 and leaf1{DOMAIN}.au, {DOMAIN}."
    assert (stop.lines[1].cable, stop.lines[1].wanted) == ("gpu-001 mlx5_0", "su01-leaf01/1")
