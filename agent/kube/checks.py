"""The prerequisites for reading and labeling the node's own Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.check import Step, absent, missing, there
from agent.kube.errors import Failure
from agent.kube.negotiation import get_node
from agent.kube.policy import INSTALL, check_policy

if TYPE_CHECKING:
    from agent.check import Check
    from agent.kube.transport import Kube

COMMANDS = {  # by the kind of a failure
    "configuration": "export KUBECONFIG=FILE (or --no-cluster, where there is none)",
    "forbidden": "kubectl auth can-i get node/{node}",
    "not-found": "kubectl get nodes (then --node-name NAME)",
    "unauthorized": "kubectl auth whoami",
}
OTHER = "kubectl get --raw /readyz"


def check(kube: Kube, name: str) -> Check:
    """Get the Node."""
    found = get_node(kube, name)
    if isinstance(found, Failure):
        command = COMMANDS.get(found.kind, OTHER).format(node=name)
        return missing(Step.CLUSTER, found.text, command)
    return there(f"Node {name} can be read")


def check_admission(kube: Kube, name: str) -> Check:
    """Try a change of the Node that the admission policy has to refuse, as a dry run."""
    found = check_policy(kube, name)
    if found.in_force is None:
        return absent(f"admission policy not checked: {found.text}")
    if found.in_force:
        return there("admission policy in force")
    return missing(Step.CLUSTER, f"admission policy not in force: {found.text}", INSTALL)
