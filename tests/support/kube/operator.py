"""An operator's shell at a copy of the manifests, and the two ways to install on a machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.helm.chart import CHART, SITE, helm, profile
from tests.support.helm.chart import program as helm_program
from tests.support.kube.cluster import Cluster
from tests.support.kube.manifests import MANIFESTS, Object, site_overlay
from tests.support.kube.programs import program as kube_program
from tests.support.kube.worker import NODE, Worker, clear, in_force

P = "backend.coreweave.cloud"


@dataclass(frozen=True, slots=True)
class Operator:
    """A shell at a copy of the manifests, with the tools for one cluster."""

    cluster: Cluster
    folder: Path

    def __post_init__(self) -> None:
        """Put the tools and the manifests into the folder."""
        shutil.copytree(MANIFESTS, self.folder / "manifests")
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "helm").symlink_to(helm_program())
        (tools / "kubectl").symlink_to(kube_program("kubectl"))
        program = f"#!{sys.executable}\nfrom agent.cli import main\nmain()\n"
        for name in ("bwagent", "kubectl-bwagent"):  # which it goes by
            (tools / name).write_text(program)
            (tools / name).chmod(0o755)
        (tools / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (tools / "python3").chmod(0o755)

    def sh(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a script until its first failure; nobody is there for a question."""
        return subprocess.run(
            ["/bin/sh", "-euc", script],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.cluster.kubeconfig()),
                "PATH": f"{self.folder / 'bin'}:{os.defpath}",
                "PYTHONPATH": str(MANIFESTS.parent),
                **env,
            },
        )

    def run(self, *commands: str, **env: str) -> str:
        """Return the output of commands that succeed."""
        done = self.sh("".join(commands), **env)
        assert done.returncode == 0, done.stderr
        return done.stdout


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


@contextmanager
def by_overlay(worker: Worker, folder: Path) -> Iterator[None]:
    """Install the overlay `lldp` on the machine, with a plan from a ConfigMap."""
    overlay = folder / "overlay"
    overlay.mkdir()
    plan = {"components": ["examples/cabling-readiness/plan"]}
    worker.roll_out(str(site_overlay(overlay, "lldp", plan)))
    yield
    worker.remove()


@contextmanager
def by_chart(worker: Worker, folder: Path) -> Iterator[None]:
    """The same with the chart, which is uninstalled."""
    config = worker.cluster.kubeconfig()
    worker.remove()
    for node in (NODE, worker.mighty.node):
        clear(worker.cluster, node)
    flags = [*SITE, "-f", values(worker, folder), *profile("lldp"), "--take-ownership"]
    flags += ["--set", "plan.configMap=bwagent-plan"]
    helm("install", "bwagent", str(CHART), "-n", "bwagent", *flags, kubeconfig=config)
    worker.until("the policy is in force", lambda: in_force(worker.mighty, f"{P}/"))
    yield
    helm("uninstall", "bwagent", "-n", "bwagent", "--wait", kubeconfig=config)


INSTALLS = {"overlay": by_overlay, "chart": by_chart}
