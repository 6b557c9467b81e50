"""Time from a link that goes down to the changed label, as a client that watches the Nodes measures
it.

    Ethernet     the far end of a real cable is set down; the kernel's link message wakes the agent
    InfiniBand   a port's `state` is rewritten; the sweep of port states, every 2 s, finds it

The stages in between are measured independently: the link message by a socket beside the agent's,
the request by the API server's audit log, the observation by the agent's metrics. "send" is the
rest: the plan, two threads, and a TLS connection where none is kept. The two kinds take turns, with
a random pause, so that neither always meets the same moment of a sweep.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import select
import ssl
import statistics
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from threading import Condition, Thread
from typing import NamedTuple

from agent.events.netlink import LinkMonitor
from agent.events.port_states import SWEEP_INTERVAL as SWEEP
from benchmarks.idle import get
from benchmarks.rack import PORTS, Agent, Rack, ethernet, infiniband
from benchmarks.relay import Relay, Request
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import free_ports
from tests.support.switch import Namespace

SPEED = "backend.coreweave.cloud/speed.current"
PATIENCE = 30.0  # seconds
# A link that has come up is observed again at its switch's next frame, a second later; then at a
# random time within a sweep's interval.
PAUSE = 1.5, 1.5 + SWEEP  # seconds
SETTLED = 5.0  # seconds
FLAGS = (
    "--backend-device",
    "*",
    "--min-interval",
    "0s",
    "--resync",
    "720h",
)  # each change is a first one
STAGES = ("wake-up", "look", "send", "PATCH", "watch")
DURATION = re.compile(
    r'^bwagent_source_duration_seconds\{source="(?:rdma|lldp)"\} (\S+)$', re.MULTILINE
)


class Change(NamedTuple):
    """One change of a link; times in seconds since the epoch."""

    what: str
    node: str
    began: float
    woken: float | None  # arrival of the link message
    looked: float  # seconds that the observation took
    seen: float  # the new label


class Witness(Thread):
    """Watches the Nodes and records the time of each speed label."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._news = Condition()
        self._said: dict[str, tuple[str, float]] = {}
        port = int(cluster.url.rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(cluster.ca))
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        self._connection.request(
            "GET", "/api/v1/nodes?watch=1", headers={"Authorization": f"Bearer {cluster.admin}"}
        )

    def run(self) -> None:
        """Record the events of the watch."""
        with suppress(OSError, http.client.HTTPException), self._connection.getresponse() as stream:
            for line in stream:
                metadata = json.loads(line)["object"]["metadata"]
                with self._news:
                    self._said[metadata["name"]] = (
                        metadata.get("labels", {}).get(SPEED, ""),
                        time.time(),
                    )
                    self._news.notify_all()

    def saw(self, node: str, speed: str) -> float:
        """Return the time at which the Node last got this speed; waits for it."""
        with self._news:
            if not self._news.wait_for(
                lambda: self._said.get(node, ("", 0.0))[0] == speed, PATIENCE
            ):
                raise SystemExit(f"{node} never said {speed}: {self._said.get(node)}")
            return self._said[node][1]


@dataclass(frozen=True, slots=True)
class Fabric:
    """One agent, its kind of port, and where it serves metrics."""

    name: str
    agent: Agent
    gbps: int
    port: int
    namespace: Namespace
    links: LinkMonitor | None = None

    def set(self, port: int, *, up: bool) -> None:
        """Take a link down or up."""
        if self.links:
            self.agent.ethernet(port, up=up)
        else:
            self.agent.infiniband(port, up=up)

    def speed(self, *, up: bool) -> str:
        """Return the expected label."""
        return f"{self.gbps * (PORTS - (not up))}G"

    def looked(self) -> float:
        """Return the seconds of the last observation."""
        text = self.namespace.call(get, f"http://127.0.0.1:{self.port}/metrics").decode()
        return sum(map(float, DURATION.findall(text)))


def fabrics(stack: ExitStack, cluster: Cluster, rack: Rack, relay: Relay) -> tuple[Fabric, Fabric]:
    """Run the two agents."""
    ports = rack.node.call(free_ports, 2)
    trees = {"wired": ethernet(rack.netdevs), "swept": infiniband()}
    wired, swept = (
        stack.enter_context(
            rack.agent(cluster, relay, name, tree, *FLAGS, "--metrics-address", f"127.0.0.1:{port}")
        )
        for (name, tree), port in zip(trees.items(), ports, strict=True)
    )
    links = rack.node.call(LinkMonitor, set(rack.netdevs))
    stack.callback(links.close)
    return (
        Fabric("Ethernet", wired, 10, ports[0], rack.node, links),  # a veth reports 10 Gb/s
        Fabric("InfiniBand", swept, 400, ports[1], rack.node),
    )


def measure(
    stack: ExitStack, cluster: Cluster, rack: Rack, relay: Relay, rounds: int
) -> list[Change]:
    """Measure all changes, of one port after the other: a port that changes often is flapping."""
    witness = Witness(cluster)
    witness.start()
    both = fabrics(stack, cluster, rack, relay)
    for one in both:
        witness.saw(one.agent.node, one.speed(up=True))
    time.sleep(SETTLED)
    found = []
    for number, up, one in product(range(rounds), (False, True), both):
        time.sleep(random.uniform(*PAUSE))  # noqa: S311 - no secret
        found.append(change(one, number % PORTS, witness, up=up))
    return found


def change(one: Fabric, port: int, witness: Witness, *, up: bool) -> Change:
    """Change a link, and wait for the label."""
    if one.links:
        one.links.read()
    began = time.time()
    one.set(port, up=up)
    heard = one.links and select.select([one.links.fileno()], [], [], PATIENCE)[0]
    woken = time.time() if heard else None
    seen = witness.saw(one.agent.node, one.speed(up=up))
    return Change(
        f"{one.name} {'up' if up else 'down'}", one.agent.node, began, woken, one.looked(), seen
    )


def stages(changes: list[Change], log: list[Request]) -> dict[str, float]:
    """Return the medians of the stages in milliseconds."""
    rows = []
    for one in changes:
        told = [
            request
            for request in log
            if request.node == one.node and one.began < request.began < one.seen
        ]
        if told and one.woken:
            wake, send = one.woken - one.began, told[-1].began - one.woken - one.looked
            server = told[-1].ended - told[-1].began
            rows.append((wake, one.looked, send, server, one.seen - told[-1].ended))
    return {
        name: 1000 * statistics.median(column)
        for name, column in zip(STAGES, zip(*rows, strict=True), strict=False)
    }


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return (
        statistics.quantiles(values, n=100, method="inclusive")[98]
        if len(values) > 1
        else values[0]
    )
