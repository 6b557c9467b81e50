"""The doors with a memory, the work aside, the root that remembers, and the clock that leaves
out.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.daemon.clock import MAX_LATENESS, AwakeClock
from agent.daemon.pollers import pollers
from agent.errors import Pending, Unavailable
from agent.host import Host
from agent.infiniband.poller import (
    MAX_FAILURE_INTERVAL,
    MIN_QUERY_INTERVAL,
    REFRESH_INTERVAL,
    RETRY_INTERVAL,
    SmpPoller,
)
from agent.model import AcceleratorReason, Verdict
from agent.nvml.poller import NvmlPoller
from agent.snapshot.tree import MemoryStore, Tree

if TYPE_CHECKING:
    from collections.abc import Callable


def at_once(work: Callable[[], None]) -> None:
    work()


def fetched(aside: BackgroundTask[str]) -> str | Exception:
    deadline = time.monotonic() + 10
    while (result := aside.take()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return result


def test_work_aside_is_not_waited_for() -> None:
    """Its result comes when it is done, once."""
    aside, gate = BackgroundTask[str](), threading.Event()
    aside.start(lambda: (gate.wait(10) and "done") or "late")
    assert (aside.take(), aside.busy) == (None, True)
    gate.set()
    assert (fetched(aside), aside.busy, aside.take()) == ("done", False, None)


def test_what_goes_wrong_aside_is_a_result() -> None:
    """Also that no thread could be had."""

    def refuse(_work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    assert isinstance(fetched(_started(BackgroundTask(), lambda: str(1 // 0))), ZeroDivisionError)
    assert isinstance(fetched(_started(BackgroundTask(refuse), str)), RuntimeError)


def _started(aside: BackgroundTask[str], work: Callable[[], str]) -> BackgroundTask[str]:
    aside.start(work)
    return aside


def test_nvml_is_asked_at_its_pace_and_looked_at_for_free() -> None:
    """Not before a look wants it, then each interval; an answer that is the same is no news."""
    gpus = NvmlPoller(lambda: {"n": 0}, 60.0, BackgroundTask(at_once))
    gpus.start_due(0.0)
    assert not gpus.busy
    with pytest.raises(Pending, match="not asked yet"):
        gpus()
    gpus.start_due(0.0)
    assert gpus.collect(0.1)
    assert gpus.next_due() == float("inf")
    assert gpus() == {"n": 0}
    gpus.judged(Verdict("x.1"))
    assert gpus.next_due() == pytest.approx(60.1)
    gpus.start_due(60.1)
    assert not gpus.collect(60.2)
    assert gpus.next_due() == pytest.approx(120.2)


def test_an_nvml_that_hangs_says_why_to_every_look() -> None:
    """And the same failure again is no news."""

    def ask() -> dict[str, Any]:
        raise Unavailable("helper nvml: no answer within 30 s")

    gpus = NvmlPoller(ask, 60.0, BackgroundTask(at_once))
    for expected in (True, False):
        with pytest.raises(Unavailable):
            gpus()
        gpus.start_due(1000.0)
        assert gpus.collect(1000.0) is expected
        gpus.judged(Verdict(None, AcceleratorReason.FAILED))
        gpus.start_due(2000.0)
        gpus.collect(2000.0)
    with pytest.raises(Unavailable, match="within 30 s"):
        gpus()


class Fabric:
    """Switches that answer, or do not."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, int], ...]] = []
        self.error: str | None = None
        self.only: tuple[str, int] | None = None  # the port that has the error; None: all
        self.failed: list[list[str | int]] = []
        self.smps = SmpPoller(self._ask, BackgroundTask(at_once))

    def _ask(self, addresses: Any) -> dict[str, Any]:
        self.asked.append(tuple(addresses))
        if self.error == "helper":
            raise Unavailable("helper smp: killed")
        return {"ports": [self._entry(*address) for address in addresses], "failed": self.failed}

    def _entry(self, device: str, port: int) -> dict[str, Any]:
        error = self.error if self.only in (None, (device, port)) else None
        return {"device": device, "port": port, "error": error, "text": error}

    def look(self, *addresses: tuple[str, int]) -> list[str | None]:
        self.smps.begin_cycle()
        return [one["error"] for one in self.smps(addresses)["ports"]]

    def round(self, now: float) -> bool:
        self.smps.start_due(now)
        return self.smps.collect(now)


def test_a_port_is_asked_when_it_is_new_and_when_there_is_a_reason() -> None:
    """Reasons that come in storms ask once in MIN_QUERY_INTERVAL seconds."""
    fabric = Fabric()
    assert fabric.look(("a", 1)) == ["no-answer"]
    assert fabric.round(0.0)
    assert fabric.look(("a", 1), ("b", 1)) == [None, "no-answer"]
    assert fabric.round(0.1)
    assert fabric.asked == [(("a", 1),), (("b", 1),)]
    assert not fabric.round(REFRESH_INTERVAL - 1)
    for now in (1.0, 1.1, 1.2):
        fabric.smps.trigger(now)
        fabric.round(now)
    assert len(fabric.asked) == 2
    assert fabric.round(MIN_QUERY_INTERVAL + 0.2)
    assert fabric.asked[-1] == (("a", 1), ("b", 1))


