"""The overlays on a real machine: kubelet and containerd start the built image as the manifests say.

A Job per overlay runs `bwagent probe` in the Pod that the overlay's DaemonSet would make: its security context, its
volumes, its account and token. What is different is listed in `job`. The host has no RDMA devices, so the Pod is shown
a small sysfs with one RoCE device; the netdev of that device is real, and a real lldpd at its other end is the switch.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.agents import Agent, an_agent, denied, install
from tests.kube.cluster import MERGE, Cluster
from tests.kube.controllers import PROGRAMS, controllers, eventually
from tests.kube.machine import machine
from tests.kube.machine import missing as no_machine
from tests.kube.manifests import MANIFESTS, OVERLAYS, pod, settings
from tests.kube.programs import missing
from tests.live import switch
from tests.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.manifests import Object

NODE = "worker"
NETDEV = f"bwk{os.getpid()}"
LEAF, PORT = "leaf-7", "swp1"
GPU = {"node.coreweave.cloud/class": "gpu"}  # where the overlay for CoreWeave goes
SYSFS = {
    "class/infiniband/rxe0/node_type": "1: CA",
    "class/infiniband/rxe0/ports/1/state": "4: ACTIVE",
    "class/infiniband/rxe0/ports/1/phys_state": "5: LinkUp",
    "class/infiniband/rxe0/ports/1/link_layer": "Ethernet",
    "class/infiniband/rxe0/ports/1/rate": "2.5 Gb/sec (1X SDR)",
    "class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": NETDEV,
    f"class/net/{NETDEV}/operstate": "up",
    f"class/net/{NETDEV}/speed": "10000",
}
SPEED = {"flavor": "roce", "speed.current": "10G"}
NEIGHBOR = {
    "neighbors.current.rxe0.device": LEAF,
    "neighbors.current.rxe0.port-id": PORT,
    "neighbors.current.rxe0.port-name": PORT,
}


@dataclass(frozen=True, slots=True)
class Worker:
    """A machine of the cluster, where its Pods' logs are, and the sysfs that its agents are shown."""

    cluster: Cluster
    logs: Path
    sysfs: Path
    mighty: Agent


@pytest.fixture(scope="module")
def leaf() -> Iterator[switch.Leaf]:
    """A switch at the other end of a netdev of this host."""
    require(switch.missing())
    with switch.Leaf(LEAF) as leaf:
        leaf.ip("link", "add", PORT, "type", "veth", "peer", "name", NETDEV, "netns", str(os.getpid()))
        leaf.lldpd.configure("lldp", "portidsubtype", "ifname")
        subprocess.run(["ip", "link", "set", NETDEV, "up"], check=True)
        leaf.ip("link", "set", PORT, "up")
        switch.wait_for(lambda: leaf.is_up(PORT))
        leaf.plugged()
        yield leaf


