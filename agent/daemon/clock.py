"""A clock that leaves out the time in which the agent could not run.

Invariant: nothing expires while the agent could not have renewed it. The wall clock jumps when NTP
steps it, and a monotonic clock runs on while a machine is suspended or a container is frozen: each
neighbor's TTL and each hold would expire at the moment of waking up, though the switch has sent
frames all the time. So the part of a wait that exceeds its timeout, by more than a busy machine
explains, is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LATENESS = 30.0  # seconds by which a wait may exceed its timeout on a busy machine


def _since_boot() -> float:
    """Return CLOCK_BOOTTIME, which counts suspension, so that it can be detected."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AwakeClock:
    """Seconds awake; call it for the time. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = _since_boot) -> None:
        self._clock = clock
        self._left_out = 0.0

    def __call__(self) -> float:
        return self._clock() - self._left_out

    def waited(self, since: float, timeout: float) -> bool:
        """Leave out what a wait of `timeout` seconds, begun at `since`, lost; True if it did."""
        lost = self() - since - timeout
        if lost <= MAX_LATENESS:
            return False
        self._left_out += lost
        return True
