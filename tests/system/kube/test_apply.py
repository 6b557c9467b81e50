"""Plans applied to a real API server by the agent's account, also where a policy of the site's
refuses labels, or an admission drops and changes them, as a webhook does.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.kube.annotation import parse
from agent.kube.answers import Answer, Failure, Kube, Request
from agent.kube.api import connect
from agent.kube.change import ForeignField, change_to
from agent.kube.managed_fields import owned_labels, state_of
from agent.kube.negotiation import Outcome, negotiate
from agent.kube.nodes import get_node
from tests.support.kube.agents import Agent, an_agent, install
from tests.support.kube.cluster import APPLY, MERGE, Cluster
from tests.support.kube.command import session
from tests.support.kube.controllers import eventually
from tests.support.kube.programs import missing
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, LEAF, PREFIX, SPEED, desired
from tests.support.real_parts import require

ACCOUNT = "appliers"
EXPECTED = f"{PREFIX}/speed.expected"
ALL = {FLAVOR: "infiniband", SPEED: "3200G", LEAF: "L90.1.3", IB_SPEED: "3200G", ACC: "a.1"}

_names = (f"apply-{number}" for number in itertools.count())


@dataclass(slots=True)
class Applier:
    """An agent's connection to the API server, and its Node."""

    cluster: Cluster
    node: str
    kube: Kube
    known: Mapping[str, Any] = field(default_factory=dict)  # the Node as it was seen last

    def get_node(self) -> Mapping[str, Any]:
        found = get_node(self.kube, self.node)
        assert not isinstance(found, Failure), found.text
        self.known = found
        return found

    def apply(self, labels: Mapping[str, str], **changes: Any) -> Outcome:
        """Apply to the Node as of the last request."""
        found = change_to(self.known or self.get_node(), desired(labels, **changes), KEYS)
        outcome = negotiate(found, self.kube)
        self.known = outcome.node or self.known
        return outcome

    def metadata(self) -> dict[str, Any]:
        """Return the Node's metadata, read by the admin."""
        return self.cluster.metadata(self.node)

    def labels(self) -> dict[str, str]:
        return self.cluster.labels(self.node)

    def by_others(self, manager: str, labels: Mapping[str, str | None], kind: str = MERGE) -> None:
        """Change labels as another manager."""
        metadata = {"labels": labels}
        if kind == APPLY:
            answer = self.cluster.apply(self.node, metadata, manager)
        else:
            answer = self.cluster.merge(self.node, metadata, f"?fieldManager={manager}")
        assert answer.status == 200, answer.message


@pytest.fixture(scope="session")
def account(cluster: Cluster) -> str:
    """Create an account that may get and patch Nodes, in a namespace of the same name."""
    cluster.kubectl("create", "namespace", ACCOUNT)
    cluster.kubectl("-n", ACCOUNT, "create", "serviceaccount", ACCOUNT)
    cluster.kubectl("create", "clusterrole", ACCOUNT, "--verb=get,patch", "--resource=nodes")
    binding = (f"--clusterrole={ACCOUNT}", f"--serviceaccount={ACCOUNT}:{ACCOUNT}")
    cluster.kubectl("create", "clusterrolebinding", ACCOUNT, *binding)
    return ACCOUNT


@pytest.fixture
def applier(cluster: Cluster, account: str) -> Applier:
    """Create a Node with labels of the site, and connect as the agent's account."""
    site = {
        "labels": {"site.example/rack": "1", EXPECTED: "3200G"},
        "annotations": {"site.example/owner": "a"},
    }
    name = str(cluster.node(next(_names), **site)["metadata"]["name"])
    token = cluster.token_for_pod_on(name, account, account)
    return Applier(cluster, name, session(cluster.kubeconfig(token)))


def test_a_fresh_node(applier: Applier) -> None:
    """Labels and annotation are on the Node after one request, and nothing is due then; the
    response has the whole metadata, the site's expected half too.
    """
    outcome = applier.apply(ALL)
    assert (outcome.applied, outcome.requests, outcome.failure) == (ALL, 1, None)
    assert outcome.node is not None
    assert outcome.node["metadata"]["labels"] == applier.labels()
    assert outcome.node["metadata"]["labels"][EXPECTED] == "3200G"
    assert not change_to(outcome.node, desired(ALL), KEYS).is_due
    found = applier.get_node()
    assert owned_labels(state_of(found), KEYS) == ALL
    assert parse(found["metadata"]["annotations"][KEYS.annotation], KEYS.annotation)[1] is None
    assert not change_to(found, desired(ALL), KEYS).is_due


