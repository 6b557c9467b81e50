"""Run calls that wait for the kernel's rtnl lock in a thread of their own.

Opening and closing packet sockets and the ethtool ioctl take that lock, and wait for it in
uninterruptible sleep. A driver that resets its device may hold it for seconds; if a driver hangs
while it holds the lock, it is never released.

Invariants: there is one daemon thread. It is started by the first call, and sleeps until the next.
However many calls wait, at most this thread is stuck. Calls run in the order of `submit`.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.limits import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable


class RtnlWorker:
    """A thread for calls that may block; `notify` is called in that thread after each of them."""

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._notify = notify
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call`, which raises nothing, in the thread; RuntimeError if none can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rtnl", daemon=True)
            start_thread(thread)
            self._thread = thread
        self._calls.put(call)

    def _run(self) -> None:
        while True:
            self._calls.get()()
            self._notify()
