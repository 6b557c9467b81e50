"""Scheduling beside the gate of manifests/examples/cabling-readiness: its taint, which the tests
set in place of node-readiness-controller, keeps jobs off a node, and neither the agent nor the
reporter.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import PROGRAMS, controllers, eventually, ready_node
from tests.support.kube.manifests import MANIFESTS, parsed
from tests.support.kube.programs import missing
from tests.support.kube.readiness import RECIPE, install_gate
from tests.support.real_parts import require

RULE = yaml.safe_load((RECIPE / "gate" / "rule.yaml").read_text())["spec"]
GATED = RULE["nodeSelector"]["matchLabels"]
TAINT = (RULE["taint"]["key"], RULE["taint"]["effect"])
PODS = "/api/v1/namespaces/{}/pods?labelSelector=app.kubernetes.io/name={}"
JOB = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def closed(fresh: Cluster) -> Iterator[Cluster]:
    """Start a cluster with one Node, which is closed, and the recipe."""
    require(missing(*PROGRAMS))
    with controllers(fresh, "daemonset-controller"):
        ready_node(fresh, "closed", TAINT, labels=GATED)
        fresh.kubectl("apply", "--server-side", "-k", str(RECIPE / "agent"))
        install_gate(fresh)
        yield fresh


def nodes(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Return the Nodes on which the Pods with this name have been placed."""
    pods = cluster.request("GET", PODS.format(namespace, name)).body["items"]
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


@pytest.mark.parametrize(
    ("namespace", "name"), [("bwagent", "bwagent"), ("cabling-readiness", "cabling-reporter")]
)
def test_who_opens_the_gate_passes_it(closed: Cluster, namespace: str, name: str) -> None:
    """Agent and reporter start on a closed Node: else none would open it after a roll-out."""
    eventually(closed, name, lambda: nodes(closed, namespace, name) == ["closed"])


def test_the_overlay_alone_does_not_pass(closed: Cluster) -> None:
    """The agent's DaemonSet without the component gets no Pod on a closed Node."""
    without = "outside"
    text = closed.kubectl("kustomize", str(MANIFESTS / "overlays" / "sysfs"))
    (made,) = (one for one in parsed(text) if one["kind"] == "DaemonSet")
    labels = {"app.kubernetes.io/name": without}
    made["metadata"]["name"], made["spec"]["selector"] = without, {"matchLabels": labels}
    made["spec"]["template"]["metadata"]["labels"] = labels
    path = "/apis/apps/v1/namespaces/bwagent/daemonsets"
    closed.create(path, made)
    eventually(closed, "is seen", lambda: "observedGeneration" in status(closed, path, without))
    assert status(closed, path, without)["desiredNumberScheduled"] == 0


def status(cluster: Cluster, path: str, name: str) -> dict[str, object]:
    found: dict[str, object] = cluster.request("GET", f"{path}/{name}").body["status"]
    return found


def test_a_job_waits_until_the_gate_opens(closed: Cluster) -> None:
    """A job stays Pending for the taint, and gets the Node when it is gone."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    eventually(closed, "account", lambda: closed.request("GET", account).status == 200)
    job = {"containers": [{"name": "job", "image": "job"}]}
    closed.create(JOB, {"metadata": {"name": "job"}, "spec": job})
    eventually(closed, "is Pending", lambda: "untolerated taint" in refusal(closed))
    closed.kubectl("taint", "node", "closed", f"{TAINT[0]}:{TAINT[1]}-")
    eventually(closed, "is placed", lambda: "nodeName" in the_job(closed)["spec"])


def the_job(cluster: Cluster) -> dict[str, dict[str, object]]:
    return cluster.request("GET", f"{JOB}/job").body


def refusal(cluster: Cluster) -> str:
    """Return what the scheduler says of the job."""
    return str(the_job(cluster)["status"].get("conditions", ""))
