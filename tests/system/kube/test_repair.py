"""Repair of a Node that others have changed, by `bwagent run` on a real API server."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.resident import IB, Agent, P

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

SPEED = f"{P}/speed.current"


@pytest.fixture
def two() -> Entries:
    """Two InfiniBand HCAs, and a /sys that is mounted."""
    return hca("ibp0", "0000:18:00.0") | hca("ibp1", "0000:19:00.0") | {f"{NET}/lo": None}


@pytest.fixture
def agent(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, two: Entries
) -> Iterator[Agent]:
    """An agent whose Node has its labels."""
    node = request.node.name.replace("_", "-")
    cluster.node(node)
    with Agent(cluster, tmp_path, node, two) as agent:
        agent.speaks("800G")
        agent.says("label added")
        yield agent


def recreate(agent: Agent) -> None:
    agent.cluster.request("DELETE", f"/api/v1/nodes/{agent.node}")
    agent.cluster.node(agent.node)


def label(agent: Agent, *changes: str) -> None:
    """Change labels by hand."""
    agent.cluster.kubectl("label", "--overwrite", "node", agent.node, *changes)


def lines(agent: Agent, *words: str) -> list[str]:
    """Return the log lines with all of these words."""
    log = agent.log.read_text().splitlines()
    return [line for line in log if all(word in line for word in words)]


def test_a_recreated_node_costs_no_request(agent: Agent) -> None:
    """The new Node stays bare and is not read; SIGHUP labels it, and checks the policy again, which
    does not restrict this account.
    """
    recreate(agent)
    before = agent.requests()
    time.sleep(3)
    assert (agent.labels(), agent.requests()) == ({}, before)
    agent.process.send_signal(signal.SIGHUP)
    agent.speaks("800G")
    assert agent.labels()["flavor"] == "infiniband"
    agent.until(lambda: agent.requests() == before + 3)
    assert lines(agent, "request failed") == []


def test_a_failed_request_repairs_a_recreated_node(
    cluster: Cluster, tmp_path: Path, two: Entries
) -> None:
    """The periodic request is refused for the old Node; the new one is read and labeled."""
    cluster.node("repair-resync")
    with Agent(cluster, tmp_path, "repair-resync", two, "--resync", "3") as agent:
        agent.speaks("800G")
        recreate(agent)
        agent.speaks("800G")
        assert len(lines(agent, "node request failed", "deleted or recreated")) == 1


def test_sighup_takes_a_label_back(agent: Agent) -> None:
    """Labels that kubectl has changed or removed are restored; the log has the owner and the values
    that were on the Node.
    """
    label(agent, f"{SPEED}=1G", f"{IB}/speed.current=2G", f"{P}/flavor-")
    time.sleep(1)
    assert agent.labels()["speed.current"] == "1G"
    agent.process.send_signal(signal.SIGHUP)
    agent.speaks("800G")
    agent.until(lambda: len(lines(agent, "taken over from its owner")) == 2)
    taken = lines(agent, "taken over from its owner", "owner=kubectl-label")
    assert f"key={SPEED} owner=kubectl-label value=1G" in taken[0]
    assert f"key={IB}/speed.current owner=kubectl-label value=2G" in taken[1]
    assert lines(agent, "label changed", f"key={SPEED} from=1G to=800G")
    assert lines(agent, "label changed", f"key={IB}/speed.current from=2G to=800G")
    assert len(lines(agent, "label added", f"key={P}/flavor to=infiniband")) == 2
    managers = agent.cluster.request("GET", f"/api/v1/nodes/{agent.node}").body["metadata"]
    owners = [entry["manager"] for entry in managers["managedFields"] if SPEED in str(entry)]
    assert owners == ["bwagent"]


def test_sighup_reads_a_right_node_once(agent: Agent) -> None:
    """A Node that is as it should be costs one GET and a check of the policy, and is not written
    to.
    """
    before, version = agent.requests(), agent.version()
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: agent.requests() == before + 2)
    time.sleep(1)
    assert (agent.requests(), agent.version()) == (before + 2, version)


def test_sighup_takes_the_annotation_back(agent: Agent) -> None:
    """An annotation that was edited is written again."""
    agent.cluster.kubectl("annotate", "--overwrite", "node", agent.node, f"{P}/observed={{}}")
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: "boot_id" in agent.metadata()["annotations"][f"{P}/observed"])
    agent.says("taken over from its owner")
    assert lines(agent, "taken over from its owner", f"key={P}/observed owner=kubectl-annotate")
