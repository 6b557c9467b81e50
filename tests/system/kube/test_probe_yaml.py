"""`probe -o yaml` is a manifest that a real API server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.output.formats import FORMATS
from tests.support.machines import MACHINES, document_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster


@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
def test_a_machines_manifest_is_applied(cluster: Cluster, machine: Path) -> None:
    """`kubectl apply --server-side` puts every label on the Node as it is printed."""
    found = document_of(machine) | {"node": f"yaml-{machine.name}"}
    cluster.node(found["node"])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=FORMATS["yaml"](found))
    labels = (
        cluster.request("GET", f"/api/v1/nodes/{found['node']}").body["metadata"].get("labels", {})
    )
    assert {key: labels.get(key) for key in found["labels"]} == found["labels"]
