"""All nodes against a plan or their labels, in golden/planned.txt: one cause is one finding.

A title says what the fleet has, and why that is one cause, or none.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent.cabling.finding import Move, PortRef, Spot
from agent.cabling.judge import VerifyOptions, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable
from agent.encode import Naming
from agent.errors import Malformed
from agent.fleet.halves import Expectations, seen_node
from agent.fleet.model import FleetNode, FleetPort
from agent.fleet.page.worklist import stops
from agent.fleet.report import FORMATS
from tests.support.documents import Golden, judged_text
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
from tests.support.small_fleets import (
    P,
    cabled,
    far_end,
    fleet,
    labeled,
    node,
    old,
    port,
    rack,
    with_errors,
)

RACK, EIGHT = rack(), rack(8, 8)
PLAN = plan_of(RACK)


def alike(nodes: int, *names: str) -> list[FleetNode]:
    """Return nodes with an interface at each of these leaves."""
    return [node(f"gpu-{at:03}", [far_end(name, at) for name in names]) for at in range(1, nodes)]


def with_ports(other: FleetNode, ports: tuple[FleetPort, ...]) -> list[FleetNode]:
    """Return eight nodes, one of them with other ports."""
    return [replace(one, ports=ports) if one == other else one for one in EIGHT]


SPLIT = [node(f"gpu-{one:03}", [far_end("leaf00", f"swp{one}s1")]) for one in range(1, 5)]
IN_CAGES = tuple(one._replace(b=one.b._replace(interface=f"{at}/2"))
                 for at, one in enumerate(cables(SPLIT), 1))  # fmt: skip
STORED = [
    replace(one, ports=(*one.ports, port(one.name, 8, far_end("stor", f"swp{number}"))))
    for number, one in enumerate(RACK)
]
UNLABELED = cabled(RACK, "gpu-001", "mlx5_1", far_end=None, gbps=400.0)
DOTTED = ("L90.1.1", "L90.1.2", "L90.2.1", "leaf01.dc1")
DOTS, SIXTEEN = alike(9, *DOTTED), alike(17, *DOTTED)
WRONG = exchanged(SIXTEEN, ("gpu-001", "mlx5_1"), ("gpu-002", "mlx5_1"))
MOVED = rack(1, 8, first=60)[0].ports
SAME_SWITCH = far_end("L90.1.2", 1).id
FORMER = [
    cabled([one], one.name, "mlx5_1", far_end=one.ports[1].far_end._replace(id=SAME_SWITCH))[0]
    for one in renamed(DOTS[:6], {"L90.1.2": "L90.7.7"})
    if one.ports[1].far_end
]
SPEED = {f"{P}/speed.expected": "1600G"}
TWENTY = [replace(one, labels=SPEED) for one in rack(20)]
OF_RACK = {
    "a ring over three nodes": exchanged(
        RACK, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_1"), ("gpu-004", "mlx5_2")
    ),
    "a wrong cable, with the one to whom the port belongs": cabled(
        RACK, "gpu-002", "mlx5_3", far_end=far_end("leaf00", "swp4")
    ),
    "a node without any link": pulled(RACK, *(("gpu-002", f"mlx5_{rail}") for rail in range(4))),
    "a renamed leaf, of which no cable is to be moved": renamed(RACK, {"leaf02": "leaf42"}),
    "missing labels, which prove nothing": cabled(
        UNLABELED, "gpu-003", "mlx5_1", far_end=None, gbps=400.0
    ),
    "an interface that left the bus": cabled(RACK, "gpu-001", "mlx5_2", is_lost=True, far_end=None),
    "a storage HCA on every node that the plan lacks": STORED,
    "on two nodes it is one for each": [*STORED[:2], *RACK[2:]],
}
OF_EIGHT = {
    "two nodes in each other's place: the names are wrong, or the plan": in_place_of(
        EIGHT, {"gpu-002": "gpu-005", "gpu-005": "gpu-002"}
    ),
    "three nodes in a ring": in_place_of(
        EIGHT, {"gpu-002": "gpu-005", "gpu-005": "gpu-007", "gpu-007": "gpu-002"}
    ),
    "a node at ports that the plan does not have": with_ports(EIGHT[7], MOVED),
    "wrong cables beside a right one are of no other place": with_ports(
        EIGHT[7], (EIGHT[7].ports[0], *MOVED[1:])
    ),
}
OF_DOTS = {
    "a leaf with dots in its name is down alone": pulled(
        DOTS, *((one.name, "mlx5_1") for one in DOTS)
    ),
    "a leaf with dots in its name is renamed alone": renamed(DOTS, {"L90.1.2": "L90.7.7"}),
    "two leaves of the plan with one name, perhaps of a chassis": renamed(
        DOTS, {"L90.1.2": "chassis", "L90.2.1": "chassis"}
    ),
    "a leaf of which some agents have the former name": [*FORMER, *DOTS[6:]],
    "somebody moved cables to a leaf with another identifier": [
        *renamed(DOTS[:6], {"L90.1.2": "L90.7.7"}),
        *DOTS[6:],
    ],
}
OF_SIXTEEN = {
    "a wrong cable at a renamed leaf is the only one": renamed(WRONG, {"L90.1.2": "spine"}),
    "two leaves have each other's names, beside a wrong cable": renamed(
        WRONG, {"L90.1.2": "L90.1.1", "L90.1.1": "L90.1.2"}
    ),
}
WITH_ERRORS = {
    "links with errors of a leaf of the plan": with_errors(*((at, 2) for at in (1, 9, 17, 25, 30))),
    "links with errors of a node of the plan": with_errors((5, 0), (5, 7)),
}
PLANNED: dict[str, tuple[list[FleetNode], Plan]] = {
    **{name: (nodes, PLAN) for name, nodes in OF_RACK.items()},
    **{name: (nodes, plan_of(EIGHT)) for name, nodes in OF_EIGHT.items()},
    **{name: (nodes, plan_of(DOTS)) for name, nodes in OF_DOTS.items()},
    **{name: (nodes, plan_of(SIXTEEN)) for name, nodes in OF_SIXTEEN.items()},
    **{name: (nodes, plan_of(with_errors())) for name, nodes in WITH_ERRORS.items()},
    "split ports: the plan numbers cage and port, 1/2, where the switch says swp1s1": (
        exchanged(SPLIT, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0")),
        plan_of(SPLIT)._replace(cables=IN_CAGES),
    ),
    "a leaf that is down, and speeds that are low by it": (
        pulled(TWENTY, *((one.name, "mlx5_2") for one in TWENTY)),
        plan_of(TWENTY),
    ),
    "cables at another leaf of the plan are wrong, not renamed": (
        [*renamed(rack(4), {"leaf02": "leaf09"}), *rack(4, first=5)],
        plan_of(rack(8), *cables([node("gpu-020", [far_end("leaf09", "swp40")])])),
    ),
    "more than 20 reasons of one node each": (
        [node(f"gpu-{at:03}", [far_end("leaf00", f"odd {at}")]) for at in range(1, 60)],
        plan_of(rack(60, 1)),
    ),
    "rows that contradict each other": (
        RACK,
        plan_of(RACK, row(("gpu-001", "mlx5_0"), ("leaf09", "swp1"))),
    ),
    "a port that the plan gives twice": (
        [*RACK[:3], replace(RACK[3], ports=(*RACK[3].ports, port("gpu-004", 9, None)))],
        plan_of(RACK, row(("gpu-004", "mlx5_9"), ("leaf00", "swp1"))),
    ),
    "a port that the plan gives twice, also to a node whose rows contradict each other": (
        RACK,
        plan_of(RACK, row(("gpu-001", "mlx5_0"), ("leaf00", "swp4"))),
    ),
    "a node at the place of a host without a Node": (
        with_ports(EIGHT[7], rack(1, 8, first=30)[0].ports),
        plan_of([*EIGHT, *rack(1, 8, first=30)]),
    ),
    "a silent node of which nothing is expected is a remark": (
        old(rack(3), "gpu-001", "gpu-002", "gpu-003"),
        plan_of(rack(3)[1:2]),
    ),
}
SPELLED = tuple(
    PlanCable(
        End(f"{one.a.node.upper()}.dc1.example.com", one.a.interface),
        End(one.b.node.upper(), one.b.interface.replace("swp", "port ")),
        one.place,
    )
    for one in PLAN.cables
)
NETDEVS = {f"mlx5_{rail}": f"enp{26 + rail}s0np0" for rail in range(4)}
OF_ROCE = [
    replace(one, ports=tuple(two._replace(netdev=NETDEVS[two.interface]) for two in one.ports))
    for one in RACK
]
BY_NETDEVS = tuple(
    one._replace(a=one.a._replace(interface=NETDEVS[one.a.interface])) for one in PLAN.cables
)
UNKNOWN_GUIDS = tuple(two._replace(node_guid=None) for two in EIGHT[7].ports)
STALE = [
    *old([*EIGHT[:7], replace(EIGHT[7], ports=UNKNOWN_GUIDS)], "gpu-008"),
    node("gpu-009", [], ports=UNKNOWN_GUIDS),
]
NINE = replace(RACK[0], name="gpu-009")
TWINS = [replace(RACK[0], name=f"gpu-009.{domain}.example") for domain in "ab"]
FEW = plan_of([*RACK[:1], replace(rack(5)[4], name="gpu-02")])
SEVERAL = [
    one._replace(a=one.a._replace(node=f"gpu-001.{domain}.example"), b=End("leaf09", "swp9"))
    for one in cables(rack(1))
    for domain in ("a", "b")
]
LABELED = [labeled(one) for one in RACK]
OF_OTHERS = [
    replace(one, labels={key.replace(P, "x.example"): text for key, text in one.labels.items()})
    for one in LABELED
]
TENTH = {f"{P}/speed.expected": "10G"}
RXE = (FleetPort("rxe0", far_end=far_end("leaf00", "swp1")), FleetPort("rxe1"))
OF_LEAVES = "ib.coreweave.cloud/leaves.expected"
IGNORED = VerifyOptions(ignore=("enp26s0np0", "mlx5_3"))
CHOICES: dict[str, dict[str, Any]] = {
    "a netdev and an interface that are ignored": {"options": IGNORED},
    "a stale Node whose place another one has, and a plan of that": {"is_partial": True},
    "a plan of a few nodes, which is meant": {"is_partial": True},
    "a plan has more than the Nodes that are selected": {"is_selected": True},
    "a Node that is selected has no row": {"is_selected": True},
    "the very name decides between several hosts": {"is_partial": True},
    "expected labels under another prefix, which is given": {"naming": Naming("x.example")},
}
WHOLE: dict[str, tuple[list[FleetNode], Plan]] = {
    "all is as planned": (RACK, PLAN),
    "a plan that spells names of hosts, leaves and ports otherwise": (
        exchanged(RACK, ("gpu-002", "mlx5_3"), ("gpu-003", "mlx5_3")),
        PLAN._replace(cables=SPELLED),
    ),
    "a plan of a RoCE fabric names netdevs": (OF_ROCE, PLAN._replace(cables=BY_NETDEVS)),
    "a netdev and an interface that are ignored": (pulled(OF_ROCE, ("gpu-001", "mlx5_3")), PLAN),
    "cables of a silent node are planned, and not as planned": (
        old(exchanged(RACK, ("gpu-001", "mlx5_0"), ("gpu-001", "mlx5_1")), "gpu-001"),
        PLAN,
    ),
    "a stale Node whose place another one has, and a plan of that": (
        STALE,
        plan_of([*EIGHT[:7], STALE[8]]),
    ),
    "hosts without a Node, or perhaps of several, and Nodes without a row; spines are none": (
        [*RACK[2:], RACK[0], *TWINS],
        plan_of([*rack(6)[2:], NINE], row(("leaf00", "swp60"), ("spine01", "swp1"), 90)),
    ),
    "a plan of a few nodes is not green; a name may be meant": (RACK, FEW),
    "a plan of a few nodes, which is meant": (RACK, FEW),
    "a plan has more than these Nodes": (RACK[:2], PLAN),
    "a plan has more than the Nodes that are selected": (RACK[:2], PLAN),
    "a Node that is selected has no row": (RACK, plan_of(RACK[:2])),
    "a Node without backend ports needs no row": ([*RACK, node("cpu-1", [])], PLAN),
    "the very name decides between several hosts": (RACK, plan_of(RACK, *SEVERAL)),
    "without it, two that are not each other are none": (RACK, plan_of(RACK[1:], *SEVERAL)),
    "a plan takes the place of labels, but for the speed": (
        [labeled(one, **{"speed.expected": "3200G"}) for one in RACK],
        plan_of(exchanged(RACK, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0"))),
    ),
}
BY_LABELS: dict[str, list[FleetNode]] = {
    "a stale Node whose place another one has is silent, and nothing besides": STALE,
    "expected labels, and a Node without any": [
        *exchanged(LABELED[:3], ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0")),
        RACK[3],
    ],
    "labels that contradict each other": [
        replace(RACK[0], labels={**SPEED, "ib.coreweave.cloud/speed.expected": "2G"}),
        *LABELED[1:],
    ],
    "a node without its interfaces": [replace(LABELED[0], ports=RACK[0].ports[:1]), *LABELED[1:]],
    "expected labels under another prefix are none": OF_OTHERS,
    "expected labels under another prefix, which is given": OF_OTHERS,
    "an expected speed alone leaves the cables to the pattern": cabled(
        [replace(one, labels=SPEED) for one in RACK], "gpu-002", "mlx5_1", gbps=200.0
    ),
    **{
        f"soft-RoCE without rows in the annotation: its label has {speed} of 10": [
            node("gpu-001", [], ports=RXE, speed_gbps=speed, labels=TENTH)
        ]
        for speed in (10.0, 5.0, None)
    },
    **{
        f"an older label of all leaves counts as one cable: {leaves}": [
            replace(rack(1, 2)[0], labels={OF_LEAVES: leaves})
        ]
        for leaves in ("leaf00_leaf01", "leaf00_leaf09")
    },
}


def told(title: str) -> str:
    choices = CHOICES.get(title, {"is_partial": title in PLANNED})
    nodes, *plans = {**PLANNED, **WHOLE}.get(title) or (BY_LABELS[title],)
    return judged_text(title, judge(nodes, *plans, **choices))


TITLES = (*PLANNED, *WHOLE, *BY_LABELS)
GOLDEN = Golden(Path(__file__).parent / "golden/planned.txt", told, TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_judged(title: str, update_golden: bool) -> None:
    """An ID is the same in every version: it is kept in baselines, tickets and alerts."""
    GOLDEN.check(title, update=update_golden)


def test_the_golden_has_no_others(update_golden: bool) -> None:
    GOLDEN.check_all(update=update_golden)


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


def test_a_plan_of_no_node_is_an_error() -> None:
    plan = plan_of([replace(one, name=f"dc2-{one.name}") for one in RACK])
    with pytest.raises(Malformed, match=r"plan.csv: no row of any Node of nodes.json"):
        judge(RACK, plan)


def test_labels_of_one_node_are_no_plan() -> None:
    plan = Plan("node.yaml", "labels", None, (), {f"{P}/speed.expected": "3200G"})
    with pytest.raises(Malformed, match=r"node.yaml: expected labels of one node"):
        judge(RACK, plan)


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
    assert (move.near_spot.text, move.far_spot.text, move.present_spot.text) == (near, far, present)
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
