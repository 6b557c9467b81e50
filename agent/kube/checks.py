"""The prerequisites for reading the node's own Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.check import Step, missing, there
from agent.kube.apply import get_node
from agent.kube.errors import Failure

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
