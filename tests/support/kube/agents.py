"""Accounts and tokens of the agent, its Nodes, and an API server with the manifests applied.

Two accounts stand for the agent. The real one has the ClusterRole of the manifests: what it is
allowed, RBAC and the policy allow together. The other one is bound to cluster-admin: what it is
refused, the policy alone refuses.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.kube.cluster import APPLY, JSON_PATCH, MERGE, Answer, Cluster
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.programs import ClusterError

P, IB, ACC = (
    "backend.coreweave.cloud",
    "ib.coreweave.cloud",
    "network.topology.nvidia.com/accelerator",
)
MIGHTY = "mighty"  # the namespace of the accounts with all permissions

_POLICY = re.compile(r"ValidatingAdmissionPolicy '[^']*bwagent[^']*'")
_names = (f"node-{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True)
class Agent:
    """A token, and the Node that its owner changes."""

    cluster: Cluster
    node: str
    token: str

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"

    def merge(self, body: object, suffix: str = "") -> Answer:
        """Send a merge patch; `suffix` is a subresource or a query."""
        return self.cluster.request("PATCH", self.path + suffix, body, kind=MERGE, token=self.token)

    def edit(self, operation: object, subresource: str = "") -> Answer:
        """Send a JSON patch of one operation."""
        return self.cluster.request(
            "PATCH", self.path + subresource, [operation], kind=JSON_PATCH, token=self.token
        )

    def apply(self, metadata: dict[str, Any], **fields: object) -> Answer:
        """Apply server-side as manager `bwagent`."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, **metadata},
            **fields,
        }
        path = f"{self.path}?fieldManager=bwagent&force=true"
        return self.cluster.request("PATCH", path, body, kind=APPLY, token=self.token)

    def labels(self) -> dict[str, str]:
        return dict(self.cluster.request("GET", self.path).body["metadata"].get("labels", {}))


def denied(answer: Answer) -> bool:
    """True if the policy of the manifests refused the request, for no other reason."""
    return answer.status == 422 and _POLICY.search(answer.message) is not None


def a_node(cluster: Cluster, prefix: str = P) -> str:
    """Create a Node with fields of several managers."""
    return str(
        cluster.node(
            next(_names),
            labels={"site.example/rack": "1", f"{prefix}/speed.expected": "3200G"},
            annotations={"site.example/owner": "a"},
            finalizers=["site.example/drain"],
            ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "owner", "uid": "0-0-0"}],
        )["metadata"]["name"]
    )


def install(cluster: Cluster, overlay: str) -> None:
    """Apply an overlay, add an account with all permissions of RBAC, and wait until the policy is
    in force.
    """
    cluster.kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / overlay))
    mighty_account(cluster, "bwagent")
    probe, deadline = an_agent(cluster, "mighty"), time.monotonic() + 120
    while not all(map(denied, forbidden(probe))):
        if time.monotonic() > deadline:
            raise ClusterError("the policies are not in force")
        time.sleep(0.1)


def mighty_account(cluster: Cluster, account: str) -> None:
    """Make an account in namespace `mighty` with all permissions of RBAC."""
    rbac = "rbac.authorization.k8s.io"
    who = {"name": account, "namespace": MIGHTY}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MIGHTY}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": who},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{MIGHTY}-{account}"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **who}],
        },
    ]
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))


def forbidden(agent: Agent) -> tuple[Answer, Answer]:
    """Return the answers to two requests that each of the policies forbids."""
    label = {"metadata": {"labels": {"foreign": str(time.monotonic_ns())}}}
    node = {"kind": "Node", "name": agent.node, "uid": agent.node}
    event = {"metadata": {"generateName": "foreign-"}, "reason": "Foreign", "involvedObject": node}
    events = "/api/v1/namespaces/default/events?dryRun=All"
    answer = agent.cluster.request("POST", events, event, token=agent.token)
    return agent.merge(label), answer


def an_agent(cluster: Cluster, namespace: str) -> Agent:
    """Return an agent with a token of its Pod, on a Node of its own."""
    node = a_node(cluster)
    return Agent(cluster, node, cluster.token_for_pod_on(node, "bwagent", namespace))