@pytest.fixture(scope="module")
def worker(leaf: switch.Leaf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A cluster with one machine, on which Jobs are run."""
    assert leaf.is_up(PORT)
    require(missing(*PROGRAMS) or no_machine())
    sysfs = tmp_path_factory.mktemp("machine")
    for name, text in SYSFS.items():
        (sysfs / name).parent.mkdir(parents=True, exist_ok=True)
        (sysfs / name).write_text(f"{text}\n")
    image = pod("sysfs")["spec"]["containers"][0]["image"]
    with Cluster() as cluster, controllers(cluster, "job-controller"), machine(cluster, NODE, image, GPU) as folder:
        install(cluster, "sysfs")
        yield Worker(cluster, folder / "pods", sysfs, an_agent(cluster, "mighty"))


def job(worker: Worker, name: str, overlay: str, values: dict[str, str]) -> Object:
    """The overlay's Pod as a Job that probes once with these settings.

    Beside the command: the image is there, kube-proxy is not, and the devices are those of `SYSFS`.
    """
    template = pod(overlay)["spec"]
    host, port = worker.cluster.url.removeprefix("https://").split(":")
    given = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "BWAGENT_PROBE_SYSFS_ROOT": "/machine"}
    given |= {key.replace("_RUN_", "_PROBE_"): value for key, value in values.items()}
    (container,) = template["containers"]
    container = {key: value for key, value in container.items() if key not in {"livenessProbe", "readinessProbe"}} | {
        "args": ["probe", "-o", "json"],
        "imagePullPolicy": "Never",
        "env": [*container["env"], *({"name": key, "value": value} for key, value in given.items())],
        "volumeMounts": [*container["volumeMounts"], {"name": "machine", "mountPath": "/machine", "readOnly": True}],
    }
    volume = {"name": "machine", "hostPath": {"path": str(worker.sysfs), "type": "Directory"}}
    changes = {"containers": [container], "volumes": [*template["volumes"], volume], "restartPolicy": "Never"}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": template | changes}}}


def probe(worker: Worker, name: str, overlay: str, values: dict[str, str]) -> dict[str, Any]:
    """The report that the Job's agent printed, when it ended well."""
    jobs = "/apis/batch/v1/namespaces/bwagent/jobs"
    worker.cluster.create(jobs, job(worker, name, overlay, values))

    def end() -> str | None:
        return ended(worker.cluster.request("GET", f"{jobs}/{name}").body["status"])

    status = eventually(worker.cluster, f"{name} ends", end)
    assert status == "Complete", printed(worker, name, "stderr")
    report: dict[str, Any] = json.loads(printed(worker, name, "stdout"))
    return report


def ended(status: dict[str, Any]) -> str | None:
    """Complete or Failed; None while it runs."""
    ends = (each["type"] for each in status.get("conditions", []) if each["status"] == "True")
    return next((end for end in ends if end in {"Complete", "Failed"}), None)


def printed(worker: Worker, name: str, stream: str) -> str:
    """What a Job's container wrote; each line of its log begins with the time, the stream and a flag."""
    (log,) = worker.logs.glob(f"bwagent_{name}-*/bwagent/0.log")
    lines = (line.split(" ", 3) for line in log.read_text().splitlines())
    return "\n".join(text for _, where, _, text in lines if where == stream)


def labels(worker: Worker, prefix: str) -> dict[str, str]:
    """The Node's labels below a prefix."""
    found = worker.cluster.request("GET", f"/api/v1/nodes/{NODE}").body["metadata"]["labels"]
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


def use(worker: Worker, overlay: str) -> str:
    """Apply an overlay to a Node without labels, wait until its policy is in force, and return its labels' prefix."""
    apply = ("apply", "--server-side", "--force-conflicts", "-k")
    worker.cluster.kubectl(*apply, str(MANIFESTS / "overlays" / overlay))
    prefix = f"{settings(overlay)['BWAGENT_RUN_LABEL_PREFIX']}/"
    eventually(worker.cluster, f"the policy allows {prefix}", lambda: in_force(worker.mighty, prefix))
    gone = {"metadata": {"labels": {f"{prefix}{name}": None for name in labels(worker, prefix)}}}
    worker.cluster.request("PATCH", f"/api/v1/nodes/{NODE}", gone, kind=MERGE)
    return prefix


def in_force(mighty: Agent, prefix: str) -> bool:
    """The policy lets an agent change a label below this prefix, and no other one."""
    good, bad = ({"metadata": {"labels": {key: os.urandom(4).hex()}}} for key in (f"{prefix}flavor", "foreign"))
    return mighty.merge(good).status == 200 and denied(mighty.merge(bad))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_labels_its_node(worker: Worker, overlay: str) -> None:
    """With the overlay's privileges the agent sees what the overlay promises; with its token it labels its Node."""
    prefix = use(worker, overlay)
    report = probe(worker, overlay, overlay, settings(overlay))
    expected = SPEED if overlay == "sysfs" else SPEED | NEIGHBOR
    assert report["node"] == NODE
    assert labels(worker, prefix) == expected, report


def test_a_missing_privilege_is_named(worker: Worker) -> None:
    """Asked for neighbours without NET_RAW, the agent labels what it can, and says what is missing."""
    prefix = use(worker, "sysfs")
    values = settings("sysfs") | {"BWAGENT_RUN_SOURCE": "rdma lldp"}
    report = probe(worker, "unprivileged", "sysfs", values)
    assert [(each["interface"], each["reason"]) for each in report["missing_neighbors"]] == [("rxe0", "not-permitted")]
    assert any("CAP_NET_RAW" in problem["text"] for problem in report["problems"])
    assert labels(worker, prefix) == SPEED
