"""`probe -o yaml` is a manifest that a real API server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.output.formats import FORMATS
from tests.support.machines import MACHINES, document_of

if TYPE_CHECKING:
    from tests.support.kube.cluster import Cluster


def test_the_machines_manifests_are_applied(cluster: Cluster) -> None:
    """`kubectl apply --server-side` puts every label on the Nodes as it is printed."""
    found = [document_of(machine) | {"node": f"yaml-{machine.name}"} for machine in MACHINES]
    for one in found:
        cluster.node(one["node"])
    documents = "---\n".join(FORMATS["yaml"](one) for one in found)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=documents)
    for one in found:
        labels = labels_of(cluster, one["node"])
        assert {key: labels.get(key) for key in one["labels"]} == one["labels"], one["node"]


def labels_of(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the labels of a Node."""
    metadata = cluster.request("GET", f"/api/v1/nodes/{node}").body["metadata"]
    return dict(metadata.get("labels", {}))
