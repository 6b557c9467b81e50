"""What an agent remembers of the switches above it, and the text of the annotation."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.infiniband.exploration import Exploration
from agent.infiniband.fabric_memory import (
    DAY,
    HOUR,
    MAX_BYTES,
    NOTHING,
    WEEK,
    FabricMemory,
    TreeSwitch,
    after_look,
    is_due,
    merge,
    read,
    text,
)
from agent.infiniband.tiers import tiers
from tests.support.subnets import SHAPES, End, Subnet, three_tiers

START = 1_800_000_000


class Agent:
    """An agent that asks about one leaf group, and restarts after each answer."""

    def __init__(self, subnet: Subnet, *leaves: str) -> None:
        self.subnet = subnet
        self.leaves = {subnet.named(leaf) for leaf in leaves}
        self.memory, self.now = NOTHING, START

    def ask(
        self,
        down: Collection[str] = (),
        cut: Collection[End] = (),
        after: int = HOUR,
        *,
        is_whole: bool = True,
    ) -> tuple[str | None, str | None]:
        """Ask once, some time after the last answer; return the labels of both tiers."""
        self.now += after
        switches, links = self.subnet.seen({self.subnet.named(name) for name in down}, cut)
        answer = tiers(self.leaves, switches, links)
        told = Exploration(answer, switches=switches)
        memory = merge(self.memory, told, self.leaves, self.now, is_whole=is_whole)
        assert read(text(memory)) == memory
        self.memory = memory
        return memory.label(1), memory.label(2)


def pod() -> tuple[Subnet, Agent]:
    """Return a subnet without rails, and an agent in its first pod that had three answers."""
    subnet = three_tiers(rails=1, units=4)
    agent = Agent(subnet, "p0-r0-leaf0")
    assert [agent.ask() for _ in range(3)] == [("p0-r0-spine0", "core00")] * 3
    return subnet, agent


@pytest.mark.parametrize("down", ["p0-r0-spine0", "p0-r0-spine3", "core00", "p0-r0-leaf1"])
def test_what_is_down_changes_nothing_for_a_week(down: str) -> None:
    """A switch goes a week after the first answer that misses it, if it is the value or not."""
    subnet, agent = pod()
    labels = agent.ask([down], after=DAY)
    for _ in range(6):
        assert agent.ask([down], after=DAY) == labels == ("p0-r0-spine0", "core00")
    assert agent.ask([down], after=DAY - 1) == labels
    agent.ask([down], after=1)
    assert subnet.named(down) not in agent.memory.switches
    if down in labels:
        assert agent.ask([down]) == tuple(
            {"p0-r0-spine0": "p0-r0-spine1", "core00": "core01"}.get(label, label)
            if label == down
            else label
            for label in labels
        )
    for _ in range(3):
        labels = agent.ask()
    assert labels == ("p0-r0-spine0", "core00")


@pytest.mark.parametrize("shape", ["two tiers", "rail-only", "rails", "meshed cores", "dragonfly+"])
def test_no_switch_and_no_link_that_is_down_changes_a_label(shape: str) -> None:
    """Each switch, and each link of the leaves, is down for two answers and then back."""
    subnet = SHAPES[shape].make()
    group = min(subnet.groups(), key=sorted)
    whole = subnet.tiers(group)
    known = NOTHING
    for now in (START, START + HOUR):
        known = merge(known, Exploration(whole, switches=subnet.names), group, now)
    assert known.label(1) == whole.label(1)
    ports = [(leaf, port) for leaf in group for port in whole.uplinks[leaf]]
    cases = [subnet.seen({guid}) for guid in subnet.names.keys() - group]
    for seen in [*cases, *(subnet.seen(cut={port}) for port in ports)]:
        memory = known
        down = tiers(group, *seen)
        for day, (answer, switches) in enumerate(
            [(down, seen.switches)] * 2 + [(whole, subnet.names)] * 2, 1
        ):
            told = Exploration(answer, switches=switches)
            memory = merge(memory, told, group, START + day * DAY)
            labels = [memory.label(1), memory.label(2)]
            assert labels == [whole.label(1), whole.label(2)]


def test_a_subnet_that_does_not_answer_misses_no_switch() -> None:
    """Its switches stay for longer than a week; one that was missing before goes."""
    subnet = SHAPES["rail-only"].make()
    rails = [subnet.named(f"r{rail}-leaf0") for rail in range(4)]
    agent = Agent(subnet, "r0-leaf0", "r1-leaf0")
    agent.ask()
    silent = [name for name in subnet.names.values() if name and name.startswith("r0")]
    for _ in range(3):
        assert agent.ask(silent, after=WEEK, is_whole=False)[0] == "r0-spine0"
    assert agent.ask(silent)[0] == "r0-spine0"
    assert agent.ask(silent, after=WEEK, is_whole=False)[0] == "r1-spine0"
    assert rails[1] in agent.memory.uplinks


def test_a_fresh_agent_follows_when_two_answers_agree() -> None:
    """It starts while the lowest switches are down; an answer that is alone changes nothing."""
    agent = Agent(three_tiers(rails=1, units=4), "p0-r0-leaf0")
    down = ["p0-r0-spine0", "core00"]
    fresh = "p0-r0-spine1", "core02"  # spine0 alone knows core01
    assert [agent.ask(down), agent.ask(down), agent.ask()] == [fresh] * 3
    assert agent.ask(down) == fresh
    assert [agent.ask(), agent.ask()] == [fresh, ("p0-r0-spine0", "core00")]


def test_answers_are_due_more_seldom_while_they_agree() -> None:
    """After an hour, a day and then a week; the leaves are looked at each day."""
    agent = Agent(three_tiers(rails=1, units=4), "p0-r0-leaf0")
    assert is_due(NOTHING, START)
    for after in (HOUR, DAY, WEEK, WEEK):
        agent.ask()
        assert agent.memory.due == agent.now + after
    assert not is_due(agent.memory, agent.now)
    assert is_due(agent.memory, agent.now + WEEK)
    assert is_due(agent.memory, agent.now - 1)  # the clock was set back
    assert agent.memory.next_question == agent.now + DAY
    agent.ask(["core00"])
    assert agent.memory.due == agent.now + HOUR


def replaced(subnet: Subnet, leaf: str, spine: str) -> tuple[str, str]:
    """Plug a leaf's first cable to a spine into a new switch; return the GUIDs of both."""
    guid, old, new = subnet.named(leaf), subnet.named(spine), subnet.add("switch", "a-new")
    subnet.names[old] = "old"
    for other in subnet.names:
        for port, (far, far_port) in [*subnet.ports[other].items()]:
            if far == old:
                subnet.ports[other][port] = new, far_port
    subnet.ports[new] = subnet.ports.pop(old)
    assert any(far == new for far, _ in subnet.ports[guid].values())
    return old, new


