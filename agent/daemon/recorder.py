"""The recorder of Events about the Node: sends what the correlator has, one request at a time.

Invariants:
- No label depends on it. Its requests run beside those for the Node.
- An Event is sent SETTLE_TIME after its notice: labels go first, and ports that change together
  become one Event.
- A token bucket limits all requests: MAX_BURST at once, then one every TOKEN_INTERVAL. A failed
  request takes a token, too, and the next one follows after a time that doubles up to MAX_BACK_OFF,
  half of it random, and never before the server's Retry-After.
- What waits is kept as it is by then, within the limits of the correlator. An Event that the API
  server refuses for its contents is dropped.
- The name of an Event is chosen before the first try. So a creation whose response was lost is a
  conflict at the second one, and does not become two Events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from agent.daemon.background import BackgroundTask, Companion
from agent.kube.answers import Answer, Kube, failure_of
from agent.kube.reconcile import Result
from agent.memory import Known
from agent.model import Observation, RoleChange
from agent.node_events import (
    Correlator,
    Faults,
    Losses,
    NodeEvent,
    Notice,
    name_for,
    of_cables,
    of_domain,
    of_flapping,
    of_refusals,
    of_roles,
)
from agent.pace import BackOff, TokenBucket
from agent.telemetry.log import Condition, ConditionLog, Log
from agent.telemetry.metrics import Metrics

MAX_BURST, TOKEN_INTERVAL = 25, 300.0  # requests, seconds: as client-go's spam filter
# Seconds.
SETTLE_TIME = 5.0
MIN_BACK_OFF, MAX_BACK_OFF = 60.0, 3600.0
GONE, THERE = 404, 409
CONTENTS = (400, 413, 422)  # refusals of the Event itself


@dataclass(slots=True)
class Recorder(Companion):
    """Records Events about one Node; the loop drives it as the pollers of sources.

    `kube` sends a request and may block; `clock` is monotonic, `wall` in seconds since the epoch;
    `random` returns a number from 0 to 1.
    """

    source: ClassVar[str] = "events"
    node: str
    kube: Kube
    task: BackgroundTask[Answer]
    log: Log
    metrics: Metrics
    clock: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    _correlator: Correlator = field(default_factory=Correlator)
    _losses: Losses = field(default_factory=Losses)
    _faults: Faults = field(default_factory=Faults)
    _flapping: tuple[str, ...] = ()
    _bucket: TokenBucket = field(init=False)
    _conditions: ConditionLog = field(init=False)
    _back_off: BackOff = field(init=False)
    _sending: tuple[NodeEvent, int] | None = None  # and its count in the request
    _resumes_at: float = -math.inf

    def __post_init__(self) -> None:
        self._bucket = TokenBucket(MAX_BURST, TOKEN_INTERVAL, self.clock())
        self._conditions = ConditionLog(self.log)
        self._back_off = BackOff(MIN_BACK_OFF, MAX_BACK_OFF, self.random)
        self.metrics.events(written=0, failed=0, dropped=0)

    def learned(
        self,
        known: Known,
        observation: Observation,
        roles: Sequence[RoleChange],
        flapping: Sequence[str],
    ) -> None:
        """Take what has changed, and the ports that were lost or flap."""
        began = [name for name in flapping if name not in self._flapping]
        self._flapping = tuple(flapping)
        lost = self._losses.observed(known, observation.time)
        faults = self._faults.observed(observation)
        changed = [*of_roles(roles), *of_cables(known), *of_domain(known)]
        self._add([*changed, *lost, *faults, *of_flapping(began)])

    def reconciled(self, result: Result) -> None:
        """Take the keys that the API server refused."""
        self._add(of_refusals(result.outcome.refused if result.outcome else ()))

    def start_due(self, now: float) -> None:
        """Send the next Event if it is due."""
        if self.next_due() > now:
            return
        event = next(event for event in self._correlator.pending() if _settles_at(event) <= now)
        event.name = event.name or name_for(self.node, int(self.random() * 2**53))
        self._sending = event, event.count
        self._bucket.take(now)
        self.task.start(partial(self.kube, event.request(self.node)))

    def collect(self, now: float) -> bool:
        """Take the answer to a request; no observation depends on it."""
        answer = self.task.take()
        if answer is not None and self._sending:
            (event, count), self._sending = self._sending, None
            if isinstance(answer, Exception):  # no thread could be started
                answer = Answer(error="helper", message=str(answer) or repr(answer))
            self.metrics.request(answer.status)
            if answer.succeeded:
                event.exists, event.written = True, count
                self._back_off.succeeded()
                self.metrics.events(written=1)
                self._conditions.update("events", [])
            elif answer.status == GONE and event.exists:
                event.exists, event.name = False, ""  # the server has removed it: create another
            elif answer.status == THERE and not event.exists:
                event.exists = True  # the response to its creation was lost
            elif answer.status in CONTENTS:
                self._correlator.forget(event)
                self.metrics.events(dropped=1)
                self._report(answer)
            else:
                # Longer than after the failure before, and for as long as the server demands.
                self._resumes_at = now + self._back_off.failed(self._report(answer))
                self.metrics.events(failed=1)
        return False

    def next_due(self) -> float:
        """Return the time of the next request; infinity if none waits."""
        pending = () if self.task.busy else self._correlator.pending()
        if not pending:
            return math.inf
        settled = min(map(_settles_at, pending))
        return max(settled, self._resumes_at, self._bucket.ready_at())

    def _add(self, notices: Sequence[Notice]) -> None:
        if notices:
            dropped = self._correlator.add(notices, self.clock(), self.wall())
            self.metrics.events(dropped=dropped)

    def _report(self, answer: Answer) -> float | None:
        """Log a failure; return the seconds that the server demands to wait, if it does."""
        failure = failure_of(answer, self.node)
        reason = failure.text.removeprefix(f"Node {self.node}: ")
        fields = {"node": self.node, "reason": reason}
        fault = Condition("events not written", "events written again", fields)
        self._conditions.update("events", [fault])
        return failure.retry_after


def _settles_at(event: NodeEvent) -> float:
    return event.waits_since + SETTLE_TIME
