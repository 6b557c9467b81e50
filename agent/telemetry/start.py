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

if TYPE_CHECKING:
    from agent.daemon.observer import Cycle
    from agent.model import Observation
    from agent.telemetry.log import Log


class Start:
    """Decides about that line. Times are seconds of a monotonic clock; `speed` is a label key."""

    def __init__(self, log: Log, speed: str) -> None:
        self._log, self._speed = log, speed
        self._is_over = False  # the line was written, or will never be
        self._since: float | None = None  # the Node has the labels of the first observation

    def end(self) -> None:
        """Write no line: a label changed, or a key was refused."""
        self._is_over = True

    def verified(self, cycle: Cycle, now: float) -> None:
        """Write the line if it is due; the Node has the labels of this observation."""
        self._since = now if self._since is None else self._since
        held = len(cycle.rendered.held)
        if not self._is_over and (held == 0 or now >= self._since + LINE_DELAY):
            self._is_over = True
            self._write(cycle, held)

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
    ports = seen.backend
    return f"{sum(bool(role.counted_gbps) for role in ports)} of {len(ports)}"
