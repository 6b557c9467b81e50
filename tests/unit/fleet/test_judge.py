"""Judge a fleet: what is compared with what, and the order and IDs of what is found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cabling.finding import PortRef, finding
from agent.cabling.judge import VerifyOptions
from agent.cabling.plans.model import End
from agent.cabling.seen import SeenEnd
from agent.errors import Malformed
from agent.fleet.judge import judge as of_fleet
from agent.fleet.model import FleetNode, FleetPort, Group
from agent.fleet.pattern.infer import Pattern
from agent.fleet.report import FORMATS, outcome
from agent.reasons import BadLink
from tests.support.planned_fleets import codes, judge, only, plan_of, pulled
from tests.support.small_fleets import NOW, cabled, fleet, rack

A = PortRef("gpu-001", "mlx5_0")
GROUPS = (Group("rack", tuple(one.name for one in rack(8)), (), "rail-optimized"),)
MISSING = finding("missing", [A], "Check gpu-001 mlx5_0.", confidence=0.99)
PATTERN = Pattern((MISSING,), GROUPS, ("one note",), 16, 15)


def test_the_pattern_decides_without_a_plan() -> None:
    result = judge(rack(), pattern=PATTERN)
    assert (result.findings, result.groups, result.notes) == ((MISSING,), GROUPS, ("one note",))
    assert (result.planned, result.as_planned, result.by_pattern) == (16, 15, True)


def test_an_interface_with_many_far_ends_is_refused() -> None:
    """Each row would be compared with all others; the other nodes are judged."""
    first = plan_of(rack()).cables[0]
    more = [first._replace(b=End(f"leaf{number}", "swp1")) for number in range(100)]
    found = only(judge(rack(), plan_of(rack(), *more)))
    assert (found.code, found.nodes) == ("unverifiable", (first.a.node,))
    assert "mlx5_0 has more than 64 far ends" in found.text


def test_a_plan_decides_where_there_is_one() -> None:
    """Of the pattern remain the groups."""
    result = judge(rack(), plan_of(rack()), pattern=PATTERN)
    assert (codes(result), result.groups, result.by_pattern) == ([], GROUPS, False)
    assert result.notes == ("plan.csv: own, 16 rows",)


def test_the_pattern_says_nothing_of_silent_nodes() -> None:
    nodes = [replace(rack()[0], time=1), *rack()[1:]]
    assert codes(judge(nodes, pattern=PATTERN)) == ["silent"]


@pytest.mark.parametrize(
    ("ports", "lost", "expected"), [(32, 28, False), (30, 27, True), (3, 3, True), (2, 2, False)]
)
def test_a_leaf_is_down_by_one_rule(ports: int, lost: int, expected: bool) -> None:
    """90 % of its ports, three at least, with a plan and without one, under one ID."""
    nodes = rack(ports)
    names = [one.name for one in nodes[:lost]]
    members = fleet(pulled(nodes, *((name, "mlx5_0") for name in names)))
    down = [
        [
            (one.expected[0], one.id)
            for one in of_fleet(members, plans).findings
            if one.code == "leaf-down"
        ]
        for plans in ([plan_of(nodes)], [])
    ]
    assert down[0] == down[1]
    assert [one for one, _ in down[0]] == ["leaf00"] * expected


@pytest.mark.parametrize("spelling", ["leaf0", "LEAF00", "leaf00.dc.example.com"])
def test_a_leaf_that_is_down_has_one_id(spelling: str) -> None:
    """However the plan spells it: that of the name by which it was seen last."""
    nodes = rack(4)
    plan = plan_of(nodes)
    rows = [
        one._replace(b=one.b._replace(node=spelling)) if one.b.node == "leaf00" else one
        for one in plan.cables
    ]
    members = fleet(pulled(nodes, *((one.name, "mlx5_0") for one in nodes)))
    ids = {only(of_fleet(members, plans)).id for plans in ([plan._replace(cables=tuple(rows))], [])}
    assert len(ids) == 1


def test_work_is_listed_by_leaf() -> None:
    """Errors and warnings by rack, leaf and port; then what is unknown."""
    nodes = rack(12)
    for name, interface in (("gpu-010", "mlx5_1"), ("gpu-002", "mlx5_1"), ("gpu-003", "mlx5_0")):
        nodes = cabled(nodes, name, interface, far_end=None, gbps=0.0)
    nodes = [*nodes[:11], replace(nodes[11], time=1)]
    found = judge(nodes, plan_of(rack(12))).findings
    assert [(one.code, one.expected) for one in found] == [
        ("missing", ("leaf00", "swp3")),
        ("missing", ("leaf01", "swp2")),
        ("missing", ("leaf01", "swp10")),
        ("silent", (None, None)),
    ]


def test_ids_are_distinct_and_stable() -> None:
    """Of Nodes whose names differ only in case, too, which no cluster has, but a file may."""
    nodes = [one for name in ("gpu-001", "GPU-001") for one in [replace(rack(1)[0], name=name)]]
    for name in ("gpu-001", "GPU-001"):
        nodes = cabled(nodes, name, "mlx5_0", far_end=None, gbps=0.0, node_guid=None)
        for rail in range(1, 4):
            nodes = cabled(nodes, name, f"mlx5_{rail}", node_guid=None)
    plan = plan_of(rack(1), *plan_of([replace(rack(1)[0], name="GPU-001")]).cables)
    first, again = (judge(nodes, plan).findings for _ in range(2))
    ids = [one.id for one in first]
    assert len(ids) == len(set(ids)) > 1
    assert first == again


def test_an_empty_fleet() -> None:
    for result in (judge([]), judge([], plan_of(rack()))):
        assert (result.findings, outcome(result)) == ((), "unverified")
        assert FORMATS["table"](result).startswith("0 nodes: ")


def test_one_node() -> None:
    assert outcome(judge(rack(1), plan_of(rack(1)))) == "ok"
    assert outcome(judge(rack(1))) == "unverified"


texts = st.one_of(
    st.none(), st.text(max_size=6), st.sampled_from(["leaf01", "swp1", "\x1b[2J", "0"])
)
ends = st.one_of(st.none(), st.builds(SeenEnd, st.text(min_size=1, max_size=4), *[texts] * 4))
ports = st.builds(
    FleetPort,
    st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_0-3", "mlx5_bond_0-eth2", "-", "x-\u0663"]),
    *[texts] * 2,
    st.one_of(st.none(), st.just(0.0), st.just(400.0)),
    ends,
    ends,
    st.booleans(),
    bad_link=st.sampled_from([None, BadLink("near", NOW), BadLink("cannot-tell", 0)]),
)
keys = st.sampled_from(
    [
        "backend.coreweave.cloud/speed.expected",
        "backend.coreweave.cloud/neighbors.expected.mlx5_0.device",
        "backend.coreweave.cloud/neighbors.expected.mlx5_1.port-id",
        "ib.coreweave.cloud/leaves.expected",
    ]
)
nodes = st.builds(
    FleetNode,
    st.one_of(st.sampled_from(["gpu-001", "GPU-001", "gpu-001.example.com"]), st.text(min_size=1)),
    flavor=st.sampled_from([None, "roce", "infiniband"]),
    ports=st.lists(ports, max_size=3, unique_by=lambda one: one.interface).map(tuple),
    labels=st.dictionaries(keys, st.text(min_size=1, max_size=5), max_size=2),
    time=st.sampled_from([None, 0, NOW, NOW + 10**6]),
    boot_id=texts,
    node_boot_id=texts,
    problems=st.lists(st.text(max_size=5), max_size=1).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(nodes, max_size=5, unique_by=lambda one: one.name))
def test_hostile_fleets(members: list[FleetNode]) -> None:
    """Whatever half of the labels a Node has, a report is printed, and every finding has an ID."""
    for plans in ((), (plan_of(rack(1)),)):
        with suppress(Malformed):  # a plan without a row of any of them
            result = judge(members, *plans)
            assert len({one.id for one in result.findings}) == len(result.findings)
            printed = "".join(form(result) for form in FORMATS.values())
            assert all(line.isprintable() for line in printed.split("\n"))


def test_ignored_interfaces_without_a_plan() -> None:
    """They are neither evidence nor judged, by whichever name."""
    nodes = cabled(rack(32, 8), "gpu-003", "mlx5_2", far_end=None, gbps=0.0)
    nodes = cabled(nodes, "gpu-007", "mlx5_2", gbps=100.0)
    assert {*codes(of_fleet(fleet(nodes)))} == {"missing", "slow"}
    for name in ("mlx5_2", "mlx5_[2]", "0000:12:00.0"):
        result = of_fleet(fleet(nodes), options=VerifyOptions(ignore=(name,)))
        assert (result.findings, result.planned, result.as_planned) == ((), 224, 224)


def test_a_missing_cable_that_never_had_a_neighbor_counts() -> None:
    """Of all cables, those that findings name do not follow the pattern."""
    nodes = cabled(rack(32, 8), "gpu-003", "mlx5_2", far_end=None, last_end=None, gbps=0.0)
    result = of_fleet(fleet(nodes))
    assert (codes(result), result.planned, result.as_planned) == (["missing"], 256, 255)


def test_an_image_on_all_nodes_is_one_finding() -> None:
    """A thousand Nodes with one GUID cost no thousand squared."""
    nodes = [cabled([one], one.name, "mlx5_0", node_guid="fc6a1c0300aabb00")[0]
             for one in rack(1000, 2)]  # fmt: skip
    (found,) = judge(nodes).findings
    assert (found.code, len(found.nodes)) == ("cloned", 1000)
