"""`bwagent run` on a host of an InfiniBand fabric that ibsim simulates, from SMPs to the labels of
a real Node.

ibsim gives the host a umad device and the wire behind it. The HCA's sysfs is laid out as files: the
state of its port follows the test's cable changes, as that of a real port would.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.kernel_tree import NET, hca
from tests.support.kube.resident import IB, Agent, long
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

HCA = hca("ibsim0", "0000:18:00.0") | {f"{NET}/lo": None}
PORT = {"interface": "ibsim0"}
LEAVES = """
Switch 8 "leaf1"
[1] "host"[1]

Switch 8 "leaf2"

Hca 1 "host"
[1] "leaf1"[1]
"""


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """Start a fabric of two leaves, with a host on the first; no subnet manager runs in it."""
    require(missing())
    with Fabric(LEAVES, tmp_path) as fabric:
        yield fabric


@contextmanager
def on(fabric: Fabric, cluster: Cluster, folder: Path, node: str, *flags: str) -> Iterator[Agent]:
    """Start the agent on that host, and wait for its first labels."""
    cluster.node(node)
    with Agent(cluster, folder, node, HCA, *flags, under=fabric.under("host")) as agent:
        connected(agent, "leaf1", "1")
        yield agent


def connected(agent: Agent, device: str, port: str) -> None:
    """Wait until the labels have this neighbor."""
    agent.until(lambda: agent.neighbors("ibsim0") == {"device": device, "port-id": port})


def missing_word(agent: Agent) -> list[str]:
    """Return the reason for the missing neighbor, by the metrics."""
    return agent.metrics().holds("bwagent_neighbor_missing", "reason", **PORT)


def held(agent: Agent) -> float | None:
    """Return the number of held labels, by the metrics."""
    return agent.metrics().value("bwagent_labels_held")


def source(agent: Agent) -> float | None:
    """Return the state of the InfiniBand source, by the metrics."""
    return agent.metrics().value("bwagent_source_success", source="ib")


def asked_again(agent: Agent) -> int:
    """Cause a query, and wait for its helper (not before 5 s after the last); return its PID."""
    agent.look()
    agent.until(lambda: agent.helpers("smp"))
    return agent.helpers("smp")[0]


def test_a_cable_that_is_moved(fabric: Fabric, cluster: Cluster, tmp_path: Path) -> None:
    """The helper is killed, the link goes down, and a port of another switch has the cable: labels
    and metrics.
    """
    with on(fabric, cluster, tmp_path, "fabric-moved") as agent:
        fabric.stop()
        try:
            os.kill(asked_again(agent), signal.SIGKILL)
            agent.says("killed by SIGKILL")
            assert (source(agent), held(agent)) == (0, 6)
            agent.set("ibsim0", "state", "1: DOWN")
            agent.speaks("0G")
        finally:
            fabric.restart(LEAVES)
        assert agent.neighbors("ibsim0") == {"device": "leaf1", "port-id": "1"}
        down = agent.metrics()
        assert down.holds("bwagent_port_state", "state", **PORT) == ["DOWN"]
        assert down.value("bwagent_port_flaps_total", **PORT) == 1
        assert down.value("bwagent_speed_bytes_per_second") == 0
        assert missing_word(agent) == ["link-down"]

        fabric.console('Unlink "host"[1]')
        fabric.console('Link "host"[1] "leaf2"[5]')
        agent.set("ibsim0", "state", "2: INIT")
        connected(agent, "leaf2", "5")
        assert agent.labels()["speed.current"] == "0G"
        agent.set("ibsim0", "state", "4: ACTIVE")
        agent.speaks("400G")
        assert agent.metadata()["labels"][f"{IB}/leaves.current"] == "leaf2"
        up = agent.metrics()
        [(told, _)] = up.series("bwagent_neighbor_info", **PORT)
        assert (told["via"], told["device"], told["port_id"], told["selected"]) == (
            "smp",
            "leaf2",
            "5",
            "true",
        )
        assert up.value("bwagent_speed_bytes_per_second") == 50e9
        assert (missing_word(agent), source(agent), held(agent)) == ([], 1, 0)
        up.lint()


def test_a_switch_that_keeps_silent(fabric: Fabric, cluster: Cluster, tmp_path: Path) -> None:
    """A switch that drops every request has its labels held until the hold ends; an event
    causes a query.
    """
    with on(fabric, cluster, tmp_path, "fabric-silent", "--hold", "3") as agent:
        fabric.console('Error "leaf1" 100')
        agent.look()
        agent.until(lambda: missing_word(agent) == ["no-answer"])
        assert agent.neighbors("ibsim0") == {"device": "leaf1", "port-id": "1"}
        assert held(agent) == 6
        agent.until(lambda: agent.labels() == {"flavor": "infiniband", "speed.current": "400G"})
        assert (held(agent), agent.metrics().value("bwagent_labels_expired_total")) == (0, 6)
        fabric.restart(LEAVES.replace("leaf1", "leaf-9"))
        agent.look()
        connected(agent, "leaf-9", "1")


@long
def test_a_helper_that_hangs(fabric: Fabric, cluster: Cluster, tmp_path: Path) -> None:
    """The helper is killed at its deadline, and another is started; no label is lost, and the loop
    runs all the time.
    """
    with on(fabric, cluster, tmp_path, "fabric-hangs") as agent:
        fabric.stop()
        try:
            first = asked_again(agent)
            agent.says("no answer within 10 s", 30)
            assert (source(agent), held(agent), agent.helpers("smp")) == (0, 6, [])
            agent.until(lambda: agent.helpers("smp"))
            assert agent.helpers("smp") != [first]
            agent.set("ibsim0", "rate", "200 Gb/sec (4X HDR)")
            agent.speaks("200G")
        finally:
            fabric.restart(LEAVES)
        agent.look()  # each failure doubles the time to the next try, a reason ends that
        agent.until(lambda: source(agent) == 1, 30)
        connected(agent, "leaf1", "1")
