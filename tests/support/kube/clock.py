"""A clock that may run faster than the real one.

Back-off, holds and pauses follow it, and the API server does not; so the API server is measured
only at a rate of 1.
"""

from __future__ import annotations

import time


class Clock:
    """Simulated seconds since the beginning, which is now."""

    def __init__(self) -> None:
        self._mark = time.monotonic(), 0.0, 1.0

    def __call__(self) -> float:
        real, simulated, rate = self._mark
        return simulated + (time.monotonic() - real) * rate

    @property
    def rate(self) -> float:
        """Simulated seconds in a real one."""
        return self._mark[2]

    def go(self, rate: float) -> None:
        """Run at another rate from now on."""
        self._mark = time.monotonic(), self(), rate
