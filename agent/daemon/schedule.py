"""The schedule of observations and API requests: events, results and a clock in, what is due out.

An observation costs milliseconds. A request is felt by an API server that has ten thousand agents.

    trigger            an observation at once, and a recheck 100 ms later, since the kernel reports
                       some changes late; in a storm of triggers one observation a second
    new results        an observation that takes them and reuses all other facts, at most ten a
                       second
    no trigger         an observation every five minutes, since an event may be lost, every 30 s
                       while degraded, and whenever something observed expires
    state changed      an apply at once, with the latest state; at most one each `min_interval`, and
                       later if only flapping ports changed (agent/daemon/flapping.py)
    state unchanged    an apply about once in `resync`, jittered: it refreshes the annotation and
                       repairs drift, and is the only request of an agent whose node is stable
    apply failed       a retry with capped exponential back-off and jitter, never earlier than
                       Retry-After
    SIGHUP             an observation, then a GET, and an apply if the Node differs; it ends the
                       wait after a failure, Retry-After included, and that of a flapping port
    many requests      at most ten in six times `min_interval`: no attempt while fewer than two are
                       left, and one that would take more, as while keys are refused one by one,
                       goes on when all ten are there again
    no request         a GET from the API server's cache about every five minutes, jittered, the
                       first a minute after the start: a Node that was created again, expected
                       labels that were set, and a second agent show in it
    key refused        a retry without the key, or its family; the key is tried again after a
                       minute, since the policy that allows it may be on its way, and refused once
                       more, after an hour

Invariants:
- Nothing is due twice.
- No change is forgotten: the state desired while an apply is under way is compared with the state
  that this apply carries.

Pure: times are seconds of a clock that never jumps (agent/daemon/loop.py), `random` returns
a float in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from agent.pace import BackOff

# Seconds.
RECHECK_DELAY = 0.1  # from an observation that a trigger caused to its recheck
MIN_OBSERVE_INTERVAL = 1.0  # between two observations that triggers cause
MIN_RESULTS_INTERVAL = 0.1  # from an observation to that which results cause
OBSERVE_INTERVAL = 300.0  # between two observations without a trigger
DEGRADED_INTERVAL = 30.0  # the same, while something cannot be read
MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL = 2.0, 300.0  # after a failed apply
MIN_REFUSAL_INTERVAL, MAX_REFUSAL_INTERVAL = 60.0, 3600.0  # after a key's first refusal, and later
LOOK_INTERVAL = 300.0  # from a request to a look at the Node, jittered by 20 %: docs/scale.md
FIRST_LOOK_INTERVAL = 75.0  # from the first GET: by then labels that are held have their line
PACED, BUDGET = 6, 10  # in so many times `min_interval` at most so many requests,
USUAL = 2  # of which an attempt takes so many, as a rule
OVERDUE_RESYNC_INTERVAL = 60.0  # in which an annotation older than `resync` is refreshed


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings, in seconds."""

    hold: float = 600.0
    min_interval: float = 10.0
    resync: float = 3600.0
    look: float = LOOK_INTERVAL  # has no flag


class Actions(NamedTuple):
    """The actions that are due now."""

    wait: float  # seconds until the next action that is not due yet
    observe: bool = False
    refresh: bool = False  # read all facts anew for this observation
    apply: bool = False  # an API request: a GET until the Node was read, an apply from then on
    resync: bool = False  # periodic, or refused keys are tried again: send it in any case
    reread: bool = False  # read the Node before, though it is known
    look: bool = False  # nothing is to be applied: see whether the Node is as known


class Due(Enum):
    """What causes an observation or a request."""

    TRIGGER = auto()  # an event happened, or none did for the interval
    RECHECK = auto()  # what the kernel reports late
    EXPIRY = auto()  # a part of the last observation ends by itself
    RESULTS = auto()  # of background work
    CHANGE = auto()  # the Node has another state than the desired, or an unknown state
    RESYNC = auto()  # the annotation grows old
    RETRY = auto()  # postponed keys
    REPAIR = auto()  # SIGHUP, once its observation was made
    LOOK = auto()  # nothing is to be applied


REFRESH = frozenset({Due.TRIGGER, Due.RECHECK, Due.EXPIRY})
OBSERVE = REFRESH | {Due.RESULTS}