def test_others_stay(applier: Applier) -> None:
    """Labels and annotations of other managers stay after every change, below the agent's
    prefix too.
    """
    applier.apply(ALL)
    outcome = applier.apply({FLAVOR: "roce"})
    assert set(outcome.removed) == ALL.keys() - {FLAVOR}
    assert applier.labels() == {FLAVOR: "roce", "site.example/rack": "1", EXPECTED: "3200G"}
    assert applier.metadata()["annotations"]["site.example/owner"] == "a"


def test_drift(applier: Applier) -> None:
    """Labels changed or removed by hand are restored, by a plan made before or after
    it.
    """
    applier.apply(ALL)
    for seen in (False, True):
        applier.by_others("kubectl-edit", {FLAVOR: "x", SPEED: None})
        if seen:
            applier.get_node()
        outcome = applier.apply(ALL)
        assert [(taken.key, taken.manager) for taken in outcome.taken] == [(FLAVOR, "kubectl-edit")]
        assert owned_labels(state_of(applier.get_node()), KEYS) == ALL


@pytest.mark.parametrize("kind", [MERGE, APPLY])
def test_two_managers(applier: Applier, kind: str) -> None:
    """Of two keys that another manager changed, flavor is taken over, and the accelerator's is left
    and reported.
    """
    applier.apply(ALL)
    applier.by_others("nfd-master", {FLAVOR: "x", ACC: "b.2"}, kind)
    outcome = applier.apply(ALL)
    assert outcome.failure is None
    assert outcome.left_alone == (ForeignField(ACC, "b.2", "a.1", ("nfd-master",)),)
    assert outcome.removed == ()
    assert applier.labels() == {**ALL, ACC: "b.2", "site.example/rack": "1", EXPECTED: "3200G"}
    again = change_to(applier.get_node(), desired(ALL), KEYS)
    assert (again.is_due, again.left_alone) == (False, outcome.left_alone)


def test_an_accelerator_that_was_there_before(applier: Applier) -> None:
    """The accelerator's key of another manager is left alone, without a forced request."""
    applier.by_others("nfd-master", {ACC: "b.2"})
    outcome = applier.apply(ALL)
    assert outcome.requests == 1
    assert applier.labels()[ACC] == "b.2"


def test_a_shared_accelerator(applier: Applier) -> None:
    """A value shared with another manager stays when the agent removes it."""
    applier.by_others("nfd-master", {ACC: "a.1"})
    applier.apply(ALL)
    assert owned_labels(state_of(applier.get_node()), KEYS)[ACC] == "a.1"
    outcome = applier.apply({FLAVOR: "infiniband"})
    assert ACC not in outcome.removed
    assert applier.labels()[ACC] == "a.1"
    assert ACC not in owned_labels(state_of(applier.get_node()), KEYS)


def test_a_node_made_anew(applier: Applier) -> None:
    """A deleted or recreated Node is not changed by a plan for the old one."""
    applier.apply(ALL)
    path = f"/api/v1/nodes/{applier.node}"
    applier.cluster.request("DELETE", path)
    gone = applier.apply(ALL)
    assert gone.failure is not None
    applier.cluster.node(applier.node)
    anew = applier.apply(ALL)
    assert anew.failure is not None
    assert (gone.failure.kind, gone.requests) == ("recreated", 1)
    assert (anew.failure.kind, anew.requests) == ("recreated", 1)
    assert applier.labels() == {}
    applier.get_node()
    assert applier.apply(ALL).failure is None


def test_no_such_node(applier: Applier) -> None:
    """A missing Node is a failure of one line."""
    found = get_node(applier.kube, "nowhere")
    assert isinstance(found, Failure)
    assert found.text == 'Node nowhere: not found: nodes "nowhere" not found'


