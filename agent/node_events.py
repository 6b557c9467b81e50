"""Events about the Node, as `kubectl describe node` shows them: notices, and their Events.

What is worth a notice:
- A cable has changed if the port's neighbor is another device or port than the last known
  neighbor, be that from the annotation. A neighbor that is seen for the first time is no change.
- The NVLink domain has changed if it is another one than the last known, as a cable.
- A port is lost once: when it is found missing (agent/memory.py). A port that the annotation has as
  lost already is not lost again.
- A link is unstable once for each end that its errors accuse (agent/infiniband/bad_link.py).
- A NIC is unhealthy once for each set of health reporters in error (agent/nic/driver.py).
- A port is flapping once, until it was quiet (agent/daemon/flapping.py).
- A refusal is noticed each time that the API server refuses; a key that is left out of a request
  because of an earlier refusal is not refused anew.
- A text has the interface or the keys, what was, and what is. What a neighbor or a server chose is
  made printable.

Notices are correlated into Events as client-go's EventCorrelator does (tools/record).
- A notice with the text of an earlier notice counts up the same Event, unless that was idle for
  KEPT_TIME: an API server keeps an Event for an hour after its last change.
- More than MAX_SINGLE texts of one reason in WINDOW become one combined Event, which has the last
  text of each subject: `8 ports: ibp0 was connected to ...; ibp1 ...`. It ends when no more than
  MAX_SINGLE are left in the window.
- A new agent begins new Events, since it knows neither name nor count of those before.
- At most MAX_EVENTS of a reason are kept, the last Events; an Event that goes unwritten is dropped.

An Event (core/v1) is in namespace `default`. `kubectl describe node` finds those whose
involvedObject has kind and name of the Node, no namespace, and as uid either the Node's own or its
name (kubectl, pkg/describe/describe.go). The name is what kubelet writes, and all that older
versions of kubectl look for.

Times `now` are seconds of a monotonic clock, `wall` seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from agent.kube import MANAGER
from agent.kube.answers import Request
from agent.kube.negotiation import Refusal
from agent.memory import FarEnd, Identity, Known
from agent.model import Observation, RoleChange, backend_functions
from agent.text import listed, many, natural, utc, visible

MAX_NAME = 64  # characters of a neighbor's name, or of its port's
MAX_NAMED = 3  # keys
MAX_TEXT = 500  # characters
MAX_SINGLE = 3  # texts
WINDOW = 600.0  # seconds
KEPT_TIME = 3600.0  # seconds
MAX_EVENTS = 16
MAX_SUBJECTS = 64  # of a combined Event
MAX_MESSAGE = 1024  # characters, as the admission policy has it
MAX_PART = 300  # characters of one text in a combined message
MAX_NODE_NAME = 236  # characters of an Event's name; with a period and 16 digits 253


class EventReason(StrEnum):
    """The reason of an Event; all have the type Warning."""

    CABLE_CHANGED = "CableChanged"
    PORT_LOST = "PortLost"
    PORT_FLAPPING = "PortFlapping"
    ROLE_CHANGED = "RoleChanged"
    DOMAIN_CHANGED = "DomainChanged"
    LINK_UNSTABLE = "LinkUnstable"
    NIC_UNHEALTHY = "NicUnhealthy"
    LABELS_REFUSED = "LabelsRefused"


# What a combined Event counts, but ports
SUBJECTS = {
    EventReason.LABELS_REFUSED: "refusal",
    EventReason.DOMAIN_CHANGED: "NVLink domain",
    EventReason.NIC_UNHEALTHY: "NIC",
}


class Notice(NamedTuple):
    """One change, in a sentence; `subject` is an interface, or the first of several keys."""

    reason: EventReason
    subject: str
    text: str


class Losses:
    """Finds the ports that are lost since the observation before."""

    def __init__(self) -> None:
        self._known: frozenset[Identity] = frozenset()

    def observed(self, known: Known, time: float) -> list[Notice]:
        """Return the ports that the observation at `time` is the first to miss."""
        lost = {port.identity: port for port in known.lost}
        before, self._known = self._known, frozenset(lost)
        return [
            Notice(
                EventReason.PORT_LOST,
                port.interface,
                f"{port.interface} was at PCI address {port.function}, is gone from the bus",
            )
            for identity, port in lost.items()
            if port.lost_since == int(time) and identity not in before
        ]


class Faults:
    """Finds the links and NICs that have another fault than at the reading before, or none then."""

    def __init__(self) -> None:
        self._known: dict[tuple[EventReason, str], object] = {}  # what is at fault

    def observed(self, observation: Observation) -> list[Notice]:
        """Return the new faults; a link or NIC that was not read now keeps that of before."""
        now: dict[tuple[EventReason, str], tuple[object, str]] = {}  # with a sentence
        for link in observation.read_links:
            verdict = link.verdict
            fault = (verdict.end, verdict.text) if verdict and verdict.is_unstable else (None, "")
            now[EventReason.LINK_UNSTABLE, link.interface] = fault
        for nic in observation.nic_health:
            ports = (role for role in observation.backend if nic.pci in backend_functions([role]))
            names = listed([role.interface for role in ports], MAX_NAMED)
            in_error = {reporter.name for reporter in nic.in_error}
            now[EventReason.NIC_UNHEALTHY, f"NIC {nic.pci} ({names})"] = in_error, nic.fault or ""
        notices = []
        for (reason, name), (part, text) in now.items():
            if part and part != self._known.get((reason, name)):
                notices.append(Notice(reason, name, visible(f"{name}: {text}", MAX_TEXT)))
            self._known[reason, name] = part
        return notices


def of_flapping(interfaces: Iterable[str]) -> list[Notice]:
    """Return the ports that are flapping since now."""
    text = "changed five times in ten minutes: changes of its labels wait up to two minutes"
    return [Notice(EventReason.PORT_FLAPPING, name, f"{name} {text}") for name in interfaces]


def of_roles(changes: Iterable[RoleChange]) -> list[Notice]:
    """Return the ports whose role changed, with both verdicts."""
    return [
        Notice(
            EventReason.ROLE_CHANGED,
            change.device,
            visible(
                f"{change.device} port {change.port} was {change.before}, is {change.after}",
                MAX_TEXT,
            ),
        )
        for change in changes
    ]


def of_domain(known: Known) -> list[Notice]:
    """Return the NVLink domain if it is another one than the last known."""
    if not known.domain or not known.domain_was:
        return []
    text = f"the NVLink domain was {known.domain_was}, is {known.domain}"
    return [Notice(EventReason.DOMAIN_CHANGED, "domain", text)]


def of_cables(known: Known) -> list[Notice]:
    """Return the ports whose neighbor differs from that of the observation before."""
    if not known.is_seeded:
        return []
    notices = []
    ends = {fact.interface: fact.far for fact in known.facts if fact.far}
    for name in sorted(known.was, key=natural):
        was, now = _end(known.was[name]), _end(ends[name])
        text = f"{name} was connected to {was}, is connected to {now}"
        notices.append(Notice(EventReason.CABLE_CHANGED, name, text))
    return notices


def _end(far: FarEnd) -> str:
    device = visible(far.device, MAX_NAME)
    return f"{device} port {visible(far.port_id, MAX_NAME)}" if far.port_id else device


def of_refusals(refused: Iterable[Refusal]) -> list[Notice]:
    """Return the keys that a request was refused for, those with the same answer together."""
    by_answer = defaultdict(list)
    for refusal in refused:
        by_answer[f"status {refusal.status}: {refusal.text}"].append(refusal.key)
    return [
        Notice(
            EventReason.LABELS_REFUSED,
            min(keys),
            f"{listed(sorted(keys), MAX_NAMED)} refused: {visible(answer, MAX_TEXT)}",
        )
        for answer, keys in by_answer.items()
    ]


@dataclass(slots=True, eq=False)
class NodeEvent:
    """An Event about the Node: its content, and how much of it is written."""

    reason: EventReason
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
        self._series = {reason: _Series(reason) for reason in EventReason}

    def add(self, notices: Sequence[Notice], now: float, wall: float) -> int:
        """Take the notices of one observation or request; return how many Events are dropped."""
        dropped = 0
        for reason, series in self._series.items():
            if of_reason := [notice for notice in notices if notice.reason is reason]:
                dropped += series.add(of_reason, now, wall)
        return dropped

    def pending(self) -> list[NodeEvent]:
        """Return the Events to be written: those that do not exist first, then the oldest."""
        events = [event for series in self._series.values() for event in series.events.values()]
        pending = [event for event in events if event.is_pending]
        return sorted(pending, key=lambda event: (event.exists, event.waits_since))

    def forget(self, event: NodeEvent) -> None:
        """Forget an Event; a new Event begins with the next notice."""
        series = self._series[event.reason]
        series.events = {key: other for key, other in series.events.items() if other is not event}
        if series.combined is event:
            series.combined = None


@dataclass(slots=True)
class _Series:
    """The Events of one reason."""

    reason: EventReason
    events: dict[object, NodeEvent] = field(default_factory=dict)  # by text, the last changed last
    combined: NodeEvent | None = None
    _recent: dict[str, tuple[str, float]] = field(default_factory=dict)  # subject, time; by text
    _texts: dict[str, str] = field(default_factory=dict)  # by subject, of the combined Event

    def add(self, notices: Sequence[Notice], now: float, wall: float) -> int:
        """Take notices; return the number of unwritten Events that are dropped for them."""
        self._recent = {
            text: (subject, at) for text, (subject, at) in self._recent.items() if now < at + WINDOW
        }
        self.events = {
            key: event
            for key, event in self.events.items()
            if event.is_pending or now < event.changed_at + KEPT_TIME
        }
        for notice in notices:
            self._recent.pop(notice.text, None)
            self._recent[notice.text] = notice.subject, now
        if len(self._recent) > MAX_SINGLE:
            self._combine(notices, now, wall)
        else:
            self.combined = None
            for notice in notices:
                message = visible(notice.text, MAX_MESSAGE)
                self._count(notice.text, NodeEvent(self.reason, message, wall, wall), 1, now)
        surplus = list(self.events.items())[:-MAX_EVENTS]
        for key, _ in surplus:
            del self.events[key]
        return sum(event.is_pending for _, event in surplus)

    def _count(self, key: object, new: NodeEvent, count: int, now: float) -> NodeEvent:
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
                key: event
                for key, event in self.events.items()
                if key in self._recent and not event.name
            }
            self.events = {key: event for key, event in self.events.items() if key not in unborn}
            count += sum(event.count for event in unborn.values())
            first = min([wall, *(event.first for event in unborn.values())])
        for notice in notices:
            self._texts.pop(notice.subject, None)
            self._texts[notice.subject] = notice.text
        new = NodeEvent(self.reason, "", first, wall)
        self.combined = self._count(self.combined or new, new, count, now)
        for text in list(self._recent)[: -MAX_SINGLE - 1]:  # no more than decides
            del self._recent[text]
        for subject in list(self._texts)[:-MAX_SUBJECTS]:
            del self._texts[subject]
        # The texts that fit, and the number of the others.
        subject = SUBJECTS.get(self.reason, "port")
        head = f"{many(len(self._texts), subject)}: "
        room = MAX_MESSAGE - len(head) - len(f"; and {MAX_SUBJECTS} more")
        fitting: list[str] = []
        for text in self._texts.values():
            part = visible(text, MAX_PART)
            room -= len(part) + len("; ")
            if room < 0:
                fitting.append(f"and {len(self._texts) - len(fitting)} more")
                break
            fitting.append(part)
        self.combined.message = head + "; ".join(fitting)
