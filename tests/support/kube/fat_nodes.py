"""Nodes with the metadata of a fleet that is managed by many: labels and annotations of the site,
all labels of the agent, and the managedFields of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from agent.kube import MANAGER
from agent.kube.annotation import render
from tests.support.kube import population
from tests.support.kube.clock import Clock
from tests.support.kube.cluster import APPLY, Cluster
from tests.support.kube.programs import ClusterError
from tests.support.kube.wire import Wire
from tests.support.nodes import ANNOTATED, KEYS

INVENTORY = 18_000  # characters of the site's annotation
NODES = "/api/v1/nodes"


def create(cluster: Cluster, names: list[str], inventory: int = INVENTORY) -> None:
    """Create Nodes, and apply the agent's labels to them."""
    with (
        closing(Wire(cluster.url, cluster.ca, Clock(), kept=True)) as wire,
        ThreadPoolExecutor(population.THREADS) as pool,
    ):

        def make(name: str) -> None:
            found = population.node(name)
            del found["metadata"]["labels"]["scale"]  # which marks the Nodes of a population
            found["metadata"]["annotations"] = {"site.example/inventory": "x" * inventory}
            _send(wire, cluster.admin, "POST", NODES, found)
            applied = f"{NODES}/{name}?fieldManager={MANAGER}"
            _send(wire, cluster.admin, "PATCH", applied, _labeled(name))

        list(pool.map(make, names))


def _labeled(name: str) -> dict[str, Any]:
    """Return what the agent applies to a Node with eight rails."""
    annotations = {KEYS.annotation: render(ANNOTATED)}
    metadata = {"name": name, "labels": population.labels(), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _send(wire: Wire, token: str, method: str, path: str, body: Mapping[str, Any]) -> None:
    headers = {"Content-Type": APPLY if method == "PATCH" else "application/json"}
    status, _, data = wire.send(method, path, token, json.dumps(body).encode(), headers)
    if status not in (200, 201):
        raise ClusterError(f"{method} {path}: {data[:500].decode(errors='replace')}")


def huge_labels() -> dict[str, str]:
    """Return labels that make a Node's metadata longer than 1 MiB, and fit into etcd."""
    prefix = "a-rather-long-name-of-the-subdomain.of-a-site-with-many.example"
    return {f"{prefix}/{'label':-<40}{number}": "v" * 63 for number in range(4500)}
