"""The overlays and examples, put before a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.kube.cluster import Cluster
from tests.support.kube.deployments import TRANSFORMERS, transformed
from tests.support.kube.manifests import MANIFESTS, OVERLAYS, pod

DRY_RUN = (
    *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
    *("--warnings-as-errors", "-f", "-"),
)


# Every overlay as it is, and every transformer over one.
ONCE = [
    (overlay, name)
    for overlay in OVERLAYS
    for name in TRANSFORMERS
    if name == "as it is" or overlay == "full"
]
EVERY = [(overlay, name) for overlay in OVERLAYS for name in TRANSFORMERS]


@pytest.mark.parametrize(
    ("overlay", "name"),
    [pytest.param(*one, marks=() if one in ONCE else pytest.mark.sweep) for one in EVERY],
)
def test_overlay_is_accepted(installed: Cluster, tmp_path: Path, overlay: str, name: str) -> None:
    """The API server takes every object of every overlay, under each transformer, with strict
    validation and without a warning.
    """
    fields = TRANSFORMERS[name]
    namespace = fields.get("namespace", "bwagent")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    installed.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    installed.kubectl(*DRY_RUN, stdin=transformed(tmp_path, overlay, fields))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pod_security_level(installed: Cluster, overlay: str) -> None:
    """The namespace admits the Pod, and the next stricter level of Pod Security would not."""
    admit = "/api/v1/namespaces/{}/pods?dryRun=All"
    assert installed.request("POST", admit.format("bwagent"), pod(overlay)).status == 201
    name = f"baseline-{overlay}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    installed.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    installed.kubectl("-n", name, "create", "serviceaccount", "bwagent")
    refusal = installed.request("POST", admit.format(name), pod(overlay))
    assert refusal.status == 403
    assert "baseline" in refusal.message


@pytest.mark.parametrize("example", ["affinity", "spread-by-leaf"])
def test_example_is_accepted(installed: Cluster, example: str) -> None:
    """The API server takes the examples."""
    installed.kubectl("create", "namespace", example)
    installed.kubectl("-n", example, "create", "serviceaccount", "default")
    file = str(MANIFESTS / "examples" / f"{example}.yaml")
    installed.kubectl("-n", example, "apply", "--server-side", "--dry-run=server", "-f", file)
