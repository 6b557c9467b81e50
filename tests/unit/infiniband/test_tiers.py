"""The tiers above a leaf group, over subnets of every shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Unavailable
from agent.infiniband.tiers import MAX_QUESTIONS, LinkEnd, tiers
from tests.support.subnets import SHAPES, Subnet, three_tiers, two_tiers


@pytest.mark.parametrize("is_limited", [False, True], ids=["full", "limited"])
@pytest.mark.parametrize("has_sharp", [False, True], ids=["", "sharp"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_leaf_group_of_a_pod_has_one_value(
    name: str, has_sharp: bool, is_limited: bool
) -> None:
    """The tiers are those of the shape, one value a pod, and pods differ; all make a tree."""
    shape = SHAPES[name]
    subnet = shape.make()
    if has_sharp:
        subnet.sharp()
    seen = subnet.seen(is_limited=is_limited)
    reason, tree = shape.reason, defaultdict(set)
    count = shape.tiers
    if is_limited and shape.limited != "the same":
        reason, count = shape.limited, 0
    for leaves, pod in subnet.groups().items():
        answer = subnet.tiers(leaves, seen)
        values = [answer.label(1), answer.label(2)]
        assert (answer.reason, sum(map(bool, values))) == (reason, count), answer
        if count:
            tree[pod].add((*values,))
    assert all(len(values) == 1 for values in tree.values()), tree
    firsts = [first for values in tree.values() for first, _ in values]
    assert len(firsts) == len(set(firsts))
    assert len({second for values in tree.values() for _, second in values}) <= 1


def test_the_lowest_name_is_the_value_of_a_tier() -> None:
    """Names are in natural order; a name of two switches is none, and GUIDs come last."""
    subnet = SHAPES["unnamed spines"].make()
    answer = subnet.tiers(next(iter(subnet.groups())))
    assert answer.label(1) == min(answer.tier_1)
    assert answer.label(2) == "core02"
    assert answer.label(3) is None


def test_a_path_leads_from_each_leaf_to_the_core_by_ports() -> None:
    """Each link of a path is one of the subnet, and the last one ends at the value of tier 2."""
    subnet = three_tiers()
    for leaves in subnet.groups():
        answer = subnet.tiers(leaves)
        # those of the rails below this core
        assert {path[0].guid for path in answer.paths} == leaves
        for path in answer.paths:
            for hop in path:
                assert subnet.ports[hop.guid][hop.port] == (hop.far_guid, hop.far_port)
            assert [hop.far_guid for hop in path][:-1] == [hop.guid for hop in path][1:]
            assert path[-1].far_guid == answer.tier_2


def test_uplinks_are_by_port_those_of_stray_cables_too() -> None:
    """A cable into another pod is an uplink of its port, and no switch of tier 1."""
    subnet = SHAPES["a stray cable"].make()
    leaf, far = subnet.named("p1-r3-leaf0"), subnet.named("p0-r0-spine0")
    answer = subnet.tiers(subnet.leaves("p1u0n0"))
    assert answer.uplinks[leaf][13] == far
    assert far not in answer.tier_1


def test_each_switch_is_asked_once() -> None:
    """Questions are at most 300, none twice, and in the same order each time."""
    subnet = three_tiers(rails=32, units=2, spines=16, cores=64)
    asked: list[str] = []
    seen = subnet.seen()

    def links(guid: str) -> Sequence[LinkEnd]:
        asked.append(guid)
        return seen.links(guid)

    leaves = subnet.leaves("p0u0n0")
    answer = tiers(leaves, seen.switches, links)
    assert len(asked) == len(set(asked)) == answer.questions <= MAX_QUESTIONS
    assert (answer.label(1), answer.label(2)) == ("p0-r0-spine0", "core00")
    before = asked.copy()
    asked.clear()
    tiers(sorted(leaves, reverse=True), dict(reversed([*seen.switches.items()])), links)
    assert asked == before


def test_without_an_answer_there_is_none() -> None:
    """What the questions raise passes; leaves that nobody lists are not asked."""
    subnet = two_tiers()
    switches, _ = subnet.seen()

    def refuse(guid: str) -> Sequence[LinkEnd]:
        raise Unavailable(guid)

    with pytest.raises(Unavailable, match="a0000000"):
        tiers(subnet.leaves("u0n0"), switches, refuse)
    with pytest.raises(Unavailable, match="leaf switches"):
        tiers({"0" * 16}, switches, refuse)


@pytest.mark.parametrize("shape", ["two tiers", "rails", "three tiers", "pods of many leaves"])
def test_one_link_or_leaf_down_changes_no_value(shape: str) -> None:
    """A fresh agent says what its siblings say, though its leaf lost all cables to a spine."""
    subnet = SHAPES[shape].make()
    leaves = next(iter(subnet.groups()))
    whole = subnet.tiers(leaves)
    for leaf in sorted(leaves)[:2]:
        ports = whole.uplinks[leaf]
        for spine in sorted(set(ports.values())):
            cut = {(leaf, port) for port, far in ports.items() if far == spine}
            answer = subnet.tiers(leaves, subnet.seen(cut=cut))
            assert answer.tier_1 == whole.tier_1
    others = {leaf for group in subnet.groups() for leaf in group} - leaves
    for leaf in sorted(others)[:4]:
        answer = subnet.tiers(leaves, subnet.seen({leaf}))
        assert (answer.tier_1, answer.tier_2) == (whole.tier_1, whole.tier_2)


@pytest.mark.parametrize(
    "name",
    ["two tiers", "rail-only", "rails", "three tiers", "pods of many leaves", "meshed cores"],
)
def test_missing_cables_split_no_pod(name: str) -> None:
    """One of ten cables between switches is missing, anywhere: a pod still has one value."""
    subnet = SHAPES[name].make()
    cables = [
        (guid, port)
        for guid in subnet.names
        for port, (far, _) in subnet.ports[guid].items()
        if guid < far and far in subnet.names
    ]
    cut = Random(0).sample(cables, len(cables) // 10)  # noqa: S311 - a sample
    values = defaultdict(set)
    for leaves, pod in subnet.groups().items():
        answer = subnet.tiers(leaves, subnet.seen(cut=frozenset(cut)))
        values[pod].add((answer.label(1), answer.label(2)))
    firsts = [label for labels in values.values() for label, _ in labels]
    assert len(firsts) == len(set(firsts)) == len(values)


ENDS = st.tuples(st.integers(0, 4), st.sampled_from("abcdefgh"), st.booleans(), st.booleans())


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.sampled_from("xyz"), min_size=1),
    st.dictionaries(st.sampled_from("abcdefgh"), st.lists(ENDS, max_size=5)),
    st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3),
)
def test_any_tables_have_an_answer(
    switches: dict[str, str | None],
    tables: dict[str, list[tuple[int, str, bool, bool]]],
    leaves: set[str],
) -> None:
    """Links that one end lists, to itself or to nobody: the tiers are switches that are listed."""

    def links(guid: str) -> list[LinkEnd]:
        ends = tables.get(guid, [])
        return [LinkEnd(port, far, port, switch, host) for port, far, switch, host in ends]

    if not leaves & switches.keys():
        return
    answer = tiers(leaves, switches, links)
    known = {*answer.tier_1, *filter(None, [answer.tier_2])}
    assert known <= switches.keys() - leaves
    assert bool(answer.tier_2) == (answer.reason is None)


def chain(*names: str) -> Subnet:
    """Return switches in a row, each with hosts."""
    subnet = Subnet()
    row = [subnet.add("switch", name) for name in names]
    for near, far in pairwise(row):
        subnet.link(near, far)
    for guid in row:
        subnet.hosts([guid], 4, f"{guid}n", 0)
    return subnet


def test_a_leaf_with_one_uplink_switch_has_tier_1() -> None:
    """Two leaves below one spine: the spine is tier 1, and nothing is above."""
    subnet = chain("leaf1", "spine", "leaf2")
    answer = subnet.tiers({subnet.named("leaf1")})
    assert (answer.label(1), answer.reason) == ("spine", "top")
