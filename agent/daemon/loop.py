"""The loop of `bwagent run`: wait for events, observe, apply.

    events, timers, results -> Schedule -> observe -> desired labels ─┐
                                   └────-> apply   -> the Node       <┘

Invariants:
- One thread owns all state and does not block. An observation reads files, and a device that
  blocks delays it by one timeout. GPUs, SMPs and the API server are queried in the background.
- The loop sleeps until an event or the next scheduled action. A result is an event, too: the thread
  that has one writes an eventfd (agent/events/event.py).
- An event, a timer or a signal makes an observation read all facts anew. A result does not: the
  observation takes the facts read before, so a slow device cannot cause reads without end.
- A signal ends the loop between two turns and changes no label.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from agent.daemon.background import BackgroundTask, Companion, Poller
from agent.daemon.flapping import Facts, Flapping, facts_of
from agent.daemon.observer import Cycle, Observer
from agent.daemon.schedule import Actions, Schedule
from agent.daemon.verification import Verification
from agent.errors import Unavailable
from agent.events.event import HANGUP, WOKE, Event
from agent.kube.annotation import annotation_of, fabric_of, without_future
from agent.kube.answers import NO_ROOM, Failure
from agent.kube.change import Desired
from agent.kube.managed_fields import Node, owned_labels, state_of
from agent.kube.reconcile import Reconciler, Result
from agent.lldp.inbox import FrameInbox
from agent.telemetry.reporter import Reporter

HEARTBEAT_INTERVAL = 20.0  # seconds; the longest wait, so that /healthz sees the loop turn
SETTLE_TIMEOUT = 5.0  # seconds that the first apply waits for the results of the pollers
# Seconds by which a wait may exceed its timeout on a busy machine
MAX_LATENESS = 30.0
MISSED = 10.0  # by which it does if a cable may have been moved meanwhile


class AwakeClock:
    """A clock without the time in which the agent could not run; call it for the seconds awake.

    Invariant: nothing expires while the agent could not have renewed it. The wall clock jumps when
    NTP steps it, and a monotonic clock runs on while a machine is suspended or a container is
    frozen: each neighbor's TTL and each hold would expire at the moment of waking up, though the
    switch has sent frames all the time. So the time between two calls is left out where it exceeds
    what a busy machine explains, less the timeout of a wait between them (`waits`).

    A freeze may begin in a wait or in the midst of an observation: the call that follows it, from
    whatever thread, notices it.

    `clock` is CLOCK_BOOTTIME, which counts suspension, so that it can be detected.
    """

    def __init__(
        self, clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    ) -> None:
        self.woke_at = -math.inf  # the last call that noticed more than MISSED seconds lost
        self._clock = clock
        self._left_out = 0.0
        self._lock = threading.Lock()
        self._called_at = clock()
        self._awaited_until = -math.inf  # the end of the wait under way
        self._missed = 0.0  # the longest time lost that `missed` has not returned

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            lost = now - max(self._called_at, self._awaited_until)
            self._called_at = now
            if lost > MAX_LATENESS:
                self._left_out += lost
            if lost > MISSED:
                self._missed = max(self._missed, lost)
                self.woke_at = now - self._left_out
            return now - self._left_out

    def left_out(self) -> float:
        """Return the seconds that it is behind CLOCK_BOOTTIME."""
        return self._left_out

    def waits(self, timeout: float) -> None:
        """Record that a wait of so many seconds begins, which `missed` ends."""
        self()
        self._awaited_until = self._called_at + timeout

    def missed(self) -> float:
        """Return the seconds lost in one piece since the last call, 0.0 if not more than MISSED.

        They are left out if they are more than MAX_LATENESS.
        """
        self()
        self._awaited_until = -math.inf
        lost, self._missed = self._missed, 0.0
        return lost


class EventSources(Protocol):
    """The sources of events (agent/events/monitor.py)."""

    @property
    def unavailable(self) -> dict[str, str]:
        """The monitors that could not be opened, with the error of the last attempt."""

    def wait(self, timeout: float) -> Iterable[Event]:
        """Return the events so far, or wait up to `timeout` seconds for the first."""

    def watch(self, netdevs: Iterable[str]) -> None:
        """Report these netdevs from now on, and no others."""


class PortStates(Protocol):
    """The sweep of port states (agent/events/port_states.py)."""

    def watch(self, ports: Iterable[tuple[str, int]], *, slow: bool = False) -> None:
        """Sweep these ports (RDMA device, number) from now on, and no others."""


@dataclass(slots=True)
class Loop:
    """An agent that runs until a signal stops it, over the parts that it connects."""

    clock: AwakeClock
    monitors: EventSources
    port_states: PortStates
    inbox: FrameInbox
    pollers: Sequence[Poller]  # of the sources; the first apply waits for them
    observer: Observer
    reconciler: Reconciler
    schedule: Schedule
    reporter: Reporter
    verification: Verification
    background: Callable[[], BackgroundTask[Result]] = BackgroundTask
    reap: Callable[[], object] = lambda: None  # reaps orphans (agent/helper/process.py)
    companions: Sequence[Companion] = ()  # what no label depends on
    _all_pollers: Sequence[Poller] = field(init=False)  # and the companions
    _request: BackgroundTask[Result] = field(init=False)
    _is_stopped: bool = False
    _has_new_results: bool = False  # of pollers, not observed yet
    _node_read_at: float | None = None
    _cycle: Cycle | None = None
    _applying: Cycle | None = None  # the cycle that the request under way applies
    _flapping: Flapping = field(default_factory=Flapping)
    _node: Result | None = None  # the last result that has the Node
    _watched: frozenset[str] = frozenset()  # netdevs

    def __post_init__(self) -> None:
        self._all_pollers = (*self.pollers, *self.companions)
        self._request = self.background()

    def run(self) -> None:
        """Turn until a signal stops the loop; Unavailable if no Node can ever be reached."""
        while not self._is_stopped:
            self.turn()

    def turn(self) -> None:
        """Do what is due, wait for events, and collect results."""
        step = self.schedule.step(self.clock())
        if step.observe:
            self._observe(refresh=step.refresh)
        elif step.apply and self._is_settled():
            self._apply(step)
        for poller in self._all_pollers:
            poller.start_due(self.clock())
        self._catch_up()  # a freeze while it worked
        timeout = self._timeout()
        self.clock.waits(timeout)
        events = self.monitors.wait(timeout)
        self._catch_up()
        for event in events:
            self._handle(event)
        now = self.clock()
        collected = [poller for poller in self._all_pollers if poller.collect(now)]
        if collected:
            self._has_new_results = True
        if collected or now >= self.verification.next_due():
            self.schedule.results(now)
        result = self._request.take()
        if isinstance(result, Exception):  # no thread could be started, or a bug
            self._node = None
            self._failed(Failure("helper", str(result) or repr(result)))
        elif result is not None:
            self._finished(result, now)
        self.reporter.heartbeat()

    def _catch_up(self) -> None:
        """Ask every far end again, after a time in which the agent did not run.

        Rule: a cable that was moved meanwhile left no event, and its port has the state of before.
        """
        if not (lost := self.clock.missed()):
            return
        now = self.clock()
        for poller in self._all_pollers:
            poller.trigger(now, WOKE)
        if lost > MAX_LATENESS:
            self.schedule.resync(now)
        else:
            self.schedule.trigger(now)

    def _timeout(self) -> float:
        """Return the seconds until something is due."""
        now = self.clock()
        step = self.schedule.step(now)
        if step.observe or (step.apply and self._is_settled()):
            return 0.0
        waits = [HEARTBEAT_INTERVAL, step.wait, self.inbox.pause() or HEARTBEAT_INTERVAL]
        waits += [poller.next_due() - now for poller in self._all_pollers]
        waits += [self.verification.next_due() - now, self.reporter.log.release_due()]
        if step.apply:
            waits.append(self._settles_at() - now)
        return max(min(waits), 0.0)

    def _is_settled(self) -> bool:
        """Return True if an apply need not wait for the first results of the pollers.

        Rule: the first apply waits until every poll that was due has returned and its result was
        observed, or until SETTLE_TIMEOUT after the Node was read; so one apply carries all labels.
        Example: the Node is read at 0.3 s, the SMPs of all ports are answered at 0.5 s and
        observed; the first apply follows at once, neighbors included.
        """
        now = self.clock()
        if now >= self._settles_at():
            return True
        is_polling = any(poller.task.busy or poller.next_due() <= now for poller in self.pollers)
        return not is_polling and not self._has_new_results

    def _settles_at(self) -> float:
        """Return the end of that wait; a GET, before the Node was read, need not wait."""
        return -math.inf if self._node_read_at is None else self._node_read_at + SETTLE_TIMEOUT

    def _observe(self, *, refresh: bool) -> None:
        """Run an observation cycle, compare it, and set the Node's desired state by it."""
        self._has_new_results = False
        for poller in self._all_pollers:
            poller.begin_cycle()
        cycle = self.observer.observe(refresh=refresh)
        for poller in self._all_pollers:
            poller.observed(cycle.observation)
        verdict = self.verification.observed(cycle, self.clock(), refresh=refresh)
        cycle = cycle._replace(annotation=replace(cycle.annotation, verdict=verdict))
        self._cycle, now = cycle, self.clock()
        self._flapping.observed(now, self._facts(cycle))
        roles = self.observer.memories.roles
        changed = roles.changed if roles else ()
        self.reporter.roles_changed(changed)
        expires_at = self._expires_at()
        self.schedule.observed(now, expires_at, degraded=cycle.degraded, refreshed=refresh)
        if self._node_read_at is not None:
            self.schedule.set_desired(cycle.state)
            self.schedule.delay(self._flapping.resumes_at())
        for companion in self.companions:
            companion.learned(cycle.known, cycle.observation, changed, self._flapping.ports)
        self._watch(cycle)
        took: dict[str, float] = {}
        for poller in self.pollers:  # a source may have several
            took[poller.source] = max(poller.task.took, took.get(poller.source, 0.0))
        unavailable = self.monitors.unavailable
        self.reporter.observed(cycle, took, unavailable, self.inbox.dropped, self._flapping.ports)

    def _expires_at(self) -> float:
        """Return the time at which a part of the last observation changes without an event."""
        roles = self.observer.memories.roles
        ends = self.observer.expires_at(), self._flapping.next_end()
        return min(*ends, roles.next_end() if roles else math.inf)

    def _facts(self, cycle: Cycle) -> Facts:
        return facts_of(cycle.known, cycle.rendered.labels, self.reconciler.keys)

    def _watch(self, cycle: Cycle) -> None:
        """Watch the netdevs of the backend ports from now on, and sweep those of InfiniBand.

        Rule: while one of these ports has no netdev, or a PCI function has no RDMA device, the
        netdevs watched before stay, since a netdev that has gone may return under its name.
        Example: eth0 moves to a pod's namespace, so mlx5_0 has no netdev. eth0 stays watched, and
        its return is an event.
        """
        roles = cycle.observation.backend
        # A port's own netdev, and all legs of its bond.
        netdevs = [
            netdev for role in roles for netdev in (role.port.netdev, role.leg, *role.port.legs)
        ]
        names = frozenset(netdev.name for netdev in netdevs if netdev)
        is_complete = not cycle.known.unbound and all(role.port.netdev for role in roles)
        self._watched = names if is_complete else names | self._watched
        self.monitors.watch(self._watched)
        swept = [role for role in roles if role.port.link_layer == "InfiniBand"]
        # An IPoIB netdev that is up has a carrier while its port is ACTIVE, unless the port cannot
        # join the broadcast group of its partition.
        is_told = all(
            (netdev := role.port.netdev)
            and netdev.is_up
            and (role.port.state != "ACTIVE" or netdev.operstate == "up")
            for role in swept
        )
        self.port_states.watch(
            [(role.device.name, role.port.number) for role in swept], slow=is_told
        )

    def _apply(self, step: Actions) -> None:
        """Start a request: a GET until the Node was read, then an apply of the last cycle."""
        now, cycle = self.clock(), self._cycle
        # After a failure the known Node may be another Node, since a write that failed may be
        # stored, and only an answer ends the outage: make a request though nothing is to change.
        always = step.resync or bool(self._node and self._node.failure)
        # A dry run never applies, so the Node it knows grows old: read it again in its place.
        reread = step.reread or (always and self.reconciler.dry_run and not step.look)
        node = self._node.node if self._node and not reread else None
        desired = None
        if cycle and self._node_read_at is not None:
            postponed, wall = self.schedule.postponed(now), cycle.observation.time
            confirmed = self.observer.confirmed
            rendered, frozen = cycle.rendered, frozenset(cycle.rendered.frozen)
            desired = Desired(
                *(rendered.labels, cycle.annotation, postponed, wall, frozen, confirmed),
                fabric=cycle.known.fabric,
            )
            self._applying = cycle
        self.schedule.apply_started(now)
        room = self.schedule.room(now)
        if step.look and desired:
            self._request.start(partial(self.reconciler.look, node, desired, room=room))
        else:
            reconcile = self.reconciler.reconcile
            self._request.start(partial(reconcile, node, desired, always=always, room=room))

    def _handle(self, event: Event) -> None:
        """Handle an event; every kind that may mean a change of the node triggers a cycle.

        Rules: SIGHUP repairs the Node, any other signal but SIGCHLD ends the loop. Of results, a
        late device has facts to observe, and opened packet sockets have frames to receive;
        `turn` takes all others. The health of a NIC is in no file: a companion asks.
        """
        now, (kind, subject) = self.clock(), event
        if kind == "frames" or event == ("results", "sockets"):
            # A frame that differs from its neighbor's last triggers a cycle.
            has_new, repeated = self.inbox.receive()
            self.reporter.frames_repeated(repeated)
            self.schedule.extend(now, self._expires_at())
            if has_new:
                self.schedule.trigger(now)
        elif event == ("results", "facts"):
            self.schedule.results(now)
        elif event == ("signal", "SIGCHLD"):
            self.reap()
        elif kind != "results":
            if kind == "signal":
                self.reporter.signal_received(subject)
                self._is_stopped |= event != HANGUP
            if event == HANGUP:
                self.schedule.repair(now)
            is_health = kind == "health"
            for poller in self.companions if is_health else self._all_pollers:
                poller.trigger(now, event)
            if not is_health:
                self.schedule.trigger(now)

    def _finished(self, result: Result, now: float) -> None:
        """Handle the result of a request: a failure, the Node as first read, or an apply.

        Raises Unavailable if the configuration keeps the Node from being read at all.
        """
        self.schedule.requested(now, len(result.codes))
        self.reporter.reconciled(result, self._applying)
        for companion in self.companions:
            companion.reconciled(result)
        self._node = result if result.node is not None else None
        if result.node is not None and self.verification.answered(result.node):
            self.schedule.results(now)
        if result.failure and result.failure.kind == NO_ROOM:
            self.schedule.apply_cut(now, result.outcome.to_postpone if result.outcome else ())
        elif result.failure:
            if result.failure.kind == "configuration" and self._node_read_at is None:
                raise Unavailable(result.failure.text)
            self._failed(result.failure, looked=bool(result.node and not result.outcome))
        elif self._node_read_at is None:
            self._seed(result.node or {}, now)
        else:
            self._applied(result, now)

    def _failed(self, failure: Failure, *, looked: bool = False) -> None:
        wait = self.schedule.apply_failed(self.clock(), failure.retry_after, looked=looked)
        self.reporter.failed(failure, wait)

    def _seed(self, node: Node, now: float) -> None:
        """Start from the labels and the annotation of the Node, which was read the first time."""
        keys, state = self.reconciler.keys, state_of(node)
        annotation, problem = annotation_of(state, keys)
        annotation = without_future(annotation, self.reporter.wall())
        fabric, fault = fabric_of(state, keys) if self.observer.memories.fabric else (None, None)
        rows = self.observer.seed(owned_labels(state, keys), annotation, fabric)
        self.verification.seed(annotation)
        self.reporter.node_read(annotation, filter(None, [problem, fault]), rows)
        self._node_read_at = now
        written_at = annotation.reported.time if annotation else None
        self.schedule.node_read(now, self.reporter.wall() - written_at if written_at else 0.0)
        for companion in self.companions:
            companion.node_read(now)

    def _applied(self, result: Result, now: float) -> None:
        """Record that the Node has the state of the cycle applied, but for what was refused."""
        if self.observer.reconciled(result):
            self.schedule.trigger(now)
        state = self._applying.state if self._applying else None
        to_postpone = result.outcome.to_postpone if result.outcome else ()
        requests = len(result.codes) if result.outcome else 0
        if self.reconciler.dry_run:  # it keeps the pace of a real run
            requests = max(requests, 1)
        if self._applying:
            self._flapping.applied(now, self._facts(self._applying))
            self.schedule.delay(self._flapping.resumes_at())
        heard = bool(result.codes)
        self.schedule.apply_succeeded(now, state, to_postpone, requests=requests, heard=heard)
        self.reporter.applied(heard=heard)
