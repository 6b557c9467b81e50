"""One cluster for the tests of several files, each of which finds it as it was after its start.

What a file has created is deleted in etcd, and the API server learns of it by its watches: nobody
completes the deletion of a namespace here. Names, policies and kinds of one file so never meet
those of the next.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import eventually

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@contextmanager
def lent(cluster: Cluster) -> Iterator[Cluster]:
    """Lend the cluster for a block; delete what was created there, and wait until the API server
    knows.
    """
    before = keys(cluster)
    yield cluster
    _delete(cluster, before)
    _wait(cluster)
    _delete(cluster, before)


def of_etcd(cluster: Cluster, path: str, body: object) -> dict[str, Any]:
    """Return the reply of the gateway of etcd."""
    data = json.dumps(body).encode()
    url = f"{cluster.etcd_url}/v3/kv/{path}"
    with urllib.request.urlopen(url, data, timeout=30) as reply:  # noqa: S310 - our own server
        found: dict[str, Any] = json.loads(reply.read())
        return found


def encoded(key: str) -> str:
    """Return a key as the gateway of etcd takes it."""
    return base64.b64encode(key.encode()).decode()


def keys(cluster: Cluster) -> set[str]:
    query = {"key": encoded("/registry/"), "range_end": encoded("/registry0"), "keys_only": True}
    return {row["key"] for row in of_etcd(cluster, "range", query)["kvs"]}


def _delete(cluster: Cluster, kept: set[str]) -> None:
    for key in sorted(keys(cluster) - kept):
        of_etcd(cluster, "deleterange", {"key": key})


def _wait(cluster: Cluster) -> None:
    """Wait until a new policy is in force: those that were deleted before it are so no more."""
    name = f"last-{time.monotonic_ns()}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
        "matchConditions": [{"name": "last", "expression": f"request.name == '{name}'"}],
        "validations": [{"expression": "false"}],
    }
    cluster.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    cluster.create(BINDINGS, {"metadata": {"name": name}, "spec": binding})
    path, body = "/api/v1/namespaces/default/configmaps?dryRun=All", {"metadata": {"name": name}}
    eventually(cluster, name, lambda: cluster.request("POST", path, body).status == 422)
