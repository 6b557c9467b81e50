"""Health and readiness of the agent, and its verdict: for /healthz, /readyz and /verdict.

The loop writes and the server's threads read; each write is one assignment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agent.telemetry.readiness import NOTHING_APPLIED

if TYPE_CHECKING:
    from collections.abc import Callable

ALIVE_TIMEOUT = 60.0  # seconds without a heartbeat


class Status:
    """The loop's last heartbeat, and the reason why the agent is not ready."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, alive_timeout: float = ALIVE_TIMEOUT
    ) -> None:
        self._clock = clock
        self._alive_timeout = alive_timeout
        self._beat_at = clock()
        self._unready = NOTHING_APPLIED  # "": ready
        self.verdict = "404 Not Found", b'{"verdict": "pending"}\n'  # status line, JSON

    def heartbeat(self) -> None:
        """Record an iteration of the loop; due every `alive_timeout` seconds."""
        self._beat_at = self._clock()

    def mark_ready(self) -> None:
        """Record that the Node says what was observed (agent/telemetry/readiness.py)."""
        self._unready = ""

    def mark_unready(self, reason: str) -> None:
        """Record that it does not, for a reason of one or more lines."""
        self._unready = reason

    def set_verdict(self, status: str, body: bytes) -> None:
        """Replace the page /verdict (agent/telemetry/verdict.py)."""
        self.verdict = status, body

    def health(self) -> tuple[bool, str]:
        """Return True while the loop iterates, and a line for people."""
        age = self._clock() - self._beat_at
        if age <= self._alive_timeout:
            return True, "ok\n"
        return False, f"no heartbeat of the loop for {age:.0f} s\n"

    def readiness(self) -> tuple[bool, str]:
        """Return True if the Node says what was observed, and lines for people."""
        unready = self._unready
        return not unready, f"{unready or 'ok'}\n"
