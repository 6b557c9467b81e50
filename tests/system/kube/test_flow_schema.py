"""manifests/examples/flow-schema.yaml on a real API server: which requests it takes, and how many
seats they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube.agents import Agent, an_agent
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import MANIFESTS
from tests.support.sysfs_on_disk import a_node_without_rdma

EXAMPLE = str(MANIFESTS / "examples/flow-schema.yaml")


@pytest.fixture(scope="module")
def schema(installed: Cluster) -> Iterator[str]:
    """The UID of the example's FlowSchema, once it is in force."""
    uid = created(installed)
    agent = an_agent(installed, "bwagent")
    eventually(installed, "the schema", lambda: taken(installed, agent) == uid)
    yield uid
    installed.kubectl("delete", "-f", EXAMPLE)


def created(cluster: Cluster) -> str:
    """Apply the example, by strict validation and without a warning."""
    flags = ("--server-side", "--validate=strict", "--warnings-as-errors")
    uid = 'jsonpath={.items[?(@.kind=="FlowSchema")].metadata.uid}'
    return cluster.kubectl("apply", *flags, "-f", EXAMPLE, "-o", uid)


def taken(cluster: Cluster, agent: Agent) -> str:
    return cluster.request("GET", agent.path, token=agent.token).flow_schema


def metric(cluster: Cluster, name: str, label: str) -> float:
    """Return the sum of the API server's samples of this name with this label."""
    text = cluster.kubectl("get", "--raw", "/metrics")
    rows = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for labels, value in rows if label in labels.split(","))


def test_the_agents_own_requests(installed: Cluster, schema: str, agent: Agent) -> None:
    """Every request of the account falls under the schema, one that is refused, too."""
    assert taken(installed, agent) == schema
    assert agent.apply({}).flow_schema == schema
    assert agent.merge({"metadata": {"labels": {"foreign": "1"}}}).flow_schema == schema
    events = "/api/v1/namespaces/default/events"
    assert installed.request("POST", events, {}, token=agent.token).flow_schema == schema


def test_requests_of_others(installed: Cluster, schema: str, mighty: Agent) -> None:
    """Neither the administrator's nor those of an account of that name in another namespace."""
    assert mighty.apply({}).flow_schema not in {schema, ""}
    assert installed.request("GET", mighty.path).flow_schema not in {schema, ""}


@pytest.mark.usefixtures("schema")
def test_probe_falls_under_it(installed: Cluster, agent: Agent, tmp_path: Path) -> None:
    """The API server counts the two requests of a real `probe` there."""
    name, label = "apiserver_flowcontrol_dispatched_requests_total", 'flow_schema="bwagent"'
    before = metric(installed, name, label)
    where = ("--sysfs-root", str(a_node_without_rdma(tmp_path)), "--node-name", agent.node)
    done = bwagent("probe", "--no-wait", *where, kubeconfig=installed.kubeconfig(agent.token))
    assert done.returncode == 0, done.stderr
    assert metric(installed, name, label) == before + 2


@pytest.mark.usefixtures("schema")
def test_the_seats(installed: Cluster) -> None:
    """The level has the seats that the example says."""
    name, level = "apiserver_flowcontrol_nominal_limit_seats", 'priority_level="bwagent"'
    assert metric(installed, name, level) == 22
