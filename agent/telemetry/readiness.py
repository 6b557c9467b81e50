"""Readiness: the Node says what was observed, but for keys that belong to other managers.

Rules:
- A result decides, not an observation: a change that waits for `--min-interval` leaves the agent
  ready, so a link that flaps does not become an update of the Pod's status.
- A key that the API server refuses makes the agent unready until it is accepted.
- A failed request makes it unready if the Node has another state than was observed last, or may
  have it by this request. On a node where nothing changes, an outage of the API server does so
  after MAX_AGE: until then the Node is as it was when it was read last, three looks ago
  (agent/daemon/schedule.py).
- With --require-policy it is unready before the first check of the admission policy, and while the
  last check that had a result found it not in force (agent/kube/policy.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable

from agent.kube.answers import ANOTHER_HOST
from agent.kube.negotiation import Refusal
from agent.kube.reconcile import Result

ALIVE_TIMEOUT = 60.0  # seconds without a heartbeat
NOTHING_APPLIED = "no observation applied yet"
MAX_AGE = 900.0  # seconds since the Node was read or written
# Failures after which no Node of this host has the state
NODE_GONE = frozenset({"not-found", "recreated", ANOTHER_HOST})
NOT_READ = f"the Node was not read for {MAX_AGE / 60:.0f} minutes"
NOT_CHECKED = "the admission policy was not checked yet (--require-policy)"
NOT_IN_FORCE = "the admission policy is not in force (--require-policy)"
NOT_SENT = "not sent, since other keys of its prefix were refused"


class Status:
    """Health, readiness and verdict, for /healthz, /readyz and /verdict.

    The loop writes and the server's threads read; each write is one assignment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat_at = clock()
        # why the Node does not say what was observed, in one or more lines; "": it does
        self.unready = NOTHING_APPLIED
        self.verdict = "404 Not Found", b'{"verdict": "pending"}\n'  # status line, JSON

    def heartbeat(self) -> None:
        """Record an iteration of the loop; due every ALIVE_TIMEOUT seconds."""
        self._beat_at = self._clock()

    def set_verdict(self, status: str, body: bytes) -> None:
        """Replace the page /verdict (agent/telemetry/reporter.py)."""
        self.verdict = status, body

    def health(self) -> tuple[bool, str]:
        """Return True while the loop iterates, and a line for people."""
        age = self._clock() - self._beat_at
        if age <= ALIVE_TIMEOUT:
            return True, "ok\n"
        return False, f"no heartbeat of the loop for {age:.0f} s\n"

    def readiness(self) -> tuple[bool, str]:
        """Return True if the Node says what was observed, and lines for people."""
        unready = self.unready
        return not unready, f"{unready or 'ok'}\n"


class Readiness:
    """Judges the results of the requests.

    A refused key is left out of the requests for a while (`Change.postponed`). Its refusal ends
    with a request that neither leaves it out nor is refused; a failed request ends none.
    """

    def __init__(self, *, requires_policy: bool = False) -> None:
        self.refusals: tuple[Refusal, ...] = ()  # by key
        self._requires_policy = requires_policy
        self._policy = NOT_CHECKED if requires_policy else ""  # the reason that it gives, or none
        self._request = NOTHING_APPLIED  # the reason that the requests give, or none
        self._observed: Hashable = None  # the state of the last observation
        self._sent: Hashable = None  # the state that the last request carries
        self._applied: Hashable = None  # the state that the Node has; None: unknown
        self._read_at = math.inf  # when the Node was read or written last

    @property
    def is_current(self) -> bool:
        """True if the Node has the state that was observed last."""
        return self._applied is not None and self._applied == self._observed

    def reasons(self, now: float) -> str:
        """Return the reasons against it, in one or more lines."""
        is_old = now - self._read_at > MAX_AGE
        reasons = self._request, NOT_READ if is_old else "", self._policy
        return "\n".join(filter(None, reasons))

    def observed(self, state: Hashable) -> None:
        """Record the desired state of the Node by an observation."""
        self._observed = state

    def sent(self, result: Result, state: Hashable) -> None:
        """Record the result of a request that carries `state`."""
        self._sent = state
        failure = result.failure
        if failure and (
            failure.kind in NODE_GONE or (failure.maybe_done and state != self._applied)
        ):
            self._applied = None
        outcome, before = result.outcome, {refusal.key: refusal for refusal in self.refusals}
        if result.change and not failure:
            # A postponed key may be refused with its family only.
            postponed = result.change.postponed
            before = {key: before.get(key, Refusal(key, None, NOT_SENT)) for key in postponed}
        if outcome:
            accepted = {*outcome.applied, *outcome.removed}
            before = {key: refusal for key, refusal in before.items() if key not in accepted}
            before |= {refusal.key: refusal for refusal in outcome.refused}
        self.refusals = tuple(refusal for _, refusal in sorted(before.items()))

    def applied(self) -> None:
        """Record that the Node has what the last request carries, except the refused keys."""
        keys = [refusal.key for refusal in self.refusals]
        self._applied = None if keys else self._sent
        first = f"keys refused by the API server: {len(keys)}"
        self._request = "\n".join([first, *keys]) if keys else ""

    def read(self, now: float) -> None:
        """Record that the Node was read or written."""
        self._read_at = now

    def failed(self, reason: str) -> None:
        """Record a failed request."""
        if not self.is_current:
            self._request = f"not applied: {reason}"

    def policy_checked(self, *, in_force: bool | None) -> None:
        """Record the last result of a check of the policy; None: there was none yet."""
        if self._requires_policy:
            self._policy = NOT_IN_FORCE if in_force is False else ""
