"""The attacks on Nodes and Events (tests/support/kube/attacks.py), with the Pod's token, on every
overlay as it is and under namePrefix, nameSuffix and namespace, without a transformer being listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.node_events import EventReason, NodeEvent, name_for
from tests.support.kube.agents import MIGHTY, Agent, P, a_node, denied, mighty_account
from tests.support.kube.attacks import AS_BWAGENT, ATTACKS, EVENTS, TRACELESS, Attack, Scene, scene
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.deployments import (
    TRANSFORMERS,
    Deployment,
    deployed,
    deployment,
    transformed,
)
from tests.support.kube.manifests import MANIFESTS, OVERLAYS
from tests.support.kube.programs import missing
from tests.support.real_parts import require

# One overlay for each policy; test_overlays_with_one_policy has the others.
SAME = {"full": "sysfs", "lldp": "sysfs"}
POLICIES = [overlay for overlay in OVERLAYS if overlay not in SAME]

# The deployments that meet every attack in every run; the others meet one of each kind, and every
# attack in `nox -s sweep`.
WHOLE = [("sysfs", "as it is"), ("coreweave", "all three")]
OTHERS = [
    one for overlay in POLICIES for name in TRANSFORMERS if (one := (overlay, name)) not in WHOLE
]
OF_EACH_KIND = (
    *("taint", "node role", "set a foreign label by apply", "set the expected half"),
    *("remove all annotations", "add a finalizer", "unbound token", "reset"),
    *("Event about another Node", "patch a kubelet's Event"),
)
REST = [name for name in ATTACKS if name not in OF_EACH_KIND]


@pytest.fixture(scope="module")
def server(fresh: Cluster) -> Cluster:
    """An API server in which there is one deployment after the other."""
    return fresh


@pytest.fixture(scope="module", params=[*WHOLE, *OTHERS], ids=" ".join)
def installed_as(
    request: pytest.FixtureRequest, server: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """An overlay under a transformer, with its policy in force."""
    overlay, name = request.param
    folder = tmp_path_factory.mktemp("overlay")
    made = deployment(transformed(folder, overlay, TRANSFORMERS[name]))
    with deployed(server, made):
        yield made


@pytest.fixture(scope="module")
def pod(server: Cluster, installed_as: Deployment) -> Scene:
    """The Pod's token, with the permissions of the manifests."""
    return scene(server, installed_as.account, installed_as.namespace, installed_as.prefix)


@pytest.fixture(scope="module")
def mighty(server: Cluster, installed_as: Deployment) -> Scene:
    """A token with all permissions of RBAC, restricted by the policy alone."""
    return scene(server, installed_as.account, MIGHTY, installed_as.prefix)


@pytest.fixture(scope="module")
def before(pod: Scene, mighty: Scene) -> dict[str, str]:
    """The versions of all Nodes and Events before the attacks."""
    return pod.versions() | mighty.versions()


def refused(attack: Attack, pod: Scene, mighty: Scene, before: dict[str, str]) -> None:
    """The policy refuses it, and neither a Node nor an Event has changed."""
    assert attack(pod).status in (403, 422)
    answer = attack(mighty)
    assert denied(answer), answer
    now = mighty.versions()
    changed = dict(now.items() ^ before.items())
    before.clear()
    before.update(now)
    assert not changed


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_attack(pod: Scene, mighty: Scene, before: dict[str, str], name: str) -> None:
    """Every policy refuses one attack of each kind, under every transformer."""
    refused(ATTACKS[name], pod, mighty, before)


@pytest.mark.parametrize("name", REST)
@pytest.mark.parametrize("installed_as", WHOLE, indirect=True, ids=" ".join)
def test_every_attack(pod: Scene, mighty: Scene, before: dict[str, str], name: str) -> None:
    """Every policy refuses all others, under one transformer."""
    refused(ATTACKS[name], pod, mighty, before)


