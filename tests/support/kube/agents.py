"""Accounts and tokens of the agent, its Nodes with their boot IDs, an API server with the manifests
applied, and an admission policy that refuses every change of one Node.

Two accounts stand for the agent. The real one has the ClusterRole of the manifests: what it is
allowed, RBAC and the policy allow together. The other one is bound to cluster-admin: what it is
refused, the policy alone refuses.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.kube.cluster import JSON_PATCH, MERGE, Answer, Cluster
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import MANIFESTS

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
        return self.cluster.apply(self.node, metadata, token=self.token, fields=fields)

    def labels(self) -> dict[str, str]:
        return self.cluster.labels(self.node)


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
    probe = an_agent(cluster, "mighty")
    eventually(cluster, "the policies in force", lambda: all(map(denied, forbidden(probe))))


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


HERE = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ELSEWHERE = "5f0492e8-40be-49e6-8717-defbd7b4b902"


def boot(cluster: Cluster, node: str, boot_id: str) -> None:
    """Report a boot ID, as the kubelet does."""
    body = {"status": {"nodeInfo": {"bootID": boot_id}}}
    answer = cluster.request("PATCH", f"/api/v1/nodes/{node}/status", body, kind=MERGE)
    assert answer.status == 200, answer.message


MESSAGE = "no labels here"
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: refuses-{node}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [UPDATE]
        resources: [nodes]
        resourceNames: [{node}]
  validations:
    - {{expression: "false", message: {message}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: refuses-{node}}}
spec: {{policyName: refuses-{node}, validationActions: [Deny]}}
"""


def refusing(node: str) -> str:
    """Return the manifests of the policy for a Node; a fresh policy takes a moment."""
    return POLICY.format(node=node, message=MESSAGE)
