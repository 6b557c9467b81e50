"""Eight ports that flap every second: the number of requests, and the Node's labels in the end.

The far ends of real cables are set down and up, sixteen changes a second, each of a random port: if
all changed at the same moment, an agent that observes once a second would see no change. In the end
all are up, which is rare while they flap, and the Node's labels must be right and stay so. An agent
with its usual intervals may write once, and once more in each `--min-interval`.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from agent.daemon.flapping import MAX_WAIT
from agent.daemon.schedule import Settings
from benchmarks import cost
from benchmarks.rack import PORTS, Agent
from benchmarks.relay import requests
from tests.support.kube.cluster import Cluster
from tests.support.switch import wait_for

NODE = "flaps"
SPEED = "backend.coreweave.cloud/speed.current"
PAUSE = 1 / (2 * PORTS)  # seconds: each port goes down and up once a second
INTERVAL = Settings().min_interval


class Outcome(NamedTuple):
    """The result of the flaps."""

    seconds: float
    changes: int  # of links
    patches: int
    right: float  # seconds from the last change to the right label
    cpu: float  # seconds, helpers included

    @property
    def allowed(self) -> int:
        """The number of permitted requests: the first, and one for each interval until the
        Node is right.
        """
        return 1 + int((self.seconds + self.right) / INTERVAL)


class Flapping(Thread):
    """Flaps in a thread of its own; after join() `outcome` is set, unless the labels were wrong."""

    def __init__(self, cluster: Cluster, folder: Path, agent: Agent, seconds: float) -> None:
        super().__init__(daemon=True)
        self.outcome: Outcome | None = None
        self._changes = 0
        self._cluster, self._folder, self._agent, self._seconds = cluster, folder, agent, seconds

    def run(self) -> None:
        """Flap, and wait until the labels are right."""
        wait_for(lambda: self._says(PORTS))
        time.sleep(INTERVAL)
        began, before, since = time.monotonic(), cost.cpu(self._agent.process.pid), time.time()
        up = dict.fromkeys(range(PORTS), True)
        while (now := time.monotonic()) < began + self._seconds:
            number = random.randrange(PORTS)  # noqa: S311 - no secret
            up[number] = not up[number]
            self._set(number, up=up[number])
            time.sleep(max(now + PAUSE - time.monotonic(), 0.0))
        for number in range(PORTS):
            self._set(number, up=True)
        last = time.monotonic()
        wait_for(lambda: self._says(PORTS), 2 * MAX_WAIT)
        right, cpu = time.monotonic() - last, cost.cpu(self._agent.process.pid) - before
        outcome = Outcome(last - began, self._changes, self._patches(since), right, cpu)
        time.sleep(INTERVAL)
        self.outcome = outcome if self._says(PORTS) else None

    def _patches(self, since: float) -> int:
        asked = (one for one in requests(self._folder) if one.node == NODE and one.began >= since)
        return sum(one.verb == "patch" and not one.is_dry_run for one in asked)

    def _set(self, number: int, *, up: bool) -> None:
        self._agent.ethernet(number, up=up)
        self._changes += 1

    def _says(self, ports: int) -> bool:
        return self._cluster.labels(NODE).get(SPEED) == f"{ports * 10}G"  # a veth reports 10 Gb/s
