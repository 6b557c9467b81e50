"""The rate of the agent's requests: a minimum interval, and none without a change but the hourly
one.

An attempt may be several requests (conflicts, refusals, an expired token); the interval is between
the starts of attempts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.apiserver import Key, Write
from tests.simulation.names import ANNOTATION

MIN_INTERVAL, RESYNC = 10.0, 3600.0
DENIED = 4.0  # requests without a change that a denial may cost an agent


@dataclass(slots=True)
class Attempt:
    """One attempt of the agent to write to the Node."""

    start: float
    statuses: list[int | None] = field(default_factory=list)
    applies: int = 0
    is_foreign: bool = False  # the last answer is the policy's refusal of foreign labels

    @property
    def failed(self) -> bool:
        return bool(self.statuses) and self.statuses[-1] not in (200, 201)


class RequestRate:
    """Counts requests, and calls `fault` on a violation."""

    def __init__(self, fault: Callable[[float, str], None]) -> None:
        self.spare = 1.0  # permitted requests without a change besides the hourly ones
        self.born = 0.0  # when the agent first read the Node
        self._fault = fault
        self._told: float | None = None  # start of the last attempt that wrote
        self._idle = 0

    def begin(self, now: float) -> None:
        """Start a new agent, which has read the Node."""
        self.born = now

    def apply(self, now: float, attempt: Attempt) -> None:
        """Record one write request of an attempt."""
        attempt.applies += 1
        if attempt.applies > 1:
            return
        if self._told is not None and attempt.start - self._told < MIN_INTERVAL - 1e-6:
            self._fault(now, f"two requests within {attempt.start - self._told:.1f} s")
        self._told = attempt.start

    def written(self, write: Write, *, labels_changed: bool) -> None:
        """Record an accepted write."""
        self._idle += not labels_changed and not _says_more(write)

    def end(self, now: float) -> int:
        """End the agent; return the number of its requests without a change."""
        allowed = 1 + self.spare + (now - self.born) / (0.9 * RESYNC)
        if self._idle > allowed:
            self._fault(
                now,
                f"{self._idle} requests without a change since {self.born:.0f}, "
                f"at most {allowed:.1f}",
            )
        idle, self._idle, self._told, self.spare = self._idle, 0, None, 1.0
        return idle


def _says_more(write: Write) -> bool:
    """True if the annotation differs in more than its time."""

    def said(fields: Mapping[Key, str]) -> dict[str, Any] | None:
        text = fields.get(("annotations", ANNOTATION))
        if text is None:
            return None
        document: dict[str, Any] = json.loads(text) | {"time": None}
        verdict = document.get("verdict") or {}
        return document | {"verdict": {name: verdict.get(name) for name in ("boot_id", "findings")}}

    return said(write.before) != said(write.after)
