"""`bwagent run` on a host of an InfiniBand fabric that ibsim simulates, from SMPs to the labels of
a real Node.

ibsim gives the host a umad device and the wire behind it. The HCA's sysfs is laid out as files: the
state of its port follows the test's cable changes, as that of a real port would.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.kernel_tree import NET, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import IB, LIMIT, Agent, P
from tests.support.real_parts import require

HCA = hca("ibsim0", "0000:18:00.0") | {f"{NET}/lo": None}
PORT = {"interface": "ibsim0"}
FROZEN, AWAKE = 80.0, 20.0  # seconds: a freeze, and the time to ask after it
AT_REST = 8.0  # seconds after which an agent that has labeled its Node waits for events
LOST = 'Error "leaf1"[1] 100 16'  # drops NodeDescription, attribute 16
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


def connected(agent: Agent, device: str, port: str, limit: float = LIMIT) -> None:
    """Wait until the labels have this neighbor."""
    agent.until(lambda: agent.neighbors("ibsim0") == {"device": device, "port-id": port}, limit)


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
            assert (source(agent), held(agent)) == (0, 7)
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
        assert agent.labels()["leafgroup.current"] == "leaf1"

        fabric.console('Unlink "host"[1]')
        fabric.console('Link "host"[1] "leaf2"[5]')
        agent.set("ibsim0", "state", "2: INIT")
        connected(agent, "leaf2", "5")
        assert agent.labels()["speed.current"] == "0G"
        agent.set("ibsim0", "state", "4: ACTIVE")
        agent.speaks("400G")
        assert agent.metadata()["labels"][f"{IB}/leaves.current"] == "leaf2"
        assert agent.labels()["leaves.current"] == agent.labels()["leafgroup.current"] == "leaf2"
        up = agent.metrics()
        [(told, _)] = up.series("bwagent_neighbor_info", **PORT)
        assert told.items() >= {"via": "smp", "device": "leaf2", "port_id": "5"}.items()
        assert told["selected"] == "true"
        assert up.value("bwagent_speed_bytes_per_second") == 50e9
        assert (missing_word(agent), source(agent), held(agent)) == ([], 1, 0)
        up.lint()


def test_a_cable_that_is_moved_while_the_agent_is_frozen(
    fabric: Fabric, cluster: Cluster, tmp_path: Path
) -> None:
    """For 80 s: no event and no state of the port tells it. It asks again as soon as it runs."""
    with on(fabric, cluster, tmp_path, "fabric-frozen") as agent:
        time.sleep(AT_REST)  # its labels are there, and it waits for events
        agent.process.send_signal(signal.SIGSTOP)
        try:
            fabric.console('Unlink "host"[1]')
            fabric.console('Link "host"[1] "leaf2"[5]')
            time.sleep(FROZEN)
            assert agent.neighbors("ibsim0") == {"device": "leaf1", "port-id": "1"}
        finally:
            agent.process.send_signal(signal.SIGCONT)
        connected(agent, "leaf2", "5", AWAKE)
        assert agent.labels()["leafgroup.current"] == "leaf2"


def guid(fabric: Fabric) -> str:
    """Return the node GUID of the host's neighbor, read by infiniband-diags."""
    return fabric.smpquery("host", "nodeinfo", "0,1")["Guid"].removeprefix("0x")


def probe(fabric: Fabric, agent: Agent, *flags: str) -> dict[str, str]:
    """Run `bwagent probe` on that host; return the neighbor labels of its document, by the last
    word of their keys.
    """
    place = "--node-name", agent.node, "--sysfs-root", str(agent.sys)
    access = ("--kubeconfig", str(agent.cluster.kubeconfig())) if flags != ("--dry-run",) else ()
    words = ("probe", "-o", "json", *place, *access, *flags)
    report = json.loads(fabric.bwagent("host", *words))
    start = f"{P}/neighbors.current.ibsim0."
    return {
        key.removeprefix(start): text
        for key, text in report["labels"].items()
        if key.startswith(start)
    }


def test_a_probe_of_a_switch_without_description(
    fabric: Fabric, cluster: Cluster, tmp_path: Path
) -> None:
    """`probe` applies the name that the Node's annotation has, and another name that is answered;
    if it does not read the Node, the name is the node GUID.
    """
    with on(fabric, cluster, tmp_path, "fabric-probed") as agent:
        agent.stop()
        fabric.console(LOST)
        for flags in ((), ("--dry-run", "--diff")):
            assert probe(fabric, agent, *flags) == {"device": "leaf1", "port-id": "1"}
        assert agent.neighbors("ibsim0") == {"device": "leaf1", "port-id": "1"}
        assert probe(fabric, agent, "--dry-run") == {"device": guid(fabric), "port-id": "1"}
        fabric.restart(LEAVES.replace("leaf1", "leaf-9"))
        assert probe(fabric, agent) == {"device": "leaf-9", "port-id": "1"}
        assert agent.neighbors("ibsim0") == {"device": "leaf-9", "port-id": "1"}