def test_another_switch_at_a_known_port_counts_when_seen_twice() -> None:
    """A spine is replaced: the new one is its value of then on, and the former one is forgotten."""
    subnet, agent = pod()
    old, new = replaced(subnet, "p0-r0-leaf0", "p0-r0-spine0")
    assert agent.ask() == ("old", "core00")
    assert set(agent.memory.pending.values()) == {new}
    assert agent.memory.due == agent.now + HOUR
    assert agent.ask() == ("a-new", "core00")
    assert not agent.memory.pending
    assert old not in agent.memory.switches


def test_a_contradiction_waits_while_its_port_is_down() -> None:
    """It is seen once, then not at all, then for the second time."""
    subnet, agent = pod()
    _, new = replaced(subnet, "p0-r0-leaf0", "p0-r0-spine0")
    leaf = subnet.named("p0-r0-leaf0")
    cut = {(leaf, port) for port, (far, _) in subnet.ports[leaf].items() if far == new}
    assert [agent.ask()[0], agent.ask(cut=cut)[0], agent.ask()[0]] == ["old", "old", "a-new"]


def test_after_a_look_at_the_leaves() -> None:
    """The next one is a day later; another switch makes an answer due, which ends the looks."""
    _, agent = pod()
    due, later = agent.memory.due, agent.now + DAY
    memory = after_look(agent.memory, later, {}, agrees=True)
    assert (memory.heard, memory.next_question, memory.due) == (later, later + DAY, due)
    assert read(text(memory)) == memory
    assert after_look(memory, due - 1, {}, agrees=True).next_question == due
    agent.memory = after_look(memory, later, {}, agrees=False)
    assert is_due(agent.memory, later)
    agent.ask(after=DAY)
    assert (agent.memory.looked, agent.memory.heard) == (0, agent.now)


