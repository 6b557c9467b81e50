"""The GPUs are queried at an interval, and an observation reads the last answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Pending, Unavailable
from agent.events.event import Event
from agent.lldp.packet_socket import run_at_once
from agent.model import NvlinkDomain
from agent.nvml.poller import MIN_QUERY_INTERVAL, NvmlPoller
from agent.reasons import AcceleratorReason


def test_nvml_is_queried_once_per_interval() -> None:
    """Not before an observation needs it, then each interval; an equal answer is no change."""
    gpus = NvmlPoller(lambda: {"n": 0}, 60.0, BackgroundTask(run_at_once))
    gpus.start_due(0.0)
    assert not gpus.task.busy
    with pytest.raises(Pending, match="not asked yet"):
        gpus()
    gpus.start_due(0.0)
    assert gpus.collect(0.1)
    assert gpus.next_due() == float("inf")
    assert gpus() == {"n": 0}
    gpus.judged(NvlinkDomain("x.1"))
    assert gpus.next_due() == pytest.approx(60.1)
    gpus.start_due(60.1)
    assert not gpus.collect(60.2)
    assert gpus.next_due() == pytest.approx(120.2)


def test_every_observation_has_the_error_of_a_query_that_hangs() -> None:
    """And the same failure again is no change."""

    def query() -> dict[str, Any]:
        raise Unavailable("helper nvml: no answer within 30 s")

    gpus = NvmlPoller(query, 60.0, BackgroundTask(run_at_once))
    for expected in (True, False):
        with pytest.raises(Unavailable):
            gpus()
        gpus.start_due(1000.0)
        assert gpus.collect(1000.0) is expected
        gpus.judged(NvlinkDomain(None, AcceleratorReason.FAILED))
        gpus.start_due(2000.0)
        gpus.collect(2000.0)
    with pytest.raises(Unavailable, match="within 30 s"):
        gpus()


def refused(code: int) -> dict[str, Any]:
    """The answer of a query whose first call failed with this nvmlReturn_t."""
    error = {"call": "dlopen", "code": code, "text": "libnvidia-ml.so.1: not found"}
    return {"library": None, "driver": None, "error": error, "count": 0, "gpus": []}


class Driver:
    """A library that gives these answers, and the poller over it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked = 0
        self.gpus = NvmlPoller(self._ask, 60.0, BackgroundTask(run_at_once))

    def _ask(self) -> dict[str, Any]:
        self.asked += 1
        return self.answer

    def poll(self, now: float) -> float:
        """Observe, poll if it is due, observe the result; return the seconds until the next."""
        for _ in range(2):
            self.gpus.begin_cycle()
            with suppress(Pending, Unavailable):
                self.gpus()
            self.gpus.judged(NvlinkDomain(None, AcceleratorReason.FAILED))
            self.gpus.start_due(now)
            self.gpus.collect(now)
        return self.gpus.next_due() - now


BOUND = Event("device", "0000:41:00.0")


@pytest.mark.parametrize("code", [9, 12, 13])
def test_a_missing_library_or_driver_is_asked_for_every_ten_minutes(code: int) -> None:
    """After a minute, two, four and eight; one that answers at its interval again."""
    driver, now, waits = Driver(refused(code)), 0.0, []
    for _ in range(7):
        waits.append(driver.poll(now))
        now += waits[-1]
    assert waits == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
    driver.answer = {"gpus": ["one"]}
    assert driver.poll(now) == 60.0
    driver.answer = refused(code)
    assert driver.poll(now + 60.0) == 60.0


def test_a_driver_that_loads_is_asked_at_once() -> None:
    """A uevent or SIGHUP ends the wait, but many of them make one query in ten seconds."""
    driver = Driver(refused(9))
    for now in (0.0, 60.0, 180.0):
        driver.poll(now)
    assert driver.poll(200.0) == 220.0
    driver.gpus.trigger(200.0, BOUND)
    assert driver.gpus.next_due() == 200.0
    driver.poll(200.0)
    assert driver.asked == 4
    driver.gpus.trigger(200.5, BOUND)
    assert driver.gpus.next_due() == 200.0 + MIN_QUERY_INTERVAL
    driver.answer = {"gpus": ["one"]}
    assert driver.poll(210.0) == 60.0


@pytest.mark.parametrize(
    ("event", "is_concerned"),
    [
        (BOUND, True),
        (Event("signal", "SIGHUP"), True),
        (Event("resync", "uevents"), True),
        (Event("port", "mlx5_0/1"), False),
        (Event("link", "eth0"), False),
        (Event("device", "mlx5_0"), False),
    ],
)
def test_a_port_that_flaps_concerns_no_gpu(event: Event, *, is_concerned: bool) -> None:
    """A missing library is not looked for with each event of the network."""
    driver = Driver(refused(9))
    for now in (0.0, 60.0, 180.0):
        driver.poll(now)
    driver.gpus.trigger(200.0, event)
    assert (driver.gpus.next_due() == 200.0) is is_concerned


def test_an_event_says_nothing_of_gpus_that_answer() -> None:
    driver = Driver({"gpus": ["one"]})
    driver.poll(0.0)
    driver.gpus.trigger(20.0, BOUND)
    assert driver.gpus.next_due() == 60.0
