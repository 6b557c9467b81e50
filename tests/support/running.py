"""A whole agent in simulated time: its real loop over simulated I/O."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from agent.cabling.expected import Expected
from agent.daemon.background import BackgroundTask
from agent.daemon.loop import AwakeClock, Loop
from agent.daemon.main import KUBE, Io, RunFlags, assemble
from agent.daemon.plan_file import PlanFile
from agent.daemon.schedule import Settings
from agent.encode import Naming
from agent.errors import Unavailable
from agent.events.event import Event
from agent.host import Host
from agent.kube.answers import Answer
from agent.lldp.frame import Frame
from agent.nvml.poller import POLL_INTERVAL
from agent.snapshot.tree import MemoryStore, Tree
from agent.sysfs.worker import InlineWorker
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from tests.support import nodes
from tests.support.api_server import ask
from tests.support.kernel_tree import NET, Entries
from tests.support.server_side_apply import ANNOTATIONS, MANAGER, ApiServer, Key
from tests.support.smps import answer

NAMING = Naming()

EPOCH = 1_800_000_000.0  # the wall clock at the start
HOUR = 3600.0
HUP = Event("signal", "SIGHUP")
DELAY = 60.0  # seconds, of the verdict
BOOT_ID = "5f0492e8"
BOOT: Entries = {
    "proc/sys/kernel/random/boot_id": f"{BOOT_ID}\n".encode(),
    f"{NET}/lo": None,
}


class Api:
    """An API server with one Node; `trouble` may answer instead."""

    def __init__(
        self,
        trouble: Callable[[Mapping[str, Any]], Answer | None] = lambda _request: None,
        *,
        boot_id: str | None = None,  # as the kubelet reports it
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.trouble, self.now = trouble, now
        self.requests: list[tuple[float, str]] = []
        self.writes: list[Mapping[str, str]] = []
        self.events: dict[str, dict[str, Any]] = {}  # by name
        self.drops: frozenset[str] = frozenset()  # keys that a webhook takes out of each request
        self.whole = 0  # requests for a whole Node
        self.server = ApiServer(self._now, boot_id=boot_id, stores=self._stores)

    def _now(self) -> float:
        return self.now()

    def _stores(self, key: Key, value: str) -> str | None:
        return None if key[1] in self.drops else value

    def __call__(self, request: Mapping[str, Any]) -> Answer:
        operation = "look" if request.get("cached") else request["operation"]
        self.requests.append((self.now(), operation))
        if answer := self.trouble(request):
            return answer
        if request["operation"].endswith("-event"):
            return self._event(request)
        self.whole += request.get("whole", False)
        answer = ask(self.server, request)
        if request["operation"] == "apply" and answer.succeeded:
            self.writes.append(self.labels)
        return answer

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of manager `bwagent`, as they are now."""
        return MappingProxyType(self.server.values(MANAGER, "Apply"))

    @labels.setter
    def labels(self, labels: Mapping[str, str]) -> None:
        self.server.hold(MANAGER, "Apply", labels)

    @property
    def annotation(self) -> str | None:
        """The annotation of manager `bwagent`."""
        return self.server.fields.get((ANNOTATIONS, nodes.KEYS.annotation))

    @annotation.setter
    def annotation(self, text: str | None) -> None:
        values = {nodes.KEYS.annotation: text} if text else {}
        self.server.hold(MANAGER, "Apply", values, ANNOTATIONS)

    def hold(self, manager: str, labels: Mapping[str, str]) -> None:
        """Make these all labels of another manager."""
        self.server.hold(manager, "Update", labels)

    def _event(self, request: Mapping[str, Any]) -> Answer:
        """Create or change an Event; 409 if it exists already, 404 if not."""
        body = request["body"]
        name = request.get("event") or body["metadata"]["name"]
        is_new = request["operation"] == "create-event"
        if is_new is (name in self.events):
            return Answer(409 if is_new else 404, reason="", message="")
        self.events[name] = self.events.get(name, {}) | body
        return Answer(201 if is_new else 200)

    def applied(self) -> list[float]:
        return [at for at, operation in self.requests if operation == "apply"]


@dataclass
class FakeListener:
    """A listener that receives the frames of a test."""

    frames: list[Frame] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=lambda: {"own": 0})
    errors: dict[str, str] = field(default_factory=dict)

    def watch(self, netdevs: Iterable[str]) -> dict[str, str]:
        self.watched = set(netdevs)
        return {}

    def receive(self, timeout: float) -> list[Frame]:
        assert timeout == 0
        frames, self.frames = self.frames, []
        return frames

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        self.frames = []


