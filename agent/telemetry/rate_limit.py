"""A logging handler that limits the lines about each subject.

A subject has a token bucket: MAX_BURST lines at once, then one line every LINE_INTERVAL seconds. Of
the lines in between the last is kept and passed on when the bucket has a token, with the number of
suppressed ones in the field `skipped`: the log ends with the current state of every subject.

The subject of a record is one of its fields (agent/telemetry/log.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BURST, LINE_INTERVAL = 5, 30.0
MAX_SUBJECTS = 1024


@dataclass(slots=True)
class _Bucket:
    filled_at: float
    tokens: float = MAX_BURST
    kept: logging.LogRecord | None = None
    skipped: int = 0  # records replaced by `kept`

    def has_token(self, now: float) -> bool:
        self.tokens = min(MAX_BURST, self.tokens + (now - self.filled_at) / LINE_INTERVAL)
        self.filled_at = now
        return self.tokens >= 1

    def keep(self, record: logging.LogRecord) -> None:
        """Keep a record instead of an earlier one."""
        self.skipped += self.kept is not None
        self.kept = record

    def take(self) -> logging.LogRecord | None:
        """Take a token and the kept record, with the number of those that it replaced."""
        self.tokens -= 1
        record, self.kept = self.kept, None
        if record and self.skipped:
            record.__dict__["fields"]["skipped"] = self.skipped
            self.skipped = 0
        return record

    def wait(self) -> float:
        """Return the seconds from `filled_at` to the next token."""
        return max(0.0, (1 - self.tokens) * LINE_INTERVAL)


class RateLimitHandler(logging.Handler):
    """Passes records on to `target`; `clock` is monotonic, in seconds."""

    def __init__(self, target: logging.Handler, clock: Callable[[], float]) -> None:
        super().__init__()
        self._target, self._clock = target, clock
        self._buckets: dict[str, _Bucket] = {}  # the least recently used first
        self._waiting: dict[str, _Bucket] = {}  # those with a kept record

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on, or keep it instead of an earlier one about its subject."""
        subject = str(record.__dict__["subject"])
        bucket = self._bucket(subject)
        bucket.keep(record)
        self._waiting[subject] = bucket
        if bucket.has_token(self._clock()):
            self._release(subject, bucket)

    def release_due(self) -> float | None:
        """Pass on the kept records that are due; return the seconds until the next one."""
        now = self._clock()
        for subject, bucket in list(self._waiting.items()):
            if bucket.has_token(now):
                self._release(subject, bucket)
        return min((bucket.wait() for bucket in self._waiting.values()), default=None)

    def flush(self) -> None:
        """Pass on every kept record; `logging` does this at exit."""
        for subject, bucket in list(self._waiting.items()):
            self._release(subject, bucket)

    def _release(self, subject: str, bucket: _Bucket) -> None:
        del self._waiting[subject]
        if record := bucket.take():
            self._target.handle(record)

    def _bucket(self, subject: str) -> _Bucket:
        """Return the bucket of a subject, which is now the most recently used one."""
        bucket = self._buckets.pop(subject, None) or _Bucket(self._clock())
        while len(self._buckets) >= MAX_SUBJECTS:
            self._forget(next(iter(self._buckets)))
        self._buckets[subject] = bucket
        return bucket

    def _forget(self, subject: str) -> None:
        bucket = self._buckets.pop(subject)
        if bucket.kept:
            self._release(subject, bucket)
