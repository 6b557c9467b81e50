"""Thousands of agents in one process: their observations are simulated, their requests and timing
are the agent's own code.

    real        the schedule, with its jitter and back-off; the plan, the negotiation, the
                annotation (agent/kube/reconcile.py)
    simulated   the observations; the helpers, which answer at once
    the wire    tests/support/kube/wire.py, to any API server

Invariant: one thread runs all agents, each with the state of its own loop; requests run in
background threads. An agent turns when its schedule is due, an event happens, or a response
arrives, as in agent/daemon/loop.py.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from agent.daemon.schedule import Schedule, Settings
from agent.encode import Naming
from agent.kube.annotation import Annotation, annotation_of
from agent.kube.change import Desired
from agent.kube.managed_fields import Keys, Node, state_of
from agent.kube.reconcile import Reconciler, Result
from tests.support.kube.population import Member
from tests.support.kube.wire import Clock, Wire

KEYS = Keys(Naming())
STACK = 256 * 1024  # bytes; there is a thread for each request under way
MOST_ASIDE = 6000  # threads
EPOCH = 1_800_000_000.0  # the wall clock at the start of the simulation


@dataclass(slots=True, eq=False)
class Agent:
    """One agent, and the state that its node has."""

    speaker: Reconciler
    pacer: Schedule
    whole: Mapping[str, str]  # the labels of its node when nothing is broken
    told: Annotation
    labels: Mapping[str, str]  # what a look would find now
    node: Node | None = None
    seeded: bool = False
    seen: tuple[Mapping[str, str], Annotation] | None = None  # by the last look
    speaking: object = None  # content of the attempt under way
    said: object = None  # content of the Node
    due: float = 0.0

    @property
    def right(self) -> bool:
        """True if the Node has the present labels."""
        return self.said == _state(self.labels, self.told)


def _state(labels: Mapping[str, str], told: Annotation) -> tuple[object, ...]:
    """Return the state as in agent/daemon/observer.py, without the time."""
    return tuple(labels.items()), told.boot_id, told.interfaces


def _age(node: Node, now: float) -> float:
    """Return the seconds since the annotation's time; 0 without an annotation."""
    told, _ = annotation_of(state_of(node), KEYS)
    return EPOCH + now - told.time if told and told.time else 0.0


@dataclass
class Tally:
    """Counts of the attempts' results."""

    attempts: int = 0
    failures: dict[str, int] = field(default_factory=dict)  # by kind
    late: float = 0.0  # seconds, the most that an agent's turn or request began after its time


