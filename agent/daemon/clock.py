"""A clock that counts the time in which the agent could have looked.

The law of this module: nothing expires while nobody could have renewed it. The wall clock jumps when NTP has its way,
and even a clock that never goes back runs on while a machine is suspended or a container frozen: a neighbour's TTL and
every hold would end in the moment of waking up, though the switch has spoken all the time. So what a wait took beyond
what was asked of it, and beyond what a busy machine explains, is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLACK = 30.0  # seconds that a wait may be late on a machine that is merely busy


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # which counts suspension, so that it is noticed


class AwakeClock:
    """Seconds; call it for the time. `clock` never goes back."""

    def __init__(self, clock: Callable[[], float] = _since_boot) -> None:
        self._clock = clock
        self._left_out = 0.0

    def __call__(self) -> float:
        return self._clock() - self._left_out

    def waited(self, since: float, asked: float) -> bool:
        """A wait for `asked` seconds has ended that began at `since`; whether time was lost."""
        surplus = self() - since - asked
        if surplus <= SLACK:
            return False
        self._left_out += surplus
        return True
