"""What the agent says: one line for a change, and silence where nothing changes.

    2026-05-04T10:00:00.250Z info backend.coreweave.cloud/speed.current: 3200G -> 2800G (mlx5_3 is DOWN)

The law of this module: a line is one line, whoever chose its words. Every text in it is made visible and cut, and a
value that is more than a plain word stands in quotes, so that a neighbour's name forges no line, no field and no escape
sequence.

Nothing can make it talk for ever. A subject has a few lines at once, and then one every INTERVAL seconds; of those in
between the last is kept and comes out when it is time, so that the log ends with what is true. Nor can the log hold the
agent up: what a full pipe does not take is dropped, and the next line that passes tells how many went before it.

The standard library's logging has handlers, a hierarchy and locks, of which one writer in one loop needs none.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.model import Problem

FORMATS = ("text", "json")
BURST, INTERVAL = 5, 30.0  # lines of a subject at once, then seconds between two
MOST_SUBJECTS = 1024
LONGEST = 200  # characters of a field: four of them stay below PIPE_BUF, which a pipe takes whole or not at all
NOTHING = "-"
_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/._:@%+-]*")


class Line(NamedTuple):
    """One thing worth a line."""

    at: float  # seconds since the epoch
    level: str  # "debug" | "info" | "warning" | "error"
    what: str
    before: str | None = None
    after: str | None = None
    why: str | None = None
    skipped: int = 0  # lines about the same that nobody saw


@dataclass(slots=True)
class _Subject:
    credit: float  # lines that it may have now
    counted_at: float  # by the clock that never goes back
    kept: Line | None = None

    def may_speak(self, now: float) -> bool:
        self.credit = min(BURST, self.credit + (now - self.counted_at) / INTERVAL)
        self.counted_at = now
        return self.credit >= 1

    def wait(self) -> float:
        """Seconds from `counted_at` until it may."""
        return max(0.0, (1 - self.credit) * INTERVAL)


class Log:
    """The agent's log. `write` takes the bytes of whole lines, without waiting, and says whether it did."""

    def __init__(
        self,
        form: str = "text",
        *,
        verbose: bool = False,
        write: Callable[[bytes], bool] | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lost = 0  # lines that could not be written, not told of yet
        self.verbose = verbose
        self._formed = as_json if form == "json" else as_text
        self._write = write or to_stderr
        self._clock, self._steady = clock, steady
        self._subjects: dict[str, _Subject] = {}  # the one quiet for longest first
        self._waiting: dict[str, _Subject] = {}  # those with a line kept
        self._problems: dict[str, str] = {}

    def change(
        self, what: str, before: str | None, after: str | None, why: str | None = None
    ) -> None:
        """Something was `before` and is `after` now; None is nothing."""
        if before != after:
            self._say(Line(self._clock(), "info", what, before, after, why))

    def note(self, what: str, why: str, level: str = "info") -> None:
        """Something happened that is no change of a value: a start, a request that was refused."""
        self._say(Line(self._clock(), level, what, why=why))

    def detail(self, what: str, why: str) -> None:
        """What only `-v` is to show."""
        if self.verbose:
            self.note(what, why, "debug")

    def labels(
        self, before: Mapping[str, str], after: Mapping[str, str], why: str | None = None
    ) -> None:
        """A line for each label that is not what it was."""
        for key in sorted(before.keys() | after.keys()):
            self.change(key, before.get(key), after.get(key), why)

    def problems(self, problems: Iterable[Problem]) -> None:
        """A line for each problem that is new, another, or over; the same as the last time are silence."""
        now: dict[str, str] = {}
        for problem in problems:
            what = f"{problem.source} {problem.subject}"
            text = f"{problem.error}: {problem.text}" if problem.error else problem.text
            now[what] = f"{now[what]}; {text}" if what in now else text
        for what in sorted(self._problems.keys() | now.keys()):
            before, after = self._problems.get(what), now.get(what)
            if before != after:
                self._say(Line(self._clock(), "warning" if after else "info", what, before, after))
        self._problems = now

    def flush(self) -> float | None:
        """Write the kept lines whose time has come; seconds until the next has, None when nothing is kept."""
        now = self._steady()
        for what, subject in list(self._waiting.items()):
            if subject.may_speak(now):
                self._release(what, subject)
        return min((subject.wait() for subject in self._waiting.values()), default=None)

    def _say(self, line: Line) -> None:
        subject = self._subject(line.what)
        skipped = subject.kept.skipped + 1 if subject.kept else 0
        subject.kept = line._replace(skipped=skipped)
        if subject.may_speak(self._steady()):
            self._release(line.what, subject)
        else:
            self._waiting[line.what] = subject

    def _release(self, what: str, subject: _Subject) -> None:
        self._waiting.pop(what, None)
        line, subject.kept = subject.kept, None
        subject.credit -= 1
        if line:
            self._put(line)

    def _subject(self, what: str) -> _Subject:
        subject = self._subjects.pop(what, None) or _Subject(BURST, self._steady())
        while len(self._subjects) >= MOST_SUBJECTS:
            oldest = next(iter(self._subjects))
            self._release(oldest, self._subjects.pop(oldest))
        self._subjects[what] = subject
        return subject

    def _put(self, line: Line) -> None:
        if self.lost and self._write(
            self._formed(Line(line.at, "warning", "log", why=f"{self.lost} lines were lost"))
        ):
            self.lost = 0
        self.lost += not self._write(self._formed(line))


def as_text(line: Line) -> bytes:
    """The line as people read it."""
    values = (
        ""
        if line.before is line.after is None
        else f"{_quoted(line.before)} -> {_quoted(line.after)}"
    )
    skipped = f"[{line.skipped} more in between]" if line.skipped else ""
    why = _shown(line.why) or ""
    parts = (values, skipped, f"({why})" if values and why else why)
    text = f"{_stamp(line.at)} {line.level} {_shown(line.what)}: {' '.join(filter(None, parts))}"
    return text.encode() + b"\n"


def as_json(line: Line) -> bytes:
    """The line as an object: time, level, what, from, to, why, skipped; what is nothing is null."""
    what, before, after, why = map(_shown, (line.what, line.before, line.after, line.why))
    fields = {
        "time": _stamp(line.at),
        "level": line.level,
        "what": what,
        "from": before,
        "to": after,
        "why": why,
    }
    return json.dumps(fields | {"skipped": line.skipped}, ensure_ascii=False).encode() + b"\n"


def to_stderr(data: bytes) -> bool:
    """Write at most PIPE_BUF bytes to standard error, unless that would wait for somebody to read them."""
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    try:
        return bool(ready.poll(0)) and os.write(2, data) == len(data)
    except OSError:  # closed, or its reader is gone
        return False


def _stamp(at: float) -> str:
    milliseconds = int(at * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03}Z"


def _shown(text: str | None) -> str | None:
    return None if text is None else visible(text, LONGEST)


def _quoted(text: str | None) -> str:
    if text is None:
        return NOTHING
    shown = visible(text, LONGEST)
    return shown if _WORD.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)
