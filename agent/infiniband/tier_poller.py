"""Polls the switches above the leaves (--tiers), by the subnet administrators.

An exploration costs a hundred questions, and ten thousand nodes may be started at once. So the
first one, and one that is overdue when the agent starts, is at a random time within a day; what is
remembered (agent/infiniband/fabric_memory.py) says when the next one is due. Between two
explorations it looks at the links of the leaves once a day; one that leads to another switch makes
the next exploration due. After a failure it backs off from an hour to a day.

A leaf that no answer had (the node was moved, a switch replaced) makes an exploration due within
the random time of agent/infiniband/poller.py, at most once an hour. A leaf that boots has the same
GUID, so no event that many nodes see asks for anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from agent.errors import Pending, Unavailable
from agent.infiniband.poller import jitter
from agent.pace import BackOff

if TYPE_CHECKING:  # packages that import this one, and what an agent without --tiers does not load
    from agent.daemon.background import BackgroundTask
    from agent.events.event import Event
    from agent.host import Explore, Look
    from agent.infiniband.devices import AskingPort
    from agent.infiniband.exploration import Exploration, LeafLook, Lids
    from agent.infiniband.fabric_memory import FabricMemory
    from agent.model import Observation
    from agent.sources.observe import Memories

    Ports = Sequence[AskingPort]

MIN_RETRY, DAY = 3600.0, 86_400.0  # seconds
NOT_ASKED = "the switches above were not asked for yet"


class TierPoller:
    """Host.explore with a cache: calling it returns the last answer, or raises Unavailable.

    `queries` ask and may block for minutes.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        queries: tuple[Explore, Look],
        memories: Memories,
        task: BackgroundTask[Exploration | LeafLook],
        random: Callable[[], float],
    ) -> None:
        self.task = task
        self._explore, self._look = queries
        self._memories, self._random = memories, random
        self._answer: Exploration | Exception = Pending(NOT_ASKED)
        self._lids: Lids = {}  # of the leaves and their uplinks
        self._ports: Ports = ()  # of the last observation
        self._is_new = False  # the answer: no observation has taken it
        self._of: FabricMemory | None = None  # the memory that `_due` and `_strange` are by
        self._strange: frozenset[str] = frozenset()  # leaves that it lacks and `_due` is by
        self._due = -math.inf
        self._back_off = BackOff(MIN_RETRY, DAY)

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
            due, is_first = memory.next_question, self._of is None or not self._of.time
            wait = min(max(due - self._memories.wall(), 0.0), max(due - memory.heard, 0))
            if is_first and not wait:
                wait = DAY * self._random()
            self._of, self._due, self._strange = memory, now + wait, frozenset()
        if strange := self._strangers(memory):
            pause = min(memory.time + MIN_RETRY - self._memories.wall(), MIN_RETRY)
            wait = jitter(port for port, _ in self._ports if port) * self._random()
            self._due, self._strange = (
                min(self._due, now + max(wait, pause)),
                self._strange | strange,
            )
        if self._due > now:
            return
        from agent.infiniband.fabric_memory import is_due

        ports, lids, uplinks = self._ports, self._lids, memory.uplinks
        is_known = {leaf for _, leaf in ports} <= uplinks.keys()
        if is_known and not is_due(memory, math.ceil(self._memories.wall())):
            self.task.start(lambda: self._look(ports, uplinks, lids))
        else:
            known = {row.guid: row.name for row in memory.switches.values()}
            self.task.start(lambda: self._explore(ports, None, known))

    def _strangers(self, memory: FabricMemory) -> frozenset[str]:
        """Return the leaves that no answer had, but those that a question is due for already."""
        leaves = frozenset(leaf for _, leaf in self._ports) if memory.time else frozenset[str]()
        return leaves - memory.uplinks.keys() - self._strange

    def collect(self, now: float) -> bool:
        from agent.infiniband.exploration import LeafLook
        from agent.infiniband.fabric_memory import after_look

        answer, memory = self.task.take(), self._memories.fabric
        if answer is None or memory is None:
            return False
        self._memories.sa_questions.update(getattr(answer, "outcomes", {}))
        if isinstance(answer, Exception):
            self._due = now + self._back_off.failed()
            if isinstance(self._answer, Exception):
                self._answer = answer
            return True
        self._lids = answer.lids
        self._back_off.succeeded()
        if isinstance(answer, LeafLook):  # the memory says when the next one is due
            at = int(self._memories.wall())
            self._memories.fabric = after_look(memory, at, answer.up, agrees=answer.agrees)
            if isinstance(self._answer, Exception):
                self._answer = Pending(NOT_ASKED)
        else:
            self._answer, self._is_new, self._due = answer, True, math.inf
        return True

    def next_due(self) -> float:
        if self.task.busy or self._is_new or not self._ports:
            return math.inf
        memory = self._memories.fabric
        is_new = memory is not self._of or (memory is not None and self._strangers(memory))
        return -math.inf if is_new else self._due
