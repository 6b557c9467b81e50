"""Scheduling of Pods: the agent's own, in spite of taints, and other Pods, by the agent's
labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.controllers import PROGRAMS, controllers, eventually, ready_node
from tests.support.kube.manifests import MANIFESTS, Object, the
from tests.support.kube.programs import missing
from tests.support.kube.worker import DAEMON_SETS, PODS
from tests.support.machines import MACHINES
from tests.support.real_parts import require

MACHINE = {path.name: path for path in MACHINES}
SITE = {"backend.coreweave.cloud/fabric": "fabric-1", "backend.coreweave.cloud/superpod": "2"}
GPU = {"node.coreweave.cloud/class": "gpu"}
TAINTS = {
    "gpu": ("is_gpu", "PreferNoSchedule"),
    "reserved": ("node.coreweave.cloud/reserved", "NoSchedule"),
    "locked": ("sunk.coreweave.com/lock", "NoExecute"),
    "nvidia": ("nvidia.com/gpu", "NoSchedule"),
}
BROKEN = ("site.example/broken", "NoSchedule")


@pytest.fixture(scope="module")
def cloud(fresh: Cluster) -> Iterator[Cluster]:
    """Start a cluster with a scheduler, the overlay for CoreWeave, and its taints on Nodes
    of their own.
    """
    require(missing(*PROGRAMS))
    with controllers(fresh, "daemonset-controller"):
        for name, taint in TAINTS.items():
            ready_node(fresh, name, taint, labels=GPU)
        ready_node(fresh, "everything", *TAINTS.values(), labels=GPU)
        ready_node(fresh, "broken", BROKEN, labels=GPU)
        ready_node(fresh, "cpu", ("is_cpu_compute", "NoSchedule"))
        fresh.kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "coreweave"))
        yield fresh


def intolerant() -> Object:
    """Return the overlay's DaemonSet without its tolerations and without the host port."""
    made = the("DaemonSet", "coreweave")
    labels = {"app.kubernetes.io/name": "intolerant"}
    pod = deepcopy(made["spec"]["template"]["spec"])
    del pod["tolerations"]
    for container in pod["containers"]:
        del container["ports"]
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "intolerant"}, "spec": spec}


def placed(cluster: Cluster, daemon_set: str) -> set[str]:
    """Return the Nodes of a DaemonSet's Pods, once each desired Pod has its Node."""
    pods = eventually(
        cluster, f"the Pods of {daemon_set} are placed", lambda: _settled(cluster, daemon_set)
    )
    return {pod["spec"]["nodeName"] for pod in pods}


def _settled(cluster: Cluster, daemon_set: str) -> list[Object]:
    status = cluster.request("GET", f"{DAEMON_SETS}/{daemon_set}").body.get("status", {})
    selector = f"app.kubernetes.io/name={daemon_set}"
    pods = cluster.request("GET", f"{PODS}?labelSelector={selector}").body["items"]
    ours = [pod for pod in pods if pod["spec"].get("nodeName")]
    wanted = status.get("desiredNumberScheduled", 0)
    return ours if wanted == len(ours) == len(pods) == status.get("currentNumberScheduled") else []


def test_the_agent_tolerates_the_clouds_taints(cloud: Cluster) -> None:
    """The agent's Pods are on every GPU Node with any of the cloud's taints, and on no
    other Node.
    """
    assert placed(cloud, "bwagent") == {*TAINTS, "everything"}


def test_without_tolerations_taints_keep_it_off(cloud: Cluster) -> None:
    """The same DaemonSet without tolerations gets the Node with `is_gpu` only, whose taint
    is soft.
    """
    cloud.create(DAEMON_SETS, intolerant())
    assert placed(cloud, "intolerant") == {"gpu"}


def test_affinity_finds_what_the_agent_labelled(cloud: Cluster) -> None:
    """The example's Pod stays Pending while no Node fits, and goes to the one that a real probe
    labeled 3200G.
    """
    for name, site in {"slow": SITE, "fast": SITE, "elsewhere": None}.items():
        ready_node(cloud, name, labels=site)
    probe(cloud, "slow", "a100-old-driver")
    probe(cloud, "elsewhere", "dgx-h100")
    trainer = submit(cloud)
    assert "didn't match Pod's node affinity" in eventually(
        cloud, "is Pending", lambda: refusal(cloud, trainer)
    )
    probe(cloud, "fast", "dgx-h100")
    placed_on = eventually(cloud, "a Node", lambda: pod(cloud, trainer)["spec"].get("nodeName"))
    assert placed_on == "fast"


def submit(cluster: Cluster) -> str:
    """Create the Pod of examples/affinity.yaml; return its name."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    eventually(
        cluster, "the account is there", lambda: cluster.request("GET", account).status == 200
    )
    example = yaml.safe_load((MANIFESTS / "examples/affinity.yaml").read_text())
    return str(cluster.create("/api/v1/namespaces/default/pods", example)["metadata"]["name"])


def pod(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.request("GET", f"/api/v1/namespaces/default/pods/{name}").body


def refusal(cluster: Cluster, name: str) -> str | None:
    """Return the scheduler's reason for not placing a Pod; None before its first attempt."""
    status = pod(cluster, name)["status"]
    assert status["phase"] == "Pending"
    conditions = status.get("conditions", [])
    refused = (each["message"] for each in conditions if each["reason"] == "Unschedulable")
    return next(refused, None)


def probe(cluster: Cluster, node: str, machine: str) -> None:
    """Label a Node with the agent's labels for one of the machines."""
    where = ("--node-name", node, "--sysfs-root", str(MACHINE[machine] / "sys"))
    flags = ("--no-wait", "--source", "rdma", *where)
    done = bwagent("probe", *flags, kubeconfig=cluster.kubeconfig())
    assert not done.returncode, done.stderr
