"""Many agents and one API server: its load, and every label right in the end
(benchmarks/scale.py).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.daemon.schedule import Settings
from agent.kube.api import TIMEOUT
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import session
from tests.support.kube.fleet import Agent, Fleet
from tests.support.kube.population import labels, populate
from tests.support.kube.wire import Clock, Wire
from tests.support.kubeconfigs import kubeconfig
from tests.support.odd_server import reply, says, serving

COUNT, WITHIN = 100, 2.0  # agents, and the seconds in which they start
LEAF = 32
HOURLY = (
    15  # requests without a change that may come in between; one in 3600 agents is due each second
)
PATIENT = 60.0  # seconds until a request is given up; a slow machine is not what is tested here
LIMIT = 3000.0  # seconds of the simulation
AWAY = 600.0
FAST, BACK = 150.0, 60.0  # times the real time, while the API server is away and when it is back
# Of an agent in AWAY: 1, 2, 4, ... 128, 150, 150 s apart, if chance makes all of them early.
MOST_TRIES = 12
SPEED = "backend.coreweave.cloud/speed.current"


class Stage:
    """An API server and its agents."""

    def __init__(self, cluster: Cluster, fleet: Fleet, wire: Wire, agents: list[Agent]) -> None:
        self.cluster, self.fleet, self.wire, self.agents = cluster, fleet, wire, agents

    def until_right(self) -> Counter[str]:
        """Let time pass until every Node is right; return the requests since the last call,
        by result.
        """
        self.fleet.run_until_right(LIMIT)
        assert self.fleet.wrong == set()
        return self.asked()

    def asked(self) -> Counter[str]:
        asked = Counter(f"{one.operation} {one.result}" for one in self.wire.asked)
        self.wire.asked.clear()
        return asked

    @contextmanager
    def away(self) -> Iterator[None]:
        """Stop the API server within the block; time runs fast there, and somewhat slower
        afterwards.
        """
        os.kill(self.cluster.server.pid, signal.SIGSTOP)
        try:
            self.fleet.clock.go(FAST)
            self.wire.timeout = TIMEOUT / FAST
            yield
        finally:
            self.fleet.clock.go(BACK)
            self.wire.timeout = PATIENT
            os.kill(self.cluster.server.pid, signal.SIGCONT)

    def on_the_nodes(self) -> Counter[frozenset[tuple[str, str]]]:
        """Return the sets of the agents' labels on the API server, and how many Nodes have each."""
        items = self.cluster.request("GET", "/api/v1/nodes?labelSelector=scale").body["items"]
        return Counter(
            frozenset(label for label in item["metadata"]["labels"].items() if label[0] in labels())
            for item in items
        )


@pytest.fixture
def stage(installed: Cluster) -> Iterator[Stage]:
    """Start so many agents."""
    clock = Clock()
    members = populate(installed, COUNT, "scale")
    wire = Wire(installed.url, installed.ca, clock)
    wire.timeout = PATIENT
    with Fleet(wire, clock, Settings(min_interval=1.0)) as fleet:
        yield Stage(installed, fleet, wire, fleet.power_on(members, WITHIN))


def without_a_rail(agent: Agent) -> dict[str, str]:
    """Return the labels of a node with a port down."""
    seen = {key: value for key, value in agent.whole.items() if ".ibp3." not in key}
    return seen | {SPEED: "2800G"}


@pytest.mark.sweep
def test_many_agents_are_hardly_felt_and_right_in_the_end(stage: Stage) -> None:
    """They start, a leaf goes down, the API server stops answering, and in those ten minutes the
    leaf comes back.
    """
    whole = frozenset(labels().items())
    started = stage.until_right()
    assert started.keys() == {"get 200", "apply 200"}
    assert started["get 200"] == COUNT
    assert started["apply 200"] <= COUNT + HOURLY

    below = stage.agents[:LEAF]
    stage.fleet.change(below, without_a_rail)
    changed = stage.until_right()
    assert changed.keys() == {"apply 200"}
    assert changed.total() <= LEAF + HOURLY
    broken = frozenset(without_a_rail(below[0]).items())
    assert stage.on_the_nodes() == {whole: COUNT - LEAF, broken: LEAF}

    with stage.away():
        stage.fleet.change(below, lambda agent: agent.whole)
        stage.fleet.run(AWAY)
        unheard, tries = len(stage.fleet.wrong), stage.asked()
        assert LEAF <= unheard < COUNT
    assert tries.keys() <= {"apply timeout", "get timeout"}
    assert tries.total() <= MOST_TRIES * unheard
    # One of each of theirs may still have been under way; and by now an hour is over for others,
    # too.
    assert stage.until_right().total() <= 3 * unheard + COUNT
    assert stage.on_the_nodes() == {whole: COUNT}


@pytest.mark.parametrize(
    "operation",
    [
        {"operation": "get"},
        {"operation": "apply", "body": {"metadata": {"uid": "é"}}, "force": True},
    ],
)
def test_the_requests_are_the_agents(tmp_path: Path, operation: dict[str, Any]) -> None:
    """The stand-in for the agent sends the same request and returns the same answer."""
    request: Any = {"node": "n1", **operation}
    with serving(says(reply(429, b"", "Retry-After: 7"))) as server:
        url = f"http://127.0.0.1:{server.port}"
        with closing(session(kubeconfig(tmp_path / "config", url))) as kube:
            theirs = kube(request)
        ours = Wire(url, None, Clock()).connect("t1")(request)
    assert replace(ours, server=url) == theirs
    assert ours.retry_after == 7
    first, second = map(parts, server.requests)
    assert first == second


def parts(request: bytes) -> tuple[object, ...]:
    """Return the request line, the body, and the headers that an API server heeds."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *rows = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows)}
    heeded = ("accept", "authorization", "content-type", "user-agent", "content-length")
    return line, body, [headers.get(name) for name in heeded]
