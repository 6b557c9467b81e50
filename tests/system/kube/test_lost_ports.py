"""An HCA that leaves the bus: `run`, `probe` and `cleanup --lost` on a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.kernel_tree import rails
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.resident import Agent, P
from tests.support.sysfs_on_disk import lay

LOST = "ibp3 (0000:1b:00.0) is gone from the bus"
STATE, COUNT = "bwagent_port_state", "bwagent_backend_ports_lost"


def command(cluster: Cluster, node: str, *arguments: str) -> str:
    """Run a command of bwagent for the Node and return its output."""
    done = bwagent(*arguments, "--node-name", node, kubeconfig=cluster.kubeconfig())
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def lost(agent: Agent) -> list[dict[str, Any]]:
    """Return the rows of lost ports in the annotation."""
    text = agent.metadata().get("annotations", {}).get(f"{P}/observed", "{}")
    rows: list[dict[str, Any]] = [row for row in json.loads(text)["ports"] if "lost" in row]
    return rows


def test_an_hca_falls_off_the_bus(cluster: Cluster, tmp_path: Path) -> None:
    """The loss outlives the agent, `probe` counts the port, and `cleanup --lost` ends it beside a
    running agent without a change of labels.
    """
    node = "lost-hca"
    cluster.node(node)
    with Agent(cluster, tmp_path, node, rails(4)) as agent:
        agent.speaks("1600G")
        assert agent.metrics().value(COUNT) == 0
        agent.lose(3)
        agent.speaks("1200G")
        agent.says(LOST)
        agent.until(lambda: [row["interface"] for row in lost(agent)] == ["ibp3"])
        assert agent.metrics().value(STATE, interface="ibp3", state="ACTIVE") == 0
        assert agent.metrics().holds(STATE, "state", interface="ibp3") == ["absent"]
        assert agent.metrics().value(COUNT) == 1
        (row,) = lost(agent)
    probe = ("probe", "--no-wait", "--sysfs-root", str(agent.sys), "--dry-run", "--diff")
    said = command(cluster, node, *probe)
    assert "3 of 4 backend ports ACTIVE" in said
    assert f"absent: gone from the bus, missing since {row['lost']}" in " ".join(said.split())
    with Agent(cluster, tmp_path, node, {}) as agent:
        agent.says(LOST)
        assert lost(agent) == [row]
        before = agent.labels()
        said = command(cluster, node, "cleanup", "--lost", "--yes")
        assert f"- lost {row['interface']} ({row['pci']}), missing since {row['lost']}" in said
        assert (lost(agent), agent.labels()) == ([], before)
        assert command(cluster, node, "cleanup", "--lost", "--yes") == "nothing to remove\n"
        agent.look()
        agent.until(lambda: agent.metrics().value(COUNT) == 0)
        assert (lost(agent), agent.labels()) == ([], before)
        agent.lose(2)
        agent.until(lambda: [row["interface"] for row in lost(agent)] == ["ibp2"])
        lay(rails(4), tmp_path)
        agent.look()
        agent.speaks("1600G")
        agent.until(lambda: not lost(agent))
