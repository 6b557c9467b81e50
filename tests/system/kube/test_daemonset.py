"""The DaemonSet on a real machine (worker.py): rolled out, restarted, killed, rebooted, deleted.

In all of these the Node's labels do not change. The API server is asked for every change of the
Node meanwhile, so a label that was missing for a moment is found like one that is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.encode import Naming
from agent.kube.policy import INSTALL as POLICY
from tests.support import stand_in_nvml
from tests.support.kube.manifests import Object
from tests.support.kube.programs import program
from tests.support.kube.resident import Scrape
from tests.support.kube.worker import LEAF, NEIGHBOR, NODE, PODS, SPEED, Timeline, Worker
from tests.support.real_parts import lacks, require

P = "backend.coreweave.cloud/"
OBSERVED = f"{P}observed"
ANOTHER_BOOT = "0d0b1e55-0000-4000-8000-000000000000"
MEBI = 1 << 20
# Takes memory out of another process's cgroup until that one is killed. The kernel spares the
# eater, since a kubelet makes the kernel kill a Pod's processes first (oom_score_adj).
EATER = """
import os, sys
victim, group, most = sys.argv[1:]
open(group, "w").write(str(os.getpid()))
eaten = []
while len(eaten) < int(most) and open(f"/proc/{victim}/cmdline").read():
    eaten.append(b"x" * (1 << 20))
"""


@pytest.fixture
def settled(worker: Worker) -> Iterator[Worker]:
    """The machine with the overlay `lldp` rolled out, its agent ready, all labels set, no
    traceback.
    """
    if not is_well(worker):
        worker.roll_out("lldp")
        worker.until("the agent is ready, and its Node labelled", lambda: is_well(worker))
    yield worker
    assert "Traceback" not in worker.log()


def is_well(worker: Worker) -> bool:
    return worker.is_ready() and worker.labels(P) == SPEED | NEIGHBOR


def kubectl(worker: Worker, *words: str) -> None:
    worker.cluster.kubectl("--namespace=bwagent", *words)


def metrics(worker: Worker) -> Scrape:
    return Scrape(worker.page("/metrics")[1])


def test_metrics_are_served(settled: Worker) -> None:
    """Metrics are served at the port in the manifests, and have this agent's port."""
    sees_for_itself(settled)
    told = metrics(settled)
    ((neighbor, _),) = told.series("bwagent_neighbor_info")
    assert (neighbor["interface"], neighbor["device"]) == ("rxe0", LEAF)
    assert told.value("bwagent_labels") == len(SPEED | NEIGHBOR)
    assert settled.page("/readyz") == (200, "ok\n")


def test_a_restart_changes_no_label(settled: Worker) -> None:
    """`kubectl rollout restart` completes, and the labels do not change."""
    before, node = settled.pod()["metadata"]["name"], settled.timeline()
    ending = Timeline(settled.cluster, PODS, before)
    kubectl(settled, "rollout", "restart", "daemonset/bwagent")
    kubectl(settled, "rollout", "status", "daemonset/bwagent", "--timeout=120s")
    assert settled.pod()["metadata"]["name"] != before
    assert ending_of(ending.versions()[-1]) == 0
    sees_for_itself(settled)
    assert node.label_changes() == []


def sees_for_itself(worker: Worker) -> None:
    """Wait until no label is held."""
    worker.until("no label is held", lambda: metrics(worker).value("bwagent_labels_held") == 0)
    assert worker.labels(P) == SPEED | NEIGHBOR


def ending_of(last: Object) -> int:
    """Return the exit code of a Pod's container: 0 if it ended by itself, 137 if it was killed at
    its grace period's end.
    """
    (state,) = last["status"]["containerStatuses"]
    return int(state["state"]["terminated"]["exitCode"])


