"""The doors with a memory, the work aside, the root that remembers, and the clock that leaves
out.
"""

from __future__ import annotations

import errno
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.daemon.clock import SLACK, AwakeClock
from agent.daemon.pollers import AGAIN, FIRST_RETRY, GAP, NvmlPoller, SmpPoller
from agent.errors import Unavailable
from agent.lldp.frame import Frame
from agent.lldp.inbox import BURST, MOST_WAITING, FrameInbox
from agent.lldp.neighbors import Table
from agent.nvml.domain import Verdict
from tests.support.running import FakeListener
from tests.unit.sources.test_lldp import switch

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
    gpus.begin(0.0)
    assert not gpus.aside.busy
    with pytest.raises(Unavailable, match="not asked yet"):
        gpus()
    gpus.begin(0.0)
    assert gpus.finish(0.1)
    assert gpus.next_due() == float("inf")
    assert gpus() == {"n": 0}
    gpus.judged(Verdict("x.1"))
    assert gpus.next_due() == pytest.approx(60.1)
    gpus.begin(60.1)
    assert not gpus.finish(60.2)
    assert gpus.next_due() == pytest.approx(120.2)


def test_an_nvml_that_hangs_says_why_to_every_look() -> None:
    """And the same failure again is no news."""

    def ask() -> dict[str, Any]:
        raise Unavailable("helper nvml: no answer within 30 s")

    gpus = NvmlPoller(ask, 60.0, BackgroundTask(at_once))
    for expected in (True, False):
        with pytest.raises(Unavailable):
            gpus()
        gpus.begin(1000.0)
        assert gpus.finish(1000.0) is expected
        gpus.judged(Verdict(None, "failed"))
        gpus.begin(2000.0)
        gpus.finish(2000.0)
    with pytest.raises(Unavailable, match="within 30 s"):
        gpus()


