"""A mutating admission that drops and changes labels of the agent, as a webhook does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.kube.answers import Failure
from agent.kube.change import change_to
from agent.kube.negotiation import negotiate
from agent.kube.nodes import get_node
from tests.support.kube.agents import Agent, an_agent, install
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import session
from tests.support.kube.controllers import eventually
from tests.support.kube.programs import missing
from tests.support.nodes import FLAVOR, KEYS, LEAF, SPEED, desired
from tests.support.real_parts import require

VERSION = "admissionregistration.k8s.io/v1beta1"
FLAGS = ("--feature-gates=MutatingAdmissionPolicy=true", f"--runtime-config={VERSION}=true")
LABELS = {FLAVOR: "roce", SPEED: "1G", LEAF: "leaf-1"}
PATH = "'/metadata/labels/' + jsonpatch.escapeKey('{}')"
DROPPED = f"JSONPatch{{op: 'remove', path: {PATH.format(FLAVOR)}}}"
CHANGED = f"JSONPatch{{op: 'replace', path: {PATH.format(SPEED)}, value: '9G'}}"


def mutation(key: str, patch: str) -> dict[str, Any]:
    expression = f"'{key}' in object.metadata.?labels.orValue({{}}) ? [{patch}] : []"
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@pytest.fixture(scope="module")
def mutating() -> Iterator[Cluster]:
    """An API server with the agent's policy that drops one label and gives another a value."""
    require(missing())
    with Cluster(*FLAGS) as cluster:
        install(cluster, "sysfs")
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}
        spec = {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule | {"operations": ["UPDATE"]}]},
            "mutations": [mutation(FLAVOR, DROPPED), mutation(SPEED, CHANGED)],
        }
        name = {"metadata": {"name": "webhook"}}
        cluster.create(f"/apis/{VERSION}/mutatingadmissionpolicies", name | {"spec": spec})
        binding = name | {"spec": {"policyName": "webhook"}}
        cluster.create(f"/apis/{VERSION}/mutatingadmissionpolicybindings", binding)
        probe = an_agent(cluster, "mighty")
        admin = Agent(cluster, probe.node, cluster.admin)

        def mutates() -> bool:
            admin.merge({"metadata": {"labels": {SPEED: "1G"}}})
            return admin.labels()[SPEED] == "9G"

        eventually(cluster, "the mutation", mutates)
        yield cluster


def test_labels_that_are_not_stored_as_sent(mutating: Cluster) -> None:
    """They count as refused, and the others are applied: the policy denies the dropped one by name,
    since nothing is held that is not there; of the changed one nobody but the answer tells.
    """
    agent = an_agent(mutating, "bwagent")
    kube = session(mutating.kubeconfig(agent.token))
    node = get_node(kube, agent.node)
    assert not isinstance(node, Failure)
    outcome = negotiate(change_to(node, desired(LABELS), KEYS), kube)
    assert [one.key for one in outcome.refused] == [FLAVOR, SPEED]
    assert outcome.back_off == {FLAVOR, SPEED}
    assert outcome.applied == {SPEED: "9G", LEAF: "leaf-1"}
    assert agent.labels().items() >= outcome.applied.items()
