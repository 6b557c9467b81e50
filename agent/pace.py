"""The pace of what is tried again and again: exponential back-off, a cadence, and a token bucket.

Times are in seconds; a `now` is of a monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


def doubled(first: float, longest: float, failures: int) -> float:
    """Return the delay after so many failures before: `first`, doubled for each, up to a limit."""
    return min(first * 2.0 ** min(failures, 16), longest)


class BackOff:
    """Doubles the delay with each failure in a row up to a limit.

    With `random`, which returns a number from 0 to 1, half of a delay is random: agents of a whole
    cluster may fail at the same moment.
    """

    def __init__(
        self, first: float, longest: float, random: Callable[[], float] = lambda: 1.0
    ) -> None:
        self.failures = 0  # in a row
        self._first, self._longest, self._random = first, longest, random

    def failed(self, retry_after: float | None = None) -> float:
        """Return the delay after another failure; `retry_after` is the server's."""
        delay = doubled(self._first, self._longest, self.failures)
        delay *= 0.5 + 0.5 * self._random()
        self.failures += 1
        if retry_after is None:
            return delay
        # All agents got the same Retry-After at the same moment, so it is jittered, too.
        return max(delay, retry_after * (1 + 0.25 * self._random()))

    def succeeded(self) -> None:
        """Begin with the first delay again."""
        self.failures = 0


class Intervals(NamedTuple):
    """The seconds of a Cadence; a pair is the first interval, doubled up to the second."""

    regular: float
    settle: float  # after a change
    changes: tuple[float, float]  # between two questions because of changes
    failures: tuple[float, float]  # after a failure


class Cadence:
    """When a subject is asked about: at regular intervals, and soon after a change.

    Changes that follow each other back off, as failures do.
    """

    def __init__(self, intervals: Intervals) -> None:
        self.due = self.asked = -math.inf
        self.has_changed = False  # since `due` was set
        self.is_by_change = False  # `due` is because of a change
        self._intervals = intervals
        self._changes = 0  # questions in a row that a change has caused
        self._failures = 0  # in a row

    @property
    def next_due(self) -> float:
        """The time from which on there is something to plan or to ask."""
        return -math.inf if self.has_changed else self.due

    def plan(self, now: float) -> None:
        """Let a change set `due`."""
        if self.has_changed:
            wait = doubled(*self._intervals.changes, self._changes)
            self.due = min(self.due, max(now + self._intervals.settle, self.asked + wait))
            self.has_changed, self.is_by_change = False, True

    def begin(self, now: float) -> None:
        """Record that the subject is asked about."""
        self._changes = self._changes + 1 if self.is_by_change else 0
        self.is_by_change, self.asked = False, now

    def end(self, now: float, chance: float, *, is_failure: bool) -> None:
        """Set the next regular time: up to a tenth earlier by `chance`, a number from 0 to 1."""
        failures = doubled(*self._intervals.failures, self._failures)
        wait = failures if is_failure else self._intervals.regular
        self.due = now + (0.9 + 0.1 * chance) * wait
        self._failures = self._failures + 1 if is_failure else 0


class TokenBucket:
    """`burst` tokens at once, then a token every `interval`; it is full at the start."""

    def __init__(self, burst: int, interval: float, now: float) -> None:
        self._burst, self._interval = burst, interval
        self._tokens, self._filled_at = float(burst), now

    def take(self, now: float) -> None:
        """Take a token that is there (`ready_at`)."""
        earned = (now - self._filled_at) / self._interval
        self._tokens = max(min(self._tokens + earned, self._burst) - 1, 0.0)
        self._filled_at = now

    def ready_at(self) -> float:
        """Return the time from which on there is a token."""
        return self._filled_at + max(1 - self._tokens, 0) * self._interval
