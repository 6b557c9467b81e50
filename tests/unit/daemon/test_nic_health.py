"""The health of NICs in the whole loop: when the drivers are asked, the metric and the Event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from agent.daemon.nic_health import (
    INTERVAL,
    LOST,
    MAX_CHANGE_INTERVAL,
    MIN_INTERVAL,
    MIN_RETRY,
    SETTLE,
)
from agent.errors import Unavailable
from agent.events.event import Event
from agent.kube.answers import Answer
from tests.support.exposition import text
from tests.support.kernel_tree import BUS, CLASS, HOME, bdf, card
from tests.support.running import HOUR, Api, World

NIC = bdf(0)
CHANGED = Event("health", NIC)
METRIC = f'bwagent_nic_unhealthy{{pci="{NIC}",reporter="fw_fatal"}} 1.0'
MESSAGE = f"NIC {NIC} (ibp0): its driver reports fw_fatal in error (2 errors)"


class Drivers(World):
    """Two HCAs whose drivers answer at once."""

    def __init__(self, *trees: Any, api: Api | None = None) -> None:
        self.asked: list[float] = []
        self.is_dead, self.fault = False, ""
        super().__init__(*trees, api=api)
        self.ask_nics = self.ask
        self.start_again(events=True)

    def ask(self, _netdevs: Sequence[str]) -> dict[str, Any]:
        self.asked.append(self.time)
        if self.fault:
            raise Unavailable(self.fault)
        states = {"fw": 0, "fw_fatal": int(self.is_dead)}
        rows = [{"name": name, "state": states[name], "errors": 2} for name in states]
        return {"devices": [{"device": NIC, "reporters": rows}], "errors": []}

    def change(self, seconds: float, *, is_dead: bool) -> None:
        """Break or mend the NIC, of which the kernel tells, and let time pass."""
        self.is_dead = is_dead
        self.at(0.0, CHANGED)
        self.run(seconds)

    @property
    def unhealthy(self) -> list[str]:
        lines = text(self.metrics).splitlines()
        return [line for line in lines if line.startswith("bwagent_nic_unhealthy")]

    @property
    def notices(self) -> list[tuple[str, int]]:
        """The messages and counts of the Events."""
        events = self.api.events.values()
        return [
            (event["message"], event["count"])
            for event in events
            if event["reason"] == "NicUnhealthy"
        ]


@pytest.fixture
def world() -> Drivers:
    """An agent that has asked once, a minute ago."""
    world = Drivers(card("ibp0", NIC), card("ibp1", bdf(1))).run(60.0)
    assert len(world.asked) == 1
    assert world.unhealthy == []
    return world


def test_the_first_apply_comes_first() -> None:
    """A question about the health of a NIC delays no label; then one in six hours."""
    away = True
    api = Api(lambda _request: Answer(error="network", message="away") if away else None)
    world = Drivers(card("ibp0", NIC), api=api)
    world.at(60.0, CHANGED, LOST)
    world.run(HOUR)
    assert world.asked == []
    away = False
    world.run(25 * HOUR)
    assert len(world.asked) == 5
    assert world.asked[0] >= world.api.applied()[0]
    assert all(INTERVAL * 0.9 <= b - a <= INTERVAL for a, b in pairwise(world.asked))


def test_a_nic_that_is_dead_while_its_link_is_up(world: Drivers) -> None:
    """The kernel tells of the change, the driver is asked, and the metric and an Event tell it."""
    world.change(SETTLE + 30.0, is_dead=True)
    assert len(world.asked) == 2
    assert world.unhealthy == [METRIC]
    assert world.notices == [(MESSAGE, 1)]
    assert world.labels["speed.current"] == "800G"
    world.run(12 * HOUR)
    assert world.notices == [(MESSAGE, 1)]
    world.change(60.0, is_dead=False)
    assert world.unhealthy == []
    world.change(60.0, is_dead=True)
    assert world.notices[-1] == (MESSAGE, 1)
    assert len(world.notices) == 2


def test_a_reporter_that_changes_all_the_time(world: Drivers) -> None:
    """The questions back off to one an hour; a quiet reporter is read soon after a change again."""
    for second in range(0, int(4 * HOUR), 20):
        world.at(float(second), CHANGED)
    world.run(4 * HOUR)
    waits = [b - a for a, b in pairwise(world.asked[1:])]
    assert len(world.asked) < 16
    assert max(waits) <= MAX_CHANGE_INTERVAL + SETTLE
    world.run(INTERVAL)
    questions = len(world.asked)
    world.change(SETTLE + MIN_INTERVAL, is_dead=True)
    assert len(world.asked) == questions + 1


def test_what_asks_nothing(world: Drivers) -> None:
    """NICs that are no backend, and other events; no observation follows a notification."""
    for event in (Event("health", "0000:ff:00.0"), Event("device", NIC), Event("resync", "links")):
        world.at(0.0, event)
        world.run(60.0)
    assert len(world.asked) == 1
    observations = world.metrics.snapshot.observations
    world.at(0.0, Event("health", "0000:ff:00.0"))
    world.run(1.0)
    assert world.metrics.snapshot.observations == observations
    none = Drivers()
    none.at(60.0, LOST)
    assert none.run(HOUR).asked == []


def test_notifications_that_were_lost(world: Drivers) -> None:
    """And a NIC that has left the bus: the reporters are read."""
    world.at(0.0, LOST)
    world.run(60.0)
    assert len(world.asked) == 2
    world.remove(f"{CLASS}/ibp1", f"{HOME}/{bdf(1)}", f"{BUS}/{bdf(1)}")
    world.look(60.0)
    assert len(world.asked) == 3


def test_a_driver_that_does_not_answer(world: Drivers) -> None:
    """The last answer stands, a line in the log says so, and the questions back off."""
    world.change(60.0, is_dead=True)
    world.fault = "the nics helper took longer than 20 s"
    world.change(60.0, is_dead=True)
    assert world.unhealthy == [METRIC]
    [line] = [line for line in world.lines if world.fault in line]
    assert 'subject="health reporters"' in line
    begun = len(world.asked)
    world.run(INTERVAL)
    waits = [b - a for a, b in pairwise(world.asked[begun - 1 :])]
    assert waits == sorted(waits)
    assert waits[0] >= MIN_RETRY * 0.9
    assert len(waits) < 10
    world.fault = ""
    world.run(INTERVAL)
    assert [line for line in world.lines if "health reporters" in line][1:]


def test_a_driver_that_never_answered() -> None:
    """A problem, and no metric."""
    world = Drivers(card("ibp0", NIC))
    world.fault = "No module named 'pyroute2'"
    world.run(HOUR)
    assert world.unhealthy == []
    assert len([line for line in world.lines if world.fault in line]) == 1
    assert len(world.asked) > 1
