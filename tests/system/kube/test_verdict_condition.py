"""The contract of /verdict from the side of its reporter: a real agent's page over HTTP, and the
condition that the reporter of examples/cabling-readiness makes of it on a real API server.
"""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kernel_tree import HOME, NET, Entries, hca
from tests.support.kube.readiness import MAX_BODY_BYTES, Reporter, a_reporter, check
from tests.support.kube.resident import IB, LIMIT, Agent, P

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

A, B = "0000:18:00.0", "0000:19:00.0"
TWO = hca("ibp0", A) | hca("ibp1", B) | {f"{NET}/lo": None}
PULLED = TWO | {f"{HOME}/{B}/infiniband/ibp1/ports/1/state": b"1: DOWN\n"}
EXPECTED = {f"{P}/speed.expected": "800G"}
SHORT, LONG = ("--verdict-delay", "1"), ("--verdict-delay", str(2 * LIMIT))
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


def test_a_node_without_a_plan(gated: Cluster, tmp_path: Path) -> None:
    """404 closes the gate; the message says why."""
    reporter = a_node(gated, "verdict-none", {})
    with Agent(gated, tmp_path, reporter.node, TWO, *SHORT) as agent:
        agent.speaks("800G")
        agent.until(
            lambda: (
                report(reporter, agent)[0] == "False"
                and "no-plan" in reporter.condition()["message"]
            )
        )
        assert document(reporter)["reason"]


def until_answered(agent: Agent) -> tuple[list[str], str]:
    """Poll until there is a verdict; return what came before, and its condition's status."""
    before: list[str] = []
    deadline = time.monotonic() + LIMIT
    while True:
        found = check(url(agent))
        if found.reason == "EndpointOK" or '"verdict": "fail"' in found.message:
            return before, found.status
        before.append(found.message)
        assert time.monotonic() < deadline, agent.log.read_text()
        time.sleep(0.05)


def is_remembered(agent: Agent) -> bool:
    """Return True if the Node has a verdict."""
    return '"verdict"' in agent.metadata().get("annotations", {}).get(f"{P}/observed", "")


@pytest.mark.parametrize(
    ("ports", "status"), [pytest.param(TWO, "True", marks=pytest.mark.sweep), (PULLED, "False")]
)
def test_a_roll_out(gated: Cluster, tmp_path: Path, ports: Entries, status: str) -> None:
    """The next agent answers with the last verdict as soon as it has read the Node, long before
    its own first one; until then nobody answers, or 404.
    """
    reporter = a_node(gated, f"verdict-roll-out-{status.lower()}", EXPECTED)
    with Agent(gated, tmp_path, reporter.node, ports, *SHORT) as agent:
        agent.until(lambda: is_remembered(agent))
        assert until_answered(agent) == ([], status)
        agent.stop()
        assert report(reporter, agent) == ("False", "EndpointConnectionError")
    with Agent(gated, tmp_path, reporter.node, ports, *LONG) as agent:
        before, found = until_answered(agent)
        assert found == status
        assert all("pending" in one or "answered" not in one for one in before)


def test_an_agent_that_hangs(gated: Cluster, tmp_path: Path) -> None:
    """A check that gets no answer ends at its time-out and closes the gate; the next one opens
    it.
    """
    reporter = a_node(gated, "verdict-hangs", EXPECTED)
    with Agent(gated, tmp_path, reporter.node, TWO, *SHORT) as agent:
        agent.until(lambda: report(reporter, agent)[0] == "True")
        agent.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        found = check(url(agent), timeout=1.0)
        assert (found.status, found.reason) == ("False", "EndpointConnectionError")
        assert 1.0 <= time.monotonic() - began < LIMIT
        agent.process.send_signal(signal.SIGCONT)
        agent.until(lambda: report(reporter, agent)[0] == "True")


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


def mount(folder: Path, plan: str) -> Path:
    """Put a plan into a volume as a kubelet does: a new folder, and a symlink that is replaced."""
    data = folder / f"..{time.monotonic_ns()}"
    data.mkdir(parents=True)
    (data / "plan.csv").write_text(plan)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    if not (folder / "plan.csv").is_symlink():
        (folder / "plan.csv").symlink_to("..data/plan.csv")
    return folder / "plan.csv"


def test_a_plan_that_is_corrected(gated: Cluster, tmp_path: Path) -> None:
    """A node without expected labels and with a mounted plan: a wrong row closes the gate, and a
    new version of the ConfigMap opens it.
    """
    reporter, header = a_node(gated, "verdict-plan", {}), "node,interface,device,port-id,mark\n"
    plan = mount(tmp_path / "plan", f"{header}{reporter.node},ibp1,L90.1.1,11,\n")
    variable = {"BWAGENT_RUN_PLAN": str(plan)}
    with Agent(gated, tmp_path, reporter.node, PULLED, *SHORT, environment=variable) as agent:
        agent.until(lambda: report(reporter, agent)[0] == "False" and has_page(reporter, "fail"))
        assert codes(document(reporter)) == {"missing"}
        mount(tmp_path / "plan", f"{header}{reporter.node},ibp0,L90.1.1,11,link-state-only\n")
        agent.until(lambda: report(reporter, agent) == ("True", "EndpointOK"), 3 * LIMIT)


def has_page(reporter: Reporter, verdict: str) -> bool:
    """Return True if the condition's message is a page with this verdict."""
    return f'"verdict": "{verdict}"' in reporter.condition()["message"]
