"""The commands of docs/install.md on a real API server, as they stand there: install, upgrade and
remove, by the chart and by kustomize.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.bare_node import a_node_without_rdma
from tests.support.helm.chart import CHART, helm, missing, program
from tests.support.kube.agents import P
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.programs import program as kube_program
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

DOCUMENT = MANIFESTS.parent / "docs/install.md"
DAEMON_SET = "/apis/apps/v1/namespaces/bwagent/daemonsets/bwagent"
VALUES = "image: {repository: registry.example.com/bwagent}\nrun: {hold: 5m}\n"


def commands(heading: str) -> list[str]:
    """Return the commands of the first block below a heading, each with its continuations and
    here-document.
    """
    section = DOCUMENT.read_text().partition(f"\n## {heading}\n")[2]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    return re.findall(r"(?:.*<<END\n(?s:.*?)\nEND|(?:.*\\\n)*.+)\n", block)


def unasked(command: str) -> str:
    return command.replace("\n", " --yes\n")


@dataclass(frozen=True, slots=True)
class Operator:
    """A shell at a copy of the manifests, with the tools for one cluster."""

    cluster: Cluster
    folder: Path

    def run(self, *commands: str) -> None:
        """Run commands; nobody is there for a question."""
        done = subprocess.run(
            ["/bin/sh", "-euc", "".join(commands)],
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
            },
        )
        assert done.returncode == 0, done.stderr

    def image(self) -> str | None:
        """Return the image of the DaemonSet; None if there is none."""
        answer = self.cluster.request("GET", DAEMON_SET)
        if answer.status == 404:
            return None
        return str(answer.body["spec"]["template"]["spec"]["containers"][0]["image"])

    def labeled(self, node: str) -> bool:
        body = self.cluster.request("GET", f"/api/v1/nodes/{node}").body
        return f"{P}/speed.current" in body["metadata"].get("labels", {})

    def label(self, node: str) -> None:
        """Label a Node as an agent would."""
        self.cluster.node(node)
        sysfs = a_node_without_rdma(self.folder)
        self.run(f"bwagent probe --no-wait --sysfs-root {sysfs} --node-name {node}\n")
        assert self.labeled(node)


@pytest.fixture
def operator(spare: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator with a new cluster."""
    require(missing())
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "values.yaml").write_text(VALUES)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "helm").symlink_to(program())
    (tools / "kubectl").symlink_to(kube_program("kubectl"))
    (tools / "bwagent").write_text(f'#!/bin/sh\nexec {sys.executable} -m agent.cli "$@"\n')
    (tools / "bwagent").chmod(0o755)
    with lent(spare) as cluster:
        yield Operator(cluster, tmp_path)


def test_by_the_chart(operator: Operator) -> None:
    """Installed, upgraded and removed; the labels go with the last command."""
    (install,) = commands("With the chart")
    upgrade, _ = commands("Upgrade")
    uninstall, _, cleanup = commands("Remove")
    operator.run(install)
    assert (operator.image() or "").startswith("registry.example.com/bwagent:")
    operator.run(upgrade)
    settings = operator.cluster.request("GET", "/api/v1/namespaces/bwagent/configmaps/bwagent")
    assert settings.body["data"]["BWAGENT_RUN_HOLD"] == "5m"
    operator.label("by-chart")
    operator.run(uninstall, unasked(cleanup))
    assert operator.image() is None
    assert not operator.labeled("by-chart")


def test_by_kustomize(operator: Operator) -> None:
    """The same; nobody completes the deletion of the namespace here, so nothing waits for it."""
    folder, overlay, apply = commands("With kustomize")
    _, again = commands("Upgrade")
    _, delete, cleanup = commands("Remove")
    operator.run(folder, overlay, apply, again)
    assert (operator.image() or "").startswith("registry.example.com/bwagent:")
    operator.label("by-kustomize")
    operator.run(delete.replace("delete", "delete --wait=false"), unasked(cleanup))
    assert operator.image() is None
    assert not operator.labeled("by-kustomize")


def test_the_next_three_commands(spare: Cluster) -> None:
    """They are those of the chart's notes, which another test runs on a node with a kubelet."""
    require(missing())
    with lent(spare) as cluster:
        flags = ("-n", "bwagent", "--create-namespace")
        notes = helm("install", "bwagent", str(CHART), *flags, kubeconfig=cluster.kubeconfig())
    listed = [line.strip() + "\n" for line in notes.splitlines() if line.startswith("  kubectl ")]
    assert commands("Does it work") == listed
