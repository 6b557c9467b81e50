"""Checks an agent's writes against the oracle, records the timeline, and counts.

Invariant: a violation is one line with its time. Exceptions of the contract are excuses with an
end:

    drift       labels that others changed stay until the agent's next request
    refused     a key that a webhook denies stays as it is until an hour after the denial
    foreign     the accelerator's key stays with another manager that set another value
    trouble     while the API server cannot be reached, labels may be old
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from tests.simulation.apiserver import ApiServer, Key, Write
from tests.simulation.names import (
    ACC,
    ANNOTATION,
    TABLE,
    P,
    Value,
    Values,
    keys,
    lost,
    twins,
    value,
    values,
)
from tests.simulation.names import told as told_by
from tests.simulation.oracle import TOLD, Oracle
from tests.simulation.outcome import ANY
from tests.simulation.request_rate import DENIED, RESYNC, Attempt, RequestRate

MOST_TOLD = 2000  # lines of the timeline
STILL = 1300.0  # seconds after the last change, in which all that may end by itself has ended


class Response(Protocol):
    """What the agent made of a response."""

    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def message(self) -> str: ...


class _Question(NamedTuple):
    """A check of one unit's labels."""

    now: float
    unit: str
    allowed: Values
    what: str


class Judge:
    """Records violations of the contract."""

    def __init__(self, oracle: Oracle, api: ApiServer) -> None:
        self.violations: list[str] = []
        self.timeline: deque[str] = deque(maxlen=MOST_TOLD)
        self.counts: Counter[str] = Counter()
        self.rate = RequestRate(self.fault)
        self.is_memory_short = False
        self.suspended: Callable[[], float] = lambda: 0.0  # seconds
        self.denying = 0  # webhooks
        self._oracle, self._api = oracle, api
        self._attempt: Attempt | None = None
        self._clear = math.inf  # since when the agent can reach the API server
        self._went_well = False
        self._troubles = 0
        self._seeded = False
        self._drift: set[str] = set()
        self._excuses: list[tuple[float, Callable[[str], bool]]] = []
        self._stirred = 0.0  # time of the last write, or of an excuse's end
        self._said: set[tuple[str, str]] = set()

    # Calls of the scenarios.

    def note(self, now: float, text: str) -> None:
        self.timeline.append(f"{now:10.1f}  {text}")

    def fault(self, now: float, text: str) -> None:
        self.violations.append(f"{now:10.1f}  {text}")
        self.note(now, f"WRONG: {text}")

    def drifted(self, some: Iterable[str]) -> None:
        """Record that others have changed these labels."""
        self._drift |= set(some)

    def excuse(self, until: float, concerns: Callable[[str], bool]) -> None:
        """Permit these keys to be old until then."""
        self._excuses.append((until, concerns))

    def trouble(self, now: float, *, begins: bool) -> None:
        """Record that the way to the API server is disturbed, or is not any more."""
        self._troubles += 1 if begins else -1
        if begins:
            self._clear = math.inf
        elif self._went_well and not self._troubles:
            self._clear = now + 2 * TOLD

    # Calls of the world.

    def attempt(self, now: float) -> Attempt:
        self._attempt = Attempt(now)
        return self._attempt

    def answered(self, now: float, request: Mapping[str, Any], told: Response) -> None:
        """Record a response that the agent received."""
        self.counts[f"{request['operation']} {told.error or told.status}"] += 1
        if self._attempt is None:
            return
        status = None if told.error else told.status
        self._attempt.statuses.append(status)
        self._attempt.is_foreign = "its own labels only" in told.message
        if request["operation"] == "apply":
            self.rate.apply(now, self._attempt)
        elif status == 200 and not self._seeded:
            self._seeded = True
            self.rate.begin(now)
            fields = {key: value for (kind, key), value in self._api.fields.items()
                      if kind == "labels" and (kind, key) in self._api.ours()}  # fmt: skip
            on_node = {unit: values(unit, fields) for unit in self._oracle.timelines}
            annotation = self._api.fields.get(("annotations", ANNOTATION), "{}")
            speed = fields.get(f"{P}/speed.current")
            seed = told_by(annotation, speed, self._oracle.boot, self.suspended())
            self._oracle.begin(now, on_node, seed)

    def unanswered(self) -> None:
        """Record that a request of the agent was not sent."""
        self.counts["not asked"] += 1
        self._went_well, self._clear = False, math.inf
        if self._attempt:
            self._attempt.statuses.append(None)

    def ended(self, now: float, attempt: Attempt | None) -> None:
        """Record the end of an attempt."""
        if attempt is None:
            return
        self.counts["attempts"] += 1
        if attempt.is_foreign:
            self.fault(now, "an attempt ended with a change of labels of another agent")
        refused = bool(self.denying and attempt.statuses) and attempt.statuses[-1] == 403
        self._went_well = refused or not attempt.failed
        if not self._went_well:
            self._clear = math.inf
            self.rate.spare += 1
        elif self._seeded and not self._troubles and now > self.rate.born:
            self._clear = min(self._clear, now)

    def killed(self, now: float) -> None:
        """Record that the agent was killed."""
        self.counts["idle writes"] += self.rate.end(now)
        self.rate.spare += DENIED * self.denying
        self.counts["kills"] += 1
        self._seeded, self._attempt = False, None
        self._clear, self._went_well = math.inf, False

    def line(self, now: float, line: str) -> None:
        """Check a log line."""
        self.counts["log lines"] += 1
        self.timeline.append(f"{now:10.1f}    | {line.rstrip()}")
        if not line.endswith("\n") or line.count("\n") != 1 or not line[:-1].isprintable():
            self.fault(now, f"a log line is none: {line!r}")
        if "Traceback" in line or (" source broke: " in line and not self.is_memory_short):
            self.fault(now, f"a traceback: {line!r}")

    def written(self, write: Write) -> None:
        """Check an accepted apply of the agent."""
        now = self._stirred = write.time
        self.counts["writes"] += 1
        changed = {
            key
            for key in write.before.keys() | write.after.keys()
            if write.before.get(key) != write.after.get(key)
        }
        for kind, key in sorted(changed):
            before, after = write.before.get((kind, key)), write.after.get((kind, key))
            if kind == "labels":
                self.note(now, f"{key}: {before} -> {after}")
            self._whose(now, (kind, key), write)
        self._judge_lost(now, write)
        self._oracle.advance(now)
        labels = {key: value for (kind, key), value in write.after.items() if kind == "labels"}
        names = {key for kind, key in changed if kind == "labels"}
        start = self._attempt.start if self._attempt else now
        for unit, timeline in self._oracle.timelines.items():
            self._judge(_Question(now, unit, timeline.may_write(start), "written"), labels, names)
        self.rate.written(write, labels_changed=bool(names))
        self._drift -= {key for kind, key in self._api.ours() if kind == "labels"}

    def look(self, now: float) -> None:
        """Check the labels on the Node."""
        if (
            now - TOLD < self._clear
            or not self._seeded
            or now - max(self._oracle.changed, self._stirred) > STILL
        ):
            return
        self.counts["looks at the Node"] += 1
        labels = {key: value for (kind, key), value in self._api.fields.items() if kind == "labels"}
        for unit in self._oracle.timelines:
            allowed = self._oracle.may_stand(unit, now)
            self._judge(_Question(now, unit, allowed, "standing"), labels)

    def finish(self, now: float) -> None:
        """Check the labels on the Node after all faults are over."""
        self._oracle.advance(now)
        self.counts["idle writes"] += self.rate.end(now)
        if math.isinf(self._clear):
            self.fault(now, "the agent does not speak to the API server any more")
        self._drift.clear()
        if left := lost(self._api.fields.get(("annotations", ANNOTATION), "{}")):
            self.fault(now, f"a loss: {', '.join(sorted(left))}, at the end: all are on the bus")
        labels = {key: value for (kind, key), value in self._api.fields.items() if kind == "labels"}
        for unit, allowed in self._oracle.settled().items():
            self._judge(_Question(now, unit, allowed, "at the end"), labels)
        known = {key for unit in self._oracle.timelines for key in (*keys(unit), *twins(unit))}
        for key in sorted(key for key in labels if TABLE.fullmatch(key) and key not in known):
            self.fault(now, f"{key}={labels[key]} is about nothing in this node")

    # The checks.

    def _judge_lost(self, now: float, write: Write) -> None:
        """Check that the annotation has as lost only functions that have left the bus."""
        found = lost(write.after.get(("annotations", ANNOTATION), "{}"))
        self.counts["writes with a loss"] += bool(found)
        if never := found - self._oracle.left:
            self.fault(now, f"a loss: {', '.join(sorted(never))}: on the bus all the time")

    def _judge(
        self, question: _Question, labels: Mapping[str, str], changed: set[str] | None = None
    ) -> None:
        """Check a unit's labels in family P and their twins in IB; of a write, those that
        changed.
        """
        own, others = keys(question.unit), [key for key in twins(question.unit) if key]
        concerned = {key for key in (*own, *others) if changed is None or key in changed}
        excused = {key for key in (*own, *others) if self._excused(question, key)}
        if concerned.intersection(own) and not excused.intersection(own):
            found = value(own, labels)
            if not {found, ANY} & question.allowed:
                self._wrong(question, question.unit, found)
                return
        for at, key in enumerate(twins(question.unit)):
            if key and key in concerned and key not in excused:
                self._judge_twin(question, at, key, labels.get(key))

    def _judge_twin(self, question: _Question, at: int, key: str, found: str | None) -> None:
        parts = {one[at] if isinstance(one, tuple) else one for one in question.allowed}
        may_lack = {None, ANY} & question.allowed or self._may_be_roce(question.now)
        if not {found, ANY} & parts and not (found is None and may_lack):
            self._wrong(question, key, found)

    def _wrong(self, question: _Question, name: str, found: Value) -> None:
        verb = "lost" if found is None else "wrong"
        if (name, question.what) in self._said:
            return
        self._said.add((name, question.what))
        self.counts[f"{verb} {question.what}"] += 1
        may = sorted(map(str, question.allowed))
        self.fault(question.now, f"{name} {verb}, {question.what}: {found}, may be {may}")

    def _may_be_roce(self, now: float) -> bool:
        return self._oracle.timelines["flavor"].may_stand(now, RESYNC) != {"infiniband"}

    def _excused(self, question: _Question, key: str) -> bool:
        held = ("labels", key)
        theirs = bool(self._api.others(held))
        if theirs and (key == ACC or (None in question.allowed and held not in self._api.ours())):
            return True  # another manager's field that the agent does not want is left alone
        return key in self._drift or any(
            until > question.now and concerns(key) for until, concerns in self._excuses
        )

    def _whose(self, now: float, key: Key, write: Write) -> None:
        """Check that a changed key is in the table, and is no other manager's accelerator."""
        kind, name = key
        if not (TABLE.fullmatch(name) if kind == "labels" else name == ANNOTATION):
            self.fault(now, f"a foreign {kind[:-1]} was touched: {name}")
        elif name == ACC and key in write.foreign and key in write.before:
            self.fault(
                now,
                f"another manager's accelerator was changed: "
                f"{write.before[key]} -> {write.after.get(key)}",
            )
