"""The whole loop with --tiers: questions, and the labels and annotation of the switches above."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from agent.encode import Naming, tier_keys
from agent.errors import Unavailable
from agent.host import Host
from agent.infiniband.devices import AskingPort
from agent.infiniband.exploration import Exploration, LeafLook
from agent.infiniband.fabric_memory import DAY, HOUR
from agent.inputs import observed
from agent.kube.commands import planned, target
from agent.labels.render import render, subject_of
from agent.output.explain import explained
from tests.support.exposition import text
from tests.support.kernel_tree import HOME, Entries, hca
from tests.support.nodes import KEYS, PREFIX
from tests.support.running import World
from tests.support.sas import CABLES, Administrator, link
from tests.support.server_side_apply import ANNOTATIONS, LABELS, MANAGER
from tests.support.smps import answer, exchanges

A = "0000:18:00.0"
PORT = f"{HOME}/{A}/infiniband/ibp0/ports/1"
IN_SUBNET = {"lid": b"0x5\n", "sm_lid": b"0x9\n", "sm_sl": b"0\n", "pkeys/0": b"0xffff\n"}
TIERS = ("tier-1.current", "tier-2.current")
TOPOGRAPH = "fabric.topograph.run/tier-{n}"
NVIDIA = "network.topology.nvidia.com/{leaf,spine,core}"


class Fabric(World):
    """A node with a port at leaf1."""

    def __init__(self) -> None:
        self.administrator = Administrator(*CABLES)
        self.explored: list[float] = []
        self.known: Mapping[str, str | None] = {}
        self.fault: str | None = None
        self.leaf = "leaf1"
        places: Entries = {f"{PORT}/{name}": data for name, data in IN_SUBNET.items()}
        super().__init__(
            hca("ibp0", A), places, smp=lambda address: answer(*address, exchanges=self.far_end())
        )
        self.explore, self.look_above = self.ask, self.ask_leaves
        self.looked: list[float] = []
        self._chance.random = lambda: 0.01  # type: ignore[method-assign]
        self.start_again()

    def far_end(self) -> Any:
        """Return what the leaf answers to SMPs."""
        guid = int(self.administrator.guid(self.leaf), 16)
        return exchanges(b"MF0;%b:MQM9700/U1" % self.leaf.encode(), guid=guid)

    def ask(
        self,
        ports: Sequence[AskingPort],
        _entries: Any,
        known: Mapping[str, str | None],
    ) -> Exploration:
        self.explored.append(self.time)
        self.known = known
        if self.fault:
            raise Unavailable(self.fault)
        return self.administrator.explore(ports)

    def ask_leaves(self, *of: Any) -> LeafLook:
        self.looked.append(self.time)
        return self.administrator.look(*of)

    @property
    def tiers(self) -> list[str | None]:
        return [self.labels.get(name) for name in TIERS]

    @property
    def fabric(self) -> str | None:
        return self.api.server.fields.get((ANNOTATIONS, f"{PREFIX}/fabric"))


def asked_twice() -> Fabric:
    world = Fabric().run(2 * HOUR)
    assert len(world.explored) == 2
    return world


def test_the_tiers_are_published() -> None:
    """At a random time within a day, and again an hour later."""
    world = asked_twice()
    assert [round(at - 1000, -1) for at in world.explored] == [860, 860 + HOUR]
    assert world.tiers == ["spine1", "core1"]
    assert world.known[world.administrator.guid("spine2")] == "spine2"
    told = json.loads(world.fabric or "")
    assert [row["name"] for row in told["switches"] if row["tier"] == 1] == ["spine1", "spine2"]


def test_a_restart_asks_for_nothing_that_is_known() -> None:
    world = asked_twice()
    world.start_again()
    world.run(HOUR)
    assert len(world.explored) == 2
    assert world.tiers == ["spine1", "core1"]


def test_the_leaves_are_looked_at_once_a_day() -> None:
    """Also by an agent that was restarted; LIDs that are others make no exploration due."""
    world = asked_twice().run(DAY)
    assert (len(world.explored), len(world.looked)) == (3, 0)
    world.administrator.renumber()
    world.run(DAY)
    world.start_again()
    world.run(DAY)
    assert (len(world.explored), len(world.looked)) == (3, 2)
    assert world.tiers == ["spine1", "core1"]
    told = json.loads(world.fabric or "")
    assert told["looked"] > told["time"]
    world.look()
    shown = text(world.metrics)
    (heard,) = re.findall(r"^bwagent_tier_answer_timestamp_seconds (.+)", shown, re.MULTILINE)
    assert float(heard) == datetime.fromisoformat(told["looked"]).timestamp()
    assert 'bwagent_tier_questions_total{outcome="answered"} 0.0' in shown


def test_a_cable_that_is_elsewhere_is_found_within_a_day() -> None:
    """The look makes an exploration due, and a second one an hour later settles it."""
    world = asked_twice().run(DAY)
    lids = world.administrator.lids
    rows = world.administrator.links[lids["leaf1"]]
    rows[:] = [link(lids["spine3"], 9, lids["leaf1"], 41) if row[2] == 41 else row for row in rows]
    world.run(DAY + 2 * HOUR)
    assert (len(world.explored), len(world.looked)) == (5, 1)


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_node_that_is_moved_asks_at_once(*, is_rebooted: bool) -> None:
    """Until the answer it has the tiers of its former leaves, though the leaf group is new."""
    world = asked_twice().run(DAY + HOUR)
    before, group = len(world.explored), "leafgroup.current"
    world.leaf, world.fault = "leaf3", "ibp0 port 1: no answer"
    if is_rebooted:
        world.start_again()
    world.look(60)
    assert (len(world.explored), world.labels[group]) == (before + 1, "leaf3")
    assert world.tiers == ["spine1", "core1"]
    world.fault = None
    world.run(HOUR + 60)
    assert (len(world.explored), world.tiers) == (before + 2, ["spine3", "core1"])


def test_without_the_flag_the_labels_and_the_annotation_go() -> None:
    world = asked_twice()
    world.explore = None
    world.start_again()
    world.run(60)
    assert (world.tiers, world.fabric) == ([None, None], None)


def test_a_failure_is_one_line_and_takes_no_label() -> None:
    world = Fabric()
    world.fault = "ibp0 port 1: no answer"
    world.run(2 * HOUR)
    assert (world.tiers, world.fabric) == ([None, None], None)
    assert len([line for line in world.lines if "ibp0 port 1: no answer" in line]) == 1
    world.fault = None
    world.run(4 * HOUR)
    assert world.tiers == ["spine1", "core1"]
    world.fault = "ibp0 port 1: no answer"
    world.run(HOUR)
    assert world.tiers == ["spine1", "core1"]


def test_a_malformed_annotation_is_one_line() -> None:
    world = asked_twice()
    texts = {KEYS.annotation: world.told, KEYS.fabric_field.key: '{"schema": 7}'}
    world.api.server.hold(MANAGER, "Apply", texts, ANNOTATIONS)
    world.start_again()
    world.run(60)
    warnings = [line for line in world.lines if f"{PREFIX}/fabric" in line and " warning " in line]
    assert len(warnings) == 1
    world.run(HOUR)
    assert world.tiers == ["spine1", "core1"]


@pytest.mark.parametrize("with_tiers", [False, True])
def test_probe_without_the_flag_leaves_all_as_it_is(*, with_tiers: bool) -> None:
    """With it, it adds its answer to what the Node has."""
    world = asked_twice()
    on = target(world.api, "n1", Naming())
    explore = world.ask if with_tiers else None
    host = Host(world, world.wall_time, "n1", ask_smp=world.ask_smp, explore=explore)
    observation, known = observed(host, {"source": ()}, on)
    rendered = render(known, Naming())
    change, _ = planned(on, observation, known, rendered)
    assert not [one for one in change.label_changes if "tier" in one.key]
    shown = rendered.over(on.previous).labels
    assert [shown[f"{PREFIX}/{name}"] for name in TIERS] == ["spine1", "core1"]
    assert (change.wanted[KEYS.fabric_field] != world.fabric) is with_tiers


def test_the_keys_of_a_pattern() -> None:
    """They are in place of the tiers' own, and are removed with a list of former patterns."""
    world = Fabric()
    topograph, nvidia = (tier_keys(pattern) for pattern in (TOPOGRAPH, NVIDIA))

    def written() -> list[dict[str, str]]:
        labels = world.api.server.values(MANAGER, "Apply")
        own = [f"{PREFIX}/{name}" for name in TIERS]
        return [{k: labels[k] for k in keys if k in labels} for keys in (own, topograph, nvidia)]

    world.run(2 * HOUR)
    values = ["leaf1", "spine1", "core1"]
    own = {f"{PREFIX}/{name}": value for name, value in zip(TIERS, values[1:], strict=True)}
    assert written() == [own, {}, {}]
    world.start_again(naming=Naming(tiers=topograph))
    world.run(60)
    assert written() == [{}, dict(zip(topograph, values, strict=True)), {}]
    world.start_again(naming=Naming(tiers=nvidia))
    world.run(60)
    both = [dict(zip(keys, values, strict=True)) for keys in (topograph, nvidia)]
    assert written() == [{}, *both]
    assert [line for line in world.lines if f"{topograph[1]}- removes this key" in line]
    world.start_again(naming=Naming(tiers=nvidia), former=topograph)
    world.run(60)
    assert written() == [{}, {}, both[1]]
    world.explore = None
    world.start_again(naming=Naming(tiers=nvidia))
    world.run(60)
    assert written() == [{}, {}, {nvidia[0]: "leaf1"}]


