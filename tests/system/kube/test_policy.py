"""Permissions of the agent's token, on a real API server with the real manifests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.labels.table import LABELS
from tests.support.kube.agents import ACC, IB, Agent, P, a_node, an_agent, denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kube.cluster import Answer, Cluster

INTERFACES = ("ibp0", "mlx5_0-3", "mlx5_bond_0-eth2")
OWN = (
    *(f"{P}/{name}" for name in ("flavor", "speed.current")),
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
FOREIGN = (
    *(
        f"{P}/{name}"
        for name in ("speed.expected", "fabric", "leafgroup", "leafgroup-name", "superpod", "rack")
    ),
    *(f"{P}/neighbors.expected.ibp0.{end}" for end in ("device", "port-id", "port-name")),
    *(
        f"{P}/{name}"
        for name in ("observed", "speed", "neighbors.current.ibp0", "flavor-2", "my-flavor")
    ),
    *(
        f"{IB}/{name}"
        for name in (
            "speed.expected",
            "leaves.expected",
            "ports.expected",
            "fabric",
            "superpod",
            "rack",
        )
    ),
    *(f"{IB}/{name}" for name in ("flavor", "speed", "neighbors.current.ibp0.port-name")),
    *(
        "x.backend.coreweave.cloud/flavor",
        "backendxcoreweave.cloud/flavor",
        "coreweave.cloud/flavor",
        "flavor",
    ),
    *(
        "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/accelerator-2",
        "nvidia.com/gpu.clique",
    ),
    *(
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
        "node-role.kubernetes.io/control-plane",
    ),
)
FOREIGN_ANNOTATIONS = (
    f"{IB}/observed",
    f"{P}/observed-2",
    ACC,
    "site.example/owner",
    "node.alpha.kubernetes.io/ttl",
)

# Changes beside labels and annotations, as JSON patches of a Node made by `a_node`.
ELSEWHERE = {
    "cordon": {"op": "add", "path": "/spec/unschedulable", "value": True},
    "add a taint": {
        "op": "add",
        "path": "/spec/taints/-",
        "value": {"key": "mine", "effect": "NoExecute"},
    },
    "remove the taints": {"op": "remove", "path": "/spec/taints"},
    "become a provider's": {"op": "add", "path": "/spec/providerID", "value": "cloud://1"},
    "take a Pod network": {"op": "add", "path": "/spec/podCIDR", "value": "10.9.0.0/24"},
    "remove a finalizer": {"op": "remove", "path": "/metadata/finalizers"},
    "add a finalizer": {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/mine"},
    "remove the owner": {"op": "remove", "path": "/metadata/ownerReferences"},
    "change the owner": {
        "op": "replace",
        "path": "/metadata/ownerReferences/0/uid",
        "value": "1-2-3",
    },
    "remove a foreign label": {"op": "remove", "path": "/metadata/labels/site.example~1rack"},
    "change a foreign label": {
        "op": "replace",
        "path": "/metadata/labels/site.example~1rack",
        "value": "2",
    },
    "remove the expected half": {"op": "remove", "path": f"/metadata/labels/{P}~1speed.expected"},
    "remove all labels": {"op": "remove", "path": "/metadata/labels"},
    "remove a foreign annotation": {
        "op": "remove",
        "path": "/metadata/annotations/site.example~1owner",
    },
    "change a foreign annotation": {
        "op": "replace",
        "path": "/metadata/annotations/site.example~1owner",
        "value": "b",
    },
    "remove all annotations": {"op": "remove", "path": "/metadata/annotations"},
    "set generateName": {"op": "add", "path": "/metadata/generateName", "value": "mine-"},
}


def merge_label(agent: Agent, key: str, value: str = "1") -> Answer:
    return agent.merge({"metadata": {"labels": {key: value}}})


def apply_label(agent: Agent, key: str, value: str = "1") -> Answer:
    return agent.apply({"labels": {key: value}})


both_ways = pytest.mark.parametrize("label", [merge_label, apply_label])


@both_ways
def test_own_keys(agent: Agent, label: Callable[..., Answer]) -> None:
    """Every key of the label contract can be set, changed and removed again, on the agent's own
    Node.
    """
    for key in OWN:
        assert label(agent, key).status == 200, key
        assert label(agent, key, "2").status == 200, key
        assert agent.labels()[key] == "2"
        removed = (
            agent.apply({})
            if label is apply_label
            else agent.merge({"metadata": {"labels": {key: None}}})
        )
        assert removed.status == 200, removed.message
        assert key not in agent.labels()


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


def test_a_large_node(installed: Cluster) -> None:
    """The policy's cost stays within the API server's budget on a Node with very many labels."""
    installed.node(
        "large", labels={f"site.example/label-{number}": "x" * 63 for number in range(300)}
    )
    agent = Agent(installed, "large", installed.token_for_pod_on("large", "bwagent", "bwagent"))
    ends = ("device", "port-id", "port-name")
    keys = [f"{P}/neighbors.current.mlx5_{port}.{end}" for port in range(64) for end in ends]
    answer = agent.apply({"labels": dict.fromkeys(keys, "x" * 63)})
    assert answer.status == 200, answer.message


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


@pytest.mark.parametrize("operation", ELSEWHERE.values(), ids=ELSEWHERE)
def test_elsewhere(mighty: Agent, operation: dict[str, Any]) -> None:
    """Spec, status, taints, owners, finalizers and other managers' fields stay as they are."""
    assert denied(mighty.edit(operation))