class World:
    """A node, its API server and an agent; `at` schedules changes, `run` lets time pass."""

    unavailable: dict[str, str]

    def __init__(
        self,
        *trees: Entries,
        api: Api | None = None,
        smp: Callable[[tuple[str, int]], dict[str, Any]] | None = None,
        **changes: Any,
    ) -> None:
        self.time, self.wall_offset, self.unavailable = 1000.0, 0.0, {}
        self.slow = 0.0  # seconds that a request takes
        self.entries: Entries = dict(BOOT)
        self.errors: dict[str, int] = {}  # of paths that cannot be read: errno
        for tree in trees:
            self.entries |= tree
        self.api = api or Api()
        self.api.now = lambda: self.time
        self.listener, self.state = FakeListener(), Status(lambda: self.time)
        self.lines: list[str] = []
        self.nvml: Callable[[], dict[str, Any]] = self._no_nvml
        self.smp = smp or self.no_smp
        self.explore: Callable[..., Any] | None = None  # with --tiers
        self.look_above: Callable[..., Any] | None = None
        self.ask_nics: Callable[[Sequence[str]], dict[str, Any]] | None = None
        self.asked_nvml: list[float] = []
        self.asked_smp: list[tuple[float, tuple[tuple[str, int], ...]]] = []
        self.reads = self.state_reads = self.reaped = 0
        self.on_read: Callable[[], object] = lambda: None  # called by the next read alone
        self.looks: list[float] = []
        self._chance = random.Random(1)  # noqa: S311 - a simulation; of all agents
        self.netdevs: set[str] = set()
        self.ports: set[tuple[str, int]] = set()
        self.is_swept_slowly = False
        self._tree: Tree | None = None  # of `entries` and `errors`, which change between two turns
        self._files_of: tuple[Entries, dict[str, int]] = {}, {}  # as they were when it was made
        self._events: list[tuple[float, Callable[[], object]]] = []
        self._wakes: set[Event] = set()
        self.runtime = self._agent(**changes)

    def start_again(self, **changes: Any) -> None:
        """Kill the agent and start another on the same node."""
        self.runtime = self._agent(**changes)

    def _agent(  # noqa: PLR0913, PLR0917 - what an agent is started with
        self,
        sources: tuple[str, ...] = (),
        dry_run: bool = False,  # noqa: FBT002
        plan: PlanFile | None = None,
        rows: Callable[[], Expected | None] | None = None,  # of plan files; those of `plan`
        events: bool = False,  # noqa: FBT002
        policy: bool = False,  # noqa: FBT002 - check it
        require_policy: bool = False,  # noqa: FBT002
        backend: tuple[str, ...] = (),  # --backend-device
        excluded: tuple[str, ...] = (),  # --exclude-device
        naming: Naming = NAMING,
        former: tuple[str, ...] = (),  # --former-label-prefix
        **times: float,
    ) -> Loop:
        clock = AwakeClock(lambda: self.time)
        flags = RunFlags(
            "n1", naming, settings=Settings(**times), sources=sources, verdict_delay=DELAY,
            options={"gpu_interval": POLL_INTERVAL}, events=events, dry_run=dry_run,
            former_label_prefixes=former,
        )  # fmt: skip
        host = Host(
            self, clock, "n1", backend=backend, excluded=excluded, ask_smp=self.ask_smp,
            gpus=self._ask_nvml, random=self._chance.random, explore=self.explore,
            look=self.look_above, ask_nics=self.ask_nics,
            worker=InlineWorker,
        )  # fmt: skip
        self.metrics = Metrics()
        log = Log(write=self._write, clock=lambda: self.time, wall=self.wall_time)
        self.reporter = Reporter(
            log, self.metrics, self.state, flags.keys, "n1", self.wall_time, clock, dry_run,
            require_policy,
        )  # fmt: skip
        io = Io(
            host, self.api, self.listener, lambda _frames: self, _Ports(self), clock,
            self.wall_time, self._task, reap=self._reap,
        )  # fmt: skip
        loop = assemble(flags, io, self.reporter, plan, checks_policy=policy)
        if rows:
            loop.verification.plan = _Rows(rows)
        return loop

    def _task(self, name: str) -> BackgroundTask[Any]:
        return BackgroundTask(self._request if name == KUBE else self._now, self._notify)

    # What a test does.

    def at(self, after: float, *wakes: Event, do: Callable[[], object] = lambda: None) -> None:
        """Schedule a change `after` seconds from now, and the events that report it."""

        def happen() -> None:
            do()
            self._wakes |= {*wakes}

        self._events.append((self.time + after, happen))

    def write(self, path: str, data: bytes) -> None:
        """Change a file."""
        self.entries[path] = data

    def remove(self, *paths: str) -> None:
        """Remove these paths and all below them."""
        for path in paths:
            for one in [one for one in self.entries if f"{one}/".startswith(f"{path}/")]:
                del self.entries[one]

    def hear(self, netdev: str, data: bytes) -> None:
        """Deliver an LLDP frame."""
        self.listener.frames.append(Frame(netdev, self.time, data))
        self._wakes.add(Event("frames", ""))

    def run(self, seconds: float) -> Self:
        """Let time pass."""
        end = self.time + seconds
        while self.time < end:
            self._end, self._tree = end, None
            self.runtime.turn()
        return self

    def look(self, seconds: float = 30.0) -> Self:
        """Have the agent observe now, and let time pass."""
        self.at(0.0, HUP)
        return self.run(seconds)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the Node without their first prefix."""
        return {
            key.removeprefix(f"{nodes.PREFIX}/"): value for key, value in self.api.labels.items()
        }

    @property
    def verdict(self) -> tuple[str, dict[str, Any]]:
        """The status and the document of /verdict."""
        status, body = self.state.verdict
        return status[:3], json.loads(body)

    @property
    def speeds(self) -> list[str | None]:
        """The speeds that the Node was given one after another; None: it had none."""
        found = (labels.get(nodes.SPEED) for labels in self.api.writes)
        return [speed for speed, _ in itertools.groupby(found)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the annotation."""
        return list(json.loads(self.told)["ports"])

    @property
    def told(self) -> str:
        assert self.api.annotation
        return self.api.annotation

    # The doors.

    def wait(self, timeout: float) -> set[Event]:
        """Pass the time until an event or the timeout; the wait of the loop's Monitors."""
        assert timeout >= 0
        following = min((at for at, _ in self._events), default=math.inf)
        if not self._wakes:
            self.time = max(min(self.time + max(timeout, 0.001), following, self._end), self.time)
        for event in sorted(
            (event for event in self._events if event[0] <= self.time), key=lambda event: event[0]
        ):
            self._events.remove(event)
            event[1]()
        wakes, self._wakes = self._wakes, set()
        if self._files_of != (self.entries, self.errors):
            self._tree = None
        return wakes

    def watch(self, netdevs: Iterable[str]) -> None:
        self.netdevs = set(netdevs)

    def read(self, path: str, limit: int) -> bytes:
        on_read, self.on_read = self.on_read, lambda: None
        on_read()
        self.reads += 1
        self.state_reads += path.endswith("/state")
        if path == "proc/sys/kernel/random/boot_id":
            self.looks.append(self.time)
        return self._files().read(path, limit)

    def names(self, path: str) -> list[str]:
        return self._files().names(path)

    def link(self, path: str) -> str:
        return self._files().link(path)

    def _files(self) -> Tree:
        if self._tree is None:
            self._files_of = dict(self.entries), dict(self.errors)
            self._tree = Tree(MemoryStore(self.entries), self.errors)
        return self._tree

    def _ask_nvml(self) -> dict[str, Any]:
        self.asked_nvml.append(self.time)
        return self.nvml()

    def ask_smp(self, addresses: Iterable[tuple[str, int]]) -> dict[str, Any]:
        asked = tuple(addresses)
        self.asked_smp.append((self.time, asked))
        return {"ports": [self.smp(address) for address in asked]}

    @staticmethod
    def _no_nvml() -> dict[str, Any]:
        raise Unavailable("helper nvml: no library")

    @staticmethod
    def no_smp(address: tuple[str, int]) -> dict[str, Any]:
        return answer(*address, exchanges=[]) | {"error": "no-answer"}

    @staticmethod
    def _now(work: Callable[[], None]) -> None:
        work()

    def _reap(self) -> None:
        self.reaped += 1

    def _notify(self) -> None:
        self._wakes.add(Event("results", ""))

    def _request(self, work: Callable[[], None]) -> None:
        if self.slow:
            self.at(self.slow, do=work)
        else:
            work()

    def wall_time(self) -> float:
        return EPOCH + self.time + self.wall_offset

    def _write(self, data: bytes) -> bool:
        self.lines += data.decode().splitlines()
        return True


class _Rows(PlanFile):
    """Plan files whose rows are those of a function."""

    def __init__(self, rows: Callable[[], Expected | None]) -> None:
        self._rows = rows
        super().__init__((), (), NAMING, BackgroundTask())

    expected = property(lambda self: self._rows(), lambda *_: None)


class _Ports:
    """The sweep of port states; keeps the ports that are watched."""

    def __init__(self, world: World) -> None:
        self._world = world

    def watch(self, ports: Iterable[tuple[str, int]], *, slow: bool = False) -> None:
        self._world.ports, self._world.is_swept_slowly = set(ports), slow
