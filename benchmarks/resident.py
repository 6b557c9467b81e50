"""Cost of `bwagent run`, beside comparable programs.

From the repository, as root:

    python -m benchmarks.resident [--minutes 10] [--rounds 16] [--only idle|latency]

Two parts, one after the other: ten minutes in which some agents are idle (benchmarks/idle.py) while
another one's ports flap in a namespace of their own (benchmarks/flaps.py), then links that go down
and up (benchmarks/latency.py). The API server is a real one, on which the agent is installed with
its account and policy. Exits 1 if a documented budget is missed.

"RSS" is the sum of a subject's processes; "once" counts a page of a file that several of them map
once, as the memory controller of their container does; "peak" is that when the subject's first
process was largest. The budgets are for these two.

Figures of GPU Feature Discovery and of the NFD worker are quoted, not measured here.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import agent
from agent.daemon.flapping import MAX_WAIT
from agent.daemon.schedule import LOOK_INTERVAL
from agent.events.port_states import SWEEP_INTERVAL as SWEEP
from benchmarks import cost, flaps, idle, latency
from benchmarks.idle import EVERYTHING, NARROW, NODE, NODE_EXPORTER, RESYNC, RESYNCED, Subject
from benchmarks.rack import Rack, ethernet, missing
from benchmarks.relay import Relay, audited, requests
from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.rack import BACKEND

MB = 1024  # KiB
# Resident, with everything, and at its peak; the interpreter that two processes map counts once
MOST_MB, MOST_PEAK = 42.0, 48.0
# CPU time, as a multiple of node_exporter's in the same run
MOST_CPU = {NODE: 1.5, EVERYTHING: 2.3, NARROW: 0.9}
MEDIAN, P99 = 0.06, 1.5  # seconds, Ethernet; the kernel reports some lost links a second late
GIVEN = {
    "GPU Feature Discovery": (59, 0.28),
    "NFD worker": (40, 0.50),
}  # MB, CPU-s an hour: figures of others


@dataclass(slots=True)
class Bench:
    """The folder, the cluster, and the missed budgets."""

    stack: ExitStack
    folder: Path
    cluster: Cluster
    missed: list[str] = field(default_factory=list)

    def rack(self) -> tuple[Rack, Relay]:
        """Make another node with its way to the API server."""
        rack = self.stack.enter_context(Rack())
        return rack, Relay(rack.node, self.cluster, installed=True)

    def check(self, what: str, value: float, most: float) -> None:
        """Record a missed budget."""
        if value > most:
            self.missed.append(f"{what}: {value:.2f}, allowed {most:.2f}")


def nothing_happens(bench: Bench, seconds: float) -> None:
    """Run the first part: idle agents, and one whose ports flap."""
    (ours, relay), (theirs, _), (shaky, way) = bench.rack(), bench.rack(), bench.rack()
    subjects = idle.agents(bench.stack, bench.cluster, ours, relay) + idle.today(
        bench.stack, theirs
    )
    agent = bench.stack.enter_context(
        shaky.agent(
            *(bench.cluster, way, flaps.NODE, ethernet(shaky.netdevs)),
            *(*BACKEND, "--metrics-address", ""),
        )
    )
    idle.quiet((ours, theirs, shaky))
    flapping = flaps.Flapping(bench.cluster, bench.folder, agent, seconds)
    flapping.start()
    since = time.time()
    idle.measure(subjects, seconds)
    asked = {name: idle.asked(bench.folder, name, since) for name in (*MOST_CPU, RESYNCED)}
    flapping.join(MAX_WAIT + 60)
    print_idle(bench, {one.name: one for one in subjects}, asked, seconds)
    print_flaps(bench, flapping.outcome)


def print_idle(
    bench: Bench, subjects: dict[str, Subject], asked: dict[str, Counter[str]], seconds: float
) -> None:
    """Print the table, and the requests."""
    patches = {name: counted["patch"] for name, counted in asked.items()}
    extra = subjects[RESYNCED].cpu - subjects[NARROW].cpu
    patch = extra * seconds / 3600 / max(patches[RESYNCED], 1)
    print(f"\nidle for {seconds / 60:g} minutes; {cost.load()}")
    sizes = f"{'RSS MB':>8}{'once':>8}{'peak':>8}"
    print(f"{'':22}{sizes}{'CPU-s an hour':>15}{'helpers':>9}{'with a PATCH':>14}")
    for name, one in subjects.items():
        more = f"{one.cpu + patch:14.2f}" if name in MOST_CPU else ""
        sizes = "".join(f"{size / MB:8.1f}" for size in (one.rss, one.distinct, one.peak))
        print(f"{name:22}{sizes}{one.cpu:15.2f}{one.helpers:9.2f}{more}")
    for name, (size, cpu) in GIVEN.items():
        print(f"{name:22}{size:8}{'':16}{cpu:15.2f}  quoted, not measured")
    counts = (f"{name}: {dict(counted)}" for name, counted in asked.items())
    print(f"requests of {'; '.join(counts)}; a PATCH costs {1000 * patch:.0f} ms of CPU")
    theirs = subjects[NODE_EXPORTER].cpu
    for name, most in MOST_CPU.items():
        bench.check(f"MB resident, {name}", subjects[name].distinct / MB, MOST_MB)
        bench.check(f"MB at the peak, {name}", subjects[name].peak / MB, MOST_PEAK)
        bench.check(f"CPU-s an hour, {name}", subjects[name].cpu + patch, most * theirs)
    bench.check("PATCHes while nothing changed", sum(patches[name] for name in MOST_CPU), 0)
    bench.check("PATCHes of the resyncs", patches[RESYNCED], seconds / RESYNC / 0.9 + 1)
    bench.check("the fewest of them", seconds / RESYNC / 1.1 - 1, patches[RESYNCED])
    looks = seconds / (0.8 * LOOK_INTERVAL) + 1  # jittered by 20 %
    for name in MOST_CPU:
        bench.check(f"looks at the Node of {name}", asked[name]["get"], looks)


def print_flaps(bench: Bench, outcome: flaps.Outcome | None) -> None:
    """Print the result of the flaps."""
    if outcome is None:
        bench.missed.append("the Node of a flapping node: never right")
        return
    print(f"\n8 ports flap for {outcome.seconds / 60:.1f} minutes; {cost.load()}")
    print(
        f"{outcome.changes} changes of links, "
        f"{outcome.patches} PATCHes (at most {outcome.allowed})",
        end=", ",
    )
    print(f"right {outcome.right:.1f} s after the last change, {outcome.cpu:.1f} CPU-s")
    bench.check("PATCHes of a flapping node", outcome.patches, outcome.allowed)
    bench.check("none at all", 1, outcome.patches)
    bench.check(
        "seconds until the Node of a flapping node is right",
        outcome.right,
        MAX_WAIT + P99,
    )


def links_change(bench: Bench, rounds: int) -> None:
    """Run the second part: links that go down and up."""
    rack, relay = bench.rack()
    began = time.monotonic()
    found = latency.measure(bench.stack, bench.cluster, rack, relay, rounds)
    log = list(requests(bench.folder))
    print(
        f"\nuntil the label has changed, {rounds} times each, "
        f"{time.monotonic() - began:.0f} s; {cost.load()}"
    )
    print(f"{'ms':16}{'median':>8}{'p99':>8}{''.join(f'{name:>9}' for name in latency.STAGES)}")
    times: dict[str, tuple[float, float]] = {}
    for what in dict.fromkeys(one.what for one in found):
        these = [one for one in found if one.what == what]
        took = [one.seen - one.began for one in these]
        times[what] = statistics.median(took), latency.p99(took)
        parts = latency.stages(these, log).values()
        print(f"{what:16}{times[what][0] * 1000:8.0f}{times[what][1] * 1000:8.0f}", end="")
        print(
            "".join(f"{part:9.1f}" for part in parts)
            or f"   a sweep every {SWEEP:g} s, and the same"
        )
    for at, (name, most) in enumerate((("median", MEDIAN), ("p99", P99))):
        bench.check(f"Ethernet down, {name} s", times["Ethernet down"][at], most)
        bench.check(f"InfiniBand down, {name} s", times["InfiniBand down"][at], most + SWEEP)


def main() -> int:
    """Run both parts; return 1 if a budget was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes without changes")
    parser.add_argument(
        "--rounds",
        type=int,
        default=16,
        help="links that go down and up; two a port: more is flapping",
    )
    parser.add_argument("--only", choices=("idle", "latency"))
    arguments = parser.parse_args()
    if reason := missing():
        raise SystemExit(reason)
    # As in the image: what a first start compiles would stay in its memory, some 15 MB.
    for packages in (Path(agent.__file__).parent, sysconfig.get_path("purelib")):
        compileall.compile_dir(packages, quiet=2, optimize=2)
    missed: list[str] = []
    for part in ("idle", "latency"):
        if arguments.only in (None, part):
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="resident-")))
                cluster = stack.enter_context(Cluster(*audited(folder)))
                install(cluster, "full")
                bench = Bench(stack, folder, cluster, missed)
                if part == "idle":
                    nothing_happens(bench, arguments.minutes * 60)
                else:
                    links_change(bench, arguments.rounds)
    print("\n" + ("\n".join(f"missed: {text}" for text in missed) or "all budgets kept"))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
