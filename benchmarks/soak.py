"""Soak test of memory, descriptors and threads: `python -m benchmarks.soak [--hours H] [--seed S]`,
from the repository, as root.

One `bwagent run` with all sources (benchmarks/rack.py) under constant faults
(benchmarks/faults.py), two a second, its intervals shortened so that an hour has more events than
a quiet month: a request every 3 s at most, NVML queried every 5 s, ports swept every 0.5 s, a
resync every 30 s, holds of 20 s, /metrics scraped every 15 s.

Printed are medians of each quarter. After each one all faults are repaired, the Node's labels must
become right, and the idle agent is measured: its open files then do not depend on chance. The first
quarter is the warm-up; from the second to the last one the median may grow by 1 MB, that of NVML's
fork server by a quarter of one, and the idle agent by no descriptor and no thread.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from benchmarks import cost
from benchmarks.faults import PREFIX, Trouble
from benchmarks.rack import Rack, ethernet, gpu, infiniband, missing
from benchmarks.relay import Relay, audited, requests
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import free_ports

NODE = "soak"
STRIKE, SAMPLE = 0.5, 15.0  # seconds
GROWTH = {
    "RSS KB": 1024.0,
    "RSS KB of NVML's helper": 256.0,
    "descriptors, idle": 0.0,
    "threads, idle": 0.0,
}
PEACE = 20  # samples, half a second apart: a running helper has descriptors, too
MENDED = 90.0  # seconds
FLAGS = (
    *(
        "--min-interval",
        "3s",
        "--gpu-interval",
        "5s",
        "--port-interval",
        "0.5s",
        "--resync",
        "30s",
        "--hold",
        "20s",
    ),
    *("--backend-device", "*"),
)
SPEED = f"{8 * 400 + 8 * 10}G"  # a veth reports 10 Gb/s


class Sample(NamedTuple):
    """One measurement of the agent's process."""

    rss: int
    pss: int
    standing: int
    descriptors: int
    threads: int


def sample(pid: int) -> Sample:
    """Measure the agent and its fork server, without short-lived helpers."""
    return Sample(*cost.rollup(pid), standing(pid), cost.descriptors(pid), cost.threads(pid))


def standing(pid: int) -> int:
    """Return the resident KB of the fork server without its forks; 0 if there is none."""
    for one in cost.family(pid)[1:]:  # parents first
        with suppress(OSError):
            if b"stand_by" in Path(f"/proc/{one}/cmdline").read_bytes():
                return cost.rollup(one).rss
    return 0


def scrape(rack: Rack, port: int) -> int:
    """Return the length of /metrics; 0 if the connection fails."""
    address = f"http://127.0.0.1:{port}/metrics"
    try:
        return len(rack.node.call(_get, address))
    except OSError:
        return 0


def _get(address: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        address, timeout=10
    ) as answer:
        return bytes(answer.read())


def samples(trouble: Trouble, metrics: int, seconds: float) -> Iterator[Sample]:
    """Inject faults until the time is over, and measure the agent at intervals."""
    end, due = time.monotonic() + seconds, 0.0
    while (now := time.monotonic()) < end:
        if trouble.agent.process.poll() is not None:
            raise SystemExit(f"the agent has ended:\n{trouble.agent.log.read_text()[-2000:]}")
        trouble.strike()
        if now >= due:
            due = now + SAMPLE
            scrape(trouble.rack, metrics)
            yield sample(trouble.agent.process.pid)
        time.sleep(STRIKE)


def row(name: str, taken: list[Sample]) -> str:
    """Return a row of medians."""
    rss, pss, helper, files, threads = (
        statistics.median(column) for column in zip(*taken, strict=True)
    )
    return f"{name:14}{rss:10.0f}{pss:10.0f}{helper:10.0f}{files:13.0f}{threads:9.0f}{len(taken):9}"


def in_peace(pid: int) -> Sample:
    """Return the minimum over some seconds."""
    taken = []
    for _ in range(PEACE):
        taken.append(sample(pid))
        time.sleep(STRIKE)
    return Sample(*(min(column) for column in zip(*taken, strict=True)))