def test_the_uplinks_that_the_last_answer_had() -> None:
    """One that is down stays for the labels, and is told from the others after a restart too."""
    subnet, agent = pod()
    leaf = subnet.named("p0-r0-leaf0")
    (first, *ports), later = agent.memory.uplinks[leaf], agent.now + DAY
    assert agent.memory.last_seen(leaf) == (agent.now, agent.memory.uplinks[leaf])
    labels = agent.ask(cut={(leaf, first)})
    assert labels == ("p0-r0-spine0", "core00")
    time, up = agent.memory.last_seen(leaf)
    assert (time, [*up], first in agent.memory.uplinks[leaf]) == (agent.now, ports, True)
    looked = after_look(agent.memory, later, {leaf: [first, *ports[1:]]}, agrees=True)
    assert read(text(looked)) == looked
    time, up = looked.last_seen(leaf)
    assert (time, {*up}) == (later, {first, *ports[1:]})
    assert looked.seen[leaf, ports[0]] == agent.now


def test_a_text_without_times_of_uplinks() -> None:
    """As earlier versions wrote it: each was up."""
    _, agent = pod()
    (leaf,) = agent.leaves
    agent.ask(cut={(leaf, min(agent.memory.uplinks[leaf]))})
    document = json.loads(text(agent.memory))
    assert len(document["leaves"][0].pop("seen")) == 1
    memory = read(json.dumps(document))
    assert memory.last_seen(leaf) == (agent.now, memory.uplinks[leaf])


def test_a_node_that_moves_takes_the_tiers_of_its_new_leaves() -> None:
    """All leaves at once: anew. One rail of two: its spines go with the last port."""
    subnet, agent = pod()
    agent.leaves = {subnet.named("p1-r0-leaf0")}
    assert agent.ask() == ("p1-r0-spine0", "core00")
    rails = three_tiers(rails=2)
    agent = Agent(rails, "p0-r0-leaf0", "p0-r1-leaf0")
    agent.ask()
    agent.leaves = {rails.named("p0-r1-leaf0"), rails.named("p1-r0-leaf0")}
    assert agent.ask() == ("p0-r1-spine0", "core00")
    assert rails.named("p0-r0-spine0") not in agent.memory.switches


def test_a_shared_name_stays_no_name_while_its_other_switch_is_down() -> None:
    """The value is another switch, until the namesake has been gone for a week."""
    subnet = three_tiers(rails=1, units=4)
    subnet.names[subnet.named("p2-r0-spine3")] = "p0-r0-spine0"
    twin = max(guid for guid, name in subnet.names.items() if name == "p0-r0-spine0")
    agent = Agent(subnet, "p0-r0-leaf0")
    assert agent.ask()[0] == "p0-r0-spine1"
    subnet.names.pop(twin)
    assert [agent.ask()[0], agent.ask(after=WEEK - 1)[0]] == ["p0-r0-spine1"] * 2
    assert agent.ask(after=1)[0] == "p0-r0-spine0"


def test_a_shared_name_stays_no_name_while_the_administrator_refuses() -> None:
    """Its other switch is elsewhere, where no SMP leads; a switch of a tier was to be met."""
    subnet, agent = pod()
    other, spine = subnet.named("p1-r0-spine0"), subnet.named("p0-r0-spine1")
    subnet.names[other] = "p0-r0-spine0"
    shared = [agent.ask()[0] for _ in range(3)][-1]
    assert shared == "p0-r0-spine1"
    switches, links = subnet.seen({spine})
    near = {guid: name for guid, name in switches.items() if guid != other}
    answer = tiers(agent.leaves, switches, links)
    told = Exploration(answer, switches=near, by_smps=tuple(agent.leaves))
    for day in range(9):
        agent.memory = merge(agent.memory, told, agent.leaves, agent.now + day * DAY)
    assert agent.memory.label(1) == "p0-r0-spine2"


