"""The agent's log: one line per event, as text or JSON, by handlers of the standard library.

Of a condition, a state that lasts, a line marks the beginning, each change, and the end.

    2026-05-04T10:00:00.250Z info label changed key=P/speed.current from=3200G to=2800G
    {"time": "2026-05-04T10:00:00.250Z", "level": "info", "msg": "label changed", "key": ...}

A record passes from Log to LineHandler, which has one of the two formatters.

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
import logging
import math
import os
import re
import select
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from pythonjsonlogger.json import JsonFormatter as JsonFormatterBase

from agent.pace import TokenBucket
from agent.text import visible

Scalar = str | float | None

MAX_FIELD_LENGTH = 500  # characters
MAX_LINE_LENGTH = 800  # characters in all fields; with 4 bytes each below PIPE_BUF (4,096)
MAX_MESSAGE_LENGTH = 200  # characters
MAX_BURST, LINE_INTERVAL = 5, 30.0  # lines about a subject, seconds
MAX_SUBJECTS = 1024
_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/._:@%+-]*")


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
        self.lines = LineHandler(write or write_stderr, clock)
        self.lines.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        self._is_verbose, self._wall = verbose, wall

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

    def release_due(self) -> float:
        """Write the lines that the rate limit kept until now; return the seconds until the next."""
        return self.lines.release_due()

    def _log(self, level: str, message: str, subject: str, fields: Mapping[str, Scalar]) -> None:
        """Make a record: printable, cut, with the agent's own time, which tests simulate.

        Rule: the texts among the fields have MAX_LINE_LENGTH together. A label key stays whole. The
        others share the room equally, and a text that needs less than its part leaves the rest to
        longer ones.
        """
        shown = {name: value for name, value in fields.items() if value is not None}
        subject = subject or str(next(iter(shown.values()), message))
        texts = {
            name: visible(value, MAX_FIELD_LENGTH)
            for name, value in shown.items()
            if isinstance(value, str)
        }
        room = MAX_LINE_LENGTH
        # a label key first, then the shorter ones
        order = sorted(texts, key=lambda name: (name != "key", len(texts[name])))
        for number, name in enumerate(order):
            share = room if name == "key" else room // (len(texts) - number)
            shown[name] = text = visible(texts[name], max(share, 1))
            room -= len(text)
        message = visible(message, MAX_MESSAGE_LENGTH)
        self.lines.handle(_record(level, message, self._wall(), shown, subject))


class Condition(NamedTuple):
    """A state that lasts, by the message of its beginning and its subject.

    Both together limit its lines in the log: several conditions may have the Node as subject.
    """

    begin: str  # message
    end: str  # message
    fields: dict[str, Any]  # values of the log; the first is the subject
    is_fault: bool = True  # its beginning is a warning

    @property
    def subject(self) -> dict[str, Any]:
        """The field that stays as it is while the others change."""
        name, value = next(iter(self.fields.items()))
        return {name: value}


class ConditionLog:
    """Logs the conditions that began, changed or ended; each part of the agent has some."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._parts: dict[str, list[Condition]] = {}
        self._logged: dict[str, Condition] = {}

    def update(self, part: str, conditions: Iterable[Condition]) -> None:
        """Take over all present conditions of a part."""
        before, self._parts[part] = self._logged, [*conditions]
        present = chain.from_iterable(self._parts.values())
        self._logged = {f"{known.begin} {known.subject}": known for known in present}
        for identity, condition in before.items():
            if identity not in self._logged:
                self._log.info(condition.end, identity, **condition.subject)
        for identity, condition in self._logged.items():
            if before.get(identity) != condition:
                log = self._log.warning if condition.is_fault else self._log.info
                log(condition.begin, identity, **condition.fields)


def _record(
    level: str, message: str, at: float, fields: Mapping[str, Scalar], subject: str
) -> logging.LogRecord:
    """Return a record; `at` is in seconds since the epoch."""
    record = {"levelname": level, "msg": message, "fields": dict(fields), "subject": subject}
    return logging.makeLogRecord({**record, "created": at, "msecs": int(at * 1000) % 1000})


