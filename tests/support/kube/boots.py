"""Boot IDs in the status of Nodes."""

from __future__ import annotations

from pathlib import Path

from tests.support.kube.cluster import MERGE, Cluster

HERE = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ELSEWHERE = "5f0492e8-40be-49e6-8717-defbd7b4b902"


def boot(cluster: Cluster, node: str, boot_id: str) -> None:
    """Report a boot ID, as the kubelet does."""
    body = {"status": {"nodeInfo": {"bootID": boot_id}}}
    answer = cluster.request("PATCH", f"/api/v1/nodes/{node}/status", body, kind=MERGE)
    assert answer.status == 200, answer.message
