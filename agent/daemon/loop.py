"""The loop: wait, look, speak, and never wait for anything but reasons.

    reasons (wake-ups, time, answers) -> Pacer -> look  -> labels as they should be ─┐
                                            └──-> speak -> the Node as it should be <┘

The law of this module: one thread has all the state, and it is never away for long. A look reads files, a device that
blocks costs it a second once; NVML, SMPs and the API server are asked aside. While one of those is under way the loop
turns every POLL seconds to see whether it is done, for the rest of the hour it sleeps. A signal ends it between two
turns and changes no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.kube.annotation import parse
from agent.kube.managed_fields import ANNOTATION, Field, owned, state_of
from agent.kube.reconcile import Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.daemon.clock import AwakeClock
    from agent.daemon.observer import Cycle, Observer
    from agent.daemon.pollers import Poller
    from agent.daemon.schedule import Schedule
    from agent.kube.reconcile import Reconciler, Result
    from agent.lldp.inbox import FrameInbox
    from agent.model import Observation
    from agent.telemetry.reporter import Reporter

POLL = 0.05  # seconds between two turns while something is under way
BEAT = 20.0  # the longest sleep: whoever asks whether the loop turns is told so
SETTLE = 5.0  # seconds that the first request waits for GPUs and switches to be heard, so that there need be no second


class Event(Protocol):
    """One reason to look (agent/events/monitor.py)."""

    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...


class Monitors(Protocol):
    """Where reasons come from."""

    @property
    def deaf(self) -> dict[str, str]:
        """Which ears cannot be built, and why."""

    def wait(self, timeout: float) -> Iterable[Event]:
        """The reasons, when there are some or time is up."""

    def watch(self, netdevs: Iterable[str]) -> None:
        """What to hear of."""


class Ports(Protocol):
    """The sweep of port states."""

    def watch(self, ports: Iterable[tuple[str, int]]) -> None:
        """What to sweep."""


@dataclass(frozen=True, slots=True)
class Doors:
    """What the loop is made of."""

    clock: AwakeClock
    wakeups: Monitors
    ports: Ports
    ears: FrameInbox
    pollers: Sequence[Poller]
    watch: Observer
    speaker: Reconciler
    pacer: Schedule
    voice: Reporter
    aside: Callable[[], BackgroundTask[Result]] = BackgroundTask


class Runtime:
    """An agent that runs until it is told to stop."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._api: BackgroundTask[Result] = doors.aside()
        self._stopped = self._news = False  # answers have come that no look has seen
        self._seeded_at: float | None = None
        self._look: Cycle | None = None
        self._node: Result | None = None  # the last one that says what the Node is
        self._told: Cycle | None = None  # what the attempt under way says
        self._netdevs: frozenset[str] = frozenset()

    def run(self) -> None:
        """Turn until a signal says stop; Unavailable where no Node can ever be reached."""
        while not self._stopped:
            self.turn()

    def turn(self) -> None:
        """Do what is due, wait for the next reason, take in what has come."""
        self._act()
        since, asked = self._doors.clock(), self._pause()
        wakes = self._doors.wakeups.wait(asked)
        if self._doors.clock.waited(since, asked):
            self._doors.pacer.resync(self._doors.clock())
        for wake in wakes:
            self._heed(wake)
        self._collect(self._doors.clock())
        self._doors.voice.turned()

    def _act(self) -> None:
        step = self._doors.pacer.step(self._doors.clock())
        if step.look:
            self._look_again()
        elif step.speak and self._is_settled():
            self._speak(resync=step.resync)
        for poller in self._doors.pollers:
            poller.start_due(self._doors.clock())

    def _pause(self) -> float:
        """For how many seconds there is nothing to do."""
        now = self._doors.clock()
        step = self._doors.pacer.step(now)
        if step.look or (step.speak and self._is_settled()):
            return 0.0
        polls = [poller.next_due() - now for poller in self._doors.pollers]
        waits = [BEAT, *polls, self._doors.voice.pause(), self._doors.ears.rest() or BEAT]
        waits.append(POLL if step.speak or self._is_busy() else step.wait)
        return max(min(waits), 0.0)

    def _is_busy(self) -> bool:
        return self._api.busy or any(poller.busy for poller in self._doors.pollers)

    def _is_settled(self) -> bool:
        """Those asked aside have answered once, or have had their time."""
        now = self._doors.clock()
        if self._seeded_at is None or now - self._seeded_at >= SETTLE:
            return True
        return not self._news and not any(
            poller.busy or poller.next_due() <= now for poller in self._doors.pollers
        )

    def _look_again(self) -> None:
        self._news = False
        for poller in self._doors.pollers:
            poller.begin_cycle()
        look = self._look = self._doors.watch.look()
        for poller in self._doors.pollers:
            poller.observed(look.observation)
        self._doors.pacer.looked(self._doors.clock(), look.until, uneasy=look.uneasy)
        if self._seeded_at is not None:
            self._doors.pacer.want(look.state)
        self._aim(look.observation)
        took = {poller.source: poller.took for poller in self._doors.pollers}
        self._doors.voice.looked(look, took, self._doors.wakeups.deaf, self._doors.ears.dropped)

    def _aim(self, seen: Observation) -> None:
        """Hear of the backend's netdevs and sweep its InfiniBand ports from now on."""
        backend = [role for role in seen.ports if role.backend]
        found = [
            netdev
            for role in backend
            for netdev in (role.port.netdev, role.leg, *role.port.legs)
            if netdev
        ]
        # One that is away may come back under its name.
        away = (
            self._netdevs
            if seen.unbound or not all(role.port.netdev for role in backend)
            else frozenset()
        )
        self._netdevs = frozenset(netdev.name for netdev in found) | away
        self._doors.wakeups.watch(self._netdevs)
        infiniband = [role for role in backend if role.port.link_layer == "InfiniBand"]
        self._doors.ports.watch((role.device.name, role.port.number) for role in infiniband)

    def _speak(self, *, resync: bool) -> None:
        """Begin an attempt to make the Node say what the last look found."""
        now = self._doors.clock()
        wish = None
        if self._seeded_at is not None and self._look:
            look = self._told = self._look
            wish = Wish(
                look.rendered.labels, look.told, self._doors.pacer.backed_off(now), always=resync
            )
        fresh = resync and self._doors.speaker.dry_run  # nothing that we said tells how the Node is
        node = self._node.node if self._node and not fresh else None
        self._doors.pacer.speaking(now)
        self._api.start(partial(self._doors.speaker.attempt, node, wish))

    def _heed(self, wake: Event) -> None:
        now = self._doors.clock()
        if wake.kind == "frames":
            news, repeated = self._doors.ears.hear()
            self._doors.voice.heard(repeated)
            self._doors.pacer.put_off(now, self._doors.watch.until())
            if news:
                self._doors.pacer.stir(now)
            return
        if wake.kind == "signal":
            self._doors.voice.signal(wake.subject)
            self._stopped |= wake.subject != "SIGHUP"
        for poller in self._doors.pollers:
            poller.trigger(now)
        self._doors.pacer.stir(now)

    def _collect(self, now: float) -> None:
        """Take in what was asked aside."""
        news = [poller.collect(now) for poller in self._doors.pollers]
        if any(news):
            self._news = True
            self._doors.pacer.stir(now)
        result = self._api.take()
        if isinstance(result, Exception):
            self._node = None
            self._fail(str(result) or repr(result), None)
        elif result is not None:
            self._answered(result, now)

    def _answered(self, attempt: Result, now: float) -> None:
        self._doors.voice.answered(attempt, self._told)
        self._node = attempt if attempt.node is not None else None
        if attempt.failure:
            if attempt.failure.kind == "configuration" and self._seeded_at is None:
                raise Unavailable(attempt.failure.text)
            self._fail(attempt.failure.text, attempt.failure.retry_after)
        elif self._seeded_at is None:
            self._seed(attempt, now)
        else:
            back_off, requests = (
                (attempt.outcome.back_off, len(attempt.codes)) if attempt.outcome else ((), 0)
            )
            dry = int(self._doors.speaker.dry_run)
            self._doors.pacer.accepted(
                now, self._told and self._told.state, back_off, requests=requests or dry
            )
            self._doors.voice.applied(self._doors.pacer.backed_off(now))

    def _fail(self, text: str, retry_after: float | None) -> None:
        self._doors.voice.failed(text)
        self._doors.pacer.failed(self._doors.clock(), retry_after)

    def _seed(self, attempt: Result, now: float) -> None:
        """The Node was seen for the first time: what it says of us is where we begin."""
        keys, node = self._doors.speaker.keys, attempt.node or {}
        told, problem = parse(
            state_of(node).fields.get(Field(ANNOTATION, keys.annotation)), keys.annotation
        )
        self._doors.watch.seed(owned(node, keys), told)
        self._doors.voice.seeded(told, problem)
        self._seeded_at = now
        self._doors.pacer.seeded(now, self._doors.voice.age(told))