class Fleet:
    """Agents that run within the block."""

    def __init__(
        self, wire: Wire, clock: Clock, settings: Settings | None = None, seed: int = 0
    ) -> None:
        self.tally = Tally()
        self.wrong: set[Agent] = set()  # agents whose Nodes are outdated
        self._wire, self.clock, self._settings = wire, clock, settings or Settings()
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._answers: queue.SimpleQueue[tuple[Agent, Result | BaseException]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        before = threading.stack_size(STACK)
        self._pool = ThreadPoolExecutor(MOST_ASIDE, "request")
        self._stack = before
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        threading.stack_size(self._stack)

    # What happens to them.

    def power_on(self, members: Iterable[Member], within: float) -> list[Agent]:
        """Start an agent on each of these Nodes, at random times within the next `within`
        seconds.
        """
        return [
            self._start(member, self.clock() + within * self._random.random()) for member in members
        ]

    def _start(self, member: Member, at: float) -> Agent:
        speaker = Reconciler(self._wire.connect(member.token), member.name, KEYS)
        agent = Agent(
            speaker,
            Schedule(self._settings, at, self._random.random),
            member.labels,
            member.told,
            member.labels,
        )
        self.wrong.add(agent)
        self._wake(agent, at)
        return agent

    def change(self, agents: Iterable[Agent], become: Callable[[Agent], Mapping[str, str]]) -> None:
        """Change the state of these agents' nodes, and deliver an event to each."""
        for agent in agents:
            agent.labels = become(agent)
            self._judge(agent)
            agent.pacer.trigger(self.clock())
            self._wake(agent, self.clock())

    def at(self, after: float, happens: Callable[[], None]) -> None:
        """Call a function after so many seconds."""
        self._schedule(self.clock() + after, happens)

    def _schedule(self, at: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (at, next(self._order), happens))

    # Time passes.

    def run(self, seconds: float) -> None:
        """Let so many seconds pass."""
        end = self.clock() + seconds
        while self.clock() < end:
            self._turn(end)

    def run_until_right(self, limit: float) -> float:
        """Let time pass until every Node is right, or the limit is over; return the seconds."""
        began = self.clock()
        while self.wrong and self.clock() - began < limit:
            self._turn(began + limit)
        return self.clock() - began

    def _turn(self, end: float) -> None:
        while self._coming and self._coming[0][0] <= self.clock():
            heapq.heappop(self._coming)[2]()
        following = min(self._coming[0][0], end) if self._coming else end
        try:
            answer = self._answers.get(timeout=max(following - self.clock(), 0.0) / self.clock.rate)
        except queue.Empty:
            return
        self._answered(*answer)

    def _wake(self, agent: Agent, at: float) -> None:
        agent.due = at
        self._schedule(at, partial(self._act, agent, at))

    def _act(self, agent: Agent, due: float) -> None:
        """Do the work of one agent's loop between two waits."""
        if agent.due != due:
            return  # it was called for another moment since
        now = self.clock()
        self.tally.late = max(self.tally.late, now - due)
        step = agent.pacer.step(now)
        while step.observe or step.apply:
            if step.observe:
                self._look(agent, now)
            else:
                self._speak(agent, now, resync=step.resync)
            step = agent.pacer.step(now)
        if step.wait < float("inf"):
            self._wake(agent, now + step.wait)

    def _look(self, agent: Agent, now: float) -> None:
        told = agent.told
        agent.seen = agent.labels, Annotation(int(EPOCH + now), told.boot_id, told.interfaces)
        agent.pacer.observed(now)
        if agent.seeded:
            agent.pacer.set_desired(_state(*agent.seen))

    def _speak(self, agent: Agent, now: float, *, resync: bool) -> None:
        desired = None
        if agent.seeded and agent.seen:
            agent.speaking = _state(*agent.seen)
            desired = Desired(*agent.seen, agent.pacer.postponed(now))
        agent.pacer.apply_started(now)
        self.tally.attempts += 1
        self._pool.submit(self._attempt, agent, desired, now, resync=resync)

    def _attempt(
        self, agent: Agent, desired: Desired | None, asked: float, *, resync: bool
    ) -> None:
        self.tally.late = max(self.tally.late, self.clock() - asked)
        try:
            result = agent.speaker.reconcile(agent.node, desired, always=resync)
            self._answers.put((agent, result))
        except BaseException as error:  # noqa: BLE001 - nothing catches an exception of a thread
            self._answers.put((agent, error))

    def _answered(self, agent: Agent, attempt: Result | BaseException) -> None:
        if isinstance(attempt, BaseException):
            raise attempt
        now, pacer = self.clock(), agent.pacer
        agent.node = attempt.node
        if failure := attempt.failure:
            self.tally.failures[failure.kind] = self.tally.failures.get(failure.kind, 0) + 1
            agent.said = None
            pacer.apply_failed(now, failure.retry_after)
        elif not agent.seeded:
            agent.seeded = True
            pacer.node_read(now, _age(agent.node or {}, now))
        else:
            keys = attempt.outcome.to_postpone if attempt.outcome else ()
            pacer.apply_succeeded(
                now, agent.speaking, keys, requests=len(attempt.codes) if attempt.outcome else 0
            )
            agent.said = agent.speaking
        self._judge(agent)
        self._wake(agent, now)

    def _judge(self, agent: Agent) -> None:
        (self.wrong.discard if agent.right else self.wrong.add)(agent)
