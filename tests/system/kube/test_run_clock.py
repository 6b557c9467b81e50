"""`bwagent run` while the time of day jumps."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from agent.facts import parse_time
from tests.support.kernel_tree import CLASS, Entries
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import Agent, P
from tests.support.real_parts import lacks, require
from tests.support.sysfs_on_disk import remove
from tests.support.wall_clock import WallClock

HOUR = 3600


@pytest.mark.parametrize("jump", [pytest.param(HOUR, marks=pytest.mark.sweep), -HOUR])
def test_the_clock_jumps(cluster: Cluster, tmp_path: Path, two: Entries, jump: int) -> None:
    """Nothing expires and nothing is sent because of the time of day; what happens next is on the
    Node at once, before and after the clock is set right again.
    """
    require(lacks("cc"))
    clock = WallClock(tmp_path)
    cluster.node(f"run-clock-{jump}")
    with Agent(cluster, tmp_path, f"run-clock-{jump}", two, environment=clock.environment) as agent:
        agent.speaks("800G")
        remove(tmp_path, f"{CLASS}/ibp1")  # its function is on the bus: the speed is held
        agent.look()
        agent.says("rdma problem subject=ibp1")
        before = settled(agent)
        clock.set(jump)
        agent.look()
        time.sleep(3)
        assert agent.labels()["speed.current"] == "800G"
        # SIGHUP reads the Node; the annotation keeps since when a port is unread after a minute.
        assert agent.requests() <= before + 3
        agent.set("ibp0", "state", "1: DOWN")
        agent.until(lambda: abs(observed(agent) - time.time() - jump) < 60)
        clock.set(0)
        agent.set("ibp0", "state", "4: ACTIVE")
        agent.look()
        agent.until(lambda: abs(observed(agent) - time.time()) < 60)
        assert "another bwagent" not in agent.log.read_text()


def settled(agent: Agent) -> float:
    """Return the number of its requests once none was added for two seconds: a busy machine is late
    with those that the start caused.
    """
    while True:
        before = agent.requests()
        time.sleep(2)
        if agent.requests() == before:
            return before


def observed(agent: Agent) -> float:
    """Return the time of the last observation that the Node has."""
    found = json.loads(agent.metadata()["annotations"][f"{P}/observed"])
    times = [found["time"], (found.get("partial") or {}).get("time")]
    return max(parse_time(one) for one in times if one)
