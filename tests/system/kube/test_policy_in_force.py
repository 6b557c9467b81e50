"""The check that the admission policy is in force, by real API servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest

from agent.kube.api import connect
from agent.kube.policy import FOREIGN, PolicyState, check_policy
from tests.support.kube import agents
from tests.support.kube.agents import MESSAGE, Agent, a_node, refusing
from tests.support.kube.cluster import Cluster
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS
from tests.support.switch import wait_for

LIMIT = 120.0  # seconds; one check may take 25 until it is given up
becomes = partial(wait_for, patience=LIMIT)  # a change of policies takes a moment
POLICY = str(MANIFESTS / "base/policy.yaml")
BINDING = "validatingadmissionpolicybinding"
NODES = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "site-labels"},
    "webhooks": [
        {
            "name": "labels.site.example",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/labels"},
            "rules": [NODES],
        }
    ],
}


@pytest.fixture
def bare(spare: Cluster) -> Iterator[Cluster]:
    """An API server with the agent's account and role, and without the policy."""
    with lent(spare) as cluster:
        folder = MANIFESTS / "base/agent"
        for name in ("namespace.yaml", "rbac.yaml"):
            cluster.kubectl("apply", "--server-side", "-f", str(folder / name))
        yield cluster


def checked(agent: Agent) -> PolicyState:
    """Check with the agent's token; the Node stays as it is.

    A check without an answer is repeated: on a busy machine one may take longer than it may.
    """
    kube = connect(str(agent.cluster.kubeconfig(agent.token)))
    before = agent.cluster.request("GET", agent.path).body
    deadline = time.monotonic() + LIMIT
    while (found := check_policy(kube, agent.node)).status is None:
        assert time.monotonic() < deadline, found
    assert agent.cluster.request("GET", agent.path).body == before
    assert FOREIGN not in agent.labels()
    return found


def test_a_policy_in_force(agent: Agent, mighty: Agent) -> None:
    """Its denial names it, with the agent's role or with every permission."""
    assert checked(agent).in_force is True
    assert checked(mighty).in_force is True
    assert "ValidatingAdmissionPolicy 'bwagent'" in checked(agent).text


def test_an_account_that_the_policy_does_not_restrict(installed: Cluster) -> None:
    """The administrator's label would be accepted."""
    admin = agents.Agent(installed, a_node(installed), installed.admin)
    assert checked(admin).in_force is False


def test_an_account_without_the_role(installed: Cluster) -> None:
    """RBAC's refusal comes before any policy, and proves none."""
    installed.kubectl("create", "namespace", "without-role")
    installed.kubectl("--namespace=without-role", "create", "serviceaccount", "bwagent")
    found = checked(agents.an_agent(installed, "without-role"))
    assert (found.in_force, found.status) == (None, 403)


def test_another_policy(bare: Cluster) -> None:
    """Its refusal proves nothing about the agent's, which is not there."""
    agent = agents.an_agent(bare, "bwagent")
    bare.kubectl("apply", "--server-side", "-f", "-", stdin=refusing(agent.node))
    becomes(lambda: checked(agent).in_force is None)
    assert MESSAGE in checked(agent).text


def test_a_webhook_that_does_not_answer(bare: Cluster) -> None:
    """The API server's refusal on its behalf proves nothing."""
    agent = agents.an_agent(bare, "bwagent")
    bare.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(WEBHOOK))
    becomes(lambda: checked(agent).in_force is None)
    assert "labels.site.example" in checked(agent).text


def test_a_policy_that_comes_and_goes(bare: Cluster) -> None:
    """Without the policy, or without its binding, the label would be accepted."""
    agent = agents.an_agent(bare, "bwagent")
    assert checked(agent).in_force is False
    bare.kubectl("apply", "--server-side", "-f", POLICY)
    becomes(lambda: checked(agent).in_force is True)
    bare.kubectl("delete", BINDING, "bwagent")
    becomes(lambda: checked(agent).in_force is False)
    bare.kubectl("apply", "--server-side", "-f", POLICY)
    becomes(lambda: checked(agent).in_force is True)
    audit = {"spec": {"validationActions": ["Audit"]}}
    bare.kubectl("patch", BINDING, "bwagent", "--type=merge", "-p", json.dumps(audit))
    becomes(lambda: checked(agent).in_force is False)
