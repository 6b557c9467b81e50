"""Events about the Node by a running agent: when, how many, and what a failure means."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.daemon.recorder import MAX_BACK_OFF, MAX_BURST, MIN_BACK_OFF, TOKEN_INTERVAL, Recorder
from agent.kube.answers import Answer
from agent.memory import Fact, FarEnd, Known
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from tests.support.kernel_tree import BUS, CLASS, HOME, bdf, card, union
from tests.support.observations import observation
from tests.support.running import EPOCH, HOUR, Api, World
from tests.support.smps import Fabric

SEEN = observation(("ibp3", "0000:1b:00.0"))
CARDS = union(card(f"ibp{n}", bdf(n)) for n in range(4))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(**{f"ibp{number}": (number + 1, f"leaf{number}") for number in range(4)})


@pytest.fixture
def world(fabric: Fabric) -> World:
    """Four HCAs with neighbors; the agent has been running for a minute, and wrote no Event."""
    world = World(CARDS, smp=fabric, events=True).run(60.0)
    assert world.labels["neighbors.current.ibp3.device"] == "leaf3"
    assert events(world) == []
    return world


def events(world: World) -> list[tuple[str, str, int]]:
    """Return reason, message and count of each Event."""
    found = world.api.events.values()
    return [(one["reason"], one["message"], one["count"]) for one in found]


def sent(world: World) -> list[float]:
    return [at for at, operation in world.api.requests if operation.endswith("-event")]


def fall_off(world: World, *numbers: int) -> World:
    """Remove HCAs with their functions."""
    for n in numbers:
        world.remove(f"{CLASS}/ibp{n}", f"{HOME}/{bdf(n)}", f"{BUS}/{bdf(n)}")
    return world.look(60)


def test_a_cable_that_changed(world: World, fabric: Fabric) -> None:
    """One Event, after the labels; the way back is another."""
    fabric.move(3)
    world.look(60)
    there = "ibp3 was connected to leaf3 port 1, is connected to leaf99 port 1"
    assert events(world) == [("CableChanged", there, 1)]
    assert sent(world)[0] > max(world.api.applied())
    fabric.move(3, to=3)
    world.look(60)
    back = "ibp3 was connected to leaf99 port 1, is connected to leaf3 port 1"
    assert events(world)[1:] == [("CableChanged", back, 1)]
    fabric.move(3)
    world.look(60)
    assert events(world)[0] == ("CableChanged", there, 2)
    assert world.metrics.snapshot.events == {"written": 3, "failed": 0, "dropped": 0}


def test_the_event_says_whose_it_is(world: World, fabric: Fabric) -> None:
    fabric.move(3)
    world.look(60)
    ((name, event),) = world.api.events.items()
    assert name.startswith("n1.")
    about = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (event["involvedObject"], event["type"]) == (about, "Warning")
    assert event["source"] == {"component": "bwagent", "host": "n1"}
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_a_change_while_the_agent_was_down(world: World, fabric: Fabric) -> None:
    """The annotation knows what was. A restart that finds the same says nothing."""
    world.start_again(events=True)
    world.run(HOUR)
    assert events(world) == []
    fabric.move(3)
    world.start_again(events=True)
    world.run(60.0)
    world.start_again(events=True)
    world.run(HOUR)
    assert [reason for reason, _, _ in events(world)] == ["CableChanged"]


def test_a_repetition_after_a_restart_is_another_event(world: World, fabric: Fabric) -> None:
    """A new agent does not know the name of the one before."""
    for to in (99, 3, 99):
        fabric.move(3, to=to)
        world.start_again(events=True)
        world.run(60.0)
    assert [count for _, _, count in events(world)] == [1, 1, 1]


def test_lost_ports(world: World) -> None:
    """Once; a new agent knows it already, and a port that comes back and is lost again counts."""
    card3 = {path: one for path, one in CARDS.items() if bdf(3) in path or "ibp3" in path}
    fall_off(world, 3)
    text = "ibp3 was at PCI address 0000:1b:00.0, is gone from the bus"
    assert events(world) == [("PortLost", text, 1)]
    world.start_again(events=True)
    world.run(HOUR)
    assert len(sent(world)) == 1
    for count in (1, 2):
        world.entries |= card3
        world.look(60)
        fall_off(world, 3)
        assert events(world)[1:] == [("PortLost", text, count)]


def test_refused_labels(world: World, fabric: Fabric) -> None:
    """The key of the change, with the answer; each refusal counts the same Event up."""
    refused = Answer(422, reason="Invalid", message="policy: not here")
    world.api.trouble = lambda request: refused if request["operation"] == "apply" else None
    fabric.move(3)
    world.look(60)
    ((_, message, count),) = [one for one in events(world) if one[0] == "LabelsRefused"]
    assert "neighbors.current.ibp3.device" in message
    assert message.endswith("refused: status 422: policy: not here")
    assert len(message.splitlines()) == 1
    world.run(3 * HOUR)
    told = [one for one in events(world) if one[0] == "LabelsRefused"]
    assert sum(one[2] for one in told) > count
    assert len(told) <= 4


class Alone:
    """A recorder without the rest of the agent: days in a moment."""

    def __init__(self, seed: int = 1) -> None:
        self.now, self.lines = 0.0, list[bytes]()
        self.metrics = Metrics()
        self.api = Api(now=lambda: self.now)
        self.recorder = Recorder(
            "n1",
            self.api,
            BackgroundTask(lambda work: work()),
            Log(write=self._write, clock=lambda: self.now),
            self.metrics,
            lambda: self.now,
            lambda: EPOCH + self.now,
            random.Random(seed).random,  # noqa: S311 - a simulation
        )

    def _write(self, line: bytes) -> bool:
        self.lines.append(line)
        return True

    def moves(self, was: str, now: str) -> None:
        """Observe that the cable of a port is in another switch."""
        facts = (Fact("ibp3", "0000:1b:00.0", far=_leaf(now)),)
        known = Known(facts, is_seeded=True, was={"ibp3": _leaf(was)})
        self.recorder.learned(known, SEEN, (), ())

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.recorder.next_due()) <= end:
            self.now = max(self.now, due)
            self.recorder.start_due(self.now)
            self.recorder.collect(self.now)
        self.now = end

    @property
    def sent(self) -> list[float]:
        return [at for at, _ in self.api.requests]

    @property
    def counts(self) -> list[int]:
        return [one["count"] for one in self.api.events.values()]


def _leaf(name: str) -> FarEnd:
    return FarEnd(name, name, "1")


def test_a_flapping_cable_has_few_requests() -> None:
    """A thousand changes between two neighbors: the bucket limits the requests, and the Events have
    all of them in the end.
    """
    agent = Alone()
    for number in range(1000):
        agent.moves(*("ab" if number % 2 else "ba"))
        agent.run(10.0)
    assert MAX_BURST <= len(agent.sent) <= MAX_BURST + agent.now / TOKEN_INTERVAL
    agent.run(3 * TOKEN_INTERVAL)
    assert agent.counts == [500, 500]
    assert agent.metrics.snapshot.events["dropped"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        Answer(403, reason="Forbidden", message="cannot create resource events"),
        Answer(500, reason="", message=""),
        Answer(error="unreachable", message="Connection refused"),
    ],
)
def test_a_failure_waits(answer: Answer) -> None:
    """The next try comes later each time, an hour at most; the log has it once, and the Event is
    written when it can be.
    """
    agent = Alone()
    agent.api.trouble = lambda _request: answer
    agent.moves("a", "b")
    agent.run(48 * HOUR)
    pauses = [after - before for before, after in pairwise(agent.sent)]
    assert MIN_BACK_OFF / 2 <= pauses[0] <= MIN_BACK_OFF
    assert all(MAX_BACK_OFF / 2 <= pause <= MAX_BACK_OFF for pause in pauses[7:])
    assert len(agent.sent) < 2 * 48 + 8
    assert sum(b"events not written" in line for line in agent.lines) == 1
    assert agent.metrics.snapshot.events["failed"] == len(agent.sent)
    agent.api.trouble = lambda _request: None
    agent.run(MAX_BACK_OFF)
    assert agent.counts == [1]
    assert sum(b"events written again" in line for line in agent.lines) == 1


def test_agents_do_not_come_back_together() -> None:
    """The server's Retry-After is the same for all; none comes earlier, and not all at once."""
    pauses = set()
    for seed in range(10):
        agent = Alone(seed)
        agent.api.trouble = lambda _request: Answer(429, retry_after=600.0)
        agent.moves("a", "b")
        agent.run(HOUR / 4)
        first, second, *_ = agent.sent
        pauses.add(second - first)
    assert len(pauses) == 10
    assert min(pauses) >= 600


