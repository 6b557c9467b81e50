"""Thousands of agents and one API server: its load, and the time until every label is right.

    python -m benchmarks.scale [--agents 5000] [--within 60] [--real]
                               [--inflight READS,WRITES] [PHASE...]

The API server and its etcd are real, with the agent's manifests in force; so are each agent's
schedule, back-off and requests, over a connection of its own, with a token of the Pod on its Node
(tests/support/kube/fleet.py lists the simulated parts). The generator, the API server and etcd
share this machine, and the last line of each phase has the share of each: a phase without idle time
measures the machine, not the agents.

    power-on   all start at random moments of one minute; always the first
    leaf       a leaf switch reboots: 32 ports of 32 nodes go down, lose their neighbors, come up
    herd       all nodes change in the same moment
    refused    the same while the API server is down for ten minutes (connections are refused);
               then it starts
    frozen     it is stopped for ten minutes: connections are accepted and never answered; the
               leaf reboots meanwhile

While the API server is down, time runs FAST times faster, unless --real; afterwards, it does not.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.kube.api import TIMEOUT
from benchmarks.server_meter import Meter, Reading
from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.fleet import Agent, Fleet
from tests.support.kube.population import populate
from tests.support.kube.programs import missing
from tests.support.kube.wire import Asked, Clock, Wire

AWAY = 600.0  # seconds
FAST = 10.0
LIMIT = 1800.0  # seconds until all is right
RAIL = "ibp3"
LEAF = 32  # nodes below a leaf
GRACE, BOOT, SWEEP = (
    30.0,
    90.0,
    2.0,
)  # seconds: a neighbor outlives its link; a switch boots; links come up before it
BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


@dataclass
class Scene:
    """The agents, their Nodes and the API server."""

    cluster: Cluster
    clock: Clock
    wire: Wire
    fleet: Fleet
    agents: list[Agent]
    fast: float

    # What nodes show.

    def change(self, agents: Iterable[Agent], speed: str, *, neighbor: bool = True) -> None:
        """Change the speed of these agents' nodes, and whether the rail's neighbor is there."""
        self.fleet.change(agents, lambda agent: _labels(agent, speed, neighbor=neighbor))

    def leaf(self) -> None:
        """Reboot a leaf."""
        below = self.agents[:LEAF]
        self.change(below, "2800G")
        self.fleet.at(GRACE, lambda: self.change(below, "2800G", neighbor=False))
        self.fleet.at(BOOT, lambda: self.change(below, "3200G", neighbor=False))
        self.fleet.at(BOOT + SWEEP, lambda: self.change(below, "3200G"))

    # What happens.

    def run_leaf(self) -> None:
        """Reboot a leaf while the API server runs."""
        with Phase("leaf: down to up and known", self):
            self.leaf()
            self.fleet.run(BOOT + SWEEP + 1)
            self.fleet.run_until_right(LIMIT)

    def run_herd(self) -> None:
        """Change all nodes at the same moment."""
        with Phase("herd: all change at once", self):
            self.change(self.agents, "400G")
            self.fleet.run_until_right(LIMIT)

    def run_refused(self) -> None:
        """Change all nodes while connections are refused."""
        self.cluster.stop_server()
        self._away("refused: away", lambda: self.change(self.agents, "800G"))
        self.cluster.start_server()
        self._back("refused: it starts", new=True)

    def run_frozen(self) -> None:
        """Reboot a leaf while the API server is stopped."""
        os.kill(self.cluster.server.pid, signal.SIGSTOP)
        try:
            self._away("frozen: away", self.leaf)
        finally:
            os.kill(self.cluster.server.pid, signal.SIGCONT)
        self._back("frozen: it goes on")

    def _away(self, name: str, happens: Callable[[], None]) -> None:
        with Phase(name, self, serving=False):
            self._go(self.fast)
            happens()
            self.fleet.run(AWAY)
            self._go(1.0)

    def _go(self, rate: float) -> None:
        """Run the clock, and the timeout of requests, at this rate."""
        self.clock.go(rate)
        self.wire.timeout = TIMEOUT / rate

    def _back(self, name: str, *, new: bool = False) -> None:
        with Phase(name, self, new=new):
            self.fleet.run_until_right(LIMIT)
            self.fleet.run(5)


class Phase:
    """The requests and resources used within the block, printed at its end."""

    def __init__(self, name: str, scene: Scene, *, serving: bool = True, new: bool = False) -> None:
        self.name, self.scene, self.new = name, scene, new
        self.meter = Meter(scene.cluster) if serving else None

    def __enter__(self) -> None:
        tally = self.scene.fleet.tally
        tally.attempts, tally.failures, tally.late = 0, {}, 0.0
        self.scene.wire.asked.clear()
        self.before = self.meter.read(new=self.new) if self.meter else None
        self.began = self.scene.clock()

    def __exit__(self, *_: object) -> None:
        scene, asked = self.scene, [*self.scene.wire.asked]
        tally, wrong = scene.fleet.tally, len(scene.fleet.wrong)
        took = scene.clock() - self.began
        print(f"\n{self.name}: {took:.0f} s, {wrong} of {len(scene.agents)} Nodes not right")
        print(f"  requests   {describe(Counter((one.operation, one.result) for one in asked))}")
        print(f"  a second   {per_second(asked, self.began, took)}")
        print(f"  attempts   {tally.attempts}, failed: {tally.failures or 'none'}")
        print(f"  latency    {latency(asked)}; the generator was late by up to {tally.late:.2f} s")
        if self.meter and self.before:
            print(f"  used       {used(self.meter.read().since(self.before))}")
        sys.stdout.flush()


def _labels(agent: Agent, speed: str, *, neighbor: bool) -> Mapping[str, str]:
    """Return the labels of a node with this speed, with or without the rail's neighbor."""
    labels = {
        key: speed if key.endswith("speed.current") else value for key, value in agent.whole.items()
    }
    return (
        labels
        if neighbor
        else {key: value for key, value in labels.items() if f".{RAIL}." not in key}
    )


