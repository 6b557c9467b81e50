"""InfiniBand ports are queried when they are new, after a trigger, and every 20 minutes."""

from __future__ import annotations

from typing import Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.events.event import WOKE, Event
from agent.infiniband.poller import (
    MAX_FAILURE_INTERVAL,
    MAX_MISSING_INTERVAL,
    MIN_QUERY_INTERVAL,
    REFRESH_INTERVAL,
    RETRY_INTERVAL,
    SmpPoller,
)
from agent.infiniband.switch_names import SwitchNames
from agent.lldp.packet_socket import run_at_once

LINK = Event("link", "ib0")


class Fabric:
    """InfiniBand switches that answer SMPs, or do not."""

    def __init__(self) -> None:
        self.queried: list[tuple[tuple[str, int], ...]] = []
        self.error: str | None = None
        self.only: tuple[str, int] | None = None  # the port that has the error; None: all
        self.failed: list[list[str | int]] = []
        self.smps = SmpPoller(self._answer, BackgroundTask(run_at_once), SwitchNames())

    def _answer(self, addresses: Any) -> dict[str, Any]:
        self.queried.append(tuple(addresses))
        if self.error == "helper":
            raise Unavailable("helper smp: killed")
        return {"ports": [self._entry(*address) for address in addresses], "failed": self.failed}

    def _entry(self, device: str, port: int) -> dict[str, Any]:
        error = self.error if self.only in (None, (device, port)) else None
        return {"device": device, "port": port, "error": error, "text": error}

    def observe(self, *addresses: tuple[str, int]) -> list[str | None]:
        self.smps.begin_cycle()
        return [one["error"] for one in self.smps(addresses)["ports"]]

    def poll(self, now: float) -> bool:
        self.smps.start_due(now)
        return self.smps.collect(now)


def test_a_port_is_queried_when_it_is_new_and_after_a_trigger() -> None:
    """Many triggers make one query in MIN_QUERY_INTERVAL seconds."""
    fabric = Fabric()
    assert fabric.observe(("a", 1)) == ["no-answer"]
    assert fabric.poll(0.0)
    assert fabric.observe(("a", 1), ("b", 1)) == [None, "no-answer"]
    assert fabric.poll(0.1)
    assert fabric.queried == [(("a", 1),), (("b", 1),)]
    assert not fabric.poll(REFRESH_INTERVAL - 1)
    for now in (1.0, 1.1, 1.2):
        fabric.smps.trigger(now, LINK)
        fabric.poll(now)
    assert len(fabric.queried) == 2
    assert fabric.poll(MIN_QUERY_INTERVAL + 0.2)
    assert fabric.queried[-1] == (("a", 1), ("b", 1))


def test_a_trigger_while_a_query_is_under_way_stands() -> None:
    """The answer may be of before: the port is queried again, once."""
    fabric = Fabric()
    fabric.observe(("a", 1))
    fabric.smps.start_due(0.0)
    fabric.smps.trigger(1.0, WOKE)
    assert fabric.smps.collect(2.0)
    assert fabric.smps.next_due() == MIN_QUERY_INTERVAL
    assert fabric.poll(MIN_QUERY_INTERVAL)
    assert fabric.smps.next_due() == MIN_QUERY_INTERVAL + REFRESH_INTERVAL


def test_an_answer_is_not_that_of_a_port_that_came_up_meanwhile() -> None:
    """It may be connected to another switch by then."""
    fabric = Fabric()
    fabric.observe(("a", 1))
    fabric.smps.start_due(0.0)
    fabric.observe()
    assert fabric.observe(("a", 1)) == ["no-answer"]
    fabric.smps.collect(1.0)
    assert fabric.observe(("a", 1)) == ["no-answer"]
    assert fabric.poll(1.0)
    assert fabric.observe(("a", 1)) == [None]


def test_a_missing_library_is_looked_for_every_ten_minutes() -> None:
    """Nobody says that it was installed; a trigger (uevent, SIGHUP) looks for it at once."""
    fabric = Fabric()
    fabric.error, now, waits = "no-umad", 0.0, []
    for _ in range(9):
        fabric.observe(("a", 1))
        assert fabric.poll(now)
        waits.append(fabric.smps.next_due() - now)
        now = fabric.smps.next_due()
    assert waits[:3] == [RETRY_INTERVAL, 2 * RETRY_INTERVAL, 4 * RETRY_INTERVAL]
    assert waits[-2:] == [MAX_MISSING_INTERVAL] * 2 == [600.0] * 2
    fabric.smps.trigger(now - 300.0, LINK)
    assert fabric.smps.next_due() == now - 300.0
    fabric.error = None
    assert fabric.poll(now - 300.0)
    assert fabric.smps.next_due() == now - 300.0 + REFRESH_INTERVAL


@pytest.mark.parametrize(("error", "longest"), [("no-answer", 4 * 3600), ("helper", 300)])
def test_a_port_without_answer_is_queried_at_growing_intervals(error: str, longest: float) -> None:
    """The interval doubles, up to hours; up to minutes if the helper failed."""
    fabric = Fabric()
    fabric.error = error
    now, waits = 0.0, []
    fabric.observe(("a", 1))
    for _ in range(14):
        assert fabric.poll(now)
        waits.append(fabric.smps.next_due() - now)
        now = fabric.smps.next_due()
    assert waits[:3] == [RETRY_INTERVAL, 2 * RETRY_INTERVAL, 4 * RETRY_INTERVAL]
    assert waits[-1] == longest


def test_a_malformed_answer_of_the_helper_is_an_error() -> None:
    """The observation fails as if the helper had been killed."""
    smps = SmpPoller(lambda _addresses: {"ports": [1]}, BackgroundTask(run_at_once), SwitchNames())
    smps([("a", 1)])
    smps.start_due(0.0)
    smps.collect(0.0)
    smps.begin_cycle()
    with pytest.raises(Unavailable, match="malformed answer"):
        smps([("a", 1)])


def test_a_device_that_fails_leaves_the_other_answers() -> None:
    """Its own port has no neighbor, and is queried again within minutes; the others keep theirs."""
    fabric = Fabric()
    fabric.observe(("a", 1), ("b", 1))
    fabric.poll(0.0)
    fabric.error, fabric.only, fabric.failed = "no-answer", ("a", 1), [["a", 1]]
    fabric.smps.trigger(MIN_QUERY_INTERVAL, LINK)
    now = MIN_QUERY_INTERVAL
    for _ in range(7):
        assert fabric.poll(now)
        assert fabric.observe(("a", 1), ("b", 1)) == ["no-answer", None]
        before, now = now, fabric.smps.next_due()
    assert now - before == MAX_FAILURE_INTERVAL


def test_a_poll_that_fails_leaves_the_answers_of_other_ports() -> None:
    """A crashed helper of a new port does not remove the neighbors of the others."""
    fabric = Fabric()
    fabric.observe(("a", 1))
    fabric.poll(0.0)
    fabric.observe(("a", 1), ("b", 1))
    fabric.error = "helper"
    fabric.poll(1.0)
    assert fabric.queried[-1] == (("b", 1),)
    fabric.smps.begin_cycle()
    entries = fabric.smps((("a", 1), ("b", 1)))["ports"]
    assert [one["error"] for one in entries] == [None, "no-answer"]
    assert entries[1]["text"] == "helper smp: killed"
