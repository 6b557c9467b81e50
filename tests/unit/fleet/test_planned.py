"""All nodes against a plan or their expected labels: one finding for each cause."""

from __future__ import annotations

import csv
from dataclasses import replace
from random import Random

import pytest

from agent.cabling.findings.finding import Move, PortRef, Spot
from agent.cabling.judge import VerifyOptions, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable
from agent.encode import Naming
from agent.errors import Malformed
from agent.fleet.expectation import Expectations
from agent.fleet.model import FleetPort
from agent.fleet.page.worklist import stops
from agent.fleet.report import FORMATS, document, outcome, verdict
from agent.fleet.seen import seen_node
from tests.support.planned_fleets import (
    cables,
    codes,
    exchanged,
    in_place_of,
    judge,
    only,
    plan_of,
    pulled,
    renamed,
    row,
)
from tests.support.small_fleets import P, cabled, far_end, fleet, labeled, node, port, rack

RACK = rack()
PLAN = plan_of(RACK)


def test_as_planned() -> None:
    result = judge(RACK, PLAN)
    assert (codes(result), outcome(result)) == ([], "ok")
    assert verdict(result) == "4 nodes: no findings; 16 of 16 cables as planned"


def test_a_swap_between_two_nodes_is_one_finding() -> None:
    """With the moves of both cables; its ID is the same from run to run."""
    ports = ("gpu-002", "mlx5_3"), ("gpu-003", "mlx5_3")
    labels = {ports[0]: {"Cable Label": "C1"}}
    cables = [one._replace(fields=labels.get(one.a[:2], {})) for one in PLAN.cables]
    found = only(judge(exchanged(RACK, *ports), PLAN._replace(cables=tuple(cables))))
    assert (found.code, found.nodes) == ("swapped", ("gpu-002", "gpu-003"))
    assert found.text == (
        "Exchange the far ends of gpu-002 mlx5_3 (rack A1, unit 9, cable C1) and gpu-003 mlx5_3 "
        "(rack A1, unit 13): gpu-002 mlx5_3 belongs to leaf03 port swp2 (rack B3, unit 40), "
        "gpu-003 mlx5_3 to leaf03 port swp3 (rack B3, unit 40)."
    )
    one, other, far = Spot("A1", "9", "C1"), Spot("A1", "13"), Spot("B3", "40")
    assert found.moves == (
        Move(PortRef(*ports[0]), ("leaf03", "swp3"), ("leaf03", "swp2"), one, far, far),
        Move(PortRef(*ports[1]), ("leaf03", "swp2"), ("leaf03", "swp3"), other, far, far),
    )
    again = only(judge(exchanged(rack(), *reversed(ports)), plan_of(rack())))
    assert again.id == found.id


def test_a_swap_within_a_node_is_the_finding_of_verify() -> None:
    nodes = exchanged(RACK, ("gpu-002", "mlx5_0"), ("gpu-002", "mlx5_1"))
    found = only(judge(nodes, PLAN))
    expected = from_plans([PLAN], ["gpu-002"])
    (alone,) = verify(expected, seen_node(nodes[1])).findings
    assert (found.code, found.id, found.text) == ("swapped", alone.id, f"gpu-002: {alone.text}")
    assert len(found.moves) == 2


@pytest.mark.parametrize("code", ["unverifiable", "duplicate"])
def test_what_one_node_says_has_its_id(code: str) -> None:
    """Also where a fleet folds the findings of several nodes."""
    nodes, plan = cabled(RACK, "gpu-002", "mlx5_0", far_end=far_end("leaf00", "odd")), PLAN
    if code == "duplicate":
        more = replace(RACK[1], ports=(*RACK[1].ports, port("gpu-002", 9, None)))
        nodes = [RACK[0], more, *RACK[2:]]
        twice = row(("gpu-002", "mlx5_9"), ("leaf00", "swp2"))
        plan = plan_of(RACK, twice)
    expected = from_plans([plan], ["gpu-002"])
    (alone,) = (one for one in verify(expected, seen_node(nodes[1])).findings if one.code == code)
    (found,) = (one for one in judge(nodes, plan).findings if one.code == code)
    assert found.id == alone.id


