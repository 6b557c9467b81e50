"""The chart on a real machine: it takes over from an overlay, and is upgraded, rolled back and
uninstalled by the real helm, and the Node's labels follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.helm.chart import CHART, SITE, helm, missing, profile, rendered
from tests.support.kube import worker as support
from tests.support.kube.agents import P, an_agent
from tests.support.kube.manifests import IMAGE, Object, named
from tests.support.kube.operator import values
from tests.support.kube.worker import (
    DAEMON_SETS,
    LEAF,
    NEIGHBOR,
    NETDEV,
    NODE,
    SPEED,
    Worker,
    clear,
    in_force,
)
from tests.support.real_parts import require

pytestmark = pytest.mark.sweep
OTHER = "other.example.com"
OLDER = Path(support.__file__).with_name("overlay-0.1.0.yaml")
NAMED = {"apiVersion": "v1", "metadata": {"name": "bwagent"}}  # as a patch has to be
POLICY_OF_0_1_0 = "changedLabels"  # a variable that the policy has no more
KINDS = (
    "serviceaccounts,configmaps,daemonsets,clusterroles,clusterrolebindings,priorityclasses,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def test_from_an_overlay_to_the_end(worker: Worker, tmp_path: Path, speed: Path) -> None:
    """The labels follow each step, and stay after the last, which leaves nothing else but the
    namespace. The chart takes over the overlay's Pods, and none of its privileges.
    """
    config = worker.cluster.kubeconfig()
    release = ("bwagent", str(CHART), "-n", "bwagent", *SITE, "-f", values(worker, tmp_path))
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
    assert f"  formerLabelPrefixes: [{P}]" in notes
    another = an_agent(worker.cluster, "mighty")
    worker.until("the policy follows", lambda: in_force(another, f"{OTHER}/"))
    worker.until("the labels follow", lambda: labeled(worker, OTHER, SPEED | NEIGHBOR))
    assert LEAF in next_commands(worker, notes)
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


def test_from_0_1_0(worker: Worker, tmp_path: Path) -> None:
    """The chart takes over the manifests of 0.1.0, whose policy lacks keys of the label table:
    the labels stay and the missing ones come; nothing of the older objects remains in the new ones,
    nor in those of the overlay afterwards.
    """
    config, namespace = worker.cluster.kubeconfig(), ("-n", "bwagent")
    older = without_new_keys(NEIGHBOR)
    worker.remove()
    clear(worker.cluster, NODE)
    apply_older(worker, tmp_path)
    worker.until("the labels of 0.1.0", lambda: worker.labels(f"{P}/") == SPEED | older)

    first_commands(worker)
    flags = (*SITE, "-f", values(worker, tmp_path), *profile("lldp"), "--take-ownership")
    helm("install", "bwagent", str(CHART), *namespace, *flags, kubeconfig=config)
    assert older.items() <= worker.labels(f"{P}/").items()
    worker.until("the chart's agent labels", lambda: labeled(worker, P, SPEED | NEIGHBOR))
    assert POLICY_OF_0_1_0 in variables_of_policy(worker)
    last_command(worker)
    assert variables_of_policy(worker) == variables_of_chart()
    assert volumes(worker) == {"token", "machine"}
    assert labeled(worker, P, SPEED | NEIGHBOR)

    helm("uninstall", "bwagent", *namespace, "--wait", kubeconfig=config)
    assert worker.labels(f"{P}/") == SPEED | NEIGHBOR
    worker.roll_out("lldp")
    worker.until("the overlay's agent labels", lambda: labeled(worker, P, SPEED | NEIGHBOR))


def without_new_keys(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if not key.startswith("lea")}


def apply_older(worker: Worker, folder: Path) -> None:
    """Apply the manifests of 0.1.0 with the image that is there, and what a cluster provides."""
    machine = json.loads(Path(values(worker, folder)).read_text())
    container = {
        "name": "bwagent",
        "image": IMAGE,
        "env": machine["extraEnv"],
        "volumeMounts": machine["extraVolumeMounts"],
    }
    spec = {"containers": [container], "volumes": machine["extraVolumes"]}
    settings = {"BWAGENT_RUN_SYSFS_ROOT": "/machine/sys", "BWAGENT_RUN_MIN_INTERVAL": "1s"}
    patches: Object = {
        "DaemonSet": {"spec": {"template": {"spec": spec}}},
        "ConfigMap": {"data": settings},
    }
    kustomization = {
        "resources": ["older.yaml"],
        "patches": [
            {"target": {"kind": kind}, "patch": json.dumps({**NAMED, "kind": kind, **patch})}
            for kind, patch in patches.items()
        ],
    }
    (folder / "older.yaml").write_text(OLDER.read_text())
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    worker.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))


def variables_of_policy(worker: Worker) -> list[str]:
    policy = worker.cluster.kubectl("get", "validatingadmissionpolicy", "bwagent", "-o", "json")
    return [row["name"] for row in json.loads(policy)["spec"]["variables"]]


def variables_of_chart() -> list[str]:
    policy = named(rendered(*profile("lldp")))["ValidatingAdmissionPolicy", "bwagent"]
    return [row["name"] for row in policy["spec"]["variables"]]


def last_command(worker: Worker) -> None:
    """Run the command of the README that removes what only the overlay has."""
    (line,) = (one for one in section().splitlines() if one.startswith("helm get manifest"))
    first, second = (part.split()[1:] for part in line.split("|"))
    manifest = helm(*first, kubeconfig=worker.cluster.kubeconfig())
    worker.cluster.kubectl(*second, stdin=manifest)


def section() -> str:
    """Return the section of the README about the way from an overlay to the chart."""
    text = (CHART / "README.md").read_text().partition("## From an overlay to the chart")[2]
    return text.partition("\n## ")[0]


def labeled(worker: Worker, prefix: str, expected: dict[str, str]) -> bool:
    """True if a ready agent has these labels."""
    return worker.is_ready() and worker.labels(f"{prefix}/") == expected


def volumes(worker: Worker) -> set[str]:
    """Return the names of the volumes that the DaemonSet gives its Pods."""
    body = worker.cluster.request("GET", f"{DAEMON_SETS}/bwagent").body
    return {one["name"] for one in body["spec"]["template"]["spec"]["volumes"]}


def first_commands(worker: Worker) -> None:
    """Run the commands of the README that come before `helm install` in place of an overlay."""
    lines = section().partition("helm install")[0].splitlines()
    for command in [line for line in lines if line.startswith("kubectl ")]:
        worker.cluster.kubectl(*command.split()[1:])


def next_commands(worker: Worker, notes: str) -> str:
    """The three commands of the notes work as they stand there; return what the last one prints."""
    commands = [line.split()[1:] for line in notes.splitlines() if line.startswith("  kubectl ")]
    rollout, labels, probe = (worker.cluster.kubectl(*command) for command in commands)
    assert "successfully rolled out" in rollout
    assert "10G" in labels
    assert "rxe0" in probe
    return probe


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
