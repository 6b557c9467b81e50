"""Many Nodes at once, as kubelets report them, each with a Pod of the agent and that Pod's
token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agent.kube import MANAGER
from agent.kube.annotation import Annotation, render
from agent.memory import Fact, FarEnd
from tests.support.kube.cluster import APPLY, ISSUER, Cluster
from tests.support.kube.programs import ClusterError
from tests.support.kube.wire import Clock, Wire
from tests.support.nodes import ANNOTATED, BOOT, KEYS

MACHINE = Path(__file__).parents[3] / "sysfs_fixtures/cw-h100-ibp"  # eight InfiniBand rails
IMAGES = 50  # what a kubelet reports at most (nodeStatusMaxImages)
THREADS = 4
NAMESPACE = ACCOUNT = "bwagent"
NODES = "/api/v1/nodes"
INVENTORY = 18_000  # characters of the site's annotation

K = TypeVar("K")
T = TypeVar("T")
Send = Callable[[str, str, Mapping[str, Any]], dict[str, Any]]  # method, path and body


class Member(NamedTuple):
    """A Node, the token of its Pod, and its labels and annotation."""

    name: str
    token: str
    labels: Mapping[str, str]
    told: Annotation


def populate(cluster: Cluster, count: int, prefix: str) -> list[Member]:
    """Create so many Nodes with their Pods; the manifests are applied already."""

    def member(send: Send, name: str) -> Member:
        send("POST", NODES, node(name))
        account = f"/api/v1/namespaces/{NAMESPACE}"
        uid = send("POST", f"{account}/pods", _pod(name))["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        spec = {"audiences": [ISSUER], "expirationSeconds": 7200, "boundObjectRef": bound}
        answer = send("POST", f"{account}/serviceaccounts/{ACCOUNT}/token", {"spec": spec})
        return Member(
            name, answer["status"]["token"], labels(), Annotation(None, BOOT, interfaces())
        )

    return each(cluster, [f"{prefix}-{number:05}" for number in range(count)], member)


def each(cluster: Cluster, names: Iterable[K], make: Callable[[Send, K], T]) -> list[T]:
    """Return what is made of each name, some at once, over connections that are kept."""

    def send(method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": APPLY if method == "PATCH" else "application/json"}
        status, _, data = wire.send(method, path, cluster.admin, json.dumps(body).encode(), headers)
        if status not in (200, 201):
            raise ClusterError(f"{method} {path}: {data[:500].decode(errors='replace')}")
        return dict(json.loads(data))

    with (
        closing(Wire(cluster.url, cluster.ca, Clock(), kept=True)) as wire,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        return list(pool.map(partial(make, send), names))


def labels() -> dict[str, str]:
    """Return the labels of a machine with eight rails."""
    lines = (MACHINE / "expected.labels").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def interfaces() -> tuple[Fact, ...]:
    return tuple(_interface(number) for number in range(8))


def _interface(number: int) -> Fact:
    """One of them, as full as the agent writes it."""
    guid, switch = f"a088c2030000{number:04x}", f"b0cf0e030000{number:04x}"
    neighbor = FarEnd(switch, f"MF0;L90.1.{number}:MQM9700/U1", str(number))
    pci = f"0000:{0x18 + number:02x}:00.0"
    return Fact(
        *(f"ibp{number}", pci), port_guid=guid, node_guid=guid, gbps=400.0, last_far=neighbor
    )


def node(name: str) -> dict[str, Any]:
    """Return a Node with fields of a kubelet and a site, and a label that selects it."""
    site = {f"site.example/label-{number}": "x" * 20 for number in range(20)}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "scale": "", **site}}
    return {
        "metadata": metadata,
        "status": {**_resources(), "conditions": _conditions(), "images": [*_images()]},
    }


def _resources() -> dict[str, Any]:
    capacity = {
        "cpu": "192",
        "memory": "2113521Mi",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "7Ti",
    }
    return {"capacity": capacity, "allocatable": capacity}


def _conditions() -> list[dict[str, str]]:
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    words = {
        "reason": "KubeletHasSufficientMemory",
        "message": "kubelet has sufficient memory available",
    }
    return [{"type": kind, "status": str(kind == "Ready"), **words, **times} for kind in kinds]


def _images() -> Iterator[dict[str, Any]]:
    for number in range(IMAGES):
        name = f"registry.example/team-{number}/image"
        yield {"names": [f"{name}@sha256:{number:064x}", f"{name}:v1.{number}"], "sizeBytes": 10**9}


def _pod(node: str) -> dict[str, Any]:
    spec = {
        "nodeName": node,
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "containers": [{"name": "none", "image": "none"}],
    }
    return {"metadata": {"name": node}, "spec": spec}


def create_fat(cluster: Cluster, names: list[str], inventory: int = INVENTORY) -> None:
    """Create Nodes with the metadata of a fleet that is managed by many: labels and annotations of
    the site, all labels of the agent, and the managedFields of both.
    """

    def make(send: Send, name: str) -> None:
        found = node(name)
        del found["metadata"]["labels"]["scale"]  # which marks the Nodes of a population
        found["metadata"]["annotations"] = {"site.example/inventory": "x" * inventory}
        send("POST", NODES, found)
        send("PATCH", f"{NODES}/{name}?fieldManager={MANAGER}", _labeled(name))

    each(cluster, names, make)


def _labeled(name: str) -> dict[str, Any]:
    """Return what the agent applies to a Node with eight rails."""
    annotations = {KEYS.annotation: render(ANNOTATED)}
    metadata = {"name": name, "labels": labels(), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def huge_labels() -> dict[str, str]:
    """Return labels that make a Node's metadata longer than 1 MiB, and fit into etcd."""
    prefix = "a-rather-long-name-of-the-subdomain.of-a-site-with-many.example"
    return {f"{prefix}/{'label':-<40}{number}": "v" * 63 for number in range(4500)}
