"""An eventfd by which other threads wake the loop when they have a result (man 2 eventfd)."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from agent.events.event import Event


class Notifier:
    """A monitor of results: any number of notifications become one Event("results", `subject`)."""

    def __init__(self, subject: str = "") -> None:
        self._event = Event("results", subject)
        self._lock = threading.Lock()  # no write to the descriptor after `close`
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def notify(self) -> None:
        """Make the descriptor readable; from any thread, without effect after `close`."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def read(self) -> set[Event]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)
            return {self._event}
        return set()

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1
