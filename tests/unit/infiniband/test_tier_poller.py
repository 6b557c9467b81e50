"""When the switches above are asked for."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Pending, Unavailable
from agent.infiniband.devices import AskingPort
from agent.infiniband.exploration import LeafLook, Unexplored
from agent.infiniband.fabric_memory import DAY, HOUR, NOTHING, FabricMemory
from agent.infiniband.tier_poller import TierPoller
from agent.sources.observe import Memories
from tests.support.sas import CABLES, Administrator

ADMINISTRATOR = Administrator(*CABLES)
PORTS: list[AskingPort] = [ADMINISTRATOR.port("leaf1")]
LEAF = {ADMINISTRATOR.guid("leaf1"): {41: ADMINISTRATOR.guid("spine1")}}
NOW = 1_800_000_000


class Asking:
    """A poller whose questions are answered at once; its memory is that of a test."""

    def __init__(self, memory: FabricMemory = NOTHING, fault: str | None = None) -> None:
        self.fault, self.times, self.now = fault, list[float](), 0.0
        self.ports: list[AskingPort] = PORTS
        self.looks, self.agrees, self.lids = list[float](), True, list[Any]()
        self.memories = Memories(wall=lambda: NOW + self.now)
        self.memories.fabric = memory
        task = BackgroundTask[Any](lambda work: work())
        self.poller = TierPoller((self.explore, self.look), self.memories, task, lambda: 0.5)

    def explore(self, ports: Any, *_others: Any) -> Any:
        self.times.append(self.now)
        if self.fault:
            raise Unavailable(self.fault)
        return ADMINISTRATOR.explore(ports)

    def look(self, _ports: Any, _uplinks: Any, lids: Any) -> LeafLook:
        self.looks.append(self.now)
        self.lids.append(lids)
        if self.fault:
            raise Unexplored(self.fault, {"no-answer": 1})
        return LeafLook(self.agrees, {"a": 1}, {}, {"answered": 1})

    def turn(self, after: float = 0.0) -> list[float]:
        """Let time pass, observe, and return when questions were asked."""
        self.now += after
        self.poller.begin_cycle()
        with suppress(Unavailable):
            self.poller(self.ports)
        self.poller.start_due(self.now)
        self.poller.collect(self.now)
        return self.times


def known(due: float) -> FabricMemory:
    return FabricMemory(LEAF, time=NOW - HOUR, due=NOW + int(due))


@pytest.mark.parametrize(
    ("memory", "at"),
    [
        (NOTHING, DAY / 2),
        (known(-HOUR), DAY / 2),
        (known(300), 300),
        (known(DAY - HOUR), 23 * HOUR),
    ],
)
def test_the_first_question(memory: FabricMemory, at: float) -> None:
    """At a random time within a day, also where it is overdue; else when it is due."""
    asking = Asking(memory)
    assert asking.turn() == []
    assert asking.poller.next_due() == at
    assert asking.turn(at - 1) == []
    assert asking.turn(1) == [at]


def test_the_memory_says_when_the_next_one_is_due() -> None:
    asking = Asking(known(0))
    asking.turn()
    asking.turn(DAY / 2)
    asking.turn()
    assert asking.poller.next_due() == math.inf
    asking.memories.fabric = FabricMemory(LEAF, time=NOW, due=int(NOW + asking.now + HOUR))
    asking.turn()
    assert asking.poller.next_due() == DAY / 2 + HOUR


def test_a_failure_backs_off_up_to_a_day() -> None:
    asking = Asking(known(1), fault="no answer")
    for _ in range(int(4 * DAY / 600)):
        asking.turn(600)
    waits = [round(after - before) for before, after in pairwise(asking.times)]
    assert waits[:6] == [*(HOUR * 2**tries for tries in range(5)), DAY]
    with pytest.raises(Unavailable, match="no answer"):
        asking.poller(PORTS)


def test_nothing_is_asked_without_a_port() -> None:
    asking = Asking(known(1))
    with pytest.raises(Pending):
        asking.poller(PORTS)
    asking.poller.begin_cycle()
    assert asking.poller.next_due() == math.inf


def test_a_wall_clock_that_jumps_back_delays_no_question_for_long() -> None:
    """The memory is of the future then."""
    asking = Asking(FabricMemory(time=NOW + 365 * DAY, due=NOW + 365 * DAY + HOUR))
    asking.turn()
    assert asking.poller.next_due() == HOUR


def test_between_two_explorations_it_looks_once_a_day() -> None:
    """At most; the last time as it was a day before. The first look knows no LIDs."""
    asking = Asking(known(3 * DAY))
    for _ in range(3 * 24 + 1):
        asking.turn(HOUR)
    assert (asking.looks, asking.times) == ([23 * HOUR, 47 * HOUR, 71 * HOUR], [72 * HOUR])
    assert asking.lids == [{}, {"a": 1}, {"a": 1}]
    assert asking.memories.sa_questions == {"answered": 3}


def test_a_look_that_finds_another_switch_is_followed_by_an_exploration() -> None:
    asking = Asking(known(3 * DAY))
    asking.agrees = False
    asking.turn()
    asking.turn(23 * HOUR)
    assert (asking.looks, asking.turn(1)) == ([23 * HOUR], [23 * HOUR + 1])


def test_a_leaf_that_no_answer_had_is_explored() -> None:
    """Within the random time of agents that see the same, by an agent that starts too; an hour
    after the last answer at the earliest, and after a failure with the same back-off as ever.
    """
    memory = FabricMemory({"a" * 16: {}}, time=NOW - DAY, due=NOW + 7 * DAY)
    for is_running in (False, True):
        asking = Asking(known(7 * DAY) if is_running else memory)
        asking.turn()
        if is_running:
            asking.ports = [ADMINISTRATOR.port("leaf3"), (None, ADMINISTRATOR.guid("leaf4"))]
            asking.turn(10)
        assert (asking.times, asking.poller.next_due()) == ([], asking.now + 30)
        asking.turn(30)
        assert (asking.times, asking.looks) == ([asking.now], [])
    asking = Asking(replace(memory, time=NOW - 60), fault="no answer")
    for _ in range(8):
        asking.turn(HOUR / 2)
    assert asking.times == [HOUR, 2 * HOUR, 4 * HOUR]
    asking = Asking(NOTHING)
    asking.turn()
    assert asking.poller.next_due() == DAY / 2


def test_a_look_that_fails_is_repeated_and_said() -> None:
    """Until one is answered."""
    asking = Asking(known(7 * DAY), fault="no answer")
    asking.turn()
    for _ in range(4):
        asking.turn(23 * HOUR if not asking.looks else HOUR)
    assert asking.looks == [23 * HOUR, 24 * HOUR, 26 * HOUR]
    assert asking.memories.sa_questions == {"no-answer": 3}
    with pytest.raises(Unavailable, match="no answer") as failed:
        asking.poller(PORTS)
    assert not isinstance(failed.value, Pending)
    asking.fault = None
    asking.turn(4 * HOUR)
    with pytest.raises(Pending):
        asking.poller(PORTS)
