"""The overlays on a real machine: kubelet and containerd run the built image by the
manifests (worker.py).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from agent.labels.table import Naming
from tests.support import stand_in_nvml
from tests.support.kube.confinement import root_is_read_only, status
from tests.support.kube.manifests import MANIFESTS, NO_IMAGE, OVERLAYS
from tests.support.kube.programs import free_ports
from tests.support.kube.worker import NEIGHBOR, SPEED, Worker
from tests.support.real_parts import require

NET_RAW = 1 << 13  # include/uapi/linux/capability.h
FILTERED = "2"  # seccomp(2), SECCOMP_MODE_FILTER
CONFINED = {"sysfs": 0, "lldp": NET_RAW}  # the others are privileged
ONE_OF_EACH = ("lldp", "full")  # confined and privileged


@pytest.mark.parametrize(
    "overlay",
    [
        pytest.param(name, marks=() if name in ONE_OF_EACH else pytest.mark.sweep)
        for name in OVERLAYS
    ],
)
def test_overlay_labels_its_node(worker: Worker, overlay: str) -> None:
    """With the overlay's privileges the agent finds the devices that the overlay promises; with its
    token it labels its Node.
    """
    prefix = worker.roll_out(overlay)
    expected = SPEED if overlay == "sysfs" else SPEED | NEIGHBOR
    worker.until(
        f"{overlay} is ready", lambda: worker.is_ready() and worker.labels(prefix) == expected
    )
    privileges(worker.container().first(), CONFINED.get(overlay))


def test_an_overlay_by_itself(worker: Worker) -> None:
    """Without the name of an image the Pod says so at once, and nothing is pulled."""
    worker.remove()
    overlay = str(MANIFESTS / "overlays/lldp")
    worker.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", overlay)
    worker.until("the image has no name", lambda: "InvalidImageName" in str(worker.state()))
    assert NO_IMAGE in str(worker.state())
    worker.remove()


@pytest.mark.parametrize("name", ["registry.example.com/bwagent:0.2.0", "Registry/UPPER"])
def test_a_name_that_is_none(worker: Worker, tmp_path: Path, name: str) -> None:
    """A tag in `newName` and capitals behind the registry: the other cause of `InvalidImageName`;
    the command in its row of docs/install.md shows the name.
    """
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / "overlays/sysfs", tmp_path)],
        "images": [{"name": NO_IMAGE, "newName": name}],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    worker.roll_out(str(tmp_path))
    worker.until("the name is none", lambda: "InvalidImageName" in str(worker.state()))
    pod = worker.pod()["metadata"]["name"]
    told = worker.cluster.kubectl("describe", "pod", "--namespace", "bwagent", pod)
    assert f"couldn't parse image name \"{name}:" in told
    worker.remove()


def privileges(agent: int, capabilities: int | None) -> None:
    """A confined agent has these capabilities, can gain no others, and a read-only root."""
    held = status(agent)
    assert root_is_read_only(agent)
    if capabilities is not None:
        assert {int(held[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {capabilities}
        assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", FILTERED)


def test_a_missing_privilege_is_named(worker: Worker) -> None:
    """With neighbors but without NET_RAW, the agent labels all else, and names the missing
    capability.
    """
    prefix = worker.roll_out("sysfs", BWAGENT_SOURCE="rdma lldp")
    worker.until("it says what is missing", lambda: "CAP_NET_RAW" in worker.log())
    worker.until("it labels what it can", lambda: worker.labels(prefix) == SPEED)


def test_the_driver_of_gpu_operator_is_found(
    worker: Worker, tmp_path: Path, repository: Path
) -> None:
    """`full` makes no /run/nvidia, and loads the library that a driver container puts there later,
    although no mount of the node is shared.
    """
    require(stand_in_nvml.missing())
    tree = "sysfs_fixtures/gb200-nvl72/sys"
    shutil.copytree(repository / tree, worker.devices / "gpu-tray", symlinks=True)
    (worker.devices / "gpu-list").write_text(stand_in_nvml.tray())
    worker.roll_out(
        "full",
        BWAGENT_RUN_SYSFS_ROOT="/machine/gpu-tray",
        BWAGENT_RUN_GPU_INTERVAL="1s",
        STAND_IN_NVML="/machine/gpu-list",
    )
    worker.until("no library is found", lambda: "libnvidia-ml.so.1" in worker.log())
    run = Path(f"/proc/{worker.container().first()}/root/host/proc/1/root/run")
    assert not (run / "nvidia").exists()
    stand_in_nvml.build(tmp_path)
    folder = run / f"nvidia/driver/usr/lib/{os.uname().machine}-linux-gnu"
    folder.mkdir(parents=True)
    try:
        shutil.copy(tmp_path / "libnvidia-ml.so.1", folder)
        worker.until(
            "the GPUs' domain is a label",
            lambda: Naming().accelerator in worker.node()["metadata"]["labels"],
        )
    finally:
        shutil.rmtree(run / "nvidia")


def test_who_has_labelled_nothing_is_not_ready(worker: Worker) -> None:
    """Without an API server the agent runs, is healthy, logs the reason, and is not ready."""
    (nobody,) = free_ports(1)
    worker.roll_out("sysfs", KUBERNETES_SERVICE_PORT=str(nobody))
    worker.until("it says so", lambda: f"{nobody}" in worker.log() and worker.state()["started"])
    assert worker.page("/healthz") == (200, "ok\n")
    assert worker.page("/readyz")[0] == 503
    worker.until("the kubelet knows", lambda: "statuscode: 503" in events(worker))
    assert (worker.is_ready(), worker.state()["restartCount"]) == (False, 0)


def events(worker: Worker) -> str:
    about = f"fieldSelector=involvedObject.name={worker.pod()['metadata']['name']}"
    found = worker.cluster.request("GET", f"/api/v1/namespaces/bwagent/events?{about}").body
    return "\n".join(event["message"] for event in found["items"])