def growth(second: list[Sample], last: list[Sample]) -> dict[str, float]:
    """Return the growth; each quarter's last sample is that of the idle agent."""
    sizes = (
        statistics.median(of(one) for one in last[:-1])
        - statistics.median(of(one) for one in second[:-1])
        for of in (attrgetter("rss"), attrgetter("standing"))
    )
    counts = (last[-1].descriptors - second[-1].descriptors, last[-1].threads - second[-1].threads)
    return dict(zip(GROWTH, (*sizes, *counts), strict=True))


def mended(cluster: Cluster, trouble: Trouble) -> float:
    """Return the seconds until the Node's labels are right; infinity if they never are."""
    trouble.mend()
    began = time.monotonic()
    while time.monotonic() - began < MENDED:
        labels = cluster.labels(NODE)
        known = [
            key
            for key in labels
            if key.startswith(f"{PREFIX}/neighbors") and key.endswith(".device")
        ]
        if labels.get(f"{PREFIX}/speed.current") == SPEED and len(known) == 16:
            return time.monotonic() - began
        time.sleep(0.5)
    return math.inf


def soak(hours: float, seed: int, stack: ExitStack) -> int:
    """Print a line for each quarter, and the faults; return 1 if a bound is exceeded."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
    cluster = stack.enter_context(Cluster(*audited(folder)))
    rack = stack.enter_context(Rack())
    relay = Relay(rack.node, cluster)
    [port] = rack.node.call(free_ports, 1)
    tree = ethernet(rack.netdevs) | infiniband() | gpu()
    address = ("--metrics-address", f"127.0.0.1:{port}")
    agent = stack.enter_context(rack.agent(cluster, relay, NODE, tree, *FLAGS, *address))
    trouble = Trouble(rack, agent, relay, cluster, random.Random(seed))  # noqa: S311 - to be repeated
    print(f"{hours:g} hours, seed {seed}, {cost.load()}", flush=True)
    print(
        f"{'':14}{'RSS KB':>10}{'PSS KB':>10}{'helper':>10}"
        f"{'descriptors':>13}{'threads':>9}{'samples':>9}",
        flush=True,
    )
    quarters, well = [], 0.0
    for name in ("first quarter", "second", "third", "last"):
        quarters.append(list(samples(trouble, port, hours * 900)))
        print(row(name, quarters[-1]), flush=True)
        well = max(well, mended(cluster, trouble))
        quarters[-1].append(in_peace(agent.process.pid))
        print(row("    idle", quarters[-1][-1:]), flush=True)
    size, log = scrape(rack, port), agent.log.read_text()
    grown = growth(quarters[1], quarters[3])
    tell(trouble, log, [one.code for one in requests(folder)])
    print(f"/metrics has {size} bytes; repaired after {well:.1f} s at most (limit {MENDED:.0f})")
    print(
        "grown since the second quarter: "
        + ", ".join(f"{name} {by:+.0f}" for name, by in grown.items())
    )
    if math.isinf(well):
        print(log[-3000:])
    return int(
        any(by > GROWTH[name] for name, by in grown.items())
        or math.isinf(well)
        or "Traceback" in log
    )


def tell(trouble: Trouble, log: str, codes: list[int]) -> None:
    """Print the faults and requests."""
    print(", ".join(f"{count} x {name}" for name, count in sorted(trouble.count.items())))
    counted = ", ".join(f"{codes.count(code)} x {code}" for code in sorted(set(codes)))
    print(f"{len(codes)} requests came through to the API server: {counted}")
    print(f"{len(log.splitlines())} log lines, {log.count('Traceback')} tracebacks")
    print(f"CPU {cost.cpu(trouble.agent.process.pid):.0f} s, helpers included; {cost.load()}")


def main() -> int:
    """Run the soak test."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if reason := missing():
        raise SystemExit(reason)
    with ExitStack() as stack:
        return soak(arguments.hours, arguments.seed, stack)


if __name__ == "__main__":
    sys.exit(main())