class Fabric:
    """Switches that answer as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, int], ...]] = []
        self.error: str | None = None
        self.smps = SmpPoller(self._ask, BackgroundTask(at_once))

    def _ask(self, addresses: Any) -> dict[str, Any]:
        self.asked.append(tuple(addresses))
        if self.error == "helper":
            raise Unavailable("helper smp: killed")
        return {
            "ports": [
                {"device": device, "port": port, "error": self.error} for device, port in addresses
            ]
        }

    def look(self, *addresses: tuple[str, int]) -> list[str | None]:
        self.smps.expect()
        return [one["error"] for one in self.smps(addresses)["ports"]]

    def round(self, now: float) -> bool:
        self.smps.begin(now)
        return self.smps.finish(now)


def test_a_port_is_asked_when_it_is_new_and_when_there_is_a_reason() -> None:
    """Reasons that come in storms ask once in GAP seconds."""
    fabric = Fabric()
    assert fabric.look(("a", 1)) == ["no-answer"]
    assert fabric.round(0.0)
    assert fabric.look(("a", 1), ("b", 1)) == [None, "no-answer"]
    assert fabric.round(0.1)
    assert fabric.asked == [(("a", 1),), (("b", 1),)]
    assert not fabric.round(AGAIN - 1)
    for now in (1.0, 1.1, 1.2):
        fabric.smps.again(now)
        fabric.round(now)
    assert len(fabric.asked) == 2
    assert fabric.round(GAP + 0.2)
    assert fabric.asked[-1] == (("a", 1), ("b", 1))


def test_a_switch_is_asked_again_after_an_hour() -> None:
    """It may have been renamed, of which no event tells."""
    fabric = Fabric()
    fabric.look(("a", 1))
    fabric.round(0.0)
    assert fabric.smps.next_due() == AGAIN
    assert fabric.round(AGAIN)
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
    assert waits[:3] == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY]
    assert waits[-1] == longest


def test_a_helper_that_talks_nonsense_fails_the_look() -> None:
    """As one that is killed does; the next good answer heals it."""
    smps = SmpPoller(lambda _addresses: {"ports": [1]}, BackgroundTask(at_once))
    smps([("a", 1)])
    smps.begin(0.0)
    smps.finish(0.0)
    with pytest.raises(Unavailable, match="makes no sense"):
        smps([("a", 1)])


def frame(
    name: str = "leaf-1", ttl: int = 120, source: str = "001c73aabbcc", at: float = 0.0
) -> Frame:
    return Frame("eth0", at, switch(name, ttl=ttl, source=source))


def hear(table: Table, *frames: Frame) -> list[bool]:
    """Which of them repeat what is known; the others are taken in."""
    said = []
    for one in frames:
        said.append(table.repeats(one))
        if not said[-1]:
            table.hear(one)
    return said


def test_a_frame_repeats_when_it_can_change_nothing() -> None:
    """Not the one that confirms, not the one after a goodbye, not the one after the link was
    down.
    """
    table = Table(30.0, 2)
    assert hear(table, frame(), frame(), frame()) == [False, False, True]
    assert hear(table, frame("leaf-2"), frame("leaf-2"), frame("leaf-2")) == [False, False, True]
    assert hear(table, frame("leaf-2", 0), frame("leaf-2"), frame("leaf-2")) == [False, False, True]
    table.link("eth0", 1.0, up=False)
    table.link("eth0", 2.0, up=True)
    assert hear(table, frame("leaf-2", at=3.0), frame("leaf-2", at=3.0)) == [False, True]
    assert table.repeats(frame("leaf-2", source="001c73000001")) is False
    assert table.repeats(Frame("eth1", 0.0, switch())) is False


def test_the_table_knows_when_something_ends() -> None:
    """A TTL, a goodbye, a link that is down; each with its grace, and only where somebody
    listens.
    """
    table = Table(30.0, 2)
    assert table.next_end(["eth0"]) == float("inf")
    hear(table, frame(at=10.0))
    assert (table.next_end(["eth0"]), table.next_end(["eth1"])) == (160.0, float("inf"))
    table.repeats(frame(at=20.0))
    table.link("eth0", 50.0, up=False)
    assert table.next_end(["eth0"]) == 80.0
    table.at("eth0", 81.0)
    assert table.next_end(["eth0"]) == float("inf")


def test_what_waits_is_bounded_and_a_burst_earns_a_rest() -> None:
    """A flood of senders costs memory for some of them, and no look for repetitions."""
    now = [0.0]
    listener, table = FakeListener(), Table(30.0, 2)
    ears = FrameInbox(listener, table, lambda: now[0])
    assert ears({"eth0": True}) == ([], {})
    listener.frames = [frame(), frame()]
    assert ears.hear() == (True, set())
    for heard in ears({"eth0": True})[0]:
        table.hear(heard)
    listener.frames = [frame()]
    assert ears.hear() == (False, {"eth0"})
    for number in range(0, 2000, BURST):
        listener.frames = [frame(source=f"02{number + one:010x}") for one in range(BURST)]
        assert ears.hear()[0]
    assert (ears.rest() > 0, ears.filenos()) == (True, [])
    assert len(ears({"eth0": True})[0]) == MOST_WAITING


def test_what_a_sender_says_is_taken_in_its_order() -> None:
    """A goodbye that waits for a look is not forgotten because of a frame that came before it, nor
    told after it.
    """
    listener, table = FakeListener(), Table(30.0, 2)
    ears = FrameInbox(listener, table, lambda: 0.0)
    hear(table, frame(at=0.0), frame(at=30.0))
    for said in (frame(ttl=0, at=60.0), frame(at=65.0)):
        listener.frames = [said]
        assert ears.hear()[0]
    for heard in ears({"eth0": True})[0]:
        table.hear(heard)
    assert len(table.at("eth0", 120.0)[0]) == 1


def test_a_socket_that_broke_is_worth_a_look() -> None:
    """Which opens another one."""

    class Broken(FakeListener):
        def receive(self, timeout: float) -> list[Frame]:
            raise OSError(errno.EBADF, f"bad after {timeout:g} s")

    assert FrameInbox(Broken(), Table(), lambda: 0.0).hear() == (True, set())


def test_time_that_nobody_could_use_is_left_out() -> None:
    """A suspension is; a wait that is a little late is not."""
    raw = [100.0]
    clock = AwakeClock(lambda: raw[0])
    raw[0] = 100.0 + 20 + SLACK
    assert (clock.waited(100.0, 20.0), clock()) == (False, raw[0])
    since = clock()
    raw[0] += 20 + 28_800.0
    assert (clock.waited(since, 20.0), clock()) == (True, since + 20)
    raw[0] += 5
    assert clock() == since + 25
    assert AwakeClock()() > 0
