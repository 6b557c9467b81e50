"""What metrics cost with 16 ports, side by side: `python -m benchmarks.metrics_cost [ROUNDS]`, from
the repository.

Memory: resident KB that an import adds to a process that has the agent's other modules already,
each in a process of its own, medians. CPU: of one rendering (prometheus_client renders the same
samples out of families that are made already), and of whole scrapes over a socket, client included.
At one scrape in 15 s an hour has 240; the whole agent may take 1.5 CPU-seconds of it.
"""

from __future__ import annotations

import http.client
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.model import Absent, Gpu, Link, LldpNeighbor, Neighbor, Observation, Seen
from agent.sources.backend import assign
from agent.telemetry.metrics import Metrics, own_process, process_text
from agent.telemetry.server import Server, Status
from tests.support.devices import eth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

PORTS = 16
SCRAPES_AN_HOUR = 240
BUDGET_KB, BUDGET_MS = 2560, 3.0
BASE = (
    "agent.cli, agent.sources.observe, agent.output.document, agent.snapshot.capture, "
    "agent.helper.process, agent.lldp.packet_socket, threading"
)
IMPORTS = {
    "agent.telemetry.metrics": "agent.telemetry.metrics",
    "agent.telemetry.server": "agent.telemetry.server",
    "agent.telemetry.log": "agent.telemetry.log",
    "psutil": "psutil",
    "all of these": "agent.telemetry.metrics, agent.telemetry.server, agent.telemetry.log, psutil",
    "http.server": "http.server",
    "prometheus_client": "prometheus_client",
}
PROBE = """
import gc, {base}
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4
before = resident()
import {more}
print(resident() - before)
"""


def node() -> Observation:
    """Sixteen RoCE ports with a neighbour each, and eight GPUs."""
    devices = tuple(eth(f"mlx5_{number}", number) for number in range(PORTS))
    told = LldpNeighbor(
        "00:1c:73:00:00:01", "01:80:c2:00:00:0e", "00:1c:73:00:00:01", 4, "Ethernet1/1", 5, 120
    )
    links = tuple(
        Link(
            device.name,
            f"eth{number}",
            (Neighbor(f"leaf-{number}", "Ethernet1/1", "Ethernet1/1", told, 3.0),),
        )
        for number, device in enumerate(devices)
    )
    gpus = tuple(
        Gpu(i, state="completed", status="success", cluster_uuid="1" * 36, clique_id=7)
        for i in range(8)
    )
    seen = Observation(
        1e9, "n1", None, assign(devices), Seen(devices), Seen(links), Absent("none"), Seen(gpus)
    )
    return replace(seen, off=frozenset({"ib"}))


def added_kb(modules: str, rounds: int) -> float:
    """Resident KB that importing these adds."""
    code = PROBE.format(base=BASE, more=modules)
    runs = (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        for _ in range(rounds)
    )
    return statistics.median(int(run.stdout) for run in runs)


def cpu_ms(work: Callable[[], object], times: int = 200) -> float:
    """CPU milliseconds of this process for one call."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1000


class Ready:
    """prometheus_client's collector of families that are there already."""

    def __init__(self, text: str) -> None:
        self._families = list(text_string_to_metric_families(text))

    def collect(self) -> Iterable[Metric]:
        """The families."""
        return self._families


def scrape(server: Server) -> int:
    """One scrape, as Prometheus does it; the length of what came."""
    with closing(http.client.HTTPConnection(*server.address)) as connection:
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())


def main(rounds: int) -> int:
    """Print the tables; 1 when over the budget."""
    memory = {name: added_kb(modules, rounds) for name, modules in IMPORTS.items()}
    for name, kb in memory.items():
        print(f"{name:24}{kb:8.0f} KB resident")

    metrics, state, process = Metrics(), Status(), own_process()
    metrics.observed(node(), {"rdma": 0.004, "lldp": 0.001, "nvml": 0.03})
    registry = CollectorRegistry()
    registry.register(Ready(metrics.text()))
    state.publish(metrics.text())
    ways: dict[str, Callable[[], object]] = {
        "rendered": metrics.text,
        "rendered by the library": partial(generate_latest, registry),
        "own process, psutil": partial(process_text, process),
    }
    with closing(Server(("127.0.0.1", 0), state, partial(process_text, process))) as server:
        print(f"\n{PORTS} ports: {scrape(server)} bytes, {len(metrics.text().splitlines())} lines")
        times = {name: cpu_ms(work) for name, work in ways.items()} | {
            "scrape": cpu_ms(partial(scrape, server))
        }
    for name, spent in times.items():
        print(f"{name:24}{spent:8.2f} ms CPU{spent * SCRAPES_AN_HOUR / 1000:8.2f} CPU-s an hour")
    both = times["rendered"] + times["scrape"]
    return int(memory["all of these"] > BUDGET_KB or both > BUDGET_MS)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:] or ["5"])))