def test_labels_do_not_wait(world: World, fabric: Fabric) -> None:
    """For an Event that cannot be written."""
    answer = Answer(403, reason="Forbidden", message="cannot create resource events")
    world.api.trouble = lambda request: answer if "-event" in request["operation"] else None
    fabric.move(3)
    world.look(0.5)
    assert world.labels["neighbors.current.ibp3.device"] == "leaf99"
    fabric.move(3, to=98)
    world.look(30.0)
    assert world.labels["neighbors.current.ibp3.device"] == "leaf98"
    assert events(world) == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_event_is_dropped(world: World, fabric: Fabric, status: int) -> None:
    """The policy, or a webhook, does not accept it: no second try."""
    answer = Answer(status, reason="Invalid", message="no")
    world.api.trouble = lambda request: answer if "-event" in request["operation"] else None
    fabric.move(3)
    world.look(3 * HOUR)
    assert len(sent(world)) == 1
    assert world.metrics.snapshot.events == {"written": 0, "failed": 0, "dropped": 1}
    assert any("events not written" in line for line in world.lines)


def test_an_event_that_the_server_has_removed(world: World, fabric: Fabric) -> None:
    """A repetition makes another one, with the whole count."""
    fabric.move(3)
    world.look(60)
    world.api.events.clear()
    for to in (3, 99):
        fabric.move(3, to=to)
        world.look(60)
    assert sorted(count for _, _, count in events(world)) == [1, 2]


def test_a_lost_response_makes_no_second_event(world: World, fabric: Fabric) -> None:
    api = world.api

    def lose(request: Mapping[str, Any]) -> Answer | None:
        if request["operation"] == "create-event" and not api.events:
            api.events[request["body"]["metadata"]["name"]] = dict(request["body"])
            return Answer(error="timeout", message="")
        return None

    api.trouble = lose
    fabric.move(3)
    world.look(HOUR)
    assert [count for _, _, count in events(world)] == [1]
    assert world.metrics.snapshot.events == {"written": 1, "failed": 1, "dropped": 0}


def test_a_helper_that_dies(world: World, fabric: Fabric) -> None:
    def die(request: Mapping[str, Any]) -> None:
        if "-event" in request["operation"]:
            raise OSError

    world.api.trouble = die
    fabric.move(3)
    world.look(30)
    assert world.metrics.snapshot.events["failed"] == 1
    assert "none" in world.metrics.snapshot.requests


def test_nothing_without_the_flag(fabric: Fabric) -> None:
    world = World(CARDS, smp=fabric).run(60.0)
    fabric.move(3)
    world.look(60)
    assert sent(world) == []
    assert world.metrics.snapshot.events == {}