def describe(results: Mapping[tuple[str, int | str], int]) -> str:
    """Return the numbers of requests by result."""
    names = {"get": "GET", "apply": "PATCH"}
    return ", ".join(
        f"{count} {names[operation]} {result}"
        for (operation, result), count in sorted(results.items(), key=str)
    )


def per_second(asked: list[Asked], began: float, took: float) -> str:
    """Return the peak, and the peaks over time as a bar chart."""
    counts = Counter(int(one.at - began) for one in asked)
    writes = Counter(int(one.at - began) for one in asked if one.operation == "apply")
    step = max(int(took / WIDTH) + 1, 1)
    peaks = [
        max(counts[second] for second in range(at, at + step))
        for at in range(0, int(took) + 1, step)
    ]
    top = max(peaks)
    bars = "".join(BARS[-(-(len(BARS) - 1) * peak // top)] if top else " " for peak in peaks)
    mean = len(asked) / took
    return (
        f"{mean:.1f} on average, at most {top} (PATCH: {max(writes.values(), default=0)})"
        f"  |{bars}| {step} s each"
    )


def latency(asked: list[Asked]) -> str:
    """Return the latency of the answered requests."""
    times = sorted(one.took * 1000 for one in asked if isinstance(one.result, int))
    if len(times) < 2:
        return "none answered"
    cuts = statistics.quantiles(times, n=100)
    return f"median {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms"


def used(reading: Reading) -> str:
    """Return the use of the machine, and the API server's CPU and memory."""
    cores = {name: reading.share(name) for name in ("server", "etcd", "own", "machine")}
    others = cores["machine"] - cores["server"] - cores["etcd"] - cores["own"]
    return (
        f"cores of {os.cpu_count()}: server {cores['server']:.2f}, etcd {cores['etcd']:.2f}, "
        f"generator {cores['own']:.2f}, others {others:.2f}; "
        f"server {reading.server:.1f} CPU-s, {reading.resident:.0f} MiB; "
        f"etcd {reading.stored:.0f} MiB, {reading.commits:.0f} writes, "
        f"{reading.written:.0f} MiB of log; "
        f"{reading.rejected:.0f} rejected"
    )


PHASES: dict[str, Callable[[Scene], None]] = {
    "leaf": Scene.run_leaf,
    "herd": Scene.run_herd,
    "refused": Scene.run_refused,
    "frozen": Scene.run_frozen,
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--within", type=float, default=60.0, help="seconds in which they start")
    parser.add_argument("--real", action="store_true", help="ten minutes away take ten minutes")
    parser.add_argument(
        "--kept", action="store_true", help="connections are kept, which agents do not do"
    )
    parser.add_argument(
        "--inflight", help="max-requests-inflight and max-mutating-requests-inflight; 400,200"
    )
    parser.add_argument(
        "phases", nargs="*", choices=[*PHASES, []], help="after power-on; all of them by default"
    )
    return parser.parse_args()


def main() -> None:
    """Run the phases."""
    if reason := missing():
        raise SystemExit(reason)
    asked, flags = arguments(), []
    if asked.inflight:
        reads, writes = asked.inflight.split(",")
        flags = [f"--max-requests-inflight={reads}", f"--max-mutating-requests-inflight={writes}"]
    clock = Clock()
    with Cluster(*flags) as cluster:
        install(cluster, "sysfs")
        members = populate(cluster, asked.agents, "scale")
        wire = Wire(cluster.url, cluster.ca, clock, kept=asked.kept)
        with Fleet(wire, clock) as fleet:
            scene = Scene(cluster, clock, wire, fleet, [], 1.0 if asked.real else FAST)
            with Phase("power-on", scene):
                scene.agents = fleet.power_on(members, asked.within)
                fleet.run_until_right(LIMIT)
            for name in asked.phases or PHASES:
                PHASES[name](scene)


if __name__ == "__main__":
    main()
