"""manifests/examples/weekly-check: its objects on a real API server, and what its container does
there with its own account.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.commands import commands
from tests.support.fleet_nodes import annotation, leaf, node
from tests.support.helm.chart import CHART, helm
from tests.support.helm.chart import missing as no_helm
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.command import bwagent
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.programs import program
from tests.support.real_parts import require

EXAMPLE = MANIFESTS / "examples/weekly-check"
NODES = "/api/v1/nodes"
KEY = "backend.coreweave.cloud/neighbors.current.ibp{}.device"


@pytest.fixture
def cluster(spare: Cluster) -> Iterator[Cluster]:
    """An API server with eight Nodes of one pattern, and the namespace of the agents."""
    with lent(spare) as cluster:
        cluster.kubectl("create", "namespace", "bwagent")
        now = int(time.time())
        for number in range(8):
            cluster.create(NODES, node(number, observed=annotation(number, time=now)))
        yield cluster


def blocks() -> list[list[str]]:
    text = (EXAMPLE / "README.md").read_text()
    return [commands(part.partition("```")[0]) for part in text.split("```sh\n")[1:]]


def shell(cluster: Cluster, folder: Path, *lines: str) -> None:
    """Run commands of the README beside a copy of the manifests."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    if not (tools / "kubectl").exists():
        (tools / "kubectl").symlink_to(program("kubectl"))
    env = {
        "HOME": str(folder),
        "KUBECONFIG": str(cluster.kubeconfig()),
        "PATH": f"{tools}:{os.defpath}",
    }
    subprocess.run(["/bin/sh", "-euc", "".join(lines)], cwd=folder, env=env, check=True)


def run(cluster: Cluster, folder: Path, name: str = "cabling-check") -> tuple[int, str]:
    """Run the container of the CronJob as it is stored: its arguments, its files, its account."""
    path = f"/apis/batch/v1/namespaces/bwagent/cronjobs/{name}"
    spec = cluster.request("GET", path).body["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container], [volume] = spec["containers"], spec["volumes"]
    assert container["image"].startswith("registry.example.com/bwagent:")
    name = volume["configMap"]["name"]
    files = cluster.request("GET", f"/api/v1/namespaces/bwagent/configmaps/{name}").body["data"]
    mounted = folder / "mounted"
    mounted.mkdir(exist_ok=True)
    for file, text in files.items():
        (mounted / file).write_text(text)
    place = container["volumeMounts"][0]["mountPath"]
    words = [word.replace(place, str(mounted)) for word in container["args"]]
    token = cluster.token_for_pod_on(None, spec["serviceAccountName"], "bwagent")
    done = bwagent(*words, kubeconfig=cluster.kubeconfig(token))
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_the_check_of_a_week(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing is found; then two crossed cables, until they are in the baseline. The commands are
    those of the README.
    """
    shutil.copytree(EXAMPLE, tmp_path / "manifests/examples/weekly-check")
    (tmp_path / "manifests/overlays").mkdir()
    install, renew = blocks()
    shell(cluster, tmp_path, *install)
    code, text = run(cluster, tmp_path)
    assert code == 0, text
    crossed = {KEY.format(0): leaf(0, 1), KEY.format(1): leaf(0, 0)}
    cluster.merge("gpu-00000", {"labels": crossed})
    code, text = run(cluster, tmp_path)
    assert (code, "gpu-00000" in text) == (3, True), text
    words = renew[0].split()[1:]
    words = [str(tmp_path / word) if "/" in word else word for word in words]
    bwagent(*words, kubeconfig=cluster.kubeconfig())
    shell(cluster, tmp_path, renew[1])
    code, text = run(cluster, tmp_path)
    assert code == 0, text


def test_by_the_chart(cluster: Cluster, tmp_path: Path) -> None:
    """A value of the chart makes the same, with a baseline in a ConfigMap of the site's."""
    require(no_helm())
    baseline = f"--from-file={EXAMPLE / 'baseline.csv'}"
    cluster.kubectl("create", "configmap", "accepted", "-n", "bwagent", baseline)
    image = ("--set", "image.repository=registry.example.com/bwagent")
    check = ("--set", "check.enabled=true,check.baseline.configMap=accepted")
    flags = ("-n", "bwagent", *image, *check, "-f", str(CHART / "profiles/lldp.yaml"))
    helm("install", "bwagent", str(CHART), *flags, kubeconfig=cluster.kubeconfig())
    code, text = run(cluster, tmp_path, "bwagent-check")
    assert code == 0, text
    crossed = {KEY.format(0): leaf(0, 1), KEY.format(1): leaf(0, 0)}
    cluster.merge("gpu-00000", {"labels": crossed})
    assert run(cluster, tmp_path, "bwagent-check")[0] == 3
    token = cluster.token_for_pod_on(None, "bwagent-check", "bwagent")
    assert cluster.merge("gpu-00000", {"labels": {"a": "b"}}, token=token).status == 403


def test_its_account_changes_nothing(cluster: Cluster) -> None:
    """It lists Nodes, and may neither patch them nor read anything else."""
    cluster.kubectl("apply", "--server-side", "-k", str(EXAMPLE))
    token = cluster.token_for_pod_on(None, "cabling-check", "bwagent")
    assert cluster.request("GET", NODES, token=token).status == 200
    assert cluster.merge("gpu-00000", {"labels": {"a": "b"}}, token=token).status == 403
    with pytest.raises(KubectlError, match="orbidden"):
        cluster.kubectl("get", "secrets", "-n", "bwagent", token=token)


def test_one_job_at_a_time() -> None:
    """No second Job begins beside one that runs, none is repeated, and the Pod is no agent's."""
    job = yaml.safe_load((EXAMPLE / "cronjob.yaml").read_text())["spec"]
    of_job = job["jobTemplate"]["spec"]
    assert (job["concurrencyPolicy"], of_job["backoffLimit"]) == ("Forbid", 0)
    assert of_job["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "cabling-check"}
