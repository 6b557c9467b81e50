"""Agents beside the one that is judged: a fresh one, and one that was restarted.

Both are assembled as `bwagent run` is, over the true node: none of its reads fails, every query is
answered at once, and every switch speaks at once. The fresh one begins with an empty Node; what it
publishes is the yardstick of the laws (laws.py). The other begins with the Node as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.daemon.background import BackgroundTask
from agent.daemon.loop import AwakeClock, Loop
from agent.daemon.main import Io, RunFlags, assemble
from agent.events.event import Event
from agent.host import Host
from agent.kube.answers import Answer, read
from agent.lldp.frame import Frame
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from tests.simulation import fabric
from tests.simulation.assembly import EPOCH, Ports
from tests.simulation.names import P
from tests.simulation.node import Node
from tests.simulation.sysfs import KeepingReaders, Kept, Sysfs
from tests.support.server_side_apply import ApiServer, Key

if TYPE_CHECKING:
    from collections.abc import Callable

SPEAKS = 30.0  # seconds between two frames of a switch
SETTLED = 70.0  # seconds after which a fresh agent waits for no first frame
LONG = 700.0  # seconds in which a restarted agent shows what it holds, and no longer
PARTS = ("device", "port-id", "port-name")

Far = tuple[str | None, ...]  # the values of a neighbor's labels, by PARTS
Place = tuple[str, str | None]  # PCI function, else device; leg of a bond


class Seen(NamedTuple):
    """What a fresh agent publishes, and the parts of it."""

    labels: Mapping[str, str]
    counts: Mapping[Place, float | None]  # of each port; None: it is no backend port
    fars: Mapping[str, frozenset[Far]]  # by interface; where several speak, any may be selected
    places: Mapping[str, str]  # the PCI function of each interface


class Yardstick:
    """The fresh agents of one node; what they see is kept for each state of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: dict[object, Seen] = {}
        self._kept = Kept()

    def look(self) -> Seen:
        """Return what a fresh agent publishes now."""
        state = self._node.truth
        if state not in self._seen:
            orders = 1 + max((len(hca.guests) for hca in self._node.all()), default=0)
            several = [self._fresh(order) for order in range(orders)]
            fars = {
                name: frozenset(far for seen in several for far in seen.fars.get(name, ()))
                for name in several[0].fars
            }
            self._seen[state] = several[0]._replace(fars=fars)
        return self._seen[state]

    def labels(self) -> Mapping[str, str]:
        """Return all labels that a fresh agent publishes, the leaf group too."""
        agent = _Agent(self._node, self._kept)
        agent.run(SETTLED)
        return agent.labels

    def restarted(self, api: ApiServer, now: float) -> Mapping[str, str]:
        """Return the labels of the Node after a restart, and a hold, of the agent."""
        agent = _Agent(self._node, self._kept, api, now)
        agent.run(LONG)
        return agent.labels

    def _fresh(self, order: int) -> Seen:
        agent = _Agent(self._node, self._kept, order=order)
        agent.run_until(lambda: bool(agent.api.changes))
        if any(hca.nameless for hca in self._node.all()):  # it asks for a name three times
            agent.run(SETTLED)
        return agent.seen()


