"""Health and readiness of the agent, for /healthz and /readyz.

The loop writes and the server's threads read; each write is one assignment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALIVE_TIMEOUT = 60.0  # seconds without a heartbeat


class Status:
    """The loop's last heartbeat, and the first applied observation."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, alive_timeout: float = ALIVE_TIMEOUT
    ) -> None:
        self._clock = clock
        self._alive_timeout = alive_timeout
        self._beat_at = clock()
        self._ready = False

    def heartbeat(self) -> None:
        """Record an iteration of the loop; due every `alive_timeout` seconds."""
        self._beat_at = self._clock()

    def mark_ready(self) -> None:
        """Record that the first observation was applied; the agent stays ready."""
        self._ready = True

    def health(self) -> tuple[bool, str]:
        """Return True while the loop iterates, and a line for people."""
        age = self._clock() - self._beat_at
        if age <= self._alive_timeout:
            return True, "ok\n"
        return False, f"no heartbeat of the loop for {age:.0f} s\n"

    def readiness(self) -> tuple[bool, str]:
        """Return True once an observation was applied, and a line for people."""
        return (True, "ok\n") if self._ready else (False, "no observation applied yet\n")
