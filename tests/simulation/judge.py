"""Records what an agent does and whether it can reach the API server, and has the laws judge it.

Invariant: a violation is one line with its time. Some keys are spared for a time:

    drift       labels that others changed stay until the agent's next request
    refused     a key that a webhook denies stays as it is until an hour after the denial
    trouble     while the API server cannot be reached, labels may be old
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.laws import Laws
from tests.simulation.names import ANNOTATION, lost
from tests.simulation.node import Node
from tests.support.server_side_apply import ApiServer, Write

MOST_TOLD = 2000  # lines of the timeline
TOLD = 16.0  # seconds from an observation to the Node: min-interval, and a request
RESYNC = 3600.0


class Response(Protocol):
    """What the agent made of a response."""

    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def message(self) -> str: ...


@dataclass(slots=True)
class Attempt:
    """One attempt of the agent to write to the Node; it may be several requests."""

    start: float
    statuses: list[int | None] = field(default_factory=list)
    is_foreign: bool = False  # the last answer is the policy's refusal of foreign labels

    @property
    def failed(self) -> bool:
        return bool(self.statuses) and self.statuses[-1] not in (200, 201)


class Judge:
    """Records violations of the laws."""

    def __init__(self, node: Node, api: ApiServer) -> None:
        self.violations: list[str] = []
        self.timeline: deque[str] = deque(maxlen=MOST_TOLD)
        self.counts: Counter[str] = Counter()
        self.is_memory_short = False
        self.denying = 0  # webhooks
        self.laws = Laws(node, api, self.fault)
        self.laws.spared = self._spares
        self._api = api
        self._attempt: Attempt | None = None
        self._clear = math.inf  # since when the agent can reach the API server
        self._went_well = False
        self._troubles = 0
        self._seeded = False
        self._born = 0.0  # when the agent first read the Node
        self._drift: set[str] = set()
        self._excuses: list[tuple[float, Callable[[str], bool]]] = []

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
        self.laws.requested(now)
        self.counts[f"{request['operation']} {told.error or told.status}"] += 1
        if self._attempt is None:
            return
        status = None if told.error else told.status
        self._attempt.statuses.append(status)
        if request["operation"] == "apply":
            self.laws.attempted(self._attempt.start)
        self._attempt.is_foreign = "its own labels only" in told.message
        if request["operation"] != "apply" and status == 200 and not self._seeded:
            self._seeded, self._born = True, now

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
        elif self._seeded and not self._troubles and now > self._born:
            self._clear = min(self._clear, now)

    def killed(self) -> None:
        """Record that the agent was killed."""
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
        now = write.time
        self.counts["writes"] += 1
        observed = write.after.get(("annotations", ANNOTATION), "{}")
        self.counts["writes with a loss"] += bool(lost(observed))
        for kind, key in sorted(write.before.keys() | write.after.keys()):
            before, after = write.before.get((kind, key)), write.after.get((kind, key))
            if kind == "labels" and before != after:
                self.note(now, f"{key}: {before} -> {after}")
        self.laws.written(write, self._attempt.start if self._attempt else now)
        self._drift -= {key for kind, key in self._api.ours() if kind == "labels"}

    def look(self, now: float) -> None:
        """Check the labels on the Node."""
        if self._seeded and now > self._clear:
            self.counts["looks at the Node"] += 1
            self.laws.standing(now, self._clear)

    def finish(self, now: float, quiet: float) -> None:
        """Check the labels on the Node after all faults are over."""
        if math.isinf(self._clear):
            self.fault(now, "the agent does not speak to the API server any more")
        self._drift.clear()
        self._excuses = [excuse for excuse in self._excuses if excuse[0] > now]
        self.laws.finish(now, quiet)

    def _spares(self, key: str) -> bool:
        """Return True for a key that others are at, or that is refused."""
        return key in self._drift or any(concerns(key) for _, concerns in self._excuses)
