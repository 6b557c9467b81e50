"""Work in a background thread, one piece at a time, whose result the loop takes later.

A request to an unreachable API server takes 25 s and a GPU query up to 30 s, while a link that
goes down is to be observed at once. The work itself is a child process with a deadline
(agent/helper/process.py), so the thread only waits for it.

Invariants:
- The loop never waits for the work. Threads are daemon threads, never joined: Python does not wait
  for them at exit.
- Only the result is shared with the loop.
- The next piece starts after the result of the last one was taken.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from agent.limits import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    Spawn = Callable[[Callable[[], None]], None]
    Notify = Callable[[], None]

T = TypeVar("T")


def spawn(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread; RuntimeError if no thread can be started."""
    start_thread(threading.Thread(target=work, name="background", daemon=True))


class BackgroundTask(Generic[T]):
    """At most one piece of work; `spawn` runs it elsewhere.

    `notify` is called when there is a result, in the thread that ran the work.
    """

    def __init__(self, spawn: Spawn = spawn, notify: Notify = lambda: None) -> None:
        self.busy = False  # from `start` until `take` returns the result
        self.took = 0.0  # duration of the last piece in seconds
        self._spawn, self._notify = spawn, notify
        self._result: list[T | Exception] = []

    def start(self, work: Callable[[], T]) -> None:
        """Start `work`; an exception that it raises becomes the result."""
        self.busy = True
        try:
            self._spawn(lambda: self._run(work))
        except RuntimeError as error:  # no thread could be started
            self._finish(error)

    def take(self) -> T | Exception | None:
        """Return the result once; None while there is none."""
        if not self._result:
            return None
        self.busy = False
        return self._result.pop()

    def _run(self, work: Callable[[], T]) -> None:
        started = time.monotonic()
        result = _outcome(work)
        self.took = time.monotonic() - started
        self._finish(result)

    def _finish(self, result: T | Exception) -> None:
        self._result.append(result)
        self._notify()


def _outcome(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the loop handles it, from the result
        return error
