"""The contract of /verdict from the side of its reporter: a real agent's page over HTTP, and the
condition that the reporter of examples/cabling-readiness makes of it on a real API server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kernel_tree import NET, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.readiness import MAX_BODY_BYTES, Reporter, a_reporter, check
from tests.support.kube.resident import IB, Agent, P

A, B = "0000:18:00.0", "0000:19:00.0"
TWO = hca("ibp0", A) | hca("ibp1", B) | {f"{NET}/lo": None}
EXPECTED = {f"{P}/speed.expected": "800G"}
SHORT = ("--verdict-delay", "1")
PORTS = 64


def a_node(cluster: Cluster, name: str, labels: Mapping[str, str]) -> Reporter:
    """Create a Node with an expected half, and its reporter."""
    cluster.node(name, labels=dict(labels))
    return a_reporter(cluster, node=name)


def url(agent: Agent) -> str:
    """Return the address of the page, by the agent's command line."""
    words = agent.process.args
    assert isinstance(words, list)
    return f"http://{words[words.index('--metrics-address') + 1]}/verdict"


def report(reporter: Reporter, agent: Agent) -> tuple[str, str]:
    """Poll once, write the condition; return its status and reason."""
    reporter.report(check(url(agent)))
    condition = reporter.condition()
    return condition["status"], condition["reason"]


def document(reporter: Reporter) -> dict[str, Any]:
    """Return the page that is in the message of the condition."""
    text = reporter.condition()["message"]
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def codes(page: Mapping[str, Any]) -> set[str]:
    return {one["code"] for one in page["findings"]}


def test_a_pull_and_a_repair(gated: Cluster, tmp_path: Path) -> None:
    """A port that goes down closes the gate, with the finding in the message, and opens it when it
    is back.
    """
    reporter = a_node(gated, "verdict-pull", EXPECTED)
    with Agent(gated, tmp_path, reporter.node, TWO, *SHORT) as agent:
        agent.until(lambda: report(reporter, agent) == ("True", "EndpointOK"))
        agent.set("ibp1", "state", "1: DOWN")
        agent.until(lambda: report(reporter, agent) == ("False", "EndpointNotReady"))
        page = document(reporter)
        assert (page["verdict"], page["node"]) == ("fail", reporter.node)
        assert codes(page) == {"speed"}
        agent.set("ibp1", "state", "4: ACTIVE")
        agent.until(lambda: report(reporter, agent) == ("True", "EndpointOK"))


def test_many_findings(gated: Cluster, tmp_path: Path) -> None:
    """A page with a finding for each of 64 ports is what the reporter reads of it, whole, and what
    the API server takes as a message.
    """
    labels = {f"{P}/neighbors.expected.ibp{number}.device": "L90.1.1" for number in range(PORTS)}
    ports = {f"{P}/neighbors.expected.ibp{number}.port-id": "40" for number in range(PORTS)}
    reporter = a_node(gated, "verdict-many", labels | ports | {f"{IB}/speed.expected": "800G"})
    with Agent(gated, tmp_path, reporter.node, TWO, *SHORT) as agent:
        agent.until(lambda: "missing-interface" in check(url(agent)).message)
        assert report(reporter, agent)[0] == "False"
        assert len(reporter.condition()["message"]) < MAX_BODY_BYTES
        missing = {one["interface"] for one in document(reporter)["findings"]}
        assert len(missing) >= PORTS - 2
