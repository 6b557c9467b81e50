"""Correlate notices into few Events, as client-go's EventCorrelator does (tools/record).

Rules:
- A notice with the text of an earlier one counts up the same Event, unless that was idle for
  KEPT_TIME: an API server keeps an Event for an hour after its last change.
- More than MAX_SINGLE texts of one reason in WINDOW become one combined Event, which has the last
  text of each subject: `8 ports: ibp0 was connected to ...; ibp1 ...`. It ends when no more than
  MAX_SINGLE are left in the window.
- A new agent begins new Events, since it knows neither name nor count of those before.
- At most MAX_EVENTS of a reason are kept, the last ones; one that goes unwritten is dropped.

An Event (core/v1) is in namespace `default`. `kubectl describe node` finds those whose
involvedObject has kind and name of the Node, no namespace, and as uid either the Node's own or its
name (kubectl, pkg/describe/describe.go). The name is what kubelet writes, and all that older
versions of kubectl look for.

Times `now` are seconds of a monotonic clock, `wall` seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.kube import MANAGER
from agent.kube.answers import Request
from agent.node_events.notices import Notice, Reason
from agent.text import utc, visible

MAX_SINGLE = 3  # texts
WINDOW = 600.0  # seconds
KEPT_TIME = 3600.0  # seconds
MAX_EVENTS = 16
MAX_SUBJECTS = 64  # of a combined Event
MAX_MESSAGE = 1024  # characters, as the admission policy has it
MAX_PART = 300  # characters of one text in a combined message
MAX_NODE_NAME = 236  # characters of an Event's name; with a period and 16 digits 253
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

    def request(self, node: str) -> Request:
        """Return the request that creates the Event, or brings it up to date."""
        changing: dict[str, Any] = {
            "message": self.message,
            "count": self.count,
            "lastTimestamp": utc(int(self.last)),
        }
        if self.exists:
            return {"operation": "patch-event", "event": self.name, "body": changing}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "type": "Warning",
            "reason": self.reason.value,
            "source": {"component": MANAGER, "host": node},
            "reportingComponent": MANAGER,
            "reportingInstance": node,
            "firstTimestamp": utc(int(self.first)),
            **changing,
        }
        return {"operation": "create-event", "body": body}


def name_for(node: str, number: int) -> str:
    """Return the name of a new Event, by a random number of 64 bits."""
    return f"{node[:MAX_NODE_NAME].rstrip('.-')}.{number:016x}"


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
        events = [one for series in self._series.values() for one in series.events.values()]
        pending = [one for one in events if one.is_pending]
        return sorted(pending, key=lambda one: (one.exists, one.waits_since))

    def forget(self, event: Event) -> None:
        """Forget an Event; another one begins with the next notice."""
        series = self._series[event.reason]
        series.events = {key: one for key, one in series.events.items() if one is not event}
        if series.combined is event:
            series.combined = None


@dataclass(slots=True)
class _Series:
    """The Events of one reason."""

    reason: Reason
    events: dict[object, Event] = field(default_factory=dict)  # by text, the last changed last
    combined: Event | None = None
    _recent: dict[str, tuple[str, float]] = field(default_factory=dict)  # subject, time; by text
    _texts: dict[str, str] = field(default_factory=dict)  # by subject, of the combined one

    def add(self, notices: Sequence[Notice], now: float, wall: float) -> int:
        """Take notices; return the number of unwritten Events that are dropped for them."""
        self._recent = {
            text: (subject, at) for text, (subject, at) in self._recent.items() if now < at + WINDOW
        }
        self.events = {
            key: one
            for key, one in self.events.items()
            if one.is_pending or now < one.changed_at + KEPT_TIME
        }
        for one in notices:
            self._recent.pop(one.text, None)
            self._recent[one.text] = one.subject, now
        if len(self._recent) > MAX_SINGLE:
            self._combine(notices, now, wall)
        else:
            self.combined = None
            for one in notices:
                message = visible(one.text, MAX_MESSAGE)
                self._count(one.text, Event(self.reason, message, wall, wall), 1, now)
        surplus = list(self.events.items())[:-MAX_EVENTS]
        for key, _ in surplus:
            del self.events[key]
        return sum(one.is_pending for _, one in surplus)

    def _count(self, key: object, new: Event, count: int, now: float) -> Event:
        """Count notices for the Event of this key, which is `new` if there is none."""
        event = self.events.pop(key, new)
        event.add(count, now, new.last)
        self.events[key] = event
        return event

    def _combine(self, notices: Sequence[Notice], now: float, wall: float) -> None:
        """Count the notices for the combined Event; Events that it begins with are not created."""
        count, first = len(notices), wall
        if self.combined is None:
            self._texts = {subject: text for text, (subject, _) in self._recent.items()}
            unborn = {
                key: one for key, one in self.events.items() if key in self._recent and not one.name
            }
            self.events = {key: one for key, one in self.events.items() if key not in unborn}
            count += sum(one.count for one in unborn.values())
            first = min([wall, *(one.first for one in unborn.values())])
        for one in notices:
            self._texts.pop(one.subject, None)
            self._texts[one.subject] = one.text
        new = Event(self.reason, "", first, wall)
        self.combined = self._count(self.combined or new, new, count, now)
        for text in list(self._recent)[: -MAX_SINGLE - 1]:  # no more than decides
            del self._recent[text]
        for subject in list(self._texts)[:-MAX_SUBJECTS]:
            del self._texts[subject]
        self.combined.message = _combined_message(self.reason, self._texts)


def _combined_message(reason: Reason, texts: dict[str, str]) -> str:
    """Return the texts that fit, and the number of the others."""
    head = f"{len(texts)} {SUBJECTS[reason]}{'s' if len(texts) > 1 else ''}: "
    room = MAX_MESSAGE - len(head) - len(f"; and {MAX_SUBJECTS} more")
    fitting: list[str] = []
    for text in texts.values():
        part = visible(text, MAX_PART)
        room -= len(part) + len("; ")
        if room < 0:
            fitting.append(f"and {len(texts) - len(fitting)} more")
            break
        fitting.append(part)
    return head + "; ".join(fitting)
