"""The scheduler and the controllers that a test names, beside a Cluster.

There are still no machines. A Node of `ready_node` is created with a Ready condition that is never
renewed: the node-lifecycle controller removes the taint of every new Node, and its grace period is
an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.support.kube.cluster import MERGE, Cluster
from tests.support.kube.programs import ClusterError, last_words, running

T = TypeVar("T")

PROGRAMS = ("kube-scheduler", "kube-controller-manager")
# Every Pod needs an account, every account's Pods the certificate, every Node a new look at its
# taints.
ALWAYS = (
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
)
PATIENCE = 120.0  # seconds for something to happen; a probe alone may wait for 65
NEW = "node.kubernetes.io/not-ready"  # the taint that the API server gives every Node


@contextmanager
def controllers(cluster: Cluster, *more: str) -> Iterator[None]:
    """Run the scheduler, the controllers that every Pod needs, and these, until the end of
    the block.
    """
    folder, kubeconfig = cluster.folder, f"--kubeconfig={cluster.kubeconfig()}"
    common = [kubeconfig, "--leader-elect=false", "--secure-port=0"]
    with ExitStack() as stack:
        stack.enter_context(running("kube-scheduler", common, folder))
        stack.enter_context(
            running("kube-controller-manager", [*common, *_controllers(cluster, more)], folder)
        )
        yield


def _controllers(cluster: Cluster, more: Sequence[str]) -> list[str]:
    return [
        f"--controllers={','.join((*ALWAYS, *more))}",
        f"--service-account-private-key-file={cluster.service_account_key}",
        f"--root-ca-file={cluster.ca}",
        *("--node-monitor-grace-period=1h", "--node-startup-grace-period=1h"),
    ]


def eventually(cluster: Cluster, what: str, look: Callable[[], T | None]) -> T:
    """Return the result of `look` as soon as it is true; raises ClusterError if it is not
    in time.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise ClusterError(f"in vain: {what}\n{last_words(cluster.folder)}")
        time.sleep(0.1)
    return found


def define(cluster: Cluster, paths: Iterable[str], *files: Path) -> None:
    """Apply CRDs, and wait until the API server serves the objects at these paths."""
    for file in files:
        cluster.kubectl("apply", "--server-side", "-f", str(file))
    for path in paths:
        is_served = partial(_is_served, cluster, path)
        eventually(cluster, f"{path} is served", is_served)


def _is_served(cluster: Cluster, path: str) -> bool:
    return cluster.request("GET", path).status == 200


def ready_node(
    cluster: Cluster, name: str, *taints: tuple[str, str], labels: Mapping[str, str] | None = None
) -> None:
    """Create a healthy Node with room for Pods, these labels and these taints (key, effect)."""
    spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    metadata = {"name": name, "labels": {"kubernetes.io/os": "linux", **(labels or {})}}
    cluster.create("/api/v1/nodes", {"metadata": metadata, "spec": spec})
    cluster.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": _healthy()}, kind=MERGE)
    eventually(cluster, f"{name} has lost {NEW}", lambda: NEW not in str(taints_of(cluster, name)))


def taints_of(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return list(cluster.request("GET", f"/api/v1/nodes/{node}").body["spec"].get("taints", []))


def _healthy() -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
