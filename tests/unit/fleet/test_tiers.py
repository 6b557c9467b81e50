"""The tree that the tiers on the labels are made; the findings, over subnets of all shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cabling.finding import Finding
from agent.cabling.plans.ib_dump import read_ibnetdiscover
from agent.cabling.plans.model import End, FilePlace, PlanCable
from agent.cabling.plans.source import PlanContent
from agent.fleet.model import Fleet, FleetNode
from agent.fleet.nodes import MAX_REPORTS, NodeReader
from agent.fleet.tiers import findings, label, tree
from agent.infiniband.fabric_memory import DAY, text
from agent.kube.annotation import Annotation, Report, render
from agent.kube.managed_fields import Keys
from tests.support.plans import ibnetdiscover
from tests.support.subnets import SHAPES, Subnet, three_tiers, two_tiers
from tests.support.tier_fleets import NAMING, NOW, P, fleet_of, memory_of, node_of

KEYS = ("tier-1", "tier-2")
VALUE = st.one_of(st.none(), st.sampled_from(["s1", "s2", "s10", "no value", ""]))


@st.composite
def fleets(draw: st.DrawFn) -> list[FleetNode]:
    """Return nodes on a few leaf groups with any values."""
    nodes = []
    for at in range(draw(st.integers(0, 12))):
        labels = {key: value for key in KEYS if (value := draw(VALUE)) is not None}
        group = draw(st.sampled_from(["leaf1", "leaf2", "leaf3", None]))
        nodes.append(FleetNode(f"gpu-{at}", labels=labels, leaf_group=group))
    return nodes


@given(fleets())
def test_it_is_a_tree_always(nodes: list[FleetNode]) -> None:
    """A leaf group has one value of each tier, and a value of tier 1 is in one of tier 2.

    Who differs is told, at the closest tier, and nobody else is.
    """
    whole = tree(nodes, KEYS)
    assert whole.values.keys() == {node.leaf_group for node in nodes if node.leaf_group}
    above = {path for path in whole.values.values() if path[0]}
    assert len({first for first, _ in above}) == len(above)
    told = [(odd.key, name) for odd in whole.differing for name in odd.nodes if odd.value]
    missing = {name for odd in whole.differing for name in odd.nodes if not odd.value}
    wrong: dict[str, str] = {}  # by node, the first tier that differs
    for node in nodes:
        for at, key in enumerate(KEYS):
            if node.leaf_group and label(node, key) not in {
                None,
                whole.values[node.leaf_group][at],
            }:
                wrong.setdefault(node.name, key)
    assert sorted(told) == sorted((key, name) for name, key in wrong.items())
    assert missing.isdisjoint(wrong)


def node(at: int, *values: str) -> FleetNode:
    return FleetNode(f"gpu-{at}", labels=dict(zip(KEYS, values, strict=False)), leaf_group="leaf1")


def test_of_as_many_nodes_the_lowest() -> None:
    """The agent that knew has the lower switch, the fresh one the next."""
    assert tree([node(1, "s10"), node(2, "s2")], KEYS).values == {"leaf1": ("s2", None)}


def test_who_has_no_core_though_most_have() -> None:
    """A node that knows no tier is not told: its agent has not asked yet."""
    nodes = [node(1, "s1", "c1"), node(2, "s1", "c1"), node(3, "s1"), node(4)]
    (odd,) = tree(nodes, KEYS).differing
    assert (odd.key, odd.where, odd.usual, odd.value) == ("tier-2", "tier-1 s1", "c1", None)
    assert odd.nodes == ["gpu-3"]
    nodes = [node(1, "s1", "c1"), node(2, "s1"), node(3, "s1")]
    assert tree(nodes, KEYS).differing == ()


# over subnets

LABELS = Keys(NAMING).tiers
QUIET = [name for name in SHAPES if name not in {"a stray cable", "all kinds of oddities"}]


def of(fleet: Fleet, *trunks: PlanCable) -> list[Finding]:
    return [*findings(fleet.nodes, LABELS, trunks)]


@pytest.mark.parametrize("shape", QUIET)
def test_a_quiet_fleet_has_none(shape: str) -> None:
    subnet = SHAPES[shape].make()
    assert of(fleet_of(subnet, subnet.pods)) == []


def cut(subnet: Subnet, leaf: str, *ports: int) -> None:
    """Unplug uplinks of a leaf."""
    for port in ports:
        far, far_port = subnet.ports[leaf].pop(port)
        del subnet.ports[far][far_port]


def uplinks(subnet: Subnet, leaf: str) -> list[int]:
    """Return the ports of a leaf that lead to a switch."""
    ports = subnet.ports[leaf].items()
    return [port for port, (far, _) in ports if subnet.kinds[far] == "switch"]


@pytest.mark.parametrize(("number", "severity"), [(1, "info"), (2, "warning")])
def test_leaves_with_fewer_uplinks_are_one_finding(number: int, severity: str) -> None:
    """It names the leaves, and the switches to which they have fewer."""
    subnet = two_tiers(leaves=8, spines=8, rails=4)
    for leaf in ("leaf02", "leaf05"):
        guid = subnet.named(leaf)
        cut(subnet, guid, *uplinks(subnet, guid)[: 2 * number])
    (short,) = of(fleet_of(subnet, subnet.pods))
    assert (short.code, short.severity, short.nodes) == ("uplinks", severity, ())
    left = 16 - 2 * number
    fewer = "spine00" if number == 1 else "spine00, spine01"
    assert short.text == (
        "Look at the cables above 2 of 8 leaves of one kind: most have 16 uplinks, but leaf02 has "
        f"{left}, fewer to {fewer}; leaf05 has {left}, fewer to {fewer}."
    )


def test_leaves_of_other_kinds_are_not_compared() -> None:
    """Storage leaves have fewer uplinks by design, and so may have those of another pod."""
    subnet = two_tiers(leaves=12, spines=8, rails=4)
    for at in range(8, 12):
        guid = subnet.named(f"leaf{at:02}")
        subnet.names[guid] = f"storage{at}"
        cut(subnet, guid, *uplinks(subnet, guid)[:5])
    assert of(fleet_of(subnet, subnet.pods)) == []


def trunks(subnet: Subnet) -> list[PlanCable]:
    """Return the cables between switches as a dump has them."""
    place = FilePlace("fabric.txt", None, 1)
    return [
        PlanCable(
            End(subnet.names[near] or near, str(port)),
            End(subnet.names[far] or far, str(far_port)),
            place,
            is_trunk=True,
        )
        for near in subnet.names
        for port, (far, far_port) in subnet.ports[near].items()
        if far in subnet.names and near < far
    ]


@pytest.mark.parametrize("shape", [*SHAPES])
def test_a_dump_of_the_fabric_as_plan(shape: str) -> None:
    subnet = SHAPES[shape].make()
    assert of(fleet_of(subnet, subnet.pods), *trunks(subnet)) == []


def test_a_dump_of_a_better_day() -> None:
    """A finding for each leaf, with the ports: of a cable that is gone, and of one elsewhere."""
    subnet = two_tiers(leaves=8, spines=8, rails=4)
    plan, leaf = trunks(subnet), subnet.named("leaf02")
    first, second, third, *_ = uplinks(subnet, leaf)
    spine = subnet.named("spine02")
    cut(subnet, leaf, first, second, third)
    subnet.ports[leaf][third] = spine, 200
    subnet.ports[spine][200] = leaf, third
    (short,) = of(fleet_of(subnet, subnet.pods), *plan)
    assert (short.code, short.severity, short.expected) == ("uplinks", "warning", ("leaf02", None))
    assert short.text == (
        f"Look at the uplinks of leaf02: port {first} to spine00 is not up, port {second} to "
        f"spine00 is not up, port {third} leads to spine02, not to spine01."
    )


@pytest.mark.parametrize("is_planned", [False, True])
def test_an_uplink_that_died_after_the_agents_knew_it(*, is_planned: bool) -> None:
    """It counts by the newest answer: of an agent that asked again, or of a fresh one. The labels
    stay. Once it is up again there is no finding.
    """
    subnet = two_tiers(leaves=8, spines=8, rails=4)
    leaf, names = subnet.named("leaf02"), [*subnet.pods]
    plan = trunks(subnet) if is_planned else []
    asking = next(name for name in names if leaf in subnet.leaves(name))
    known = memory_of(subnet, subnet.leaves(asking))
    port = uplinks(subnet, leaf)[0]
    seen = subnet.seen(cut={(leaf, port)})
    again = memory_of(subnet, subnet.leaves(asking), seen, known)
    assert [again.label(tier) for tier in (1, 2)] == [known.label(tier) for tier in (1, 2)]
    for memory in (again, memory_of(subnet, subnet.leaves(asking), seen, after=1)):
        node = node_of(subnet, asking, memory)
        (short,) = of(fleet_of(subnet, names, [node]), *plan)
        assert short.code == "uplinks"
        assert "leaf02" in short.text
        assert (f"port {port} to spine00 is not up" in short.text) is is_planned
    back = memory_of(subnet, subnet.leaves(asking), None, again)
    assert of(fleet_of(subnet, names, [node_of(subnet, asking, back)]), *plan) == []


def test_a_fresh_agent_while_the_lowest_switch_is_down() -> None:
    """A finding for each switch that most have, with all nodes of which it is true."""
    subnet = three_tiers(rails=1, pods=4, units=6)
    names = [*subnet.pods]
    first = memory_of(subnet, subnet.leaves(names[0]))
    lowest = first.switch(1)
    assert lowest
    fresh = [
        node_of(subnet, name, memory_of(subnet, subnet.leaves(name), subnet.seen({lowest})))
        for name in names[:2]
    ]
    whole = fleet_of(subnet, names, fresh)
    (odd,) = of(whole)
    assert (odd.code, odd.severity, odd.nodes) == ("tier-incomplete", "info", (*names[:2],))
    value = fresh[0].labels[LABELS[0]]
    assert f"is {value}, and {first.label(1)} on most others of leaf group" in odd.text


def test_few_nodes_of_a_leaf_group_are_read() -> None:
    """Malformed texts are a problem of the Node, and no report. One of a clock that is fast counts
    least: it says nothing of which is the newest.
    """
    reader = NodeReader(NAMING, NOW)
    subnet = two_tiers()
    name, *_ = subnet.pods
    leaves = subnet.leaves(name)

    def read(content: str) -> FleetNode | None:
        labels = {f"{P}/leafgroup.current": "leaf1"}
        metadata = {"name": "gpu-1", "labels": labels, "annotations": {f"{P}/fabric": content}}
        return reader.read({"metadata": metadata})

    broken = read("{")
    assert broken
    assert broken.problems[0].startswith(f"{P}/fabric: not JSON")
    whole = text(memory_of(subnet, leaves))
    reports = [node.uplinks for _ in range(MAX_REPORTS + 1) if (node := read(whole))]
    assert [bool(each) for each in reports] == [True] * MAX_REPORTS + [False]
    assert reports[0].keys() == leaves
    reader = NodeReader(NAMING, NOW - DAY)
    assert (early := read(whole))
    assert {report.time for report in early.uplinks.values()} == {0}


def test_silent_nodes_do_not_take_the_place_of_those_that_report() -> None:
    """Three nodes that ended long ago come first, or were started again and did not report."""
    subnet = two_tiers()
    name, *_ = subnet.pods
    content = text(memory_of(subnet, subnet.leaves(name)))

    def read(*reports: Report, boot: str = "b") -> list[bool]:
        reader = NodeReader(NAMING, NOW + DAY)
        nodes = []
        for report in reports:
            annotations = {f"{P}/fabric": content, f"{P}/observed": render(Annotation(*report))}
            labels = {f"{P}/leafgroup.current": "leaf1"}
            metadata = {"name": "gpu-1", "labels": labels, "annotations": annotations}
            status = {"nodeInfo": {"bootID": boot}}
            nodes.append(reader.read({"metadata": metadata, "status": status}))
        return [bool(node and node.uplinks) for node in nodes]

    ended, fresh = Report(NOW - DAY, "b"), Report(NOW, "b")
    assert read(*[ended] * MAX_REPORTS, *[fresh] * (MAX_REPORTS + 1))[MAX_REPORTS:] == [
        *[True] * MAX_REPORTS,
        False,
    ]
    assert read(*[fresh] * MAX_REPORTS, ended) == [*[True] * MAX_REPORTS, False]
    assert read(*[Report(NOW, "a")] * MAX_REPORTS, fresh) == [*[False] * MAX_REPORTS, True]


def test_a_dump_says_which_cables_are_between_switches() -> None:
    """Those of two switches of one name are left out: whose port is whose is not known."""
    place = FilePlace("fabric.txt")
    ends = [("leaf1", "spine1"), ("leaf2", "spine1"), ("leaf3", "spine1")]
    cables = [
        PlanCable(End(leaf, "33"), End(spine, str(at)), place)
        for at, (leaf, spine) in enumerate(ends, 1)
    ]
    cables.append(PlanCable(End("gpu-1", "mlx5_0"), End("leaf1", "1"), place))
    dump = ibnetdiscover(cables)
    for content, wanted in ((dump, ends), (dump.replace("leaf3", "leaf2"), ends[:1])):
        (plan,) = read_ibnetdiscover(PlanContent("fabric.txt", content.encode()))
        pairs = {frozenset((c.a.node, c.b.node)) for c in plan.cables if c.is_trunk}
        assert pairs == {frozenset(pair) for pair in wanted}


def test_leaves_without_names_are_of_one_kind() -> None:
    subnet = two_tiers(leaves=8, spines=8, rails=4)
    leaf = subnet.named("leaf02")
    cut(subnet, leaf, *uplinks(subnet, leaf)[:2])
    for at in range(8):
        subnet.names[subnet.named(f"leaf{at:02}")] = None
    (short,) = of(fleet_of(subnet, subnet.pods))
    assert f"1 of 8 leaves of one kind: most have 16 uplinks, but {leaf} has 14" in short.text


def test_all_agents_of_a_pod_started_while_its_lowest_switch_was_down() -> None:
    """By the plan it is told."""
    subnet = three_tiers(rails=1, pods=4, units=6)
    names = [name for name in subnet.pods if name.startswith("p1")]
    lowest = subnet.named("p1-r0-spine0")
    fresh = [
        node_of(subnet, name, memory_of(subnet, subnet.leaves(name), subnet.seen({lowest})))
        for name in names
    ]
    whole = fleet_of(subnet, [name for name in subnet.pods if name not in names], fresh)
    assert [found.code for found in of(whole)] == []
    found = of(whole, *trunks(subnet))
    (odd,) = (each for each in found if each.code == "tier-incomplete")
    assert "is p1-r0-spine1, and p1-r0-spine0 by the plan" in odd.text
    assert {*odd.nodes} == {*names}
