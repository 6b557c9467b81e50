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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from agent.infiniband.devices import Address, CounterPort, address_of
from agent.infiniband.poller import entries_of
from agent.model import Observation
from agent.pace import Cadence, Intervals
from agent.text import Json

if TYPE_CHECKING:  # packages that import this one
    from agent.daemon.background import BackgroundTask
    from agent.events.event import Event

INTERVAL, MAX_INTERVAL = 3600.0, 24 * 3600.0  # seconds
MIN_INTERVAL = 60.0  # seconds between two readings, doubled with each change up to INTERVAL
SETTLE = 10.0  # seconds that a link is given after a change
TOGETHER = INTERVAL / 2  # seconds
INTERVALS = Intervals(
    INTERVAL, SETTLE, changes=(MIN_INTERVAL, INTERVAL), failures=(INTERVAL, MAX_INTERVAL)
)


@dataclass(slots=True)
class _Row:
    """The last readings of one port, and the time of the next."""

    port: CounterPort
    entry: Json = field(default_factory=dict)
    link_downed: int | None = None
    cadence: Cadence = field(default_factory=lambda: Cadence(INTERVALS))


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
            address = address_of(port)
            row, self._ports[address] = self._rows.get(address), None
            if row is None or row.port != port:
                self._rows[address] = _Row(port)
            elif address not in self._previous:
                row.cadence.has_changed = True
        rows = [self._rows[address] for address in self._ports]
        return {"ports": [row.entry for row in rows if row.entry]}

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:
        """Read a port again that has counted a lost link."""
        for role in observation.ports:
            row, count = self._rows.get((role.device.name, role.port.number)), role.port.link_downed
            if row and count is not None:
                row.cadence.has_changed |= row.link_downed not in {None, count}
                row.link_downed = count

    def trigger(self, now: float, event: Event) -> None:
        pass

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        rows = [self._rows[address] for address in self._ports]
        for cadence in (row.cadence for row in rows):
            if math.isinf(cadence.due):  # it is new
                cadence.due = now + MIN_INTERVAL * self._random()
            cadence.plan(now)
        if any(row.cadence.due <= now for row in rows):
            regular = now + TOGETHER
            due = [
                row
                for row in rows
                if row.cadence.due <= (now if row.cadence.is_by_change else regular)
            ]
            for row in due:
                row.cadence.begin(now)
            self._queried = ports = [row.port for row in due]
            self.task.start(lambda: self._ask([port._replace(again=0.0) for port in ports]))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        entries, _ = entries_of(answer)
        chance = self._random()
        for port in self._queried:
            address = address_of(port)
            row = self._rows.get(address)
            if row is None or row.port != port:  # it has another far end now
                continue
            entry = entries.get(address, {})
            readings = entry.get("readings", [])
            if readings:
                row.entry = entry | {"readings": [*row.entry.get("readings", ())[-1:], *readings]}
            is_read = readings and not any(readings[-1][end]["error"] for end in ("near", "far"))
            row.cadence.end(now, chance, is_failure=not is_read)
        return True

    def next_due(self) -> float:
        if self.task.busy:
            return math.inf
        return min((self._rows[at].cadence.next_due for at in self._ports), default=math.inf)
