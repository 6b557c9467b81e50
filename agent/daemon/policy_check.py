"""When the daemon checks that the admission policy is in force (agent/kube/policy.py).

Once the Node was read, and then once a day, jittered. A result other than "in force" is followed by
another check after 15 to 30 s, then after a time that doubles up to an hour: a policy that is
installed now takes a moment to be in force. SIGHUP checks again at once, unless it is in force.

Invariant: no label depends on it. Its requests run beside those for the Node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from agent.daemon.background import BackgroundTask, Companion
from agent.events.event import HANGUP, Event
from agent.kube.answers import Kube
from agent.kube.policy import PolicyState, check_policy
from agent.pace import BackOff
from agent.telemetry.reporter import Reporter

# Seconds.
START_DELAY = 2.0  # labels go first
INTERVAL = 86400.0
MIN_BACK_OFF, MAX_BACK_OFF = 30.0, 3600.0


@dataclass(slots=True)
class PolicyCheck(Companion):
    """Checks the policy; the loop drives it as the pollers of sources.

    `random` returns a number from 0 to 1.
    """

    source: ClassVar[str] = "policy"
    node: str
    kube: Kube
    task: BackgroundTask[PolicyState]
    reporter: Reporter
    random: Callable[[], float]
    _back_off: BackOff = field(init=False)
    _due: float = math.inf

    def __post_init__(self) -> None:
        self._back_off = BackOff(MIN_BACK_OFF, MAX_BACK_OFF, self.random)

    def node_read(self, now: float) -> None:
        """Begin: the Node was read."""
        self._due = now + START_DELAY

    def trigger(self, now: float, event: Event) -> None:
        """Check again at once on SIGHUP if the last check failed."""
        if event == HANGUP and self._back_off.failures:
            self._due = now

    def start_due(self, now: float) -> None:
        """Send the request if it is due."""
        if self.next_due() <= now:
            self._due = math.inf
            self.task.start(partial(check_policy, self.kube, self.node))

    def collect(self, now: float) -> bool:
        """Take the result; no observation depends on it."""
        result = self.task.take()
        if result is None:
            return False
        if isinstance(result, Exception):
            state = PolicyState(None, str(result) or repr(result))
        else:
            state = result
        if state.in_force:
            self._back_off.succeeded()
            self._due = now + INTERVAL * (0.9 + 0.2 * self.random())
        else:
            self._due = now + self._back_off.failed(state.retry_after)
        self.reporter.policy_checked(state)
        return False

    def next_due(self) -> float:
        """Return the time of the next check; infinity while one is under way."""
        return math.inf if self.task.busy else self._due