def test_out_of_memory(settled: Worker) -> None:
    """The agent is killed at the manifest's memory limit, started again and ready; the
    labels stay.
    """
    node, before = settled.timeline(), settled.state()
    container = settled.container()
    assert container.memory().limit == 192 * MEBI
    words = (
        str(container.first()),
        str(container.cgroup / "cgroup.procs"),
        str(container.memory().limit // MEBI),
    )
    subprocess.run([sys.executable, "-c", EATER, *words], check=False, timeout=120)
    settled.until("it is ready again", lambda: restarted(settled, before))
    assert settled.state()["lastState"]["terminated"]["reason"] == "OOMKilled"
    sees_for_itself(settled)
    assert node.label_changes() == []


def restarted(worker: Worker, before: Object) -> bool:
    """Return True if the same Pod's container is another one, and ready."""
    now = worker.state()
    return bool(now.get("ready")) and now["restartCount"] > before["restartCount"]


def test_a_reboot(settled: Worker) -> None:
    """The labels stay over a power loss and a boot, and the annotation has a time after it."""
    settled.machine.power_off()
    settled.machine.forget_images()
    speak_of_another_boot(settled)
    node, before = settled.timeline(), settled.state()
    settled.machine.power_on()
    settled.until("it is ready again", lambda: restarted(settled, before))
    settled.until(
        "it knows this boot",
        lambda: ANOTHER_BOOT not in settled.node()["metadata"]["annotations"][OBSERVED],
    )
    sees_for_itself(settled)
    assert node.label_changes() == []


def speak_of_another_boot(worker: Worker) -> None:
    """Write the annotation of an earlier boot, under the agent's manager name."""
    metadata = worker.cluster.metadata(NODE)
    this = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    told = metadata["annotations"][OBSERVED]
    assert this in told
    ours = {
        "labels": {key: value for key, value in metadata["labels"].items() if key.startswith(P)},
        "annotations": {OBSERVED: told.replace(this, ANOTHER_BOOT)},
    }
    assert worker.cluster.apply(NODE, ours).status == 200


def test_deletion(settled: Worker) -> None:
    """The Pod ends at SIGTERM and the labels stay; `bwagent cleanup` removes them, and nothing
    else.
    """
    node, ending = (
        settled.timeline(),
        Timeline(settled.cluster, PODS, settled.pod()["metadata"]["name"]),
    )
    kubectl(settled, "delete", "-k", str(settled.overlay), "--timeout=120s")
    assert ending_of(ending.versions()[-1]) == 0
    assert node.label_changes() == []
    command = [sys.executable, "-m", "agent.cli", "cleanup", "--yes", "--node-name", NODE]
    subprocess.run(
        [*command, "--kubeconfig", str(settled.cluster.kubeconfig())], check=True, timeout=120
    )
    assert sorted(line.split(": ")[1] for line in node.label_changes()) == sorted(
        P + key for key in SPEED | NEIGHBOR
    )
    assert OBSERVED not in settled.node()["metadata"]["annotations"]


def test_probe_in_the_pod(worker: Worker, repository: Path) -> None:
    """`kubectl exec ds/bwagent -- bwagent probe` has the settings of the DaemonSet, and changes
    none of the labels that `run` wrote: a NIC that they exclude does not count.
    """
    machine = repository / "sysfs_fixtures/dgx-h100/sys"
    shutil.copytree(machine, worker.devices / "dgx", symlinks=True)
    excluded = {"BWAGENT_SYSFS_ROOT": "/machine/dgx", "BWAGENT_EXCLUDE_DEVICE": "mlx5_4 mlx5_5"}
    prefix = worker.roll_out("sysfs", **excluded)
    speed = {"flavor": "infiniband", "speed.current": "2400G"}
    worker.until("the agent labels the Node", lambda: worker.labels(prefix) == speed)
    node = worker.timeline()
    command = ("exec", "ds/bwagent", "--", "bwagent", "probe", "--no-wait")
    said = worker.cluster.kubectl("--namespace=bwagent", *command)
    assert said.splitlines()[-1] == f"Node {NODE}: no label changes"
    assert (node.label_changes(), worker.labels(prefix)) == ([], speed)


def test_capture_in_the_pod(worker: Worker, repository: Path, tmp_path: Path) -> None:
    """`bwagent capture -` in the image, without shell and disk, and `kubectl bwagent capture` with
    the real kubectl: a replay has the labels of the Node.
    """
    machine = repository / "sysfs_fixtures/dgx-h100/sys"
    shutil.copytree(machine, worker.devices / "captured", symlinks=True)
    prefix = worker.roll_out("sysfs", BWAGENT_SYSFS_ROOT="/machine/captured")
    speed = {"flavor": "infiniband", "speed.current": "3200G"}
    worker.until("the agent labels the Node", lambda: worker.labels(prefix) == speed)
    # The kubelet tells of the Pod's phase later than the agent of the Node.
    worker.until("the Pod is Running", lambda: worker.pod()["status"].get("phase") == "Running")
    plugin = tmp_path / "kubectl-bwagent"
    plugin.write_text(f"#!{sys.executable}\nfrom agent.cli import main\nmain()\n")
    plugin.chmod(0o755)
    (tmp_path / "kubectl").symlink_to(program("kubectl"))
    known = {"PATH": f"{tmp_path}:/usr/bin", "PYTHONPATH": str(repository), "HOME": str(tmp_path)}
    access = ("--kubeconfig", str(worker.cluster.kubeconfig()))

    def run(*words: str) -> bytes:
        return subprocess.run(words, env=known, cwd=tmp_path, check=True, stdout=-1).stdout

    pod = ("exec", "--namespace=bwagent", "ds/bwagent", "--", "bwagent", "capture", "-")
    (tmp_path / "a.tar").write_bytes(run("kubectl", *access, *pod))
    run("kubectl", "bwagent", "capture", NODE, *access, "--anonymize")
    for name in ("a.tar", f"{NODE}.tar"):
        replayed = run("kubectl-bwagent", "probe", "--replay", name, "-o", "labels").decode()
        found = dict(line.split("=") for line in replayed.splitlines())
        values = {key.rpartition("/")[2]: value for key, value in found.items()}
        assert values.items() >= speed.items()


def doctor(worker: Worker) -> tuple[int, str]:
    """Return the exit code and the output of `bwagent doctor` in the agent's Pod."""
    pod = ("exec", "--namespace=bwagent", "ds/bwagent", "--", "bwagent", "doctor")
    command = (program("kubectl"), "--kubeconfig", str(worker.cluster.kubeconfig()), *pod)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout or done.stderr


def test_doctor_in_the_pod(worker: Worker) -> None:
    """It has the Pod's privileges, settings and token: the sources of the profile, the Node, and
    the policy; without the policy it names the command that brings it.
    """
    prefix = worker.roll_out("lldp")
    worker.until("the agent labels the Node", lambda: worker.labels(prefix) == SPEED | NEIGHBOR)
    code, said = doctor(worker)
    assert (code, "missing" in said) == (0, False), said
    assert [line.split()[:2] for line in said.splitlines()] == [
        ["ok", "rdma"],
        ["ok", "lldp"],
        ["ok", "kubernetes"],
        ["ok", "kubernetes"],
    ]
    worker.cluster.kubectl("delete", "validatingadmissionpolicybinding", "bwagent")
    try:
        worker.until("it is missed", lambda: "missing  kubernetes  " in doctor(worker)[1])
        code, said = doctor(worker)
        assert (code, POLICY in said) == (1, True), said
    finally:
        worker.roll_out("lldp")


def test_memory(worker: Worker, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A busy agent with every source and all its children stays far below the manifest's limit."""
    require(lacks("cc"))
    shutil.copytree(
        repository / "sysfs_fixtures/gb200-nvl72/sys", worker.devices / "gb200", symlinks=True
    )
    stand_in_nvml.build(worker.devices)
    (worker.devices / "gpus").write_text(stand_in_nvml.tray())
    worker.remove()
    worker.machine.forget_images()
    worker.roll_out(
        "full",
        BWAGENT_SYSFS_ROOT="/machine/gb200",
        BWAGENT_NVML_LIBRARY="/machine/libnvidia-ml.so.1",
        BWAGENT_RUN_GPU_INTERVAL="1s",
        STAND_IN_NVML="/machine/gpus",
    )
    worker.until(
        "all sources have answered",
        lambda: Naming().accelerator in worker.node()["metadata"]["labels"],
    )
    worker.until("it has made half a dozen requests", lambda: has_worked(worker))
    series = metrics(worker).series("bwagent_source_success")
    successes = {labels["source"]: value for labels, value in series}
    assert successes == {"rdma": 1, "lldp": 1, "ib": 0, "nvml": 1}
    memory = worker.container().memory()
    with capsys.disabled():
        print(f"\nthe agent's container: {memory.peak / MEBI:.0f} of {memory.limit / MEBI:.0f} MiB")  # noqa: T201
    assert memory.limit == 192 * MEBI
    assert memory.refused == 0
    assert memory.peak < 0.75 * memory.limit


def has_worked(worker: Worker) -> bool:
    """Return True after half a dozen requests and SMP queries; each call causes more of them."""
    os.kill(worker.container().first(), signal.SIGHUP)
    told = metrics(worker)
    asked = {labels["reason"] for labels, _ in told.series("bwagent_neighbor_missing")}
    requests = sum(value for _, value in told.series("bwagent_api_requests_total"))
    return asked == {"no-umad"} and requests >= 6
