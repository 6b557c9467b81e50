"""Work that the loop does not wait for: one piece at a time, in a daemon thread, its result fetched later.

The law of this module: the loop never waits for a helper. A request to a dead API server takes 25 s and NVML may take
30, while a link that goes down wants a look now. The work itself is a child process with a deadline
(agent/helper/process.py), so a thread only waits; it is never joined, and Python does not wait for it at exit. Nothing is
shared with the loop but the result, and a second piece does not begin before the first one's result was fetched.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Spawn = Callable[[Callable[[], None]], None]

T = TypeVar("T")


def spawn(work: Callable[[], None]) -> None:
    """Run it in a daemon thread."""
    threading.Thread(target=work, name="aside", daemon=True).start()


class BackgroundTask(Generic[T]):
    """At most one piece of work; `spawn` is the door to threads."""

    def __init__(self, spawn: Spawn = spawn) -> None:
        self.busy = False
        self.took = 0.0  # seconds, the last piece
        self._spawn = spawn
        self._result: list[T | Exception] = []

    def start(self, work: Callable[[], T]) -> None:
        """Begin; what goes wrong becomes the result."""
        self.busy = True
        try:
            self._spawn(lambda: self._do(work))
        except RuntimeError as error:  # no more threads
            self._result.append(error)

    def take(self) -> T | Exception | None:
        """The result, once; None while there is none."""
        if not self._result:
            return None
        self.busy = False
        return self._result.pop()

    def _do(self, work: Callable[[], T]) -> None:
        begun = time.monotonic()
        result: T | Exception
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            result = error
        self.took = time.monotonic() - begun
        self._result.append(result)