def test_names_of_other_spelling() -> None:
    """Host names, leaves and ports of the plan need not be spelled as those of the Nodes."""
    spelled = [
        PlanCable(
            End(f"{one.a.node.upper()}.dc1.example.com", one.a.interface),
            End(one.b.node.upper(), one.b.interface.replace("swp", "port ")),
            one.place,
        )
        for one in PLAN.cables
    ]
    plan = PLAN._replace(cables=tuple(spelled))
    assert outcome(judge(RACK, plan)) == "ok"
    nodes = exchanged(RACK, ("gpu-002", "mlx5_3"), ("gpu-003", "mlx5_3"))
    assert codes(judge(nodes, plan)) == ["swapped"]


def test_a_plan_of_a_roce_fabric_names_netdevs() -> None:
    """`enp26s0np0`, which the annotation has beside the RDMA device."""
    names = {f"mlx5_{rail}": f"enp{26 + rail}s0np0" for rail in range(4)}
    nodes = [
        replace(one, ports=tuple(two._replace(netdev=names[two.interface]) for two in one.ports))
        for one in RACK
    ]
    rows = [one._replace(a=one.a._replace(interface=names[one.a.interface])) for one in PLAN.cables]
    result = judge(nodes, PLAN._replace(cables=tuple(rows)))
    assert (codes(result), result.planned, result.as_planned) == ([], 16, 16)
    ignored = judge(nodes, PLAN, options=VerifyOptions(ignore=("enp26s0np0",)))
    assert ignored.as_planned == 12


def test_many_leaves_with_other_names_are_one_line() -> None:
    """Of the table; JSON has a finding for each, and CSV a row for each cable."""
    names = {f"leaf{rail:02}": f"sw-{rail}" for rail in range(4)}
    result = judge(renamed(RACK, names), PLAN)
    assert codes(result) == ["renamed"] * 4
    shown = " ".join(FORMATS["table"](result).split())
    assert shown.count("renamed: ") == 1
    assert "renamed: all 4 leaves have other names than in the plan, correct them: " in shown
    assert all(f"{name} is {other} there" in shown for other, name in names.items())
    assert all(FORMATS["csv"](result).count(name) for name in names.values())


def test_a_silent_node_is_not_compared() -> None:
    """Its cables are planned, and not as planned; it is said once."""
    nodes = exchanged(RACK, ("gpu-001", "mlx5_0"), ("gpu-001", "mlx5_1"))
    nodes = [replace(nodes[0], time=1), *nodes[1:]]
    result = judge(nodes, PLAN)
    assert verdict(result) == "4 nodes: no findings; 12 of 16 cables as planned; 1 silent"
    assert outcome(result) == "unverified"


def test_a_stale_node_in_the_place_of_another_is_silent() -> None:
    """Its ports are those of the node that has its place now, and no finding besides."""
    nodes = [*rack(8, 8)[:7], replace(rack(8, 8)[7], time=1)]
    ports = [two._replace(node_guid=None) for two in nodes[7].ports]
    nodes.append(node("gpu-009", [], ports=tuple(ports)))
    assert codes(judge(nodes)) == ["silent"]
    rows = [*rack(8, 8)[:7], node("gpu-009", [], ports=tuple(ports))]
    assert codes(judge(nodes, plan_of(rows), is_partial=True)) == ["silent"]


def test_hosts_without_a_node_and_nodes_without_a_row() -> None:
    """Are notes, and so are hosts that may be several Nodes; spines are none."""
    spine = row(("leaf00", "swp60"), ("spine01", "swp1"), 90)
    twins = [replace(RACK[0], name="gpu-009.a.example"), replace(RACK[0], name="gpu-009.b.example")]
    plan = plan_of([*rack(6)[2:], replace(RACK[0], name="gpu-009")], spine)
    result = judge([*RACK[2:], RACK[0], *twins], plan)
    assert result.notes == (
        "plan.csv: own, 21 rows",
        "not compared: gpu-009 may be gpu-009.a.example or gpu-009.b.example",
        "hosts of the plan without a Node: gpu-005, gpu-006",
        "nothing is expected of 3 Nodes: gpu-001, gpu-009.a.example, gpu-009.b.example",
    )


