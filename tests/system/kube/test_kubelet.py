"""The overlays on a real machine: kubelet and containerd run the built image by the
manifests (worker.py); /metrics over TLS with a kubelet's probes and a Secret that changes.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.encode import Naming
from tests.support import stand_in_nvml
from tests.support.certificates import client, made
from tests.support.kernel_tree import rails
from tests.support.kube.agents import ELSEWHERE, HERE, boot
from tests.support.kube.cluster import MERGE
from tests.support.kube.command import bwagent
from tests.support.kube.confinement import root_is_read_only, status
from tests.support.kube.manifests import MANIFESTS, NO_IMAGE, OVERLAYS, site_overlay
from tests.support.kube.programs import free_ports, program
from tests.support.kube.resident import Agent
from tests.support.kube.worker import LEAF, NEIGHBOR, NODE, PODS, PORT, SPEED, Worker, clear
from tests.support.real_parts import lacks, require

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
    images = {"images": [{"name": NO_IMAGE, "newName": name}]}
    worker.roll_out(str(site_overlay(tmp_path, "sysfs", images)))
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
    require(lacks("cc"))
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


PLAN, PLAN_FILE = "examples/cabling-readiness/plan", "/etc/bwagent/plan/plan.csv"
ROWS = f"node,interface,device,port-id\n{NODE},rxe0,{LEAF},{PORT}\n"
NO_CONFIG_MAP = 'configmap "bwagent-plan" not found'
CONFIG_MAPS = "/api/v1/namespaces/bwagent/configmaps"


@pytest.fixture
def plan(worker: Worker) -> Iterator[Callable[[str], None]]:
    """Put the plan into its ConfigMap under a key; there is no ConfigMap before and after."""

    def put(key: str) -> None:
        worker.cluster.request("DELETE", f"{CONFIG_MAPS}/bwagent-plan")
        worker.cluster.create(
            CONFIG_MAPS, {"metadata": {"name": "bwagent-plan"}, "data": {key: ROWS}}
        )

    yield put
    worker.cluster.request("DELETE", f"{CONFIG_MAPS}/bwagent-plan")


def says(worker: Worker, status: int, verdict: str) -> dict[str, Any]:
    """Wait for this verdict of the agent; return its document."""
    found: dict[str, Any] = {}

    def is_so() -> bool:
        look(worker)
        try:
            code, body = worker.page("/verdict")
        except (urllib.error.URLError, KeyError):  # no Pod, or no server in it yet
            return False
        found.clear()
        found.update(json.loads(body))
        return (code, found["verdict"]) == (status, verdict)

    worker.until(f"the verdict is {status} {verdict}", is_so)
    return found


def look(worker: Worker) -> None:
    """Let the kubelet look at the Pod and its volumes now and not within a minute or two."""
    name = worker.pod()["metadata"].get("name")
    body = {"metadata": {"annotations": {"test/look": str(time.monotonic())}}}
    worker.cluster.request("PATCH", f"{PODS}/{name}", body, kind=MERGE)


def test_a_typo_in_the_configmap_of_the_plan(worker: Worker, plan: Callable[[str], None]) -> None:
    """Without the ConfigMap, or with another key in it, the agent labels its node, and the verdict
    is 404 with file and error.
    """
    prefix = worker.roll_out("lldp", PLAN, BWAGENT_RUN_VERDICT_DELAY="1s")
    missing = f"{PLAN_FILE}: No such file or directory"
    assert says(worker, 404, "no-plan")["reason"] == missing
    worker.until("it labels its node", lambda: worker.labels(prefix) == SPEED | NEIGHBOR)
    plan("plan.cvs")
    folder = Path(f"/proc/{worker.container().first()}/root{PLAN_FILE}").parent

    def has(name: str) -> bool:
        look(worker)
        return (folder / name).exists()

    worker.until("the wrong key is a file", lambda: has("plan.cvs"))
    assert says(worker, 404, "no-plan")["reason"] == missing
    plan("plan.csv")
    assert "reason" not in says(worker, 200, "pass")


def test_a_configmap_that_is_not_optional(worker: Worker, plan: Callable[[str], None]) -> None:
    """Without it the kubelet starts no agent, and says which one is missing; with it, it does."""
    worker.roll_out("lldp", PLAN, BWAGENT_RUN_VERDICT_DELAY="1s")
    says(worker, 404, "no-plan")
    name = worker.pod()["metadata"]["name"]
    volume = {"name": "plan", "configMap": {"name": "bwagent-plan", "optional": False}}
    patch = json.dumps({"spec": {"template": {"spec": {"volumes": [volume]}}}})
    worker.cluster.kubectl("-n", "bwagent", "patch", "daemonset", "bwagent", "-p", patch)
    worker.until("another Pod", lambda: worker.pod()["metadata"].get("name", name) != name)
    worker.until("the kubelet says why", lambda: NO_CONFIG_MAP in events(worker))
    assert not worker.state().get("started")
    plan("plan.csv")
    says(worker, 200, "pass")


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


def test_a_machine_that_reboots_is_another_host_until_its_kubelet_reports(
    worker: Worker, tmp_path: Path
) -> None:
    """The kubelet reports this host's boot ID. While the Node has that of before, `probe` is
    refused, and a running agent writes nothing; the kubelet ends that. What the sentence says to
    run does run.
    """
    worker.remove()
    clear(worker.cluster, NODE)
    assert boot_id(worker) == HERE
    worker.machine.power_off()
    boot(worker.cluster, NODE, ELSEWHERE)
    before = worker.node()
    probe = ("probe", "--no-wait", "--node-name", NODE, "--sysfs-root", str(worker.devices / "sys"))
    done = bwagent(*probe, kubeconfig=worker.cluster.kubeconfig())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    with Agent(worker.cluster, tmp_path, NODE, rails(2)) as agent:
        agent.says("node is another host")
        agent.until(
            lambda: (agent.metrics().value("bwagent_api_requests_total", code="200") or 0) > 2
        )
        assert agent.metrics().value("bwagent_ready") == 0
        assert worker.node() == before
        worker.machine.power_on()
        agent.speaks("800G")
        assert boot_id(worker) == HERE
        agent.says("node is this host")
        agent.until(lambda: agent.metrics().value("bwagent_ready") == 1)
    worker.roll_out("sysfs")
    worker.until("its agent is ready", worker.is_ready)
    (command,) = re.findall(r"kubectl exec .* -- bwagent", done.stderr)
    environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(worker.cluster.kubeconfig())}
    environment["PATH"] = f"{Path(program('kubectl')).parent}:{environment['PATH']}"
    said = subprocess.run(
        ["sh", "-c", f"{command} probe"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stderr) == (0, "")
    assert f"Node {NODE}: " in said.stdout


def boot_id(worker: Worker) -> str:
    """Return the boot ID in the Node's status."""
    return str(worker.node()["status"]["nodeInfo"]["bootID"])


