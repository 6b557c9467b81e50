"""The loop of `bwagent run`: wait for events, observe, apply.

    events, timers, results -> Schedule -> observe -> desired labels ─┐
                                   └────-> apply   -> the Node       <┘

Invariants:
- One thread owns all state and does not block. An observation reads files, and a device that
  blocks delays it by one timeout. GPUs, SMPs and the API server are queried in the background.
- The loop sleeps until an event or the next scheduled action. A result is an event, too: the thread
  that has one writes an eventfd (agent/events/notifier.py).
- An event, a timer or a signal makes an observation read all facts anew. A result does not: the
  observation takes the facts read before, so a slow device cannot cause reads without end.
- A signal ends the loop between two turns and changes no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.kube.annotation import annotation_of
from agent.kube.managed_fields import owned_labels, state_of
from agent.kube.plan import Desired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.daemon.clock import AwakeClock
    from agent.daemon.observer import Cycle, Observer
    from agent.daemon.pollers import Poller
    from agent.daemon.schedule import Schedule
    from agent.kube.reconcile import Reconciler, Result
    from agent.lldp.inbox import FrameInbox
    from agent.model import Observation, PortRole
    from agent.telemetry.reporter import Reporter

HEARTBEAT_INTERVAL = 20.0  # seconds; the longest wait, so that /healthz sees the loop turn
SETTLE_TIMEOUT = 5.0  # seconds that the first apply waits for the results of the pollers


class Event(Protocol):
    """An event (agent/events/event.py)."""

    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...


class Monitors(Protocol):
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

    def watch(self, ports: Iterable[tuple[str, int]]) -> None:
        """Sweep these ports (RDMA device, number) from now on, and no others."""


@dataclass(frozen=True, slots=True)
class Components:
    """The parts that the loop connects."""

    clock: AwakeClock
    monitors: Monitors
    port_states: PortStates
    inbox: FrameInbox
    pollers: Sequence[Poller]
    observer: Observer
    reconciler: Reconciler
    schedule: Schedule
    reporter: Reporter
    background: Callable[[], BackgroundTask[Result]] = BackgroundTask
    reap: Callable[[], object] = lambda: None  # reaps orphans (agent/daemon/reaper.py)


class Loop:
    """An agent that runs until a signal stops it."""

    def __init__(self, components: Components) -> None:
        self._parts = components
        self._clock, self._schedule = components.clock, components.schedule
        self._reporter = components.reporter
        self._request: BackgroundTask[Result] = components.background()
        self._is_stopped = False
        self._has_new_results = False  # of pollers, not observed yet
        self._node_read_at: float | None = None
        self._cycle: Cycle | None = None
        self._applying: Cycle | None = None  # the cycle that the request under way applies
        self._node: Result | None = None  # the last result that has the Node
        self._netdevs: frozenset[str] = frozenset()

    def run(self) -> None:
        """Turn until a signal stops the loop; Unavailable if no Node can ever be reached."""
        while not self._is_stopped:
            self.turn()

    def turn(self) -> None:
        """Do what is due, wait for events, and collect results."""
        self._act()
        since, timeout = self._clock(), self._timeout()
        events = self._parts.monitors.wait(timeout)
        if self._clock.waited(since, timeout):
            self._schedule.resync(self._clock())
        for event in events:
            self._handle(event)
        self._collect(self._clock())
        self._reporter.heartbeat()

    def _act(self) -> None:
        """Observe or apply, whichever is due, and start the polls that are due."""
        step = self._schedule.step(self._clock())
        if step.observe:
            self._observe(refresh=step.refresh)
        elif step.apply and self._is_settled():
            self._apply(resync=step.resync)
        for poller in self._parts.pollers:
            poller.start_due(self._clock())

    def _timeout(self) -> float:
        """Return the seconds until something is due."""
        now = self._clock()
        step = self._schedule.step(now)
        if step.observe or (step.apply and self._is_settled()):
            return 0.0
        waits = [HEARTBEAT_INTERVAL, step.wait, self._reporter.pause()]
        waits += [poller.next_due() - now for poller in self._parts.pollers]
        waits.append(self._parts.inbox.pause() or HEARTBEAT_INTERVAL)
        if step.apply and self._node_read_at is not None:
            waits.append(self._node_read_at + SETTLE_TIMEOUT - now)
        return max(min(waits), 0.0)

    def _is_settled(self) -> bool:
        """Return True if an apply need not wait for the first results of the pollers.

        Rule: the first apply waits until every poll that was due has returned and its result was
        observed, or until SETTLE_TIMEOUT after the Node was read; so one apply carries all labels.
        Example: the Node is read at 0.3 s, the SMPs of all ports are answered at 0.5 s and
        observed; the first apply follows at once, neighbors included.
        """
        now = self._clock()
        if self._node_read_at is None or now - self._node_read_at >= SETTLE_TIMEOUT:
            return True
        polling = any(one.task.busy or one.next_due() <= now for one in self._parts.pollers)
        return not polling and not self._has_new_results

    def _observe(self, *, refresh: bool) -> None:
        """Run an observation cycle and set the Node's desired state by it."""
        self._has_new_results = False
        for poller in self._parts.pollers:
            poller.begin_cycle()
        cycle = self._cycle = self._parts.observer.observe(refresh=refresh)
        for poller in self._parts.pollers:
            poller.observed(cycle.observation)
        self._schedule.observed(
            self._clock(), cycle.expires_at, degraded=cycle.degraded, refreshed=refresh
        )
        if self._node_read_at is not None:
            self._schedule.set_desired(cycle.state)
        self._watch(cycle.observation)
        took = {poller.source: poller.task.took for poller in self._parts.pollers}
        unavailable = self._parts.monitors.unavailable
        self._reporter.observed(cycle, took, unavailable, self._parts.inbox.dropped)

    def _watch(self, observation: Observation) -> None:
        """Watch the backend's netdevs, and sweep its InfiniBand ports, from now on.

        Rule: the netdevs of the backend ports are watched. While one of these ports has no netdev,
        or a PCI function has no RDMA device, those watched before stay, since a netdev that has
        gone may return under its name.
        Example: eth0 moves to a pod's namespace, so mlx5_0 has no netdev. eth0 stays watched, and
        its return is an event.
        """
        backend = [role for role in observation.ports if role.backend]
        netdevs = _netdevs(backend)
        if observation.unbound or any(role.port.netdev is None for role in backend):
            netdevs |= self._netdevs
        self._netdevs = netdevs
        self._parts.monitors.watch(netdevs)
        infiniband = [role for role in backend if role.port.link_layer == "InfiniBand"]
        self._parts.port_states.watch((role.device.name, role.port.number) for role in infiniband)

    def _apply(self, *, resync: bool) -> None:
        """Start a request: a GET until the Node was read, then an apply of the last cycle."""
        now = self._clock()
        desired = None
        if self._node_read_at is not None and self._cycle:
            cycle = self._applying = self._cycle
            backed_off = self._schedule.backed_off(now)
            desired = Desired(cycle.rendered.labels, cycle.annotation, backed_off)
        # A dry run never applies, so the Node it knows grows old: read it again at each resync.
        reread = resync and self._parts.reconciler.dry_run
        node = self._node.node if self._node and not reread else None
        self._schedule.apply_started(now)
        reconcile = partial(self._parts.reconciler.reconcile, node, desired, always=resync)
        self._request.start(reconcile)

    def _handle(self, event: Event) -> None:
        """Handle an event; every kind that may mean a change of the node triggers a cycle."""
        now = self._clock()
        if event.kind == "frames":
            self._receive(now)
        elif event.kind == "results":
            self._notified(event.subject, now)
        elif event.kind == "signal" and event.subject == "SIGCHLD":
            self._parts.reap()
        else:
            if event.kind == "signal":
                self._reporter.signal_received(event.subject)
                self._is_stopped |= event.subject != "SIGHUP"
            for poller in self._parts.pollers:
                poller.trigger(now)
            self._schedule.trigger(now)

    def _receive(self, now: float) -> None:
        """Receive LLDP frames: one that differs from its neighbor's last triggers a cycle."""
        has_new, repeated = self._parts.inbox.receive()
        self._reporter.frames_repeated(repeated)
        self._schedule.extend(now, self._parts.observer.expires_at())
        if has_new:
            self._schedule.trigger(now)

    def _notified(self, subject: str, now: float) -> None:
        """Observe new facts of a late device, and receive from packet sockets that were opened.

        `_collect` takes the results of all other work.
        """
        if subject == "facts":
            self._schedule.results(now)
        elif subject == "sockets":
            self._receive(now)

    def _collect(self, now: float) -> None:
        """Take the results of finished polls and of a finished request."""
        collected = [poller.collect(now) for poller in self._parts.pollers]
        if any(collected):
            self._has_new_results = True
            self._schedule.results(now)
        result = self._request.take()
        if isinstance(result, Exception):
            self._node = None
            self._failed(str(result) or repr(result), None)
        elif result is not None:
            self._finished(result, now)

    def _finished(self, result: Result, now: float) -> None:
        """Handle the result of a request: a failure, the Node as first read, or an apply."""
        self._reporter.reconciled(result, self._applying)
        self._node = result if result.node is not None else None
        if result.failure:
            if result.failure.kind == "configuration" and self._node_read_at is None:
                raise Unavailable(result.failure.text)
            self._failed(result.failure.text, result.failure.retry_after)
        elif self._node_read_at is None:
            self._seed(result, now)
        else:
            self._applied(result, now)

    def _failed(self, text: str, retry_after: float | None) -> None:
        self._reporter.failed(text)
        self._schedule.apply_failed(self._clock(), retry_after)

    def _seed(self, result: Result, now: float) -> None:
        """Start from the labels and the annotation of the Node, which was read the first time."""
        keys, node = self._parts.reconciler.keys, result.node or {}
        annotation, problem = annotation_of(state_of(node), keys)
        self._parts.observer.seed(owned_labels(node, keys), annotation)
        self._reporter.node_read(annotation, problem)
        self._node_read_at = now
        self._schedule.node_read(now, self._reporter.annotation_age(annotation))

    def _applied(self, result: Result, now: float) -> None:
        """Record that the Node has the state of the cycle applied, but for what was refused."""
        state = self._applying.state if self._applying else None
        refused = result.outcome.back_off if result.outcome else ()
        requests = len(result.codes) if result.outcome else 0
        if not requests and self._parts.reconciler.dry_run:
            requests = 1  # a dry run keeps the pace of a real one
        self._schedule.apply_succeeded(now, state, refused, requests=requests)
        self._reporter.applied(self._schedule.backed_off(now))


def _netdevs(roles: Iterable[PortRole]) -> frozenset[str]:
    """Return the names of these ports' netdevs: a port's own, and all legs of its bond."""
    found = [
        netdev
        for role in roles
        for netdev in (role.port.netdev, role.leg, *role.port.legs)
        if netdev
    ]
    return frozenset(netdev.name for netdev in found)
