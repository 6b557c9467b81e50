"""The chart on a real machine: it takes over from an overlay, and is upgraded, rolled back and
uninstalled by the real helm, and the Node's labels follow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.helm.chart import CHART, helm, missing, profile
from tests.support.kube.agents import P, an_agent
from tests.support.kube.worker import DAEMON_SETS, NEIGHBOR, NETDEV, SPEED, in_force
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kube.manifests import Object
    from tests.support.kube.worker import Worker

OTHER = "other.example.com"
KINDS = (
    "serviceaccounts,configmaps,daemonsets,clusterroles,clusterrolebindings,priorityclasses,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def values(worker: Worker, folder: Path) -> str:
    """Write what a cluster would provide, as the overlays of worker.py have it."""
    host, port = worker.cluster.url.removeprefix("https://").split(":")
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    machine: Object = {
        "sysfsRoot": "/machine/sys",
        "run": {"minInterval": "1s"},
        "minReadySeconds": 1,
        "extraEnv": [{"name": name, "value": value} for name, value in variables.items()],
        "extraVolumes": [{"name": "machine", "hostPath": {"path": str(worker.devices)}}],
        "extraVolumeMounts": [{"name": "machine", "mountPath": "/machine", "readOnly": True}],
    }
    file = folder / "machine.json"
    file.write_text(json.dumps(machine))
    return str(file)


def test_from_an_overlay_to_the_end(worker: Worker, tmp_path: Path, speed: Path) -> None:
    """The labels follow each step, and stay after the last, which leaves nothing else but the
    namespace. The chart takes over the overlay's Pods, and none of its privileges.
    """
    config = worker.cluster.kubeconfig()
    release = ("bwagent", str(CHART), "-n", "bwagent", "-f", values(worker, tmp_path))
    worker.roll_out("full")
    worker.until("the overlay's agent labels", lambda: labeled(worker, P, SPEED | NEIGHBOR))
    overlays = worker.pod()["metadata"]["uid"]
    first_commands(worker)
    assert worker.pod()["metadata"]["uid"] == overlays

    notes = helm("install", *release, "--take-ownership", kubeconfig=config)
    worker.until("the chart's agent labels", lambda: labeled(worker, P, SPEED))
    assert worker.pod()["metadata"]["uid"] != overlays
    assert volumes(worker) == {"token", "machine"}
    assert "FORBIDS" not in notes
    next_commands(worker, notes)

    flags = (*profile("lldp"), "--set", f"labelPrefix={OTHER}")
    notes = helm("upgrade", *release, *flags, kubeconfig=config)
    assert f"--set 'formerLabelPrefixes={{{P}}}'" in notes
    another = an_agent(worker.cluster, "mighty")
    worker.until("the policy follows", lambda: in_force(another, f"{OTHER}/"))
    worker.until("the labels follow", lambda: labeled(worker, OTHER, SPEED | NEIGHBOR))
    assert not in_force(worker.mighty, f"{P}/")

    # Another speed, for the labels of before are still there.
    now = {**SPEED, "speed.current": "25G"}
    speed.write_text("25000\n")
    helm("rollback", "bwagent", "1", "-n", "bwagent", kubeconfig=config)
    worker.until("the policy is back", lambda: in_force(worker.mighty, f"{P}/"))
    worker.until("the labels are back", lambda: labeled(worker, P, now))

    helm("uninstall", "bwagent", "-n", "bwagent", "--wait", kubeconfig=config)
    assert worker.labels(f"{P}/") == now
    left = worker.cluster.kubectl(
        "get", KINDS, "-A", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name"
    )
    assert left == ""
    assert worker.cluster.request("GET", "/api/v1/namespaces/bwagent").status == 200


def labeled(worker: Worker, prefix: str, expected: dict[str, str]) -> bool:
    """True if a ready agent has these labels."""
    return worker.is_ready() and worker.labels(f"{prefix}/") == expected


def volumes(worker: Worker) -> set[str]:
    """Return the names of the volumes that the DaemonSet gives its Pods."""
    body = worker.cluster.request("GET", f"{DAEMON_SETS}/bwagent").body
    return {one["name"] for one in body["spec"]["template"]["spec"]["volumes"]}


def first_commands(worker: Worker) -> None:
    """Run the commands of the README that come before `helm install` in place of an overlay."""
    section = (CHART / "README.md").read_text().partition("## From an overlay to the chart")[2]
    lines = section.partition("helm install")[0].splitlines()
    for command in [line for line in lines if line.startswith("kubectl ")]:
        worker.cluster.kubectl(*command.split()[1:])


def next_commands(worker: Worker, notes: str) -> None:
    """The three commands of the notes work as they stand there."""
    commands = [line.split()[1:] for line in notes.splitlines() if line.startswith("  kubectl ")]
    rollout, labels, probe = (worker.cluster.kubectl(*command) for command in commands)
    assert "successfully rolled out" in rollout
    assert "10G" in labels
    assert "rxe0" in probe


@pytest.fixture
def speed(worker: Worker) -> Iterator[Path]:
    """Return the file of the port's speed, which is as before after the test."""
    file = worker.devices / f"sys/class/net/{NETDEV}/speed"
    before = file.read_text()
    yield file
    file.write_text(before)


@pytest.fixture(autouse=True)
def _nothing_left(worker: Worker) -> Iterator[None]:
    """Leave no release to the other tests of this machine."""
    require(missing())
    yield
    config = worker.cluster.kubeconfig()
    if helm("list", "-n", "bwagent", "-q", kubeconfig=config):
        helm("uninstall", "bwagent", "-n", "bwagent", kubeconfig=config)
