"""`bwagent run` on a host whose port refuses SMPs: opensm on ibsim answers as subnet administrator,
up to the labels of a real Node.

The agent asks at a random time within a minute, so this takes minutes. opensm assigns LIDs from 1
on (`-r`): those of ibsim are as high as in a subnet whose nodes have more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import one_leaf
from tests.support.kernel_tree import HOME, NET, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import Agent
from tests.support.real_parts import require

NODE = "fabric-sa"
FUNCTION = "0000:18:00.0"
NEIGHBOR = {"device": "leaf1", "port-id": "1"}
PORT = {"interface": "ibsim0"}


@contextmanager
def running(fabric: Fabric, cluster: Cluster, folder: Path, *flags: str) -> Iterator[Agent]:
    """Start the agent on the host, whose sysfs has its place in the subnet."""
    port = f"{HOME}/{FUNCTION}/infiniband/ibsim0/ports/1"
    fabric.boot("host", folder / "hca")
    booted = folder / "hca/class/infiniband/ibsim0/ports/1"
    place = {
        f"{port}/{name}": (booted / name).read_bytes() for name in ("lid", "sm_lid", "pkeys/0")
    }
    entries = hca("ibsim0", FUNCTION) | {f"{NET}/lo": None} | place
    under = fabric.under("host", smps=False)
    with Agent(cluster, folder, NODE, entries, *flags, under=under) as agent:
        yield agent


def wait(fabric: Fabric, agent: Agent, wanted: Callable[[], object]) -> None:
    """Wait, and free the places of ended helpers."""

    def is_so() -> object:
        fabric.release()
        return wanted()

    agent.until(is_so, 300.0)


def via(agent: Agent) -> list[str]:
    """Return the way to the neighbor, by the metrics."""
    return [row["via"] for row, _ in agent.metrics().series("bwagent_neighbor_info", **PORT)]


@pytest.mark.sweep
def test_a_port_that_refuses_smps(cluster: Cluster, tmp_path: Path) -> None:
    """The SA names the switch; a restart changes nothing; without SM the labels are held until the
    hold ends; they are back with it.
    """
    require(missing(*MANAGERS))
    cluster.node(NODE)
    with Fabric(one_leaf("host", "manager"), tmp_path) as fabric:
        with fabric.manager("manager", "-r"):
            with running(fabric, cluster, tmp_path) as agent:
                wait(fabric, agent, lambda: agent.neighbors("ibsim0") == NEIGHBOR)
                wait(fabric, agent, lambda: via(agent) == ["sa"])
                agent.stop()
                before = agent.labels()
            with running(fabric, cluster, tmp_path) as agent:
                wait(fabric, agent, lambda: via(agent) == ["sa"])
                assert agent.labels() == before
                agent.stop()
        with running(fabric, cluster, tmp_path, "--hold", "150") as agent:
            reason = "bwagent_neighbor_missing", "reason"
            wait(fabric, agent, lambda: agent.metrics().holds(*reason, **PORT) == ["sa-no-answer"])
            assert agent.labels() == before
            wait(fabric, agent, lambda: agent.neighbors("ibsim0") == {})
            assert agent.labels()["speed.current"] == "400G"
            with fabric.manager("manager", "-r"):
                agent.look()
                wait(fabric, agent, lambda: agent.labels() == before)