def test_elsewhere_by_apply(mighty: Agent) -> None:
    """Server-side apply with force takes no field of another manager."""
    assert denied(mighty.apply({}, spec={"unschedulable": True}))
    assert denied(mighty.apply({}, spec={"taints": [{"key": "mine", "effect": "NoExecute"}]}))
    assert denied(mighty.apply({"finalizers": ["example.com/mine"]}))


def test_status(mighty: Agent) -> None:
    """The status is the kubelet's: refused as a subresource, even for an own label, and otherwise
    without effect.
    """
    eighty = {"capacity": {"nvidia.com/gpu": "80"}}
    assert denied(mighty.merge({"status": eighty}, "/status"))
    assert denied(mighty.merge({"metadata": {"labels": {f"{P}/flavor": "roce"}}}, "/status"))
    for answer in (mighty.merge({"status": eighty}), mighty.apply({}, status=eighty)):
        assert "capacity" not in answer.body["status"]


def test_update(mighty: Agent) -> None:
    """PUT is bound by the same rules as PATCH."""
    node = mighty.cluster.request("GET", mighty.path).body
    node["metadata"]["labels"][f"{P}/flavor"] = "roce"
    assert mighty.cluster.request("PUT", mighty.path, node, token=mighty.token).status == 200
    node = mighty.cluster.request("GET", mighty.path).body
    node["spec"]["unschedulable"] = True
    assert denied(mighty.cluster.request("PUT", mighty.path, node, token=mighty.token))


def test_create_and_delete(mighty: Agent) -> None:
    """No Node is created or deleted, not even the agent's own."""
    ask = mighty.cluster.request
    assert denied(ask("POST", "/api/v1/nodes", {"metadata": {"name": "new"}}, token=mighty.token))
    assert denied(replace(mighty, node="new").apply({"labels": {f"{P}/flavor": "roce"}}))
    assert denied(ask("DELETE", mighty.path, token=mighty.token))
    assert denied(
        ask("DELETE", "/api/v1/nodes?labelSelector=site.example/rack", token=mighty.token)
    )


def test_proxy(mighty: Agent) -> None:
    """The kubelet's API is not reached through the API server."""
    assert denied(mighty.cluster.request("GET", f"{mighty.path}/proxy/pods", token=mighty.token))


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
    """RBAC gives the agent get and patch on nodes, and nothing else beyond what every account
    has.
    """
    ask = agent.cluster.request
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = [
        ask("POST", path, {"spec": {"namespace": "bwagent"}}, token=token).body
        for token in tokens(agent)
    ]
    own, everybodys = (rule["status"]["resourceRules"] for rule in rules)
    extra = [rule for rule in own if rule not in everybodys]
    assert extra == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
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
    assert merge_label(mighty, "backend.example.com/flavor").status == 200
    assert merge_label(mighty, "ib.example.com/speed.current").status == 200
    assert (
        mighty.merge({"metadata": {"annotations": {"backend.example.com/observed": "{}"}}}).status
        == 200
    )
    assert denied(merge_label(mighty, "backend.example.com/fabric"))
    assert denied(merge_label(mighty, f"{P}/flavor"))
    assert denied(merge_label(mighty, f"{IB}/speed.current"))
