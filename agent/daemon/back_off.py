"""The delays between requests that fail, which agents of a whole cluster may make at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BackOff:
    """Doubles the delay with each failure in a row up to a limit; half of it is random.

    Times are in seconds; `random` returns a number from 0 to 1.
    """

    def __init__(self, first: float, longest: float, random: Callable[[], float]) -> None:
        self.failures = 0  # in a row
        self._first, self._longest, self._random = first, longest, random

    def failed(self, retry_after: float | None = None) -> float:
        """Return the delay after another failure; `retry_after` is the server's."""
        delay = self._first * 2.0 ** min(self.failures, 16)
        delay = min(delay, self._longest) * (0.5 + 0.5 * self._random())
        self.failures += 1
        if retry_after is None:
            return delay
        # All agents got the same Retry-After at the same moment, so it is jittered, too.
        return max(delay, retry_after * (1 + 0.25 * self._random()))

    def succeeded(self) -> None:
        """Begin with the first delay again."""
        self.failures = 0