def test_a_switch_is_asked_again_after_an_hour() -> None:
    """It may have been renamed, of which no event tells."""
    fabric = Fabric()
    fabric.look(("a", 1))
    fabric.round(0.0)
    assert fabric.smps.next_due() == REFRESH_INTERVAL
    assert fabric.round(REFRESH_INTERVAL)
    assert fabric.asked == [(("a", 1),)] * 2


def test_a_port_that_was_down_is_new() -> None:
    """Nobody knows who is at its far end now."""
    fabric = Fabric()
    fabric.look(("a", 1), ("b", 1))
    fabric.round(0.0)
    assert fabric.look(("b", 1)) == [None]
    assert fabric.look(("a", 1), ("b", 1)) == ["no-answer", None]
    assert fabric.round(1.0)
    assert fabric.asked[-1] == (("a", 1),)


@pytest.mark.parametrize(("error", "longest"), [("no-answer", 4 * 3600), ("helper", 300)])
def test_who_does_not_answer_is_asked_later_and_later(error: str, longest: float) -> None:
    """Twice the time, each time, up to hours; minutes, where it was the helper that failed."""
    fabric = Fabric()
    fabric.error = error
    now, waits = 0.0, []
    fabric.look(("a", 1))
    for _ in range(14):
        assert fabric.round(now)
        waits.append(fabric.smps.next_due() - now)
        now = fabric.smps.next_due()
    assert waits[:3] == [RETRY_INTERVAL, 2 * RETRY_INTERVAL, 4 * RETRY_INTERVAL]
    assert waits[-1] == longest


def test_a_helper_that_talks_nonsense_fails_the_look() -> None:
    """As one that is killed does; the next good answer heals it."""
    smps = SmpPoller(lambda _addresses: {"ports": [1]}, BackgroundTask(at_once))
    smps([("a", 1)])
    smps.start_due(0.0)
    smps.collect(0.0)
    smps.begin_cycle()
    with pytest.raises(Unavailable, match="malformed answer"):
        smps([("a", 1)])


def test_a_device_that_fails_leaves_the_other_answers() -> None:
    """Its own port has no neighbor, and is queried again within minutes; the others keep theirs."""
    fabric = Fabric()
    fabric.look(("a", 1), ("b", 1))
    fabric.round(0.0)
    fabric.error, fabric.only, fabric.failed = "no-answer", ("a", 1), [["a", 1]]
    fabric.smps.trigger(MIN_QUERY_INTERVAL)
    now = MIN_QUERY_INTERVAL
    for _ in range(8):
        assert fabric.round(now)
        assert fabric.look(("a", 1), ("b", 1)) == ["no-answer", None]
        before, now = now, fabric.smps.next_due()
    assert now - before == MAX_FAILURE_INTERVAL


def test_a_poll_that_fails_leaves_the_answers_of_other_ports() -> None:
    """A new port whose helper dies does not take the neighbors of the others away."""
    fabric = Fabric()
    fabric.look(("a", 1))
    fabric.round(0.0)
    fabric.look(("a", 1), ("b", 1))
    fabric.error = "helper"
    fabric.round(1.0)
    assert fabric.asked[-1] == (("b", 1),)
    fabric.smps.begin_cycle()
    entries = fabric.smps((("a", 1), ("b", 1)))["ports"]
    assert [one["error"] for one in entries] == [None, "no-answer"]
    assert entries[1]["text"] == "helper smp: killed"


def test_time_that_nobody_could_use_is_left_out() -> None:
    """A suspension is; a wait that is a little late is not."""
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    raw[0] = 100.0 + 20 + MAX_LATENESS
    assert (clock.waited(100.0, 20.0), clock()) == (False, raw[0])
    since = clock()
    raw[0] += 20 + 28_800.0
    assert (clock.waited(since, 20.0), clock()) == (True, since + 20)
    raw[0] += 5
    assert clock() == since + 25
    assert AwakeClock()() > 0


def test_every_poller_of_the_table_replaces_its_query() -> None:
    """The host that comes back reads caches; LLDP frames are received, not polled."""
    live = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    host, found = pollers(live, {"gpu_interval": 60.0}, lambda: BackgroundTask(at_once))
    assert [poller.source for poller in found] == ["ib", "nvml"]
    assert [id(host.ask_smp), id(host.gpus)] == [id(poller) for poller in found]
    assert (host.frames, host.private_flags) == (live.frames, live.private_flags)
    assert host.ask_smp([("mlx5_0", 1)])["ports"][0]["error"] == "no-answer"
    with pytest.raises(Unavailable, match="not asked yet"):
        host.gpus()
