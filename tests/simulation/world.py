"""An agent in simulated time between test doubles of all its I/O, with the laws that judge it.

Invariant: nothing sleeps. Time is a queue of events, which run during the agent's wait. The agent
is the real loop (assembly.py assembles it); a `kill -9` is an exception raised from its wait.

Suspension stops this module's time and lets the agent's boot-time clock run on.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from agent.daemon.loop import AwakeClock
from agent.events.event import Event
from agent.kube.annotation import parse
from agent.telemetry.metrics import Metrics
from tests.simulation import fabric
from tests.simulation.assembly import SPEED, Scraped, Served, Variant, assemble
from tests.simulation.judge import Judge
from tests.simulation.names import ANNOTATION
from tests.simulation.node import HERE, Hca, Node, Peer
from tests.simulation.sysfs import Kept, Sysfs
from tests.simulation.verdicts import Verdicts
from tests.support.server_side_apply import ApiServer, Reply, Write

QUIET, AN_HOUR = 1600.0, 5200.0  # seconds: a hold and the longest retry; one hourly request more
METRICS_EVERY = 32  # seeds: rendering takes a third of the run time
EXPECTED_EVERY = 2  # seeds: the Node has expected labels


class Killed(Exception):  # noqa: N818 - it is no error
    """The agent was killed."""


class Finished(Exception):  # noqa: N818 - nor is this
    """The scenario is over."""


class World:
    """A node, its fabric, its API server, its agent."""

    def __init__(self, node: Node, seed: int, variant: Variant | None = None) -> None:
        self.time, self.suspended, self.wall_offset = 0.0, 0.0, 0.0
        self.node, self.variant, self.rng = node, variant or Variant(), random.Random(seed)  # noqa: S311
        self.metrics = Scraped if seed % METRICS_EVERY == 0 else Metrics
        self.sysfs, self.kept = Sysfs(node, self._pass_time), Kept()
        self.api = ApiServer(lambda: self.time)
        self.judge = Judge(node, self.api)
        self.laws = self.judge.laws
        self.laws.suspended = lambda: self.suspended
        self.laws.wall_offset = lambda: self.wall_offset
        self.api.on_write = self._written
        self.muffled = 0  # faults that keep wake-ups from coming
        self.muffled_until = 0.0
        self.threadless = 0
        self.log_full = 0
        self.rest = 0.0  # seconds until a killed agent is started again
        self.quiet = QUIET  # seconds without faults at the end, after which labels must be right
        self.active = 0  # faults that are not over yet
        self.troubles: list[Callable[[Mapping[str, Any]], Reply | None]] = []
        self.listener_error: Exception | None = None
        self.helper_errors: dict[str, list[Callable[[], Exception]]] = {
            "api": [],
            "nvml": [],
            "smp": [],
        }
        self.slow = dict(SPEED)
        self.moments: dict[str, Callable[[], None]] = {}  # by what the agent does: "reads", "asks"
        self.lives = itertools.count()
        self.turns = 0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._wakes: set[Event] = set()
        self._slept, self._was_frozen, self._frozen_until = False, False, 0.0
        self.underway: list[Callable[[], None]] = []
        self.frames: list[tuple[str, bytes]] = []
        self.watched: set[str] = set()
        self.deafness: dict[str, str] = {}
        self.verdicts = Verdicts(node, self.judge.fault)
        if seed % EXPECTED_EVERY == 0:
            self.api.update("site", self.verdicts.expected)
        self.served = Served(lambda *page: self.verdicts.page(self.time, *page))
        self.clock = AwakeClock(lambda: self.time + self.suspended)

    def _written(self, write: Write) -> None:
        _, problem = parse(write.after.get(("annotations", ANNOTATION)), ANNOTATION)
        if problem:
            self.judge.fault(self.time, f"the agent does not read its annotation: {problem.text}")
        self.judge.written(write)

    # Calls of the scenarios.

    def at(self, after: float, do: Callable[[], object]) -> None:
        """Call `do` in so many seconds."""
        heapq.heappush(self._events, (self.time + max(after, 0.0), next(self._numbers), do))

    def for_a_while(self, seconds: float, do: Callable[[int], object]) -> float:
        """Call `do(1)`, and `do(-1)` in so many seconds; return the seconds."""
        do(1)
        self.at(seconds, partial(do, -1))
        return seconds

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.judge.note(self.time, text)

    def changed(self, *wakes: Event) -> None:
        """Record a change of the node, reported by these events unless a fault suppresses them."""
        self.sysfs.changed()
        until = self.time + 1.0 if not wakes else -math.inf
        if self.muffled:
            until = max(until, self.muffled_until + 45.0)
        else:
            self._wakes |= set(wakes)
        self.laws.unheard_until = max(self.laws.unheard_until, until)

    def wake(self, *wakes: Event) -> None:
        """Deliver events alone; of kind "frames": the sockets are readable."""
        self._wakes |= set(wakes)

    def notify(self) -> None:
        """Deliver the event of finished background work."""
        self._wakes.add(Event("results", ""))

    def deliver(self, netdev: str, *frames: bytes) -> None:
        """Deliver frames to a netdev."""
        if netdev in self.watched:
            self.frames += [(netdev, data) for data in frames]
            self._wakes.add(Event("frames", ""))

    def speak(self, hca: Hca, peer: Peer | None = None, *, ttl: int | None = None) -> None:
        """Send an LLDP frame of a switch, if its link is up and watched."""
        peer = peer or hca.peer
        if hca.netdev in self.watched and hca.up and hca.where == HERE and not hca.bridged:
            self.deliver(hca.netdev, fabric.frame(peer, ttl=ttl))

    def suspend(self, seconds: float) -> None:
        """Suspend the machine; the agent's current wait ends as if it had not slept (a poll's
        timeout does not count suspended time).
        """
        self.laws.slept(self.time, seconds)
        self.suspended += seconds
        self._slept = True

    def freeze(self, seconds: float, *, at_work: bool = False) -> None:
        """Stop the agent for a while, as SIGSTOP does: its sweep of port states misses changes.

        What happens meanwhile is seen by its next observation, `at_work` too.
        """
        self._frozen_until = max(self._frozen_until, self.time + seconds)
        self.laws.froze(self.time, self._frozen_until)
        self._was_frozen = True
        if at_work:
            self._pass_time(seconds)

    def when(self, it: str, do: Callable[[], None]) -> None:
        """Call `do` when the agent next "reads" a file or "asks" an SMP, which is at once."""

        def forget() -> None:
            if self.moments.get(it) is do:
                del self.moments[it]

        self.moments[it] = do
        self.at(8.0, forget)
        self.wake(Event("signal", "SIGHUP"))

    def met(self, it: str) -> None:
        """Call what was to be called when it does this."""
        self.moments.pop(it, lambda: None)()

    def needs(self, quiet: float) -> None:
        """Extend the quiet period at the end to at least this."""
        self.quiet = max(self.quiet, quiet)

    def trouble_with(self, kind: str, by: int) -> None:
        """Begin or end a failure of a helper."""
        if kind == "api":
            self.judge.trouble(self.time, begins=by > 0)
        elif kind == "smp":
            self.needs(AN_HOUR)  # the interval between queries grows with each failure
            self.node.smp_trouble += by
        else:
            self.node.gpus.unreachable += by

    def first_trouble(self, request: Mapping[str, Any]) -> Reply | None:
        """Return the first reply of a fault that answers instead of the API server."""
        return next(filter(None, (trouble(request) for trouble in self.troubles)), None)

    def ours(self, key: str) -> bool:
        """True if the agent owns this label on the Node."""
        return ("labels", key) in self.api.ours()

    def kill(self) -> None:
        """Kill the agent as `kill -9` does; a pending request may still be performed."""
        raise Killed

    def run(self) -> None:
        """Run agents one after another, each until it is killed, until `finish` is called."""
        self.laws.note(0.0)
        with suppress(Finished):
            while True:
                with suppress(Killed):
                    self._live()
                self._die()
                self._lie(self.time + self.rest)
                self.node.is_bus_read = not self.node.busless

    def finish(self) -> None:
        """End the scenario."""
        self.judge.finish(self.time, self.quiet)
        self.verdicts.finish(self.time, self.api.fields)
        self.judge.counts[f"verdict {self.verdicts.word}"] += 1
        raise Finished

    # The agent.

    def _live(self) -> None:
        runtime = assemble(self, next(self.lives))
        try:
            while True:
                self.turns += 1
                runtime.turn()
        except (Killed, Finished):
            raise
        except Exception as error:
            where = traceback.format_exc().splitlines()[-3:]
            self.judge.fault(self.time, f"the agent has died: {' '.join(where)}")
            raise Killed from error

    def _die(self) -> None:
        for work in list(self.underway):
            if self.rng.random() < 0.5:
                work()  # its answer is not read
        self.underway.clear()
        self.frames.clear()
        self.watched.clear()
        self._wakes.clear()
        self.judge.killed()
        self.laws.died(self.time, self.time + self.rest)

    def _lie(self, until: float) -> None:
        """Let time pass without an agent."""
        while self._events and self._events[0][0] <= until:
            with suppress(Killed):
                self._happen()
        self.time = max(self.time, until)
        self._wakes.clear()

    # The agent's monitors.

    def wait(self, timeout: float) -> set[Event]:
        """Let time pass until an event arrives or the timeout is over."""
        end = self.time + max(timeout, 0.001)
        while (self._slept or not self._wakes) and self._events and self._events[0][0] <= end:
            self._happen()
        self.time = self.time if self._wakes and not self._slept else max(end, self.time)
        self._slept = False
        # Events during the agent's observation.
        while self._events and self._events[0][0] <= self.time:
            self._happen()
        self._thaw()
        wakes, self._wakes = self.variant.wakes(self._wakes), set()
        return wakes

    def _thaw(self) -> None:
        """Let the time pass in which the agent is frozen; its sweep of port states sees none."""
        if self._was_frozen:
            while self._events and self._events[0][0] <= self._frozen_until:
                self._happen()
            self.time = max(self.time, self._frozen_until)
            self._wakes = {wake for wake in self._wakes if wake.kind != "port"}
            self._was_frozen = False

    def _happen(self) -> None:
        at, _, event = heapq.heappop(self._events)
        self.time = max(self.time, at)
        self.judge.look(self.time)
        event()
        self.laws.note(self.time)

    def watch(self, netdevs: Iterable[str]) -> None:
        """Accept the list of netdevs to watch."""

    @property
    def unavailable(self) -> dict[str, str]:
        return self.deafness

    def _pass_time(self, seconds: float) -> None:
        self.time += seconds
