"""When the error counters of links are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

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
    ports = assign([ib("ibp0", 0, replace(PORT, link_downed=link_downed))])
    return replace(observation(), ports=ports)


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


def test_another_far_end_has_no_earlier_readings() -> None:
    reading = Reading()
    reading.run(1000.0)
    assert reading.turn(LINK._replace(far_port=4)) == []


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
