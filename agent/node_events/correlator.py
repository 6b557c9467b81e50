"""Correlate notices into few Events, as client-go's EventCorrelator does (tools/record).

Rules:
- A notice with the text of an earlier one counts up the same Event, unless that was idle for
  KEPT_TIME: an API server keeps an Event for an hour after its last change.
- More than MAX_SINGLE texts of one reason in WINDOW become one combined Event, which has the last
  text of each subject: `8 ports: ibp0 was connected to ...; ibp1 ...`. It ends when no more than
  MAX_SINGLE are left in the window.
- A new agent begins new Events, since it knows neither name nor count of those before.
- At most MAX_EVENTS of a reason are kept, the last ones; one that goes unwritten is dropped.

Times `now` are seconds of a monotonic clock, `wall` seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.node_events.notices import Reason
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.node_events.notices import Notice

MAX_SINGLE = 3  # texts
WINDOW = 600.0  # seconds
KEPT_TIME = 3600.0  # seconds
MAX_EVENTS = 16
MAX_SUBJECTS = 64  # of a combined Event
MAX_MESSAGE = 1024  # characters, as the admission policy has it
MAX_PART = 300  # characters of one text in a combined message
SUBJECTS = {
    Reason.CABLE_CHANGED: "port",
    Reason.PORT_LOST: "port",
    Reason.LABELS_REFUSED: "refusal",
}


@dataclass(slots=True, eq=False)
class Event:
    """One Event: what it is to say, and what of that is written."""

    reason: Reason
    message: str
    first: float  # wall
    last: float  # wall
    count: int = 0
    written: int = 0  # count of the last write
    name: str = ""  # empty: not tried yet
    exists: bool = False
    waits_since: float = 0.0  # of what is not written
    changed_at: float = 0.0

    @property
    def is_pending(self) -> bool:
        """True if something is to be written."""
        return self.count > self.written

    def add(self, count: int, now: float, wall: float) -> None:
        """Count notices."""
        if not self.is_pending:
            self.waits_since = now
        self.count += count
        self.last, self.changed_at = wall, now


class Correlator:
    """The Events of one agent."""

    def __init__(self) -> None:
        self._series = {reason: _Series(reason) for reason in Reason}

    def add(self, notices: Sequence[Notice], now: float, wall: float) -> int:
        """Take the notices of one observation or request; return how many Events are dropped."""
        dropped = 0
        for reason, series in self._series.items():
            if found := [one for one in notices if one.reason is reason]:
                dropped += series.add(found, now, wall)
        return dropped

    def pending(self) -> list[Event]:
        """Return the Events to be written: those that do not exist first, then the oldest."""
        found = [one for series in self._series.values() for one in series.pending()]
        return sorted(found, key=lambda one: (one.exists, one.waits_since))

    def forget(self, event: Event) -> None:
        """Forget an Event; another one begins with the next notice."""
        self._series[event.reason].forget(event)


@dataclass(slots=True)
class _Series:
    """The Events of one reason."""

    reason: Reason
    _recent: dict[str, tuple[str, float]] = field(default_factory=dict)  # subject, time; by text
    _events: dict[object, Event] = field(default_factory=dict)  # by text, the last changed last
    _combined: Event | None = None
    _texts: dict[str, str] = field(default_factory=dict)  # by subject, of the combined one

    def add(self, notices: Sequence[Notice], now: float, wall: float) -> int:
        """Take notices; return the number of unwritten Events that are dropped for them."""
        self._expire(now)
        for one in notices:
            self._recent.pop(one.text, None)
            self._recent[one.text] = one.subject, now
        if len(self._recent) > MAX_SINGLE:
            self._combine(notices, now, wall)
        else:
            self._combined = None
            for one in notices:
                message = visible(one.text, MAX_MESSAGE)
                self._count(one.text, Event(self.reason, message, wall, wall), 1, now)
        return self._shrink()

    def pending(self) -> list[Event]:
        return [one for one in self._events.values() if one.is_pending]

    def forget(self, event: Event) -> None:
        self._events = {key: one for key, one in self._events.items() if one is not event}
        if self._combined is event:
            self._combined = None

    def _expire(self, now: float) -> None:
        self._recent = {
            text: (subject, at) for text, (subject, at) in self._recent.items() if now < at + WINDOW
        }
        self._events = {
            key: one
            for key, one in self._events.items()
            if one.is_pending or now < one.changed_at + KEPT_TIME
        }

    def _count(self, key: object, new: Event, count: int, now: float) -> Event:
        """Count notices for the Event of this key, which is `new` if there is none."""
        event = self._events.pop(key, new)
        event.add(count, now, new.last)
        self._events[key] = event
        return event

    def _combine(self, notices: Sequence[Notice], now: float, wall: float) -> None:
        """Count the notices for the combined Event; Events that it begins with are not created."""
        count, first = len(notices), wall
        if self._combined is None:
            self._texts = {subject: text for text, (subject, _) in self._recent.items()}
            unborn = [one for key, one in self._events.items() if self._is_unborn(key, one)]
            self._events = {key: one for key, one in self._events.items() if one not in unborn}
            count += sum(one.count for one in unborn)
            first = min([wall, *(one.first for one in unborn)])
        for one in notices:
            self._texts.pop(one.subject, None)
            self._texts[one.subject] = one.text
        new = Event(self.reason, "", first, wall)
        self._combined = self._count(self._combined or new, new, count, now)
        self._trim()
        self._combined.message = _combined_message(self.reason, self._texts)

    def _is_unborn(self, key: object, event: Event) -> bool:
        return key in self._recent and not event.name

    def _trim(self) -> None:
        """Keep no more than decides."""
        for text in list(self._recent)[: -MAX_SINGLE - 1]:
            del self._recent[text]
        for subject in list(self._texts)[:-MAX_SUBJECTS]:
            del self._texts[subject]

    def _shrink(self) -> int:
        """Forget the oldest Events beyond MAX_EVENTS; return how many of them are not written."""
        surplus = list(self._events.items())[:-MAX_EVENTS]
        for key, _ in surplus:
            del self._events[key]
        return sum(one.is_pending for _, one in surplus)


def _combined_message(reason: Reason, texts: dict[str, str]) -> str:
    """Return the texts that fit, and the number of the others."""
    head = f"{len(texts)} {SUBJECTS[reason]}{'s' if len(texts) > 1 else ''}: "
    room = MAX_MESSAGE - len(head) - len(f"; and {MAX_SUBJECTS} more")
    fitting = list(_fitting((visible(text, MAX_PART) for text in texts.values()), room))
    more = len(texts) - len(fitting)
    return head + "; ".join([*fitting, *([f"and {more} more"] if more else [])])


def _fitting(texts: Iterable[str], room: int) -> Iterator[str]:
    """Yield the first texts that fit into so many characters, each with its separator."""
    for text in texts:
        room -= len(text) + len("; ")
        if room < 0:
            return
        yield text
