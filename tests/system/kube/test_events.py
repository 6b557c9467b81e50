"""Events about the Node by real agents, as `kubectl describe node` shows them: with the account,
the permissions and the policy of an overlay with the component `events`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.kernel_tree import Entries, bdf, rails
from tests.support.kube.agents import MESSAGE, an_agent, refusing
from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import eventually
from tests.support.kube.deployments import Deployment, deployed, deployment, transformed
from tests.support.kube.resident import Agent
from tests.support.sysfs_on_disk import lay


class Site(NamedTuple):
    """An API server with the manifests in it."""

    cluster: Cluster
    made: Deployment

    def agent(self, folder: Path, node: str, tree: Entries, *flags: str, **options: Any) -> Agent:
        """Start an agent with the token of its Pod."""
        token = self.cluster.token_for_pod_on(node, self.made.account, self.made.namespace)
        return Agent(self.cluster, folder, node, tree, "--events", *flags, token=token, **options)

    def described(self, node: str) -> list[str]:
        """Return the lines of the agent's Events in `kubectl describe node`."""
        lines = self.cluster.kubectl("describe", "node", node).splitlines()
        return [line for line in lines if " bwagent " in line]

    def until(self, agent: Agent, *words: str, limit: float = 60.0) -> None:
        """Wait until one of these lines has all of these words."""
        agent.until(
            lambda: any(all(word in line for word in words) for line in self.described(agent.node)),
            limit,
        )

    def events(self, node: str) -> list[dict[str, Any]]:
        path = f"/api/v1/events?fieldSelector=involvedObject.name={node}"
        found: list[dict[str, Any]] = self.cluster.request("GET", path).body["items"]
        return found


@pytest.fixture(scope="module")
def site(fresh: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An overlay with the component, in another namespace."""
    folder = tmp_path_factory.mktemp("overlay")
    of_events = {"components": ["events"], "transformers": ["events/in-default"]}
    fields = {"namespace": "gpu", **of_events}
    made = deployment(transformed(folder, "sysfs", fields))
    with deployed(fresh, made):
        yield Site(fresh, made)


def test_a_port_that_was_lost(site: Site, tmp_path: Path) -> None:
    """Once; again after it was back, in the same Event."""
    node, text = "events-lost", f"ibp3 was at PCI address {bdf(3)}, is gone from the bus"
    site.cluster.node(node)
    with site.agent(tmp_path, node, rails(4)) as agent:
        agent.speaks("1600G")
        agent.lose(3)
        site.until(agent, "Warning", "PortLost", text)
        lay(rails(4), tmp_path)
        agent.look()
        agent.speaks("1600G")
        agent.lose(3)
        site.until(agent, "(x2 over", text)
        written = {"result": "written"}
        agent.until(lambda: agent.metrics().value("bwagent_events_total", **written) == 2)
        agent.metrics().lint()
    (event,) = site.events(node)
    assert (event["metadata"]["namespace"], event["count"]) == ("default", 2)
    assert event["metadata"]["managedFields"][0]["manager"] == "bwagent"


def test_labels_that_are_refused(site: Site, tmp_path: Path) -> None:
    """By another policy; the Event has its words."""
    node = "events-refused"
    site.cluster.node(node)
    site.cluster.kubectl("apply", "-f", "-", stdin=refusing(node))

    def is_refused() -> bool:
        return site.cluster.merge(node, {"labels": {"a": "b"}}, "?dryRun=All").status == 422

    eventually(site.cluster, "the policy is in force", is_refused)
    with site.agent(tmp_path, node, rails(4)) as agent:
        site.until(agent, "Warning", "LabelsRefused", "refused: status 422", MESSAGE)


def test_without_permission(installed: Cluster, tmp_path: Path) -> None:
    """The manifests without the component: labels are as ever, one request fails and is not
    repeated at once, and log and metric say so.
    """
    account = an_agent(installed, "bwagent")
    node, token = account.node, account.token
    with Agent(installed, tmp_path, node, rails(4), "--events", token=token) as agent:
        agent.speaks("1600G")
        agent.lose(3)
        agent.speaks("1200G")
        agent.says("events not written")
        agent.says('cannot create resource \\"events\\"')
        agent.lose(2)
        agent.speaks("800G")
        agent.lose(1)
        agent.speaks("400G")
        agent.until(lambda: agent.metrics().value("bwagent_ready") == 1)
        metrics = agent.metrics()
        assert metrics.value("bwagent_events_total", result="failed") == 1
        assert metrics.value("bwagent_events_total", result="written") == 0
        assert metrics.value("bwagent_api_requests_total", code="403") == 1
