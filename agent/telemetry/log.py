"""The agent's log: one line per event, as text or JSON.

    2026-05-04T10:00:00.250Z info label changed key=P/speed.current from=3200G to=2800G
    {"time": "2026-05-04T10:00:00.250Z", "level": "info", "msg": "label changed", "key": ...}

Invariants:
- A record is one line, whatever text a neighbor or a server chose. Field values are made printable
  and cut, and a value other than a plain word is quoted, so none forges a line, a field or an
  escape sequence.
- A line has at most PIPE_BUF bytes (pipe(7): such a write is atomic) and never blocks the agent.
  Lines that a full pipe does not take are dropped and counted; the count precedes the next line.
- The number of lines about one subject is limited: MAX_BURST at once, then one every LINE_INTERVAL.
  Of the lines in between the last is kept and written when there is room for it, with the number of
  suppressed ones in the field `skipped`: the log ends with the current state of every subject.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.pace import TokenBucket
from agent.text import utc, visible

Scalar = str | float | None

MAX_FIELD_LENGTH = 500  # characters
MAX_LINE_LENGTH = 800  # characters in all fields; with 4 bytes each below PIPE_BUF (4,096)
MAX_MESSAGE_LENGTH = 200  # characters
MAX_BURST, LINE_INTERVAL = 5, 30.0  # lines about a subject, seconds
MAX_SUBJECTS = 1024
_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/._:@%+-]*")


class LogLine(NamedTuple):
    """What a line says."""

    time: float  # seconds since the epoch
    level: str
    message: str
    fields: dict[str, Scalar]

    @property
    def stamp(self) -> str:
        """The time as in RFC 3339, in UTC with milliseconds."""
        return f"{utc(int(self.time)).removesuffix('Z')}.{int(self.time * 1000) % 1000:03}Z"

    def as_text(self) -> str:
        """Return `TIME LEVEL MESSAGE name=value name="a value"`."""
        words = [self.stamp, self.level, self.message]
        for name, value in self.fields.items():
            text = str(value)
            quoted = text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)
            words.append(f"{name}={quoted}")
        return " ".join(words)

    def as_json(self) -> str:
        """Return an object: time, level, msg and the fields."""
        head = {"time": self.stamp, "level": self.level, "msg": self.message}
        return json.dumps(head | self.fields, ensure_ascii=False)


FORMATS: Mapping[str, Callable[[LogLine], str]] = {"text": LogLine.as_text, "json": LogLine.as_json}


@dataclass(slots=True)
class _Subject:
    """What limits the lines about a subject."""

    bucket: TokenBucket
    kept: LogLine | None = None
    skipped: int = 0  # records replaced by `kept`


class Log:
    """A logger with fields: `log.info("label refused", key=key, status=422)`.

    Lines are limited by their subject: the second argument, else the value of the first field, else
    the message. A field with the value None is left out.

    `write` takes the bytes of one line and returns False if it could not write them at once;
    `clock` is monotonic, `wall` in seconds since the epoch.
    """

    def __init__(
        self,
        form: str = "text",
        *,
        verbose: bool = False,
        write: Callable[[bytes], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._format, self._is_verbose = FORMATS[form], verbose
        self._write_line, self._clock, self._wall = write or write_stderr, clock, wall
        self._subjects: dict[str, _Subject] = {}  # the least recently used first
        self._waiting: dict[str, _Subject] = {}  # those with a kept record
        self.lost = 0  # lines that could not be written and are not reported yet

    def info(self, message: str, subject: str = "", /, **fields: Scalar) -> None:
        """Log a change or an event."""
        self._log("info", message, subject, fields)

    def warning(self, message: str, subject: str = "", /, **fields: Scalar) -> None:
        """Log something that an operator may have to look at."""
        self._log("warning", message, subject, fields)

    def debug(self, message: str, subject: str = "", /, **fields: Scalar) -> None:
        """Log a detail, which only `-v` shows."""
        if self._is_verbose:
            self._log("debug", message, subject, fields)

    def release_due(self) -> float | None:
        """Write the lines that the limit kept until now; return the seconds until the next."""
        now = self._clock()
        for subject, limited in list(self._waiting.items()):
            if limited.bucket.ready_at() <= now:
                self._release(subject, now)
        ready = (limited.bucket.ready_at() for limited in self._waiting.values())
        return min((at - now for at in ready), default=None)

    def flush(self) -> None:
        """Write every line that was kept: the agent ends."""
        for subject in list(self._waiting):
            self._release(subject, self._clock())

    def _log(self, level: str, message: str, subject: str, fields: Mapping[str, Scalar]) -> None:
        """Write a record, or keep it instead of an earlier record about its subject."""
        now = self._clock()
        given = {name: value for name, value in fields.items() if value is not None}
        subject = subject or str(next(iter(given.values()), message))
        message = visible(message, MAX_MESSAGE_LENGTH)
        limited = self._subjects.pop(subject, None)
        limited = limited or _Subject(TokenBucket(MAX_BURST, LINE_INTERVAL, now))
        while len(self._subjects) >= MAX_SUBJECTS:
            oldest = next(iter(self._subjects))
            self._release(oldest, now)
            del self._subjects[oldest]
        self._subjects[subject] = self._waiting[subject] = limited
        limited.skipped += limited.kept is not None
        limited.kept = LogLine(self._wall(), level, message, _cut(given))
        if limited.bucket.ready_at() <= now:
            self._release(subject, now)

    def _release(self, subject: str, now: float) -> None:
        """Write the kept record of a subject, if it has any."""
        limited = self._waiting.pop(subject, None)
        if limited and (record := limited.kept):
            limited.bucket.take(now)
            if limited.skipped:
                record.fields["skipped"] = limited.skipped
            limited.kept, limited.skipped = None, 0
            if self.lost:  # before the next line
                lost = LogLine(record.time, "warning", "log lines lost", {"count": self.lost})
                if self._write(lost):
                    self.lost = 0
            self.lost += not self._write(record)

    def _write(self, record: LogLine) -> bool:
        return self._write_line(self._format(record).encode() + b"\n")


def _cut(fields: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Make the texts among the fields printable, and cut them to MAX_LINE_LENGTH together.

    Rule: a label key stays whole. The others share the room equally, and a text that needs less
    than its part leaves the rest to longer ones.
    """
    shown = dict(fields)
    texts = {
        name: visible(value, MAX_FIELD_LENGTH)
        for name, value in fields.items()
        if isinstance(value, str)
    }
    room = MAX_LINE_LENGTH
    # a label key first, then the shorter ones
    order = sorted(texts, key=lambda name: (name != "key", len(texts[name])))
    for number, name in enumerate(order):
        share = room if name == "key" else room // (len(texts) - number)
        shown[name] = text = visible(texts[name], max(share, 1))
        room -= len(text)
    return shown


def write_stderr(data: bytes) -> bool:
    """Write at most PIPE_BUF bytes to standard error unless that would block; True if done."""
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    try:
        return bool(ready.poll(0)) and os.write(2, data) == len(data)
    except OSError:  # closed, or its reader is gone
        return False