def test_a_switch_keeps_its_name_while_nobody_tells_one() -> None:
    """A switch that boots has the factory's text; another name is taken at once."""
    subnet, agent = pod()
    spine = subnet.named("p0-r0-spine0")
    subnet.names[spine] = None
    assert agent.ask()[0] == "p0-r0-spine0"
    subnet.names[spine] = "a-renamed"
    assert agent.ask()[0] == "a-renamed"


def test_tier_2_is_above_the_tier_1_that_grew() -> None:
    """A leaf beside ours seemed to be above while most of its spines were unknown to us."""
    subnet, agent = pod()
    leaf = subnet.named("p0-r0-leaf1")
    memory = replace(
        agent.memory,
        tier_1=frozenset([subnet.named("p0-r0-spine0")]),
        tier_2=frozenset([leaf]),
        switches={**agent.memory.switches, leaf: TreeSwitch(leaf, "p0-r0-leaf1", agent.now)},
    )
    agent.memory = memory
    switches, links = subnet.seen()
    answer = replace(tiers(agent.leaves, switches, links), refused=frozenset([leaf]))
    told = Exploration(answer, switches=switches)
    after = merge(memory, told, agent.leaves, agent.now + HOUR)
    assert after.tier_2 == {subnet.named("core00")}


def test_a_reason_is_that_of_the_last_answer_that_counts() -> None:
    """There is none while tier 2 is known."""
    agent = Agent(SHAPES["two tiers"].make(), "leaf00")
    agent.ask()
    assert agent.memory.reason == "top"
    assert pod()[1].memory.reason is None


def test_a_path_stays_while_its_core_is_down() -> None:
    """It leads to the values of the labels."""
    _, agent = pod()
    paths = agent.memory.paths
    assert paths[0][-1].far_guid == agent.memory.switch(2)
    agent.ask(["core00"])
    assert agent.memory.paths == paths


def test_a_path_has_the_switches_that_told_it_by_smps() -> None:
    """Those of the answer that it is from."""
    _, agent = pod()
    [path, *_] = agent.memory.paths
    answer = agent.subnet.tiers(agent.leaves)
    for by_smps in ([path[0].guid, path[0].far_guid, "b" * 16], [path[0].guid], []):
        told = Exploration(answer, switches=agent.subnet.names, by_smps=tuple(by_smps))
        agent.memory = merge(agent.memory, told, agent.leaves, agent.now)
        assert read(text(agent.memory)) == agent.memory
        assert agent.memory.by_smps == {link.guid for link in path} & {*by_smps}


def large(rows: int) -> FabricMemory:
    """Return a memory of this many switches at the ports of eight leaves."""
    guids = [f"{index:016x}" for index in range(1, rows + 1)]
    switches = {guid: TreeSwitch(guid, f"spine-{guid[-4:]}-{'n' * 40}", START) for guid in guids}
    uplinks = {
        f"{leaf:016x}": dict(enumerate(guids[leaf % 8 :: 8], 1)) for leaf in range(8192, 8200)
    }
    seen = {(leaf, port): START - port for leaf, ports in uplinks.items() for port in ports}
    tiers_of = frozenset(guids[1:]), frozenset(guids[:1])
    return FabricMemory(uplinks, *tiers_of, switches, time=START, seen=seen)


@pytest.mark.parametrize("rows", [10, 250, 1000])
def test_the_text_is_bounded(rows: int) -> None:
    """Switches that are no value go first, and are counted; an answer has them again."""
    memory = large(rows)
    content = text(memory)
    assert len(content) <= MAX_BYTES
    after = read(content)
    assert [after.label(1), after.label(2)] == [memory.label(1), memory.label(2)]
    assert after.left_out == rows - len(after.switches)
    assert text(after) == content


