"""Overlays under kustomize's transformers, and what each of them means for the security of Nodes:
its account, permissions and admission policy, on a real API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.kube.agents import (
    MIGHTY,
    Agent,
    a_node,
    denied,
    forbidden,
    mighty_account,
)
from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import Object, only, parsed, rendered, site_overlay

# Fields of a kustomization, each as an operator adds it to an overlay of his own.
TRANSFORMERS: dict[str, dict[str, str]] = {
    "as it is": {},
    "namePrefix": {"namePrefix": "prod-"},
    "nameSuffix": {"nameSuffix": "-prod"},
    "namespace": {"namespace": "gpu"},
    "all three": {"namePrefix": "a", "nameSuffix": "b", "namespace": "gpu"},
}
KINDS = (
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The objects of one overlay that decide about access to Nodes."""

    objects: tuple[Object, ...]

    def the(self, kind: str) -> Object:
        """Return the only object of this kind that is not about Events."""
        return only(kind, self.objects)

    @property
    def account(self) -> str:
        return str(self.the("ServiceAccount")["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.the("ServiceAccount")["metadata"]["namespace"])

    @property
    def prefix(self) -> str:
        """The label prefix, as the policy has it."""
        rows = self.the("ValidatingAdmissionPolicy")["spec"]["variables"]
        return next(str(row["expression"]) for row in rows if row["name"] == "prefix").strip("'")


def transformed(folder: Path, overlay: str, fields: Mapping[str, object]) -> str:
    """Return an overlay of one's own over one of the project's, rendered: with these fields."""
    return rendered(str(site_overlay(folder, overlay, fields)))


def deployment(text: str) -> Deployment:
    """Return the deployment that rendered manifests describe."""
    return Deployment(tuple(row for row in parsed(text) if row["kind"] in KINDS))


@contextmanager
def deployed(cluster: Cluster, deployment: Deployment) -> Iterator[None]:
    """Apply a deployment and wait until its policy is in force; delete it but for its namespace,
    and wait until the policy is not.

    The account of the same name in namespace `mighty` has all permissions of RBAC.
    """
    mighty_account(cluster, deployment.account)
    node = a_node(cluster)
    probe = Agent(cluster, node, cluster.token_for_pod_on(node, deployment.account, MIGHTY))
    stdin = yaml.safe_dump_all(deployment.objects)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=stdin)
    _wait(probe, in_force=True)
    yield
    # Nobody completes the deletion of a namespace here.
    rest = [each for each in deployment.objects if each["kind"] != "Namespace"]
    cluster.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(rest))
    _wait(probe, in_force=False)


def _wait(probe: Agent, *, in_force: bool) -> None:
    """Wait until both policies are in force, that about Nodes and that about Events; or neither."""
    words = f"the policies' being in force is {in_force}"
    eventually(
        probe.cluster, words, lambda: all(denied(one) is in_force for one in forbidden(probe))
    )