COMPONENT = MANIFESTS / "metrics-tls"
SECRET = "bwagent-metrics"  # noqa: S105 - its name


def put_secret(worker: Worker, folder: Path, name: str) -> None:
    """Create or replace the Secret with the certificate NAME."""
    files = (("tls.crt", f"{name}.pem"), ("tls.key", f"{name}.key"), ("ca.crt", "ca.pem"))
    data = {key: (folder / file).read_text() for key, file in files}
    about = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    (folder / "secret.json").write_text(json.dumps({**about, "stringData": data}))
    worker.cluster.kubectl("-n", "bwagent", "apply", "-f", str(folder / "secret.json"))


def add_component(worker: Worker) -> None:
    """Add the component to the overlay that was rolled out."""
    path = worker.overlay / "kustomization.yaml"
    component = os.path.relpath(COMPONENT, worker.overlay)
    path.write_text(json.dumps({**json.loads(path.read_text()), "components": [component]}))
    words = ("apply", "--server-side", "--force-conflicts", "-k", str(worker.overlay))
    worker.cluster.kubectl(*words)


def get(worker: Worker, context: ssl.SSLContext, path: str = "/metrics") -> tuple[int, str]:
    """Return the status of a page, and the name in the server's certificate."""
    context.check_hostname = False  # the certificate has no address
    host = worker.pod()["status"]["hostIP"]
    connection = http.client.HTTPSConnection(host, 9477, timeout=10, context=context)
    with closing(connection):
        connection.request("GET", path)
        shown: Any = connection.sock.getpeercert()
        names = dict(pair for row in shown["subject"] for pair in row)
        return connection.getresponse().status, names["commonName"]


def is_patched(worker: Worker) -> bool:
    """Return True if the Pod with the Secret is ready by the kubelet's probes."""
    return SECRET in json.dumps(worker.pod().get("spec")) and worker.is_ready()


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    require(lacks("openssl"))
    made(tmp_path, "ca")
    for name in ("first", "second", "client"):
        made(tmp_path, name, by="ca")
    return tmp_path


def test_metrics_over_tls(worker: Worker, certificates: Path) -> None:
    """The kubelet's probes succeed without a certificate, /metrics needs one, and a new certificate
    in the Secret is served without a restart.
    """
    worker.roll_out("sysfs")
    worker.until("the agent is ready", worker.is_ready)
    put_secret(worker, certificates, "first")
    add_component(worker)
    worker.until("the patched agent is ready", lambda: is_patched(worker))
    certified, anonymous = (client(certificates, certified=one) for one in (True, False))
    assert get(worker, certified) == (200, "first")
    assert get(worker, anonymous) == (403, "first")
    assert get(worker, anonymous, "/readyz") == (200, "first")
    put_secret(worker, certificates, "second")
    name = worker.pod()["metadata"]["name"]
    worker.cluster.kubectl("-n", "bwagent", "annotate", "pod", name, "look=now")  # at the volume
    worker.until("the new one is served", lambda: get(worker, certified) == (200, "second"))
    assert worker.state()["restartCount"] == 0
