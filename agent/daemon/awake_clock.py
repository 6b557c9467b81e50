"""A clock that stands while the agent cannot run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

# Seconds by which a wait may exceed its timeout on a busy machine
MAX_LATENESS = 30.0
MISSED = 10.0  # by which it does if a cable may have been moved meanwhile


class AwakeClock:
    """A clock without the time in which the agent could not run; call it for the seconds awake.

    Invariant: nothing expires while the agent could not have renewed it. The wall clock jumps when
    NTP steps it, and a monotonic clock runs on while a machine is suspended or a container is
    frozen: each neighbor's TTL and each hold would expire at the moment of waking up, though the
    switch has sent frames all the time. So the time between two calls is left out where it exceeds
    what a busy machine explains, less the timeout of a wait between them (`waits`).

    A freeze may begin in a wait or in the midst of an observation: the call that follows it, from
    whatever thread, notices it.

    `clock` is CLOCK_BOOTTIME, which counts suspension, so that it can be detected.
    """

    def __init__(
        self, clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    ) -> None:
        self.woke_at = -math.inf  # the last call that noticed more than MISSED seconds lost
        self._clock = clock
        self._left_out = 0.0
        self._lock = threading.Lock()
        self._called_at = clock()
        self._awaited_until = -math.inf  # the end of the wait under way
        self._missed = 0.0  # the longest time lost that `missed` has not returned

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            lost = now - max(self._called_at, self._awaited_until)
            self._called_at = now
            if lost > MAX_LATENESS:
                self._left_out += lost
            if lost > MISSED:
                self._missed = max(self._missed, lost)
                self.woke_at = now - self._left_out
            return now - self._left_out

    def left_out(self) -> float:
        """Return the seconds that it is behind CLOCK_BOOTTIME."""
        return self._left_out

    def waits(self, timeout: float) -> None:
        """Record that a wait of so many seconds begins, which `missed` ends."""
        self()
        self._awaited_until = self._called_at + timeout

    def missed(self) -> float:
        """Return the seconds lost in one piece since the last call, 0.0 if not more than MISSED.

        They are left out if they are more than MAX_LATENESS.
        """
        self()
        self._awaited_until = -math.inf
        lost, self._missed = self._missed, 0.0
        return lost