class _Agent:
    """One agent over the true node: its loop, its clock, its monitors, its API server."""

    def __init__(
        self,
        node: Node,
        kept: Kept,
        api: ApiServer | None = None,
        now: float = 0.0,
        order: int = 0,
    ) -> None:
        self.time = self._start = now
        self.unavailable: dict[str, str] = {}
        self.api = ApiServer(lambda: self.time)
        if api:
            self.api.fields, self.api.uid = dict(api.fields), api.uid
            self.api.owners = deepcopy(api.owners)
        self._node = replace(node, sa_trouble="", names=set())
        self._wakes: set[Event] = set()
        clock = AwakeClock(lambda: self.time)
        self.sockets = _Sockets(self._node, clock, order)
        sysfs = Sysfs(self._node, lambda _seconds: None)
        host = Host(
            sysfs,
            clock,
            "n1",
            ask_smp=partial(fabric.smp, self._node),
            ask_sa=partial(fabric.administrator, self._node),
            gpus=lambda: fabric.nvml(self._node.gpus),
            random=lambda: 0.0,
        )
        flags = RunFlags("n1", options={"gpu_interval": 60.0})
        wall = lambda: EPOCH + self.time  # noqa: E731
        log = Log(write=lambda _data: True, clock=clock, wall=wall)
        reporter = Reporter(log, Metrics(), Status(), flags.keys, "n1", wall, clock)
        io = Io(
            host,
            self._kube,
            self.sockets,
            lambda _frames: self,
            Ports(),
            clock,
            wall,
            self._task,
            readers=KeepingReaders(sysfs, kept, clock),
        )
        self.loop: Loop = assemble(flags, io, reporter, checks_policy=False)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its Node."""
        return of_api(self.api.fields)

    def run(self, seconds: float) -> None:
        """Let it run for so many seconds."""
        self.run_until(lambda: self.time >= self._start + seconds)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Let it run until then; a minute at least is enough for any first labels."""
        while not is_over() and self.time < self._start + 10 * SETTLED:
            self.loop.turn()

    def seen(self) -> Seen:
        """Return the parts of what it has published."""
        cycle = self.loop._cycle  # noqa: SLF001 - the agent is ours
        assert cycle
        labels, counts = self.labels, dict[Place, float | None]()
        fars, places = dict[str, frozenset[Far]](), dict[str, str]()
        for role in cycle.observation.ports:
            name, pci = role.interface, role.device.pci or role.device.name
            place = pci, role.leg.name if role.leg else None
            if role.backend:
                counts[place] = role.counted_gbps or 0.0
            counts.setdefault(place, None)  # an SMI sub-device shares the function of its HCA
            if role.backend:
                keys = [f"{P}/neighbors.current.{name}.{part}" for part in PARTS]
                fars[name] = frozenset({tuple(labels.get(key) for key in keys)})
                places[name] = pci
        return Seen(labels, counts, fars, places)

    # Its I/O.

    def _kube(self, request: Mapping[str, Any]) -> Answer:
        reply = self.api.handle(request)
        return read("get", reply.status, reply.headers, reply.body)

    def _task(self, _name: str) -> BackgroundTask[Any]:
        return BackgroundTask(lambda work: work(), lambda: self._wakes.add(Event("results", "")))

    def wait(self, timeout: float) -> set[Event]:
        """Pass the time until an event, or until the switches speak again."""
        if not self._wakes:
            self.time += min(max(timeout, 0.001), max(self.sockets.speak_at - self.time, 0.001))
            if self.time >= self.sockets.speak_at:
                self._wakes.add(Event("frames", ""))
        wakes, self._wakes = self._wakes, set()
        return wakes

    def watch(self, netdevs: Iterable[str]) -> None:
        """Ignore the netdevs of which changes are to be reported: there are none."""


class _Sockets:
    """Packet sockets on which each switch speaks as soon as they are open, and every 30 s."""

    def __init__(self, node: Node, clock: Callable[[], float], order: int) -> None:
        self.dropped: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self.speak_at = math.inf
        self._node, self._clock, self._order = node, clock, order
        self._watched: frozenset[str] = frozenset()

    def watch(self, netdevs: Iterable[str]) -> dict[str, str]:
        if self._watched != (watched := frozenset(netdevs)):
            self._watched, self.speak_at = watched, self._clock()
        return {}

    def receive(self, timeout: float) -> list[Frame]:
        assert timeout == 0
        now, frames = self._clock(), list[Frame]()
        if now < self.speak_at:
            return frames
        self.speak_at = now + SPEAKS
        for hca in self._node.all():
            speakers = self._node.speakers(hca)
            if hca.netdev in self._watched and speakers:
                at = self._order % len(speakers)
                speakers = [*speakers[at:], *speakers[:at]]
                frames += [Frame(hca.netdev, now, fabric.frame(peer)) for peer in speakers]
        return frames

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        self._watched = frozenset()


def of_api(fields: Mapping[Key, str]) -> dict[str, str]:
    """Return the labels among the fields of a Node."""
    return {key: value for (kind, key), value in fields.items() if kind == "labels"}
