"""A roll-out over two real machines: settings that the admission policy does not know stop it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.kube.confinement import Container
from tests.support.kube.machine import Machine
from tests.support.kube.manifests import IMAGE, Object
from tests.support.kube.worker import DAEMON_SETS, GPU, PODS, SPEED, Worker

OTHER = "other.example.com"
SECOND = "worker-2"
REVISION = "controller-revision-hash"
PREFIX = "BWAGENT_LABEL_PREFIX"


@pytest.fixture
def two(worker: Worker) -> Iterator[Worker]:
    """The worker and a second machine, both with a ready agent of the manifests' settings."""
    with Machine(worker.cluster, SECOND, IMAGE, GPU):
        worker.roll_out("sysfs")
        # An agent that is not available yet is replaced whatever maxUnavailable says.
        worker.until("both agents are available", lambda: available(worker) == 2)
        yield worker
        worker.remove()
    worker.cluster.request("DELETE", f"/api/v1/nodes/{SECOND}")


def status(worker: Worker) -> Object:
    found: Object = worker.cluster.request("GET", f"{DAEMON_SETS}/bwagent").body["status"]
    return found


def ready(worker: Worker) -> int:
    return int(status(worker).get("numberReady", 0))


def available(worker: Worker) -> int:
    """Return the number of agents that have been ready for minReadySeconds."""
    return int(status(worker).get("numberAvailable", 0))


def updated(worker: Worker) -> list[Object]:
    """Return the Pods of the last revision."""
    pods: list[Object] = worker.cluster.request("GET", PODS).body["items"]
    last = newest(worker)
    return [one for one in pods if one["metadata"]["labels"].get(REVISION) == last]


def newest(worker: Worker) -> str:
    """Return the last revision of the DaemonSet."""
    path = "/apis/apps/v1/namespaces/bwagent/controllerrevisions"
    revisions = worker.cluster.request("GET", path).body["items"]
    last = max(revisions, key=lambda one: one["revision"])
    return str(last["metadata"]["labels"][REVISION])


def refused_page(worker: Worker) -> str:
    """Return /readyz of the one updated agent, once it has been refused; else ""."""
    pods = [one for one in updated(worker) if one["status"].get("phase") == "Running"]
    if len(pods) != 1:
        return ""
    try:
        code, text = worker.page("/readyz", pods[0])
    except OSError:  # it does not serve yet
        return ""
    return text if code == 503 and "refused" in text else ""


def test_a_forgotten_transformer_stops_at_the_first_node(two: Worker) -> None:
    """The first agent of a new prefix is refused and never ready; the second node keeps its agent.
    With the transformer the roll-out goes on.
    """
    two.update("sysfs", {PREFIX: OTHER}, in_policy=False)
    two.until("the API server refuses its keys", lambda: refused_page(two))
    assert f"{OTHER}/speed.current" in refused_page(two).splitlines()
    for _ in range(10):
        time.sleep(0.5)
        assert (ready(two), len(updated(two))) == (1, 1)
    two.update("sysfs", {PREFIX: OTHER}, in_policy=True)
    two.until("the policy has the prefix, and the first agent is ready", lambda: repaired(two))
    two.until("the second one follows", lambda: len(updated(two)) == ready(two) == 2)
    assert two.labels(f"{OTHER}/") == SPEED


def repaired(worker: Worker) -> bool:
    """Send SIGHUP to the updated agents; True once one of them is ready."""
    for one in updated(worker):
        for state in one["status"].get("containerStatuses", []):
            if state.get("ready"):
                return True
            if "running" in state["state"]:
                name = state["containerID"].removeprefix("containerd://")
                os.kill(Container(name).first(), signal.SIGHUP)
    return False