def test_a_key_of_a_pattern_that_another_manager_has() -> None:
    """Its value stays, as that of the accelerator's key does."""
    world = Fabric()
    keys = tier_keys(TOPOGRAPH)
    world.api.server.hold("topograph", "Update", {keys[1]: "other"})
    world.start_again(naming=Naming(tiers=keys))
    world.run(2 * HOUR)
    fields = world.api.server.fields
    assert [fields.get((LABELS, key)) for key in keys] == ["leaf1", "other", "core1"]


def test_probe_without_the_flag_brings_no_label_back() -> None:
    """It was removed from the Node, and the annotation still has its value."""
    world = asked_twice()
    key = f"{PREFIX}/{TIERS[0]}"
    own = world.api.server.values(MANAGER, "Apply")
    world.api.server.hold(MANAGER, "Apply", {k: v for k, v in own.items() if k != key})
    on = target(world.api, "n1", Naming())
    host = Host(world, world.wall_time, "n1", ask_smp=world.ask_smp)
    observation, known = observed(host, {"source": ()}, on)
    change, _ = planned(on, observation, known, render(known, Naming()))
    assert not change.label_changes
    assert change.wanted[KEYS.fabric_field] == world.fabric


def test_explain_has_the_way_to_the_core() -> None:
    world = asked_twice()
    on = target(world.api, "n1", Naming())
    host = Host(world, world.wall_time, "n1", ask_smp=world.ask_smp)
    observation, known = observed(host, {"source": ()}, on)
    subject = subject_of(f"{PREFIX}/tier-2.current", Naming())
    assert subject
    found = explained(subject, observation, known, render(known, Naming()), None)
    assert [(row["subject"], row["value"]) for row in found["evidence"]] == [
        ("leaf1 port 41", "spine1 port 1"),
        ("spine1 port 31", "core1 port 1"),
    ]
