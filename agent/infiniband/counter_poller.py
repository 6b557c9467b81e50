"""Polls the error counters of both ends of InfiniBand links.

A port is read within a minute of the start, once an hour, and after a change: it is up again, or
has counted a lost link. Changes that follow each other, as of a link that flaps, back off up to an
hour. While an end refuses or does not answer, so do the readings, up to a day. The last two
readings of a port are kept, also while it is down; two are at least MIN_INTERVAL apart.

A helper process costs more than the readings of all ports, so it also reads those that are due
within TOGETHER: the ports of a node have one helper an hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Malformed
from agent.infiniband.devices import Address, CounterPort, by_port
from agent.model import Observation
from agent.pace import doubled
from agent.text import Json

if TYPE_CHECKING:  # packages that import this one
    from agent.daemon.background import BackgroundTask
    from agent.events.event import Event
    from agent.host import Host
    from agent.sources.memories import Memories

INTERVAL, MAX_INTERVAL = 3600.0, 24 * 3600.0  # seconds
MIN_INTERVAL = 60.0  # seconds between two readings, doubled with each change up to INTERVAL
SETTLE = 10.0  # seconds that a link is given after a change
TOGETHER = INTERVAL / 2  # seconds


@dataclass(slots=True)
class _Row:
    """The last readings of one port, and the time of the next."""

    port: CounterPort
    entry: Json = field(default_factory=dict)
    due: float | None = None  # None: at a random time from now on
    read: float = -math.inf
    link_downed: int | None = None
    has_changed: bool = False  # since `due` was set
    is_by_change: bool = False  # `due` is because of a change
    changes: int = 0  # readings in a row that a change has caused
    failures: int = 0

    def is_due(self, now: float) -> bool:
        return self.due is not None and self.due <= now


class CounterPoller:
    """Host.ask_perf with a cache: calling it returns the last readings.

    `ask` reads counters and may block for seconds; `random` returns a number from 0 to 1.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[CounterPort]], Json],
        task: BackgroundTask[Json],
        random: Callable[[], float],
    ) -> None:
        self.task = task
        self._ask, self._random = ask, random
        self._rows: dict[Address, _Row] = {}  # of all ports that had a link since the start
        self._ports: dict[Address, None] = {}  # of this observation
        self._previous: dict[Address, None] = {}
        self._queried: list[CounterPort] = []  # the readings under way

    def __call__(self, ports: Sequence[CounterPort]) -> Json:
        for port in ports:
            address = port.device, port.number
            row, self._ports[address] = self._rows.get(address), None
            if row is None or row.port != port:
                self._rows[address] = _Row(port)
            elif address not in self._previous:
                row.has_changed = True
        rows = [self._rows[address] for address in self._ports]
        return {"ports": [row.entry for row in rows if row.entry]}

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:
        """Read a port again that has counted a lost link."""
        for role in observation.ports:
            row, count = self._rows.get((role.device.name, role.port.number)), role.port.link_downed
            if row and count is not None:
                row.has_changed |= row.link_downed not in {None, count}
                row.link_downed = count

    def trigger(self, now: float, event: Event) -> None:
        pass

    def start_due(self, now: float) -> None:
        rows = [self._rows[address] for address in self._ports] if not self.task.busy else []
        for row in rows:
            if row.due is None:
                row.due = now + MIN_INTERVAL * self._random()
            if row.has_changed:
                wait = doubled(MIN_INTERVAL, INTERVAL, row.changes)
                row.due = min(row.due, max(now + SETTLE, row.read + wait))
                row.has_changed, row.is_by_change = False, True
        if any(row.is_due(now) for row in rows):
            due = [row for row in rows if row.is_due(now if row.is_by_change else now + TOGETHER)]
            for row in due:
                row.changes = row.changes + 1 if row.is_by_change else 0
                row.is_by_change, row.read = False, now
            self._queried = ports = [row.port for row in due]
            self.task.start(lambda: self._ask([port._replace(again=0.0) for port in ports]))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        try:
            entries = {} if isinstance(answer, Exception) else by_port(answer)
        except Malformed:
            entries = {}
        jitter = 0.9 + 0.1 * self._random()
        for port in self._queried:
            row = self._rows.get((port.device, port.number))
            if row is None or row.port != port:  # it has another far end now
                continue
            entry = entries.get((port.device, port.number), {})
            readings = entry.get("readings", [])
            if readings:
                row.entry = entry | {"readings": [*row.entry.get("readings", ())[-1:], *readings]}
            is_read = readings and not any(readings[-1][end]["error"] for end in ("near", "far"))
            row.failures = 0 if is_read else row.failures + 1
            wait = doubled(INTERVAL, MAX_INTERVAL, max(row.failures - 1, 0))
            row.due = now + wait * jitter
        return True

    def next_due(self) -> float:
        if self.task.busy:
            return math.inf
        rows = [self._rows[address] for address in self._ports]
        times = (-math.inf if row.has_changed or row.due is None else row.due for row in rows)
        return min(times, default=math.inf)


def make(
    host: Host, _memories: Memories, _options: Mapping[str, Any], task: BackgroundTask[Json]
) -> tuple[CounterPoller, dict[str, Any]] | None:
    """Return the poller, and the field of a Host that reads its cache."""
    if host.ask_perf is None:
        return None
    poller = CounterPoller(host.ask_perf, task, host.random)
    return poller, {"ask_perf": poller}