def test_a_plan_of_a_few_nodes_is_not_green() -> None:
    """What was not compared stands in the first line, with the names that may be meant."""
    few = plan_of([*RACK[:1], replace(rack(5)[4], name="gpu-02")])
    result = judge(RACK, few)
    assert (codes(result), outcome(result)) == ([], "unverified")
    assert verdict(result) == (
        "4 nodes: 4 of 20 cables compared: 3 Nodes are not in the plan, the nearest name there "
        "is gpu-02, 1 host of the plan has no Node; no findings; 4 of 4 cables as planned"
    )
    assert document(result)["not_compared"] == {
        "cables": 16,
        "nodes": ("gpu-002", "gpu-003", "gpu-004"),
        "hosts": ("gpu-02",),
    }
    meant = judge(RACK, few, is_partial=True)
    assert outcome(meant) == "ok"
    assert verdict(meant) == "4 nodes: no findings; 4 of 4 cables as planned"


def test_a_plan_may_have_more_than_the_selected_nodes() -> None:
    """--node and --selector leave its other rows out, and no Node without one."""
    assert outcome(judge(RACK[:2], PLAN)) == "unverified"
    assert outcome(judge(RACK[:2], PLAN, is_selected=True)) == "ok"
    assert outcome(judge(RACK, plan_of(RACK[:2]), is_selected=True)) == "unverified"


def test_nodes_without_backend_ports_need_no_row() -> None:
    assert outcome(judge([*RACK, node("cpu-1", [])], PLAN)) == "ok"


def test_nodes_without_expected_labels_are_in_the_first_line() -> None:
    result = judge([*map(labeled, RACK[:3]), RACK[3]])
    assert verdict(result).startswith(
        "4 nodes: 12 of 16 cables compared: 1 Node has no expected labels; no findings"
    )
    assert outcome(result) == "unverified"


def test_the_very_name_decides_between_several_hosts() -> None:
    """Without it, two that are not each other are none."""
    odd = [
        one._replace(a=one.a._replace(node=f"gpu-001.{domain}.example"), b=End("leaf09", "swp9"))
        for one in cables(rack(1))
        for domain in ("a", "b")
    ]
    whole = judge(RACK, plan_of(RACK, *odd), is_partial=True)
    assert (outcome(whole), whole.as_planned) == ("ok", 16)
    notes = judge(RACK, plan_of(RACK[1:], *odd)).notes
    assert "not compared: gpu-001 may be gpu-001.a.example or gpu-001.b.example" in notes


def test_a_plan_of_no_node_is_an_error() -> None:
    plan = plan_of([replace(one, name=f"dc2-{one.name}") for one in RACK])
    with pytest.raises(Malformed, match=r"plan.csv: no row of any Node of nodes.json"):
        judge(RACK, plan)


def test_labels_of_one_node_are_no_plan() -> None:
    plan = Plan("node.yaml", "labels", None, (), {f"{P}/speed.expected": "3200G"})
    with pytest.raises(Malformed, match=r"node.yaml: expected labels of one node"):
        judge(RACK, plan)


