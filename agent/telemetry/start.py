"""The log line of a start that changes nothing: the Node already says what is observed.

    labels verified speed=3200G ports="8 of 8" neighbors=16

It is written once no label is held any more, so it is not about what nobody has seen yet; after
LINE_DELAY with the number of those that still are. A start that changes labels, or whose keys are
refused, has lines about these instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.output.document import links_of
from agent.telemetry.held_labels import LINE_DELAY
from agent.telemetry.samples import backend

if TYPE_CHECKING:
    from collections.abc import Sized

    from agent.daemon.observer import Cycle
    from agent.model import Observation
    from agent.telemetry.log import Log


class Start:
    """Decides about that line. Times are seconds of a monotonic clock; `speed` is a label key."""

    def __init__(self, log: Log, speed: str) -> None:
        self._log, self._speed = log, speed
        self._is_over = False  # the line was written, or will never be
        self._applied_at: float | None = None
        self._cycle: Cycle | None = None

    def label_changed(self) -> None:
        """Record that a label of the Node changed."""
        self._is_over = True

    def applied(self, now: float, refusals: Sized) -> None:
        """Record that the Node has its labels, except for `refusals`."""
        if refusals:
            self._is_over = True
        if self._applied_at is None:
            self._applied_at = now
        self._verify(now)

    def observed(self, cycle: Cycle, now: float) -> None:
        """Record an observation."""
        self._cycle = cycle
        self._verify(now)

    def _verify(self, now: float) -> None:
        if self._is_over or self._applied_at is None or self._cycle is None:
            return
        held = len(self._cycle.rendered.held)
        if held == 0 or now >= self._applied_at + LINE_DELAY:
            self._is_over = True
            self._write(self._cycle, held)

    def _write(self, cycle: Cycle, held: int) -> None:
        self._log.info(
            "labels verified",
            speed=cycle.rendered.labels.get(self._speed),
            ports=_ports(cycle.observation),
            neighbors=sum(len(link.neighbors) for link in links_of(cycle.observation)),
            held=held or None,
        )


def _ports(seen: Observation) -> str:
    """Return how many of the backend ports count."""
    ports = backend(seen)
    return f"{sum(bool(role.counted_gbps) for role in ports)} of {len(ports)}"
