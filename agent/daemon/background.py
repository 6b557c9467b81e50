"""Work in background threads whose results the loop takes later, and what starts it when it is due.

A request to an unreachable API server takes 25 s and a GPU query up to 30 s, while a link that
goes down is to be observed at once. The work is a request or a child process with a deadline
(agent/helper/process.py), so the thread only waits for it.

Invariants:
- The loop never waits for the work. Threads are daemon threads, never joined: Python does not wait
  for them at exit.
- Only the result is shared with the loop.
- A task has one piece of work at a time; the next one starts after its result was taken.
- An observation may come at any time and never waits: a poller returns its last answer, or raises
  Unavailable. Nothing is queried that the last observation did not ask for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agent.events.event import Event
from agent.host import Host
from agent.infiniband.counter_poller import CounterPoller
from agent.infiniband.poller import SaPoller, SmpPoller
from agent.infiniband.tier_poller import TierPoller
from agent.kube.reconcile import Result
from agent.limits import start_thread
from agent.memory import Known
from agent.model import Observation, RoleChange
from agent.nvml.poller import NvmlPoller
from agent.sources.observe import Memories

Spawn = Callable[[Callable[[], None]], None]
Notify = Callable[[], None]
T = TypeVar("T")


def spawn(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread; RuntimeError if no thread can be started."""
    start_thread(threading.Thread(target=work, name="background", daemon=True))


class BackgroundTask(Generic[T]):
    """At most one piece of work; `spawn` runs it elsewhere.

    `notify` is called when there is a result, in the thread that ran the work.
    """

    def __init__(self, spawn: Spawn = spawn, notify: Notify = lambda: None) -> None:
        self.busy = False  # from `start` until `take` returns the result
        self.took = 0.0  # duration of the last piece in seconds
        self._spawn, self._notify = spawn, notify
        self._result: list[T | Exception] = []

    def start(self, work: Callable[[], T]) -> None:
        """Start `work`; an exception that it raises becomes the result."""
        self.busy = True

        def run() -> None:
            started = time.monotonic()
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - the loop handles it, from the result
                result = error
            self.took = time.monotonic() - started
            self._finish(result)

        try:
            self._spawn(run)
        except RuntimeError as error:  # no thread could be started
            self._finish(error)

    def take(self) -> T | Exception | None:
        """Return the result once; None while there is none."""
        if not self._result:
            return None
        self.busy = False
        return self._result.pop()

    def _finish(self, result: T | Exception) -> None:
        self._result.append(result)
        self._notify()


class Poller(Protocol):
    """A source that is queried in a background task; an observation reads the cached result.

    It stands in the folder of its protocol (poller.py). The loop calls `begin_cycle` before an
    observation and `observed` after it, `start_due` and `collect` once a turn. Times are seconds of
    the loop's clock.
    """

    source: ClassVar[str]  # name of the source (agent/sources/observe.py)
    task: BackgroundTask[Any]  # the poll under way

    def begin_cycle(self) -> None:
        """Forget which queries the previous observation needed."""

    def observed(self, observation: Observation) -> None:
        """Choose the next poll's time by what was observed."""

    def trigger(self, now: float, event: Event) -> None:
        """Poll early if the event may concern what is polled."""

    def start_due(self, now: float) -> None:
        """Start a poll if it is due."""

    def collect(self, now: float) -> bool:
        """Take a finished poll's result; True if an observation should read it."""

    def next_due(self) -> float:
        """Time at which `start_due` has something to start; infinity if none is needed."""


class Companion(Poller):
    """A poller that no label depends on: no apply waits for it.

    The loop tells it what happens: the policy check, plan files, the recorder of Events, and the
    health of NICs. What it does not override does nothing.
    """

    def begin_cycle(self) -> None:
        """Take no part in an observation."""

    def observed(self, observation: Observation) -> None:
        """Take no part in an observation."""

    def trigger(self, now: float, event: Event) -> None:
        """Take an event."""

    def node_read(self, now: float) -> None:
        """Take that the Node was read for the first time."""

    def learned(
        self,
        known: Known,
        observation: Observation,
        roles: Sequence[RoleChange],
        flapping: Sequence[str],
    ) -> None:
        """Take what is known after an observation, and the ports that are flapping."""

    def reconciled(self, result: Result) -> None:
        """Take the result of a request."""


def pollers(
    host: Host,
    memories: Memories,
    options: Mapping[str, Any],
    background: Callable[[str], BackgroundTask[Any]],
) -> tuple[Host, tuple[Poller, ...]]:
    """Return the host with I/O that reads the pollers' caches, and the pollers.

    `host` queries and may block; `options` are the command line options by name; `background` makes
    the task in which a poller of the source of this name queries. The reads of a source without a
    poller are cheap.
    """
    names, random = memories.switch_names, host.random
    polled: dict[str, Any] = {
        "ask_smp": SmpPoller(host.ask_smp, background(SmpPoller.source), names),
        "ask_sa": SaPoller(host.ask_sa, background(SaPoller.source), names, random),
    }
    if host.explore and host.look:  # --tiers
        from agent.infiniband.fabric_memory import NOTHING

        memories.fabric, queries = NOTHING, (host.explore, host.look)
        polled["explore"] = TierPoller(queries, memories, background(TierPoller.source), random)
    if host.ask_perf:
        task = background(CounterPoller.source)
        polled["ask_perf"] = CounterPoller(host.ask_perf, task, random)
    task = background(NvmlPoller.source)
    polled["gpus"] = NvmlPoller(host.gpus, options["gpu_interval"], task)
    return host._replace(**polled), tuple(polled.values())