def test_expected_labels() -> None:
    """The same findings without a file; Nodes without any are left out."""
    good = [labeled(one) for one in RACK[:3]]
    nodes = [*exchanged(good, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0")), RACK[3]]
    result = judge(nodes)
    assert (codes(result), result.by_pattern) == (["swapped"], False)
    assert result.notes == ("nothing is expected of 1 Node: gpu-004",)
    assert (result.planned, result.as_planned) == (12, 10)


def test_expected_labels_with_another_prefix() -> None:
    nodes = [
        replace(one, labels={k.replace(P, "x.example"): text for k, text in one.labels.items()})
        for one in map(labeled, RACK)
    ]
    assert judge(nodes).by_pattern
    assert judge(nodes, naming=Naming("x.example")).planned == 16


def test_an_expected_speed_alone_leaves_the_cables_to_the_pattern() -> None:
    nodes = [replace(one, labels={f"{P}/speed.expected": "1600G"}) for one in RACK]
    assert judge(nodes).by_pattern
    slow = cabled(nodes, "gpu-002", "mlx5_1", gbps=200.0)
    assert codes(judge(slow)) == ["speed"]


def test_a_speed_whose_parts_are_not_known_is_that_of_the_label() -> None:
    """soft-RoCE has no PCI address, so the annotation may lack its row: 10G of 10G is no 0G."""
    label = {f"{P}/speed.expected": "10G"}
    rxe = [FleetPort("rxe0", far_end=far_end("leaf00", "swp1")), FleetPort("rxe1")]
    for current, found in ((10.0, []), (5.0, ["speed"])):
        one = node("gpu-001", [], ports=tuple(rxe), speed_gbps=current, labels=label)
        result = judge([one])
        assert codes(result) == found
        assert not found or "the node has 5G of 10G." in result.findings[0].text
    unknown = node("gpu-001", [], ports=tuple(rxe), labels=label)
    assert codes(judge([unknown])) == ["unverifiable"]


def test_a_plan_takes_the_place_of_labels() -> None:
    """But for the speed, which no plan has."""
    nodes = [labeled(one, **{"speed.expected": "3200G"}) for one in RACK]
    plan = plan_of(exchanged(RACK, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0")))
    assert sorted(codes(judge(nodes, plan))) == ["speed"] * 4 + ["swapped"]


def test_ignored_interfaces() -> None:
    nodes = pulled(RACK, ("gpu-001", "mlx5_3"))
    assert codes(judge(nodes, PLAN, options=VerifyOptions(ignore=("mlx5_3",)))) == []


@pytest.mark.parametrize("seed", range(30))
def test_the_half_of_a_node_is_that_of_verify(seed: int) -> None:
    """The index returns what agent/cabling/expected.py does, as far as a comparison can tell."""
    random = Random(seed)  # noqa: S311 - a test
    nodes = rack(6, 3)
    ends = [two.far_end for one in nodes for two in one.ports]
    wired = nodes
    for one in random.sample(nodes, 4):
        two = random.choice(one.ports).interface
        wired = cabled(wired, one.name, two, far_end=random.choice([*ends, None]))
    others = [row(("gpu-001", "mlx5_2"), ("leaf00", "swp4"), 80)]
    plan = plan_of(nodes, *random.sample(others, random.randint(0, 1)))
    expectations = Expectations(fleet(wired), [plan], Naming())
    for one in wired:
        try:
            whole = verify(from_plans([plan], [one.name]), seen_node(one))
        except Malformed:
            with pytest.raises(Malformed):
                verify(expectations.of(one), seen_node(one))
        else:
            assert verify(expectations.of(one), seen_node(one), VerifyOptions()) == whole


def test_the_rack_of_a_leaf_is_known_from_any_row() -> None:
    """So that all its findings are listed together, however the plan spells its name."""
    cables_ = [one._replace(b=one.b._replace(node=one.b.node.upper())) for one in PLAN.cables]
    nodes = cabled(RACK, "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"))
    result = judge(pulled(nodes, ("gpu-003", "mlx5_1")), PLAN._replace(cables=tuple(cables_)))
    assert sorted(codes(result)) == ["claimed", "missing", "wrong-port"]
    assert FORMATS["table"](result).count("(rack B3)\n") == 1


@pytest.mark.parametrize(("leaves", "right"), [("leaf00_leaf01", 1), ("leaf00_leaf09", 0)])
def test_older_labels_of_all_leaves(leaves: str, right: int) -> None:
    """`leaves.expected` names them at once, and counts as one cable."""
    one = replace(rack(1, 2)[0], labels={"ib.coreweave.cloud/leaves.expected": leaves})
    result = judge([one])
    assert (result.planned, result.as_planned, result.by_pattern) == (1, right, False)
    assert codes(result) == ["miscabled"] * (1 - right)


def test_exchanged_nodes_have_one_id() -> None:
    """Whichever of their cables has a link; a missing cable is a finding of its own."""
    nodes = in_place_of(rack(8, 8), {"gpu-002": "gpu-005", "gpu-005": "gpu-002"})
    plan = plan_of(rack(8, 8))
    whole = only(judge(nodes, plan))
    result = judge(pulled(nodes, ("gpu-002", "mlx5_3")), plan)
    assert sorted(codes(result)) == ["exchanged", "missing"]
    (again,) = (one for one in result.findings if one.code == "exchanged")
    assert (again.id, len(again.moves)) == (whole.id, 15)


def test_a_leaf_is_down_though_cables_of_it_were_elsewhere() -> None:
    """Four of 32 were at another leaf, and still have their link; cables of others were at it."""
    nodes = planned = rack(32, 4)
    for number in range(1, 5):
        ports = (f"gpu-{number:03}", "mlx5_1"), (f"gpu-{number + 8:03}", "mlx5_2")
        nodes = exchanged(nodes, *ports)
    for one in nodes:
        for two in one.ports:
            if two.far_end and two.far_end.device == "leaf02":
                nodes = cabled(nodes, one.name, two.interface, last_end=two.far_end)
                nodes = pulled(nodes, (one.name, two.interface))
    result = judge(nodes, plan_of(planned))
    (down,) = (one for one in result.findings if one.code == "leaf-down")
    assert down.text.startswith("Check leaf02 (rack B3, unit 40): all its 32 ports to these nodes")
    assert sorted(codes(result)) == ["leaf-down", *["miscabled"] * 4]


HALL = plan_of(
    RACK,
    PlanCable(
        End("gpu-090", "mlx5_0", None, "A9", "1"),
        End("leaf09", "swp9", None, "B4", "12"),
        FilePlace("plan.csv", None, 90),
    ),
)


@pytest.mark.parametrize("code", ["slow", "missing", "wrong-port", "miscabled", "swapped"])
@pytest.mark.parametrize("is_rated", [True, False])
def test_what_finds_the_cable_is_in_every_format(code: str, *, is_rated: bool) -> None:
    """Rack, unit and label of both ends, and the place of the present far end."""
    rate = 400.0 if is_rated else None
    plan = HALL._replace(
        cables=tuple(
            one._replace(fields={"Cable Label": f"C{one.place.row}"}, rate_gbps=rate)
            for one in HALL.cables
        )
    )
    nodes, present = RACK, "rack B3, unit 40"
    if code == "slow":
        nodes = cabled(RACK, "gpu-002", "mlx5_1", gbps=200.0)
    elif code == "missing":
        nodes, present = pulled(RACK, ("gpu-002", "mlx5_1")), ""
    elif code == "wrong-port":
        nodes = cabled(RACK, "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp60"))
    elif code == "miscabled":
        nodes = cabled(RACK, "gpu-002", "mlx5_1", far_end=far_end("leaf09", "swp60"))
        present = "rack B4, unit 12"
    else:
        nodes = exchanged(RACK, ("gpu-002", "mlx5_1"), ("gpu-002", "mlx5_2"))
    result = judge(nodes, plan, is_partial=True)
    (found,) = (one for one in result.findings if one.code == code)
    near, far = "rack A1, unit 7, cable C7", "rack B3, unit 40"
    (move,) = (one for one in found.moves if one.port == PortRef("gpu-002", "mlx5_1"))
    assert (move.near.text, move.far.text, move.present.text) == (near, far, present)
    shown = " ".join(FORMATS["table"](result).split())
    places = ["cable C7", "(rack B3, unit 40)", f"({present})" if present else "no link"]
    assert all(place in shown for place in places)
    header, *rows = csv.reader(FORMATS["csv"](result).splitlines())
    (row,) = (dict(zip(header, row, strict=True)) for row in rows if row[1] == "mlx5_1")
    assert (row["place"], row["expected place"], row["actual place"]) == (near, far, present)
    (line,) = (
        line for stop in stops(result) for line in stop.lines if line.cable == "gpu-002 mlx5_1"
    )
    assert line.place == near  # and each other place once
    assert {line.seen_place, line.wanted_place} - {""} == {present, far} - {""}
