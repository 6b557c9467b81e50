"""The keys that the admission policy permits and refuses, its messages, and the agent's role.

test_attacks.py has the rest of a Node, test_policy_limits.py sizes, test_policy_managers.py
managedFields.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.labels.table import LABELS
from tests.support.kube.agents import ACC, IB, Agent, P, a_node, an_agent, denied
from tests.support.kube.cluster import Answer, Cluster

INTERFACES = ("ibp0", "mlx5_0-3", "mlx5_bond_0-eth2")
OWN = (
    *(f"{P}/{name}" for name in ("flavor", "speed.current", "leaves.current", "leafgroup.current")),
    *(
        f"{P}/neighbors.current.{name}.{end}"
        for name in INTERFACES
        for end in ("device", "port-id", "port-name")
    ),
    *(f"{IB}/{name}" for name in ("speed.current", "leaves.current", "ports.current")),
    *(
        f"{IB}/neighbors.current.{name}.{end}"
        for name in INTERFACES
        for end in ("device", "port-id")
    ),
    ACC,
)
SITES = ("speed.expected", "fabric", "superpod", "rack")  # under both prefixes
FOREIGN = (
    *(f"{prefix}/{name}" for prefix in (P, IB) for name in SITES),
    *(f"{P}/{name}" for name in ("leafgroup", "leafgroup-name", "observed", "speed")),
    *(f"{P}/neighbors.expected.ibp0.{end}" for end in ("device", "port-id", "port-name")),
    *(f"{P}/{name}" for name in ("neighbors.current.ibp0", "flavor-2", "my-flavor")),
    *(f"{P}/{name}" for name in ("leafgroup.expected", "leaves.expected", "ports.current")),
    *(f"{IB}/{name}" for name in ("leaves.expected", "leafgroup.current", "ports.expected")),
    *(f"{IB}/{name}" for name in ("flavor", "speed", "neighbors.current.ibp0.port-name")),
    *(f"{domain}/flavor" for domain in (f"x.{P}", P.replace(".", "x", 1), "coreweave.cloud")),
    *("flavor", "nvidia.com/gpu.clique", "topology.kubernetes.io/zone", "kubernetes.io/hostname"),
    *(f"network.topology.nvidia.com/{name}" for name in ("block", "accelerator-2")),
    "node-role.kubernetes.io/control-plane",
)
FOREIGN_ANNOTATIONS = (
    *(f"{IB}/observed", f"{P}/observed-2", ACC, "site.example/owner"),
    "node.alpha.kubernetes.io/ttl",
)


def merge_label(agent: Agent, key: str, value: str = "1") -> Answer:
    return agent.merge({"metadata": {"labels": {key: value}}})


def apply_label(agent: Agent, key: str, value: str = "1") -> Answer:
    return agent.apply({"labels": {key: value}})


both_ways = pytest.mark.parametrize("label", [merge_label, apply_label])


@pytest.mark.parametrize("by_apply", [True, False])
def test_own_keys(agent: Agent, by_apply: bool) -> None:
    """Every key of the label contract can be set, changed and removed again, on the agent's own
    Node.
    """
    for key in OWN:
        assert apply_label(agent, key).status == 200, key
        assert apply_label(agent, key, "2").status == 200, key
        assert agent.labels()[key] == "2"
        nothing = {"metadata": {"labels": {key: None}}}
        removed = agent.apply({}) if by_apply else agent.merge(nothing)
        assert removed.status == 200, removed.message
        assert key not in agent.labels()


@pytest.mark.parametrize("key", OWN)
def test_own_keys_by_update(mighty: Agent, key: str) -> None:
    """A label that is not applied would not be the agent's to remove: nothing is set or changed by
    another request.
    """
    assert denied(merge_label(mighty, key))
    assert denied(mighty.merge({"metadata": {"labels": {key: "1"}}}, "?fieldManager=bwagent"))
    assert apply_label(mighty, key).status == 200
    answer = merge_label(mighty, key, "2")
    assert denied(answer)
    assert "by server-side apply as manager bwagent" in answer.message


def test_rows_of_the_table(agent: Agent) -> None:
    """Every row of the table in the code has its key admitted by the policy."""
    rows = (row.key.replace("{if}", "ibp0").partition("/") for row in LABELS)
    names = {"P": P, "IB": IB, "ACC": ACC}
    answer = agent.apply(
        {"labels": {names[family] + slash + name: "1" for family, slash, name in rows}}
    )
    assert answer.status == 200, answer.message


def test_the_annotation(agent: Agent) -> None:
    """The agent writes its annotation, and removes it."""
    assert agent.apply({"annotations": {f"{P}/observed": "{}"}}).status == 200
    assert agent.merge({"metadata": {"annotations": {f"{P}/observed": None}}}).status == 200


@both_ways
@pytest.mark.parametrize("key", FOREIGN)
def test_foreign_keys(mighty: Agent, key: str, label: Callable[..., Answer]) -> None:
    """A label of the site, of Kubernetes or of another manager is refused, and the refusal
    names it.
    """
    answer = label(mighty, key, "9")
    assert denied(answer)
    assert key in answer.message
    assert mighty.labels().get(key) != "9"


def test_one_foreign_key_among_own(mighty: Agent) -> None:
    """A request is refused as a whole, and the refusal names the foreign keys only."""
    answer = mighty.apply({"labels": {f"{P}/flavor": "roce", f"{P}/fabric": "1"}})
    assert denied(answer)
    assert f"{P}/fabric" in answer.message
    assert "flavor" not in answer.message
    assert f"{P}/flavor" not in mighty.labels()


@pytest.mark.parametrize("key", FOREIGN_ANNOTATIONS)
def test_foreign_annotations(mighty: Agent, key: str) -> None:
    """The agent may write one annotation only."""
    assert denied(mighty.apply({"annotations": {key: "mine"}}))
    assert denied(mighty.merge({"metadata": {"annotations": {key: "mine"}}}))


@both_ways
def test_another_node(mighty: Agent, label: Callable[..., Answer]) -> None:
    """A token is valid for the Node that its Pod runs on, and a refusal for another one
    names that Node.
    """
    answer = label(replace(mighty, node=a_node(mighty.cluster)), f"{P}/flavor")
    assert denied(answer)
    assert f"its token names ({mighty.node})" in answer.message


def test_a_token_without_a_node(mighty: Agent) -> None:
    """A token that is bound to no Pod changes no Node."""
    unbound = mighty.cluster.token_for_pod_on(None, "bwagent", "mighty")
    answer = merge_label(replace(mighty, token=unbound), f"{P}/flavor")
    assert denied(answer)
    assert "its token names (none)" in answer.message


def test_everybody_else(mighty: Agent) -> None:
    """The policy does not apply to administrators and kubelets."""
    kubectl = mighty.cluster.kubectl
    kubectl("taint", "node", mighty.node, "maintenance=1:NoSchedule")
    kubectl("label", "node", mighty.node, f"{P}/fabric=1")
    kubelet = (f"--as=system:node:{mighty.node}", "--as-group=system:nodes")
    kubectl("annotate", "node", mighty.node, "kubelet=1", *kubelet)
    node = mighty.cluster.request("GET", mighty.path).body
    node["status"]["capacity"] = {"nvidia.com/gpu": "8"}
    kubectl(
        "replace", "--raw", f"{mighty.path}/status", "-f", "-", *kubelet, stdin=json.dumps(node)
    )
    kubectl("patch", "node", mighty.node, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("delete", "node", mighty.node)


def test_role(agent: Agent) -> None:
    """RBAC gives the agent get and patch on nodes, and by what the policy knows it, a resource that
    does not exist; nothing else beyond what every account has.
    """
    ask = agent.cluster.request
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = [
        ask("POST", path, {"spec": {"namespace": "bwagent"}}, token=token).body
        for token in tokens(agent)
    ]
    own, everybodys = (rule["status"]["resourceRules"] for rule in rules)
    extra = [rule for rule in own if rule not in everybodys]
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    known = {"apiGroups": ["bwagent"], "resources": ["agents"], "verbs": ["run"]}
    assert sorted(extra, key=str) == [nodes, known]
    assert ask("GET", "/apis/bwagent").status == 404
    assert ask("GET", "/api/v1/nodes", token=agent.token).status == 403
    assert ask("DELETE", agent.path, token=agent.token).status == 403
    assert agent.merge({"status": {}}, "/status").status == 403


def tokens(agent: Agent) -> tuple[str, str]:
    """Return the agent's token, and that of an account without any permission."""
    nobody = f"nobody-{agent.node}"
    agent.cluster.kubectl("-n", "bwagent", "create", "serviceaccount", nobody)
    return agent.token, agent.cluster.token_for_pod_on(None, nobody, "bwagent")


def test_labels_of_a_tenants_own(tenant: Cluster) -> None:
    """The policy of an overlay with its own label names allows those, and refuses the
    provider's.
    """
    mighty = an_agent(tenant, "mighty")
    tenants, ib = "backend.example.com", "ib.example.com"
    labels = {f"{tenants}/flavor": "1", f"{ib}/speed.current": "1G"}
    labels |= {f"{tenants}/{name}.current": "L90.1.3" for name in ("leaves", "leafgroup")}
    written = {"labels": labels, "annotations": {f"{tenants}/observed": "{}"}}
    assert mighty.apply(written).status == 200
    assert denied(merge_label(mighty, f"{tenants}/fabric"))
    assert denied(merge_label(mighty, f"{P}/flavor"))
    assert denied(apply_label(mighty, f"{P}/flavor"))
    assert denied(apply_label(mighty, f"{IB}/speed.current"))
