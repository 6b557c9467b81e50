"""The commands of docs/install.md on a real API server, as they stand there: install, upgrade and
remove, by the chart and by kustomize.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bare_node import a_node_without_rdma
from tests.support.commands import INSTALL as DOCUMENT
from tests.support.commands import OPERATIONS, blocks
from tests.support.commands import commands as of_block
from tests.support.helm.chart import CHART, SITE, helm, missing
from tests.support.kube.agents import P
from tests.support.kube.cluster import Cluster
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.operator import Operator
from tests.support.real_parts import require

DAEMON_SET = "/apis/apps/v1/namespaces/bwagent/daemonsets/bwagent"


TAG = "python3 -m release.version\n"


def commands(heading: str) -> list[str]:
    (block,) = (text for name, text in blocks(DOCUMENT) if name == heading)
    return of_block(block)


def inline(start: str, document: Path = DOCUMENT) -> str:
    """Return the only command of the text that begins so."""
    (found,) = set(re.findall(rf"`({start}[^`]*)`", document.read_text()))
    return str(found)


def unasked(command: str) -> str:
    return command.replace("\n", " --yes\n")


class Installer(Operator):
    """An operator who looks at what is installed."""

    __slots__ = ()

    def settings(self) -> dict[str, str]:
        path = "/api/v1/namespaces/bwagent/configmaps/bwagent"
        return dict(self.cluster.request("GET", path).body["data"])

    def image(self) -> str | None:
        """Return the image of the DaemonSet; None if there is none."""
        answer = self.cluster.request("GET", DAEMON_SET)
        if answer.status == 404:
            return None
        return str(answer.body["spec"]["template"]["spec"]["containers"][0]["image"])

    def pushed(self) -> str:
        """Return the image that the words of the documents build and push."""
        # A tree with changes may be committed meanwhile.
        tag = self.run(TAG).strip().removesuffix("-dirty")
        return f"registry.example.com/bwagent:{tag}"

    def labeled(self, node: str) -> bool:
        body = self.cluster.request("GET", f"/api/v1/nodes/{node}").body
        return f"{P}/speed.current" in body["metadata"].get("labels", {})

    def label(self, node: str) -> None:
        self.cluster.node(node)
        sysfs = a_node_without_rdma(self.folder)
        self.run(f"bwagent probe --no-wait --sysfs-root {sysfs} --node-name {node}\n")
        assert self.labeled(node)


@pytest.fixture
def operator(spare: Cluster, tmp_path: Path) -> Iterator[Installer]:
    require(missing())
    with lent(spare) as cluster:
        yield Installer(cluster, tmp_path)


def test_by_the_chart(operator: Installer) -> None:
    """Installed, upgraded, rolled back and removed; the labels go with the last command. One
    command installs and upgrades, and what the profile switches on stays on.
    """
    profile, image, install = commands("With the chart")
    upgrade, _ = commands("Upgrade")
    assert upgrade.partition(" #")[0] == install.strip()
    uninstall, _, cleanup = commands("Remove")
    operator.run(profile, image, install)
    assert (operator.image() or "").startswith(operator.pushed())
    with (operator.folder / "values.yaml").open("a") as values:
        values.write("run: {hold: 5m}\n")
    operator.run(upgrade)
    assert operator.settings()["BWAGENT_RUN_HOLD"] == "5m"
    assert operator.settings()["BWAGENT_SOURCE"] == "rdma lldp"
    operator.run(f"{inline('helm rollback')}\n")
    assert "BWAGENT_RUN_HOLD" not in operator.settings()
    assert "registry.example.com/bwagent" in operator.run(f"{inline('kubectl describe d')}\n")
    assert "bwagent" in operator.run(f"{inline('kubectl get daemonset -n', OPERATIONS)}\n")
    operator.label("by-chart")
    operator.run(uninstall, unasked(cleanup))
    assert operator.image() is None
    assert not operator.labeled("by-chart")


def test_by_kustomize(operator: Installer) -> None:
    """The same; nobody completes the deletion of the namespace here, so nothing waits for it."""
    folder, overlay, apply = commands("With kustomize")
    _, again = commands("Upgrade")
    _, delete, cleanup = commands("Remove")
    operator.run(folder, overlay, apply, again)
    assert (operator.image() or "").startswith(operator.pushed())
    operator.label("by-kustomize")
    operator.run(delete.replace("delete", "delete --wait=false"), unasked(cleanup))
    assert operator.image() is None
    assert not operator.labeled("by-kustomize")


def test_a_component_that_was_removed(operator: Installer) -> None:
    """Its Role and the former settings stay after the overlay is applied without it; the commands
    remove them, and no more.
    """
    folder, overlay, apply = commands("With kustomize")
    operator.run(folder, overlay)
    site = operator.folder / "manifests/overlays/site/kustomization.yaml"
    without = site.read_text()
    site.write_text(f"{without}components: [../../events]\n")
    operator.run(apply)
    site.write_text(without)
    operator.run(apply)
    left = (
        "kubectl get role,rolebinding -n default -o name; kubectl get configmap -n bwagent -o name"
    )
    own = [line for line in operator.run(left).splitlines() if "bwagent" in line]
    assert len(own) == 4, own
    operator.run(*commands("A component"))
    (kept,) = (line for line in operator.run(left).splitlines() if "bwagent" in line)
    assert kept.startswith("configmap/bwagent-")
    assert kept in operator.run("kubectl get ds -n bwagent -o yaml").replace("name: ", "configmap/")
    # Without the DaemonSet no settings are known as unused, and none goes.
    operator.run("kubectl delete daemonset -n bwagent bwagent\n")
    assert operator.sh("".join(commands("A component"))).returncode != 0
    assert kept in operator.run(left)


def test_a_field_of_another_manager(operator: Installer) -> None:
    """After `kubectl set image` the installation conflicts, with the words of the document; the
    command there takes the field back.
    """
    operator.run(*commands("With kustomize"))
    operator.run("kubectl set image -n bwagent daemonset/bwagent bwagent=example.com/other:1\n")
    _, again = commands("Upgrade")
    assert 'Apply failed with 1 conflict: conflict with "kubectl-set"' in " ".join(
        operator.sh(again).stderr.split()
    )
    operator.run(f"{inline('kubectl apply --server-side --force')}\n")
    assert (operator.image() or "").startswith(operator.pushed())


def test_a_plan_in_the_overlay_stays(operator: Installer) -> None:
    """With the lines of the example's README in the site's overlay an upgrade keeps the plan."""
    folder, overlay, apply = commands("With kustomize")
    operator.run(folder, overlay)
    readme = (MANIFESTS / "examples/cabling-readiness/README.md").read_text()
    (lines,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    site = operator.folder / "manifests/overlays/site"
    (site / "plan.csv").write_text("node,interface,device\n")
    with (site / "kustomization.yaml").open("a") as file:
        file.write(textwrap.dedent(lines))
    operator.run(apply, commands("Upgrade")[1])
    assert "node,interface" in operator.run("kubectl get configmap -n bwagent bwagent-plan -o yaml")
    assert "name: BWAGENT_RUN_PLAN" in operator.run("kubectl get ds -n bwagent bwagent -o yaml")


def test_the_namespace_is_kept(operator: Installer) -> None:
    """With the selector of the text the objects go, and the namespace stays with a Secret in it."""
    operator.run(*commands("With kustomize"))
    operator.run("kubectl create secret generic registry -n bwagent --from-literal=a=b\n")
    _, delete, _ = commands("Remove")
    flag = inline("--selector '!")
    operator.run(f"{delete.partition(' #')[0]} --wait=false {flag}\n")
    assert operator.image() is None
    said = operator.run("kubectl get namespace bwagent; kubectl get secret -n bwagent registry\n")
    assert "bwagent   Active" in said


@pytest.mark.parametrize("document", ["README.md", "manifests/README.md"])
def test_the_commands_of_a_readme(operator: Installer, document: str) -> None:
    """The commands of the other documents install the same as those of docs/install.md."""
    blocks = re.findall(r"```sh\n(.*?)```", (MANIFESTS.parent / document).read_text(), re.DOTALL)
    (block,) = (one for one in blocks if "kubectl apply --server-side -k" in one)
    operator.run(block)
    assert (operator.image() or "").startswith(operator.pushed())
    shutil.move(
        operator.folder / "manifests/overlays/site", operator.folder / "manifests/overlays/theirs"
    )
    operator.run(*commands("With kustomize")[:2])
    theirs, ours = (
        operator.run(f"kubectl kustomize manifests/overlays/{folder}")
        for folder in ("theirs", "site")
    )
    assert theirs == ours


def test_the_next_three_commands(spare: Cluster) -> None:
    """They are those of the chart's notes, which another test runs on a node with a kubelet."""
    require(missing())
    with lent(spare) as cluster:
        flags = ("-n", "bwagent", "--create-namespace")
        notes = helm(
            "install", "bwagent", str(CHART), *SITE, *flags, kubeconfig=cluster.kubeconfig()
        )
    listed = [line.strip() + "\n" for line in notes.splitlines() if line.startswith("  kubectl ")]
    assert commands("Does it work") == listed
