"""Asks for the health reporters of the backend NICs (devlink), in a helper process each time.

It asks after the first apply, every INTERVAL, and after a change: the kernel has told of a reporter
(agent/events/netlink.py), or there are other NICs. A driver is given SETTLE to recover by itself.
Changes that follow each other, and failures, back off. While the reporters cannot be read the last
answer stands, and a problem says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from agent.daemon.background import BackgroundTask, Companion
from agent.errors import Pending, Unavailable
from agent.events.event import Event
from agent.kube.reconcile import Result
from agent.model import Observation, backend_functions
from agent.pace import Cadence, Intervals
from agent.text import Json

# Seconds.
INTERVAL = 6 * 3600.0
MIN_INTERVAL, MAX_CHANGE_INTERVAL = 10.0, 3600.0  # between two questions because of changes
MIN_RETRY = 60.0
SETTLE = 5.0
INTERVALS = Intervals(
    INTERVAL, SETTLE, changes=(MIN_INTERVAL, MAX_CHANGE_INTERVAL), failures=(MIN_RETRY, INTERVAL)
)
LOST = Event("resync", "devlink")


class NicHealthPoller(Companion):
    """Host.ask_nics with a cache: calling it returns the last answer, or raises Unavailable.

    `ask` may block for seconds; `random` returns a number from 0 to 1.
    """

    source: ClassVar[str] = "nics"

    def __init__(
        self,
        ask: Callable[[Sequence[str]], Json],
        task: BackgroundTask[Json],
        random: Callable[[], float],
    ) -> None:
        self.task = task
        self._ask, self._random = ask, random
        self._netdevs: Sequence[str] = ()
        self._functions: frozenset[str] = frozenset()
        self._answer: Json | None = None
        self._failure: str | None = None  # of the last question
        self._is_applied = False
        self._cadence = Cadence(INTERVALS)

    def __call__(self, netdevs: Sequence[str]) -> Json:
        self._netdevs = netdevs
        if self._answer is None:
            if self._failure is None:
                raise Pending("the drivers of the NICs were not asked yet")
            raise Unavailable(self._failure)
        told = [["health reporters", self._failure]] if self._failure else []
        return self._answer | {"errors": [*self._answer.get("errors", ()), *told]}

    def observed(self, observation: Observation) -> None:
        """Ask again where there are other NICs."""
        functions = backend_functions(observation.ports)
        self._cadence.has_changed |= functions != self._functions
        self._functions = functions

    def reconciled(self, result: Result) -> None:
        """Begin: the Node has its labels."""
        self._is_applied |= bool(result.change and not result.failure)

    def trigger(self, now: float, event: Event) -> None:  # noqa: ARG002 - it is asked when due
        """Ask again about a NIC whose reporter has changed, or may have."""
        kind, subject = event
        if event == LOST or (kind == "health" and subject in self._functions):
            self._cadence.has_changed = True

    def start_due(self, now: float) -> None:
        """Ask if it is due."""
        if self.next_due() > now:
            return
        self._cadence.plan(now)
        if self._cadence.due <= now:
            self._cadence.begin(now)
            self.task.start(partial(self._ask, self._netdevs))

    def collect(self, now: float) -> bool:
        """Take the answer; True: an observation should read it."""
        answer = self.task.take()
        if answer is None:
            return False
        if isinstance(answer, Exception):
            self._failure = str(answer) or repr(answer)
        else:
            self._answer, self._failure = answer, None
        self._cadence.end(now, self._random(), is_failure=self._failure is not None)
        return True

    def next_due(self) -> float:
        """Return the time of the next question; infinity before the first apply."""
        if self.task.busy or not self._functions or not self._is_applied:
            return math.inf
        return self._cadence.next_due
