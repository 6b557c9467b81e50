"""Polls the switches above the leaves (--tiers), by the subnet administrators.

An exploration costs a hundred questions, and ten thousand nodes may be started at once. So the
first one, and one that is overdue when the agent starts, is at a random time within a day; what is
remembered (agent/infiniband/fabric_memory.py) says when the next one is due. After a failure it
backs off from an hour to a day. No event asks for anything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Pending, Unavailable
from agent.pace import doubled

if TYPE_CHECKING:  # packages that import this one, and what an agent without --tiers does not load
    from agent.daemon.background import BackgroundTask
    from agent.events.event import Event
    from agent.host import Host
    from agent.infiniband.devices import AskingPort
    from agent.infiniband.exploration import Exploration
    from agent.infiniband.fabric_memory import FabricMemory
    from agent.model import Observation
    from agent.sources.memories import Memories

    Ports = Collection[AskingPort]
    Explore = Callable[..., Exploration]  # as Host.explore

MIN_RETRY, DAY = 3600.0, 86_400.0  # seconds


class TierPoller:
    """Host.explore with a cache: calling it returns the last answer, or raises Unavailable.

    `explore` asks and may block for minutes; `wall` returns seconds since the epoch.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        explore: Explore,
        memories: Memories,
        task: BackgroundTask[Exploration],
        random: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.task = task
        self._explore, self._memories, self._random, self._wall = explore, memories, random, wall
        self._answer: Exploration | Exception = Pending("the switches above were not asked for yet")
        self._ports: Ports = ()  # of the last observation
        self._is_new = False  # the answer: no observation has taken it
        self._of: FabricMemory | None = None  # the memory that `_due` is by
        self._due = -math.inf
        self._failures = 0

    def __call__(self, ports: Ports, *_others: object) -> Exploration:
        self._ports = ports
        if isinstance(self._answer, Exception):
            kind = Pending if isinstance(self._answer, Pending) else Unavailable
            raise kind(str(self._answer))
        self._is_new = False
        return self._answer

    def begin_cycle(self) -> None:
        self._ports = ()

    def observed(self, observation: Observation) -> None:
        pass

    def trigger(self, now: float, event: Event) -> None:
        pass

    def start_due(self, now: float) -> None:
        if self.next_due() > now or (memory := self._memories.fabric) is None:
            return
        if memory is not self._of:
            wait, is_first = memory.due - self._wall(), self._of is None or not self._of.time
            wait = min(max(wait, 0.0), memory.due - memory.time)
            if is_first and not wait:
                wait = DAY * self._random()
            self._of, self._due = memory, now + wait
        if self._due <= now:
            ports, known = self._ports, {row.guid: row.name for row in memory.switches.values()}
            self.task.start(lambda: self._explore(ports, None, known))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        if isinstance(answer, Exception):
            self._due = now + doubled(MIN_RETRY, DAY, self._failures)
            self._failures += 1
            if isinstance(self._answer, Exception):
                self._answer = answer
        else:  # the memory after it says when the next one is due
            self._answer, self._is_new, self._failures, self._due = answer, True, 0, math.inf
        return True

    def next_due(self) -> float:
        if self.task.busy or self._is_new or not self._ports:
            return math.inf
        return self._due if self._memories.fabric is self._of else -math.inf


def make(
    host: Host, memories: Memories, _options: Mapping[str, Any], task: BackgroundTask[Any]
) -> tuple[TierPoller, dict[str, Any]] | None:
    """Return the poller, and the field of a Host that reads its cache; None without --tiers."""
    if host.explore is None:
        return None
    from agent.infiniband.fabric_memory import NOTHING

    memories.fabric = NOTHING
    poller = TierPoller(host.explore, memories, task, host.random)
    return poller, {"explore": poller}