@pytest.mark.sweep
@pytest.mark.parametrize("name", REST)
@pytest.mark.parametrize("installed_as", OTHERS, indirect=True, ids=" ".join)
def test_every_attack_again(pod: Scene, mighty: Scene, before: dict[str, str], name: str) -> None:
    """Every policy refuses them under the other transformers."""
    refused(ATTACKS[name], pod, mighty, before)


def test_the_agent_itself(server: Cluster, installed_as: Deployment) -> None:
    """The account of the Pod has its permissions wherever it is, and the policy permits its work:
    labels and annotation set, changed, taken over from another manager and removed.
    """
    pod = scene(server, installed_as.account, installed_as.namespace, installed_as.prefix)
    agent, cluster = pod.agent, pod.cluster
    assert cluster.request("GET", agent.path, token=agent.token).status == 200
    keys = [pod.own, f"{pod.prefix}/speed.current", f"{pod.prefix}/neighbors.current.m0.port-name"]
    for value in ("1", "2"):
        written = {"labels": dict.fromkeys(keys, value), "annotations": {pod.observed: value}}
        assert agent.apply(written).status == 200
    cluster.kubectl("label", "--overwrite", "node", agent.node, *(f"{key}=mine" for key in keys))
    assert agent.apply(written).status == 200
    assert agent.labels()[pod.own] == "2"
    assert agent.apply({}).status == 200
    assert not set(keys) & agent.labels().keys()


def test_the_agents_events(mighty: Scene) -> None:
    """The policy permits what the agent writes, whatever the names in it are."""
    node, now = mighty.agent.node, 1_800_000_000.0
    event = NodeEvent(EventReason.PORT_LOST, "東京 " * 341, now, now, 1, name=name_for(node, 1))
    created = mighty.ask("POST", EVENTS + AS_BWAGENT, event.request(node)["body"])
    assert created.status == 201, created.message
    event.exists, event.count = True, 2
    path = f"{EVENTS}/{event.name}"
    assert mighty.ask("PATCH", path + AS_BWAGENT, event.request(node)["body"]).status == 200
    assert mighty.cluster.request("GET", path).body["count"] == 2
    assert mighty.cluster.request("DELETE", path).status == 200


@pytest.fixture(scope="module")
def somebody_else(server: Cluster) -> str:
    """An account with all permissions of RBAC that no policy is about."""
    mighty_account(server, "operator")
    return "operator"


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_by_somebody_else(server: Cluster, somebody_else: str, name: str) -> None:
    """Where the policy does not apply an attack succeeds: nothing else refuses it."""
    made = scene(server, somebody_else, MIGHTY, P)
    before = made.versions()
    answer = ATTACKS[name](made)
    assert not denied(answer)
    assert name in TRACELESS or made.versions() != before, answer


def test_the_check_of_the_readme(server: Cluster, installed_as: Deployment) -> None:
    """The command in the README of the manifests is refused by the policy."""
    lines = (MANIFESTS / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("kubectl label node"))
    names = {"NAMESPACE": installed_as.namespace, "ACCOUNT": installed_as.account}
    for placeholder, name in {"NODE": a_node(server), **names}.items():
        line = line.replace(placeholder, name)
    with pytest.raises(KubectlError, match="ValidatingAdmissionPolicy"):
        server.kubectl(*line.split()[1:])


def test_a_pod_of_the_agent(server: Cluster, installed_as: Deployment, somebody_else: str) -> None:
    """The policy is about every account that a Pod with the agent's name uses."""
    node = a_node(server)
    name = installed_as.the("ValidatingAdmissionPolicy")["metadata"]["name"]
    token = server.token_for_pod_on(node, somebody_else, MIGHTY, f"{name}-")
    assert denied(Agent(server, node, token).merge({"spec": {"unschedulable": True}}))


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize(("overlay", "same"), SAME.items())
def test_overlays_with_one_policy(tmp_path: Path, overlay: str, same: str, name: str) -> None:
    """Overlays that differ in the Pod only have one account, role and policy."""
    require(missing())
    fields = TRANSFORMERS[name]
    found, expected = (deployment(transformed(tmp_path, each, fields)) for each in (overlay, same))
    assert found == expected
