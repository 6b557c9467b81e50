"""The thread for calls that wait for the rtnl lock."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from agent.lldp.packet_socket import RtnlWorker

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT = 60.0  # seconds


def block(gate: threading.Event) -> None:
    gate.wait(TIMEOUT)


def test_calls_run_in_order_in_one_thread_and_notify() -> None:
    """The thread is another than the caller's, and each call is followed by a notification."""
    done: SimpleQueue[tuple[str, int]] = SimpleQueue()

    def call(name: str) -> Callable[[], None]:
        return lambda: done.put((name, threading.get_ident()))

    worker = RtnlWorker(lambda: done.put(("notified", threading.get_ident())))
    for name in ("first", "second"):
        worker.submit(call(name))
    found = [done.get(timeout=TIMEOUT) for _ in range(4)]
    assert [name for name, _ in found] == ["first", "notified", "second", "notified"]
    assert len({thread for _, thread in found} - {threading.get_ident()}) == 1


def test_no_thread_is_started_before_the_first_call_nor_two_after_it() -> None:
    """However many calls wait behind one that blocks, one thread is stuck; the caller goes on."""
    before, gate, done = threading.active_count(), threading.Event(), threading.Event()
    worker = RtnlWorker()
    assert threading.active_count() == before
    worker.submit(lambda: block(gate))
    for _ in range(100):
        worker.submit(lambda: None)
    worker.submit(done.set)
    assert threading.active_count() == before + 1
    assert not done.is_set()
    gate.set()
    assert done.wait(TIMEOUT)


def test_a_thread_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is not queued, and the error is raised."""
    done = threading.Event()
    worker = RtnlWorker()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            worker.submit(done.set)
    worker.submit(done.set)
    assert done.wait(TIMEOUT)


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
