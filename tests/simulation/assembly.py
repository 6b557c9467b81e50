"""The agent over simulated I/O.

Invariant: background work (threads and the helpers that they wait for) completes after a simulated
delay, in order of time. A `Variant` makes the agent wrong in one respect.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.daemon.background import BackgroundTask
from agent.daemon.loop import AwakeClock
from agent.daemon.main import KUBE, Io, RunFlags
from agent.daemon.main import assemble as assemble_agent
from agent.daemon.observer import Cycle
from agent.daemon.schedule import Settings
from agent.host import Host
from agent.kube.answers import Answer, read
from agent.lldp.frame import Frame
from agent.telemetry.log import Log
from agent.telemetry.metrics import Exposition, Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from tests.simulation import fabric
from tests.simulation.sysfs import KeepingReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.daemon.loop import Loop
    from agent.events.event import Event
    from tests.simulation.world import World
    from tests.support.server_side_apply import Reply

    Work = Callable[[], None]

EPOCH = 1_800_000_000.0  # the wall clock at the start
SPEED = {"api": 0.2, "nvml": 0.1, "ib": 0.1}  # seconds that a background task takes


@dataclass(slots=True)
class Variant:
    """Settings and faults of an agent; the defaults are those of `bwagent run`."""

    settings: Settings = field(default_factory=Settings)
    gpu_interval: float = 60.0
    verdict_delay: float = 60.0
    request: Callable[[World, Mapping[str, Any]], Mapping[str, Any]] = lambda _world, request: (
        request
    )
    wakes: Callable[[set[Event]], set[Event]] = lambda wakes: wakes
    read: Callable[[str, bytes], bytes] = lambda _path, data: data
    gpus: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    spoil: Callable[[Loop], None] = lambda _loop: None  # changes the assembled agent


def assemble(world: World, life: int) -> Loop:
    """Assemble a new agent."""
    variant = world.variant
    world.clock = clock = AwakeClock(lambda: world.time + world.suspended)
    helpers = _Helpers(world)
    host = Host(
        _Root(world),
        clock,
        "n1",
        ask_smp=helpers.smp,
        ask_sa=partial(fabric.administrator, world.node),
        gpus=helpers.nvml,
        random=random.Random(life).random,  # noqa: S311 - a simulation
    )

    def wall() -> float:
        return EPOCH + world.time + world.suspended + world.wall_offset

    def task(name: str) -> BackgroundTask[Any]:
        spawn = _attempts(world) if name == KUBE else _threads(world, name)
        return BackgroundTask(spawn, world.notify)

    flags = RunFlags(
        "n1",
        settings=variant.settings,
        options={"gpu_interval": variant.gpu_interval},
        verdict_delay=variant.verdict_delay,
    )
    log = Log(write=helpers.log, clock=clock, wall=wall)
    reporter = Reporter(log, world.metrics(), world.served, flags.keys, "n1", wall, clock)
    io = Io(
        host,
        helpers.kube,
        _Listener(world),
        lambda _frames: world,
        Ports(),
        clock,
        wall,
        task,
        readers=KeepingReaders(world.sysfs, world.kept, clock),
    )
    loop = assemble_agent(flags, io, reporter, checks_policy=False)
    variant.spoil(loop)
    return loop


def _threads(world: World, kind: str) -> Callable[[Work], None]:
    """Return a spawn function that completes the work later, unless the agent was killed
    meanwhile.
    """

    def spawn(work: Work) -> None:
        if world.threadless:
            raise RuntimeError("can't start new thread")
        asker = world.clock
        world.at(world.slow[kind], lambda: work() if world.clock is asker else None)

    return spawn


def _attempts(world: World) -> Callable[[Work], None]:
    """Return a spawn function for requests, which may reach the API server after the
    agent's end.
    """

    def spawn(work: Work) -> None:
        if world.threadless:
            world.judge.unanswered()
            raise RuntimeError("can't start new thread")
        attempt = world.judge.attempt(world.time)

        def do() -> None:
            world.underway.remove(do)
            work()
            world.judge.ended(world.time, attempt)

        world.underway.append(do)
        world.at(world.slow["api"], lambda: do() if do in world.underway else None)

    return spawn


class _Helpers:
    """The helper processes, and standard error."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _error(self, kind: str) -> Exception | None:
        errors = self._world.helper_errors[kind]
        return errors[0]() if errors else None

    def kube(self, request: Mapping[str, Any]) -> Answer:
        world = self._world
        if error := self._error("api"):
            world.judge.unanswered()
            return Answer(error="helper", message=str(error))
        told = _answer(request, world.api.handle(world.variant.request(world, request)))
        world.judge.answered(world.time, request, told)
        return told

    def nvml(self) -> dict[str, Any]:
        if error := self._error("nvml"):
            raise error
        return self._world.variant.gpus(fabric.nvml(self._world.node.gpus))

    def smp(self, addresses: Iterable[tuple[str, int]]) -> dict[str, Any]:
        if error := self._error("smp"):
            raise error
        answer = fabric.smp(self._world.node, addresses)
        self._world.met("asks")
        return answer

    def log(self, data: bytes) -> bool:
        if self._world.log_full:
            return False
        self._world.judge.line(self._world.time, data.decode())
        return True


class Scraped(Metrics):
    """Metrics that are rendered after each observation."""

    def __init__(self) -> None:
        super().__init__()
        self._exposition = Exposition(self)

    def observed(self, cycle: Cycle, durations: Mapping[str, float]) -> None:
        super().observed(cycle, durations)
        self._exposition()


class Served(Status):
    """The state of the HTTP server: readiness, and the page /verdict, which `judge` gets."""

    def __init__(self, judge: Callable[[str, bytes], None] = lambda _status, _body: None) -> None:
        super().__init__()
        self._judge = judge

    @property
    def is_ready(self) -> bool:
        return self.readiness()[0]

    def set_verdict(self, status: str, body: bytes) -> None:
        self._judge(status, body)


class _Listener:
    """The packet sockets."""

    def __init__(self, world: World) -> None:
        self.dropped: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self._world = world

    def watch(self, netdevs: Iterable[str]) -> dict[str, str]:
        self._world.watched = set(netdevs)
        return {}

    def receive(self, timeout: float) -> list[Frame]:
        assert timeout == 0
        if error := self._world.listener_error:
            self._world.listener_error = None
            raise error
        frames, self._world.frames = self._world.frames, []
        return [Frame(netdev, self._world.clock(), data) for netdev, data in frames]

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        self._world.frames.clear()
        self._world.watched.clear()


class Ports:
    """The sweep of port states."""

    def watch(self, ports: Iterable[tuple[str, int]], *, slow: bool = False) -> None:
        pass


class _Root:
    """The kernel's files, as a variant of the agent reads them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, path: str, limit: int) -> bytes:
        self._world.met("reads")
        return self._world.variant.read(path, self._world.sysfs.read(path, limit))

    def names(self, path: str) -> list[str]:
        return self._world.sysfs.names(path)

    def link(self, path: str) -> str:
        return self._world.sysfs.link(path)


def _answer(request: Mapping[str, Any], reply: Reply) -> Answer:
    """Read a reply as the session does; a negative status is a failure without an HTTP response."""
    if reply.status < 0:
        error = reply.body.decode()
        return Answer(error=error, message="it is simulated", maybe_done=_is_lost(request, error))
    answer = read("get", reply.status, reply.headers, reply.body)
    return replace(answer, maybe_done=_is_lost(request, answer.error))


def _is_lost(request: Mapping[str, Any], error: str | None) -> bool:
    return request["operation"] == "apply" and error in ("timeout", "cut", "garbage")