class Schedule:
    """Decides when to observe and when to apply: each cause has its time, the first is next."""

    def __init__(self, settings: Settings, now: float, random: Callable[[], float]) -> None:
        self._settings = settings
        self._random = random
        self._triggered = True  # since the last observation, its recheck aside
        self._observed_at = self._refreshed_at = -math.inf
        # Of requests the earliest times by their own cause; `step` has what delays all
        self._at = dict.fromkeys(Due, math.inf) | {Due.TRIGGER: now}
        self._apply_at = now  # no request before this time
        self._started_at = -math.inf  # of the last request
        self._recent: list[tuple[float, int]] = []  # the requests of attempts, by their ends
        self._paced_until = -math.inf  # no request before this time either
        self._is_node_read = self._is_applying = False
        self._is_repairing = False  # the observation that a repair asked for is due
        self._repair_started = -math.inf
        self._back_off = BackOff(MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL, random)
        self._desired: Hashable = None
        self._resumes_at = -math.inf  # no apply of the desired state before, if that alone is due
        self._applied: Hashable = None  # None: the Node's state is unknown
        self._postponed: dict[str, float] = {}  # by key or family: the time of the next attempt

    def trigger(self, now: float) -> None:
        """Observe as soon as MIN_OBSERVE_INTERVAL allows: an event happened."""
        self._triggered = True
        earliest = self._refreshed_at + MIN_OBSERVE_INTERVAL
        self._at[Due.TRIGGER] = min(self._at[Due.TRIGGER], max(now, earliest))

    def results(self, now: float) -> None:
        """Observe as soon as MIN_RESULTS_INTERVAL allows: results of background work are there."""
        earliest = self._observed_at + MIN_RESULTS_INTERVAL
        self._at[Due.RESULTS] = min(self._at[Due.RESULTS], max(now, earliest))

    def observed(
        self,
        now: float,
        expires_at: float = math.inf,
        *,
        degraded: bool = False,
        refreshed: bool = True,
    ) -> None:
        """Record an observation; `expires_at` is the time at which a part of it expires.

        Rule: an observation that a trigger caused is rechecked RECHECK_DELAY later. A trigger
        between the two is not served by the recheck; it gets an observation and a recheck.
        Example: triggers at 0.00 s and 0.05 s cause observations at 0.0, 0.1, 1.0 and 1.1 s.

        An observation that only results caused (`refreshed` is false) serves no trigger.
        """
        self._observed_at, self._at[Due.RESULTS] = now, math.inf
        next_at = now + (DEGRADED_INTERVAL if degraded else OBSERVE_INTERVAL)
        # Something that has expired and is still there must not cause an endless loop.
        self._at[Due.EXPIRY] = max(expires_at, now + MIN_OBSERVE_INTERVAL)
        if not refreshed:
            self._at[Due.TRIGGER] = min(self._at[Due.TRIGGER], next_at)
            return
        is_recheck = now >= self._at[Due.RECHECK]
        self._at[Due.RECHECK], self._refreshed_at = math.inf, now
        if not (self._triggered and is_recheck):
            if self._triggered:
                self._at[Due.RECHECK] = now + RECHECK_DELAY
            self._triggered = False
            self._at[Due.TRIGGER] = next_at
            if self._is_repairing:
                self._is_repairing = False
                self._at[Due.REPAIR] = max(now, self._repair_started + self._settings.min_interval)

    def extend(self, now: float, expires_at: float) -> None:
        """Postpone the expiry of what was observed; an expiry that is due stays due."""
        if now < self._at[Due.EXPIRY]:
            self._at[Due.EXPIRY] = max(expires_at, self._observed_at + MIN_OBSERVE_INTERVAL)

    def node_read(self, now: float, age: float) -> None:
        """Record that the Node was read; its annotation is `age` seconds old."""
        self._is_node_read, self._is_applying = True, False
        self._back_off.succeeded()
        self._apply_at = now
        # any time until the annotation is older than `resync`
        left = max(self._settings.resync - max(age, 0.0), self._overdue_interval())
        self._at[Due.RESYNC] = now + self._random() * left
        self._at[Due.LOOK] = now + self._look_interval(FIRST_LOOK_INTERVAL)
        self._triggered, self._at[Due.TRIGGER] = True, now

    def set_desired(self, state: Hashable) -> None:
        """Set the state that the Node should have by the last observation; never None."""
        self._desired = state

    def delay(self, until: float) -> None:
        """Apply the desired state at this time, or with what is due earlier; -inf: at once."""
        self._resumes_at = until

    def apply_started(self, now: float) -> None:
        """Record that a request is under way; no other is due until it ends."""
        self._is_applying, self._started_at = True, now
        self._apply_at = now + self._settings.min_interval
        if now >= self._at[Due.REPAIR]:
            self._at[Due.REPAIR], self._repair_started = math.inf, now

    def room(self, now: float) -> int:
        """Return how many requests an attempt may make."""
        return BUDGET - sum(made for at, made in self._recent if at + self._window > now)

    def requested(self, now: float, requests: int) -> None:
        """Record how many requests an attempt has made, whatever came of it."""
        self._recent = [(at, made) for at, made in self._recent if at + self._window > now]
        self._recent.append((now, requests))
        ends = (at + self._window for at, _ in self._recent)
        self._paced_until = next(end for end in (now, *ends) if self.room(end) >= USUAL)

    def apply_succeeded(
        self,
        now: float,
        state: Hashable,
        to_postpone: Iterable[str] = (),
        *,
        requests: int = 1,
        heard: bool = True,
    ) -> None:
        """Record that the Node has `state`, without the keys and families `to_postpone`.

        `requests` is 0 if the Node had that state before; then the next change need not wait.
        `heard` is false if it had so by what was known, and the API server was not asked: that ends
        no outage.

        Rule: an apply replaces the resync that is nearly due, and no other: agents that applied at
        the same moment would meet again each hour. So the next resync is up to `resync` after an
        outage, else about `resync` away.
        """
        after_outage = self._back_off.failures > 0
        self._is_applying = False
        self._applied = state
        self._postpone(now, to_postpone)
        if heard:
            self._back_off.succeeded()
            self._at[Due.LOOK] = now + self._look_interval()
        if not requests:
            self._apply_at = now
        elif now >= self._at[Due.RESYNC] - self._overdue_interval():
            share = self._random() if after_outage else 0.9 + 0.2 * self._random()
            self._at[Due.RESYNC] = now + self._settings.resync * share

    def apply_cut(self, now: float, to_postpone: Iterable[str]) -> None:
        """Record that an attempt had no room for its last request; what is left is due.

        It goes on with all the room that there may be, and without what is refused by then.
        """
        self._is_applying, self._applied = False, None
        self._paced_until = now + self._window
        self._postpone(self._paced_until, to_postpone)

    def _postpone(self, now: float, keys: Iterable[str]) -> None:
        # A key that was tried again and refused again (it is still listed) waits the longer time.
        waits = {
            key: MAX_REFUSAL_INTERVAL if key in self._postponed else MIN_REFUSAL_INTERVAL
            for key in keys
        }
        waiting = {key: until for key, until in self._postponed.items() if until > now}
        self._postponed = waiting | {key: now + wait for key, wait in waits.items()}

    def _look_interval(self, seconds: float = math.inf) -> float:
        return min(seconds, self._settings.look) * (0.8 + 0.4 * self._random())

    def apply_failed(
        self, now: float, retry_after: float | None = None, *, looked: bool = False
    ) -> float:
        """Schedule a retry, and return the seconds until then.

        The Node's state is unknown, unless a mere look failed (`looked`): that is repeated.
        `retry_after` is the server's, in seconds.
        """
        self._is_applying = False
        if looked:
            self._at[Due.LOOK] = now
        else:
            self._applied = None
        wait = self._back_off.failed(retry_after)
        # A repair during the request ends this wait, too; `_apply_at` keeps to `min_interval`.
        reread = self._repair_started < self._started_at <= self._at[Due.REPAIR] < math.inf
        ends_at = now if reread or self._is_repairing else now + wait
        self._apply_at = max(self._apply_at, ends_at)
        return max(self._apply_at, self._paced_until) - now

    def resync(self, now: float) -> None:
        """Observe, and refresh the Node soon: time was lost, or changes of the Node were missed."""
        self.trigger(now)
        self._at[Due.RESYNC] = min(
            self._at[Due.RESYNC], now + self._overdue_interval() * self._random()
        )

    def repair(self, now: float) -> None:
        """Observe, then read the Node and apply what differs, refused keys included.

        A request that is under way does not count. At most one each `min_interval`. The wait after
        a failure ends.
        """
        self.trigger(now)
        if self._back_off.failures:
            self._apply_at = max(now, self._started_at + self._settings.min_interval)
        self._is_repairing = True
        self._postponed = {}

    def postponed(self, now: float) -> frozenset[str]:
        """Return the keys and families that were refused and are not tried again yet."""
        return frozenset(key for key, until in self._postponed.items() if until > now)

    def step(self, now: float) -> Actions:
        """Return the actions that are due at `now`, and the time until the next that is not.

        A request is due only while one may be made.
        """
        times = dict(self._at)
        is_changed = self._applied is None or self._desired != self._applied
        times[Due.RETRY] = min(self._postponed.values(), default=math.inf)
        if self._applied is None:
            times[Due.CHANGE] = -math.inf
        elif is_changed:
            times[Due.CHANGE] = self._resumes_at
        if is_changed or not self._is_node_read:
            times[Due.LOOK] = math.inf
        earliest = max(self._apply_at, self._paced_until)
        has_nothing_to_apply = self._is_node_read and self._desired is None
        waits_to_repair = self._is_repairing and times[Due.REPAIR] == math.inf
        for cause in times.keys() - OBSERVE:
            waits = cause is not Due.LOOK and (has_nothing_to_apply or waits_to_repair)
            is_open = not (waits or self._is_applying)
            times[cause] = max(times[cause], earliest) if is_open else math.inf
        due = {cause for cause, at in times.items() if now >= at}
        requests = due - OBSERVE
        return Actions(
            wait=min((at - now for at in times.values() if at > now), default=math.inf),
            observe=not due.isdisjoint(OBSERVE),
            refresh=not due.isdisjoint(REFRESH),
            apply=bool(requests),
            resync=not requests.isdisjoint({Due.RESYNC, Due.RETRY}),
            reread=Due.REPAIR in requests,
            look=requests == {Due.LOOK},
        )

    @property
    def _window(self) -> float:
        return PACED * self._settings.min_interval

    def _overdue_interval(self) -> float:
        return min(OVERDUE_RESYNC_INTERVAL, self._settings.resync)
