"""Work in background threads and the event of its result."""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING

from agent.daemon.background import BackgroundTask
from agent.events.event import Event, Notifier

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 10_000  # milliseconds until a result is missing


def is_readable(notifier: Notifier, timeout: int) -> bool:
    """Return True if the notifier becomes readable within so many milliseconds."""
    poll = select.poll()
    poll.register(notifier.fileno(), select.POLLIN)
    return bool(poll.poll(timeout))


def test_a_result_wakes_a_poll() -> None:
    """The result is there when the descriptor becomes readable, and not before."""
    notifier, gate = Notifier(), threading.Event()
    task = BackgroundTask[str](notify=notifier.notify)
    task.start(lambda: "done" if gate.wait(60) else "late")
    assert not is_readable(notifier, 50)
    assert (task.take(), task.busy) == (None, True)
    gate.set()
    assert is_readable(notifier, LIMIT)
    assert (task.take(), notifier.read()) == ("done", {Event("results", "")})
    assert (task.take(), task.busy) == (None, False)
    assert not is_readable(notifier, 0)
    notifier.close()


def test_a_failure_wakes_a_poll() -> None:
    """An exception of the work, and a thread that cannot be started."""
    notifier = Notifier()

    def refuse(_work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    for task, error in (
        (BackgroundTask[str](notify=notifier.notify), ZeroDivisionError),
        (BackgroundTask[str](refuse, notifier.notify), RuntimeError),
    ):
        task.start(lambda: str(1 // 0))
        assert is_readable(notifier, LIMIT)
        assert isinstance(task.take(), error)
        assert notifier.read()
    notifier.close()


def test_many_notifications_are_one_event() -> None:
    """From any number of threads; after `close` they have no effect."""
    notifier = Notifier("facts")
    threads = [threading.Thread(target=notifier.notify) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (notifier.read(), notifier.read()) == ({Event("results", "facts")}, set())
    notifier.close()
    notifier.notify()