class _Limit:
    """The token bucket of one subject, and the last line that it held back."""

    def __init__(self, now: float) -> None:
        self.bucket = TokenBucket(MAX_BURST, LINE_INTERVAL, now)
        self.kept: logging.LogRecord | None = None
        self.skipped = 0  # records replaced by `kept`


class LineHandler(logging.Handler):
    """Writes lines, few about one subject, without waiting for the reader of the pipe."""

    def __init__(self, write: Callable[[bytes], bool], clock: Callable[[], float]) -> None:
        super().__init__()
        self.lost = 0  # lines that could not be written and are not reported yet
        self._write, self._clock = write, clock
        self._limits: dict[str, _Limit] = {}  # by subject, the least recently used first
        self._waiting: dict[str, _Limit] = {}  # those with a kept record

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or keep it instead of an earlier record about its subject."""
        now, subject = self._clock(), str(record.__dict__["subject"])
        limit = self._limits.pop(subject, None) or _Limit(now)
        while len(self._limits) >= MAX_SUBJECTS:
            oldest = next(iter(self._limits))
            self._release(oldest, now)
            del self._limits[oldest]
        self._limits[subject] = self._waiting[subject] = limit
        limit.skipped += limit.kept is not None
        limit.kept = record
        if limit.bucket.ready_at() <= now:
            self._release(subject, now)

    def release_due(self) -> float:
        """Write the kept records that are due; return the seconds until the next, or infinity."""
        now = self._clock()
        for subject, limit in list(self._waiting.items()):
            if limit.bucket.ready_at() <= now:
                self._release(subject, now)
        ready = (limit.bucket.ready_at() for limit in self._waiting.values())
        return min((at - now for at in ready), default=math.inf)

    def flush(self) -> None:
        """Write every kept record; `logging` does this at exit."""
        for subject in list(self._waiting):
            self._release(subject, self._clock())

    def _release(self, subject: str, now: float) -> None:
        """Write the kept record of a subject, if it has any, after the number of lines lost."""
        limit = self._waiting.pop(subject, None)
        if limit and limit.kept:
            limit.bucket.take(now)
            if limit.skipped:
                limit.kept.__dict__["fields"]["skipped"] = limit.skipped
            record, limit.kept, limit.skipped = limit.kept, None, 0
            if self.lost:
                lost = {"count": self.lost}
                missing = _record("warning", "log lines lost", record.created, lost, "")
                if self._write(self._line(missing)):
                    self.lost = 0
            self.lost += not self._write(self._line(record))

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode() + b"\n"


class _UtcFormatter(logging.Formatter):
    """Formats times as in RFC 3339, in UTC with milliseconds."""

    converter = time.gmtime  # type: ignore[assignment]  # its argument is optional
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class TextFormatter(_UtcFormatter):
    """`TIME LEVEL MESSAGE name=value name="a value"`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without its line break."""
        words = [super().formatMessage(record)]
        for name, value in record.__dict__["fields"].items():
            text = str(value)
            quoted = text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)
            words.append(f"{name}={quoted}")
        return " ".join(words)


class JsonFormatter(JsonFormatterBase, _UtcFormatter):
    """An object per line: time, level, msg and the fields."""

    def __init__(self) -> None:
        names = {"asctime": "time", "levelname": "level", "message": "msg"}
        fields = " ".join(f"%({name})s" for name in names)
        super().__init__(fields, rename_fields=names, json_ensure_ascii=False)

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Put the fields beside time, level and msg."""
        del log_data["subject"]
        fields: dict[str, Any] = log_data.pop("fields")
        return log_data | fields


def write_stderr(data: bytes) -> bool:
    """Write at most PIPE_BUF bytes to standard error unless that would block; True if done."""
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    try:
        return bool(ready.poll(0)) and os.write(2, data) == len(data)
    except OSError:  # closed, or its reader is gone
        return False
