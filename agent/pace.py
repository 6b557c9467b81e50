"""The pace of what is tried again and again: exponential back-off, and a token bucket.

Times are in seconds; a `now` is of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable


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
