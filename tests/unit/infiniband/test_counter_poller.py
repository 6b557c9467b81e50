"""When the error counters of links are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.infiniband.counter_poller import INTERVAL, MAX_INTERVAL, CounterPoller
from agent.infiniband.devices import CounterPort
from agent.model import Observation
from tests.support.devices import PORT, assign, ib
from tests.support.observations import observation
from tests.support.perf import entry, refused, side

LINK = CounterPort("ibp0", 1, ("ibp0", 1), 3, again=5.0)


def observed(link_downed: int | None = 0) -> Observation:
    ports = assign([ib("ibp0", 0, PORT._replace(link_downed=link_downed))])
    return observation()._replace(ports=ports)


class Reading:
    """A poller whose readings are there at once."""

    def __init__(self) -> None:
        self.times, self.now, self.far, self.fault = list[float](), 0.0, side(port=3), ""
        self.poller = CounterPoller(self.ask, BackgroundTask[Any](lambda work: work()), lambda: 1.0)

    def ask(self, ports: Sequence[CounterPort]) -> Any:
        assert [port.again for port in ports] == [0.0]
        self.times.append(self.now)
        if self.fault:
            raise Unavailable(self.fault)
        return {"ports": [entry((self.now, side(), self.far))]}

    def turn(self, *ports: CounterPort, link_downed: int | None = 0) -> list[dict[str, Any]]:
        """Observe, do what is due, and return the entries that were there."""
        self.poller.begin_cycle()
        entries = self.poller(ports)["ports"]
        self.poller.observed(observed(link_downed))
        self.poller.start_due(self.now)
        self.poller.collect(self.now)
        return list(entries)

    def run(self, until: float, **facts: Any) -> list[float]:
        """Observe whenever something is due; return the times of the readings."""
        self.times.clear()
        self.turn(LINK, **facts)
        for _ in range(1000):
            due = self.poller.next_due()
            if due > until:
                break
            assert due > self.now
            self.now = due
            self.turn(LINK, **facts)
        self.now = until
        return self.times


def test_a_quiet_port_is_read_once_an_hour() -> None:
    """The first time within a minute; nothing is due without ports."""
    reading = Reading()
    assert reading.poller.next_due() == math.inf
    assert reading.run(24 * INTERVAL) == [60.0 + INTERVAL * hour for hour in range(24)]
    [row] = reading.turn(LINK)
    assert [of["time"] for of in row["readings"]] == [60.0 + INTERVAL * 22, 60.0 + INTERVAL * 23]
    reading.turn()
    assert reading.poller.next_due() == math.inf


def test_all_ports_of_a_node_are_read_by_one_helper() -> None:
    """Eight ports, one helper an hour; a change of one port parts it for less than an hour."""
    links = [CounterPort(f"ibp{n}", 1, (f"ibp{n}", 1), 3, again=5.0) for n in range(8)]
    asked = list[tuple[float, int]]()
    now, random = 0.0, Random(1)  # noqa: S311 - a simulation

    def ask(ports: Sequence[CounterPort]) -> Any:
        asked.append((now, len(ports)))
        row = entry((now, side(), side(port=3)))
        return {"ports": [row | {"device": port.device, "port": 1} for port in ports]}

    poller = CounterPoller(ask, BackgroundTask[Any](lambda work: work()), random.random)

    def turn(ports: Sequence[CounterPort]) -> None:
        poller.begin_cycle()
        poller(ports)
        poller.start_due(now)
        poller.collect(now)

    def run(until: float) -> list[tuple[float, int]]:
        nonlocal now
        asked.clear()
        turn(links)
        while (due := poller.next_due()) <= until:
            now = due
            turn(links)
        now = until
        return asked

    assert [ports for _, ports in run(24 * INTERVAL)] == [8] * len(asked)
    assert 24 <= len(asked) <= 27
    last, _ = asked[-1]
    run(last + INTERVAL)
    last, _ = asked[-1]
    run(last + 600)
    turn(links[1:])  # the first port is down, and up again
    assert [ports for _, ports in run(last + 700)] == [1]
    assert {ports for _, ports in run(last + 5 * INTERVAL)} == {8}


def test_a_change_is_followed_by_a_reading() -> None:
    """A lost link that was counted; a port that is up again, whose readings were kept."""
    reading = Reading()
    reading.run(1000.0)
    assert reading.run(2000.0, link_downed=1) == [1010.0]
    reading.turn()
    reading.now = 2100.0
    [row] = reading.turn(LINK, link_downed=1)
    assert len(row["readings"]) == 2
    assert reading.run(2200.0, link_downed=1) == [2110.0]


def test_a_link_that_flaps_is_read_ever_less() -> None:
    reading = Reading()
    times = []
    for minute in range(24 * 60):
        times += reading.run(60.0 * minute, link_downed=minute)
    assert len([time for time in times if time <= INTERVAL]) <= 8
    assert len(times) <= 8 + 24


@pytest.mark.parametrize("other", [{"far_port": 4}, {"far_guid": "b0cf0e0300d66c81"}])
def test_another_far_end_has_no_earlier_readings(other: dict[str, Any]) -> None:
    """Another port of the switch, or the same port of another one."""
    reading = Reading()
    reading.run(1000.0)
    assert reading.turn(LINK._replace(**other)) == []


def test_refusals_back_off_to_a_day() -> None:
    reading = Reading()
    reading.far = refused()
    times = reading.run(4 * MAX_INTERVAL)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[:5] == [INTERVAL * 2**number for number in range(5)]
    assert waits[-1] == MAX_INTERVAL
    [row] = reading.turn(LINK)
    assert row["readings"][-1]["far"]["error"] == "no-answer"


def test_a_helper_that_fails_backs_off_and_keeps_the_readings() -> None:
    reading = Reading()
    reading.run(1000.0)
    reading.fault = "late"
    assert len(reading.run(MAX_INTERVAL)) < 8
    [row] = reading.turn(LINK)
    assert [of["time"] for of in row["readings"]] == [60.0]