def test_a_text_of_many_contradictions_and_the_highest_port_is_read_again() -> None:
    """What an administrator that lies makes an agent remember is no loss at the next start."""
    memory = large(2)
    low, high = memory.switches
    ports = dict.fromkeys(range(1, 256), low)
    pending = {(leaf, port): high for leaf in memory.uplinks for port in ports}
    memory = replace(memory, uplinks=dict.fromkeys(memory.uplinks, ports), pending=pending)
    content = text(memory)
    after = read(content)
    assert (len(content) <= MAX_BYTES, after.pending) == (True, {})
    assert (after.uplinks, after.left_out) == (memory.uplinks, 0)


def test_a_name_of_a_switch_that_is_left_out_is_not_the_others() -> None:
    """Both had it, so neither has it as its own after a restart."""
    memory = large(1000)
    low, high = f"{999:016x}", f"{1000:016x}"
    shared = {guid: memory.switches[guid]._replace(name="a") for guid in (low, high)}
    after = read(text(replace(memory, switches={**memory.switches, **shared})))
    assert after.label(1) == memory.label(1)


AGENT = pod()[1]
ANSWER = AGENT.subnet.tiers(AGENT.leaves)
DOCUMENT: dict[str, Any] = json.loads(text(AGENT.memory))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "not a JSON object of schema 1"),
        ({"time": None}, "malformed or missing: time"),
        ({"time": "soon"}, "malformed or missing: time"),
        ({"switches": []}, "no row of the switch a0000000"),
        ({"switches": [{"guid": "spine"}]}, "malformed or missing: switches"),
        ({"switches": [{"guid": "a" * 16, "tier": 3}]}, "malformed or missing: switches"),
        ({"switches": [{"guid": "a" * 16, "name": "\ud800"}]}, "malformed or missing: switches"),
        ({"switches": [{"guid": "a" * 16}] * 2000}, "malformed or missing: switches"),
        ({"leaves": {}}, "malformed or missing: leaves"),
        ({"leaves": [{"guid": "a" * 16, "uplinks": []}]}, "malformed or missing: leaves"),
        (
            {"leaves": [{"guid": "a" * 16, "uplinks": {"b" * 16: [0]}}]},
            "malformed or missing: leaves",
        ),
        (
            {"leaves": [{"guid": "a" * 16, "uplinks": {"b" * 16: [True]}}]},
            "malformed or missing: leaves",
        ),
        (
            {"leaves": [{"guid": "a" * 16, "uplinks": {}, "seen": {"soon": [1]}}]},
            "malformed or missing: leaves",
        ),
        ({"pending": [{"leaf": "a" * 16}]}, "malformed or missing: pending"),
        ({"paths": [[{}]]}, "malformed or missing: paths"),
        ({"answer": "\n"}, "malformed or missing: answer"),
    ],
)
def test_a_malformed_text_is_refused(change: dict[str, Any], message: str) -> None:
    """The reason is one line."""
    with pytest.raises(Malformed, match=message) as raised:
        read(json.dumps(DOCUMENT | change))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 30_000, " " * 70_000, '"\x00"'])
def test_what_is_no_memory_is_refused(content: str) -> None:
    """Neither is nesting without end."""
    with pytest.raises(Malformed):
        read(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(DOCUMENT)), JSON)
def test_a_hostile_fact_is_read_or_refused(name: str, value: object) -> None:
    """A text that is read can be merged, and written within its bound."""
    try:
        memory = read(json.dumps(DOCUMENT | {name: value}))
    except Malformed:
        return
    told = Exploration(ANSWER, switches=AGENT.subnet.names)
    after = merge(memory, told, AGENT.leaves, START)
    assert len(text(after)) <= MAX_BYTES


def test_times_of_the_future_end() -> None:
    """A clock that was wrong, or a stranger, keeps no switch for longer than a week."""
    subnet, agent = pod()
    spine = subnet.named("p0-r0-spine0")
    row = TreeSwitch(spine, "p0-r0-spine0", START + 9 * WEEK, START + 10 * WEEK)
    agent.memory = replace(agent.memory, switches={**agent.memory.switches, spine: row})
    agent.ask(["p0-r0-spine0"])
    assert agent.memory.switches[spine].end == agent.now + WEEK
    assert agent.memory.switches[spine].seen == agent.now
    memory = replace(agent.memory, due=agent.now + 9 * WEEK)
    assert [is_due(memory, agent.now + after) for after in (DAY, WEEK)] == [False, True]