@contextmanager
def provider_keys_refused(cluster: Cluster, node: str, message: str) -> Iterator[None]:
    """Add a policy for one Node against changes of labels below a provider's domain, as a managed
    service may have. At the end policy and Node go: other tests clean all Nodes up.
    """
    labels, before = "object.metadata.?labels.orValue({})", "oldObject.metadata.?labels.orValue({})"
    ours = "key.contains('.coreweave.cloud/')"
    kept = f"key in {before} && {before}[key] == {labels}[key]"
    rule = {"apiGroups": [""], "apiVersions": ["*"], "resources": ["nodes"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["UPDATE"]}]},
        "matchConditions": [{"name": "one", "expression": f"request.name == '{node}'"}],
        "validations": [
            {"expression": f"{labels}.all(key, !{ours} || ({kept}))", "message": message},
            {"expression": f"{before}.all(key, !{ours} || key in {labels})", "message": message},
        ],
    }
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    cluster.create(f"{base}ies", {"metadata": {"name": node}, "spec": spec})
    binding = {"policyName": node, "validationActions": ["Deny"]}
    cluster.create(f"{base}ybindings", {"metadata": {"name": node}, "spec": binding})

    def is_refused() -> bool:
        labels = {f"probe.coreweave.cloud/{time.monotonic_ns()}": "x"}
        return cluster.merge(node, {"labels": labels}).status != 200

    eventually(cluster, "the policy is in force", is_refused)
    yield
    for path in (f"{base}ybindings/{node}", f"{base}ies/{node}", f"/api/v1/nodes/{node}"):
        assert cluster.request("DELETE", path).status == 200


@pytest.mark.parametrize(
    "message", ["labels of *.coreweave.cloud are the provider's", f"{FLAVOR} and its like: no"]
)
def test_a_provider_that_refuses(applier: Applier, message: str) -> None:
    """If a policy refuses the provider's keys, the accelerator's is applied, and what was there
    before stays.
    """
    applier.apply({FLAVOR: "roce", LEAF: "L1"})
    with provider_keys_refused(applier.cluster, applier.node, message):
        outcome = applier.apply(ALL)
        assert outcome.failure is None
        assert outcome.applied == {ACC: "a.1"}
        labels = applier.labels()
        assert (labels[FLAVOR], labels[LEAF], labels[ACC]) == ("roce", "L1", "a.1")
        assert {SPEED, IB_SPEED} <= {refusal.key for refusal in outcome.refused}
        assert all(message in refusal.text for refusal in outcome.refused)
        again = change_to(applier.get_node(), desired(ALL, postponed=outcome.to_postpone), KEYS)
        assert (again.is_due, set(again.postponed) >= {SPEED, IB_SPEED}) == (False, True)


def test_a_rotated_token(
    applier: Applier, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Pod an expired token is read again for the next request; without a new one the request
    fails.
    """
    url = applier.cluster.url.removeprefix("https://")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", url.partition(":")[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url.partition(":")[2])
    shutil.copy(applier.cluster.ca, tmp_path / "ca.crt")
    good = applier.cluster.token_for_pod_on(applier.node, account, account)
    tokens = ["run-out", good, good]
    behind = connect(service_account=str(tmp_path))

    def kube(request: Request) -> Answer:
        (tmp_path / "token").write_text(tokens.pop(0) + "\n" if tokens else "run-out")
        return behind(request)

    applier.kube = kube
    applier.get_node()
    assert applier.apply(ALL).failure is None
    failure = applier.apply({}).failure
    assert failure is not None
    assert failure.text.endswith("rejected the token: Unauthorized")
    assert applier.labels()[FLAVOR] == "infiniband"


def test_no_permission(applier: Applier) -> None:
    """An account without the ClusterRole is one failure with the missing right, and no refusal."""
    applier.get_node()
    applier.cluster.kubectl("create", "serviceaccount", applier.node)
    token = applier.cluster.token_for_pod_on(applier.node, applier.node, "default")
    applier.kube = session(applier.cluster.kubeconfig(token))
    outcome = applier.apply(ALL)
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.requests, outcome.refused) == ("forbidden", 1, ())
    assert 'cannot patch resource "nodes"' in outcome.failure.text
    assert isinstance(get_node(applier.kube, applier.node), Failure)


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
    assert outcome.to_postpone == {FLAVOR, SPEED}
    assert outcome.applied == {SPEED: "9G", LEAF: "leaf-1"}
    assert agent.labels().items() >= outcome.applied.items()
