"""The cost of metrics and logs with 16 ports: `python -m benchmarks.metrics_cost [ROUNDS]`, from
the repository.

Memory: resident KB that an import adds to a process with the agent's other modules, each in a
process of its own, medians; and the growth of the agent's server by scrapes and by a flood of
connections. CPU: of one rendering, and of whole scrapes over a socket, client included. At one
scrape in 15 s an hour has 240; the whole agent may take 1.5 CPU-seconds of it.
"""

from __future__ import annotations

import gc
import http.client
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from agent.model import Absent, Gpu, Link, LldpNeighbor, Neighbor, Observation, Seen
from agent.sources.interfaces import RoleEvidence
from agent.sources.roles import decide
from agent.telemetry.log import Log
from agent.telemetry.metrics import Exposition, Metrics, OwnProcess
from agent.telemetry.readiness import Status
from agent.telemetry.server import MAX_CONNECTIONS, Server
from tests.support.devices import eth
from tests.support.exposition import cycle

PORTS = 16
SCRAPES_AN_HOUR = 240
OPENMETRICS = "application/openmetrics-text; version=1.0.0"  # as Prometheus asks
BUDGET_KB, BUDGET_MS = 9216, 5.0
BASE = (
    "agent.cli, agent.sources.observe, agent.output.document, agent.snapshot.capture,"
    " agent.helper.process, agent.lldp.packet_socket, threading"
)
TELEMETRY = "agent.telemetry.metrics, agent.telemetry.server, agent.telemetry.log"
IMPORTS = {
    "http.server": "http.server",
    "wsgiref.simple_server": "wsgiref.simple_server",
    "prometheus_client": "prometheus_client",
    "agent's telemetry": TELEMETRY,
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
    """Return an observation of sixteen RoCE ports with a neighbor each, and eight GPUs."""
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
        1e9,
        "n1",
        None,
        decide(RoleEvidence(devices)).roles,
        Seen(devices),
        Seen(links),
        Absent("none"),
        Seen(gpus),
    )
    return seen._replace(off=frozenset({"ib"}))


def added_kb(modules: str, rounds: int) -> float:
    """Return the resident KB that importing these modules adds."""
    code = PROBE.format(base=BASE, more=modules)
    runs = (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        for _ in range(rounds)
    )
    return statistics.median(int(run.stdout) for run in runs)


def cpu_ms(work: Callable[[], object], times: int = 200) -> float:
    """Return the CPU milliseconds of this process for one call."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1000


def resident_kb() -> int:
    """Return the resident KB of this process."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


def observe_and(text: Exposition, metrics: Metrics, seen: dict[str, float]) -> None:
    """Render after another observation."""
    metrics.observed(cycle(node()), seen)
    text()


def scrape(server: Server) -> int:
    """Scrape once, as Prometheus does; return the number of bytes."""
    with closing(http.client.HTTPConnection(*server.address)) as connection:
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())


def flood(server: Server) -> None:
    """Open connections far above the limit, each with a request."""
    with ExitStack() as stack:
        for _ in range(20 * MAX_CONNECTIONS):
            sock = stack.enter_context(socket.create_connection(server.address))
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")


def main(rounds: int) -> int:
    """Print the tables; return 1 if a budget is exceeded."""
    memory = {name: added_kb(modules, rounds) for name, modules in IMPORTS.items()}
    for name, kb in memory.items():
        print(f"{name:24}{kb:8.0f} KB resident")

    metrics, log = Metrics(), Log("json", write=bool, clock=lambda: 0.0)
    seen = {"rdma": 0.004, "lldp": 0.001, "nvml": 0.03}
    text, process = Exposition(metrics), OwnProcess()
    metrics.observed(cycle(node()), seen)
    ways: dict[str, Callable[[], object]] = {
        "text 0.0.4": text,
        "OpenMetrics": partial(text, OPENMETRICS),
        "after an observation": partial(observe_and, text, metrics, seen),
        "own process": process.collect,
        "a repeated frame": partial(metrics.frames_repeated, {"eth0"}, 1e9),
        "a log line": lambda: log.info("label changed", **{"key": "x", "from": "a", "to": "b"}),
    }
    times = {name: cpu_ms(work) for name, work in ways.items()}
    with closing(Server(("127.0.0.1", 0), text, Status())) as server:
        lines = len(text()[1].splitlines())
        print(f"\n{PORTS} ports: {scrape(server)} bytes, {lines} lines")
        before = resident_kb()
        times["scrape"] = cpu_ms(partial(scrape, server))
        print(f"200 scrapes: {resident_kb() - before:+} KB resident")
        flood(server)
        print(f"and a flood: {resident_kb() - before:+} KB resident")
    for name, spent in times.items():
        print(f"{name:24}{spent:8.3f} ms CPU{spent * SCRAPES_AN_HOUR / 1000:8.2f} CPU-s an hour")
    over = memory["agent's telemetry"] > BUDGET_KB or times["scrape"] > BUDGET_MS
    return int(over)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:] or ["5"])))
