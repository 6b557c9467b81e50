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
import yaml

from tests.support.commands import INSTALL as DOCUMENT
from tests.support.commands import OPERATIONS, blocks
from tests.support.commands import commands as of_block
from tests.support.helm.chart import CHART, SITE, helm, missing
from tests.support.kube.agents import P
from tests.support.kube.cluster import Cluster
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS, parsed
from tests.support.kube.operator import Operator
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import a_node_without_rdma

DAEMON_SET = "/apis/apps/v1/namespaces/bwagent/daemonsets/bwagent"


GATE = MANIFESTS / "examples/cabling-readiness/README.md"
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


def installing(document: str) -> str:
    """Return the commands of a document that install by kustomize."""
    text = (MANIFESTS.parent / document).read_text()
    found = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return str(next(one for one in found if "<<END\n" in one and "-k manifests" in one))


def steps_of_the_gate() -> list[str]:
    """Return the blocks of the README of the gate: for the overlay, for the chart's values, the
    chart's ConfigMap, the removal.
    """
    found = re.findall(
        r"^( *)```(?:yaml|sh)\n(.*?)^\1```", GATE.read_text(), re.DOTALL | re.MULTILINE
    )
    return [textwrap.dedent(text) for _, text in found]


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
        return f"{P}/speed.current" in self.cluster.labels(node)

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


@pytest.mark.parametrize("document", ["README.md", "docs/install.md", "manifests/README.md"])
def test_a_plan_in_the_overlay_stays(operator: Installer, document: str) -> None:
    """With the lines of the example's README in the site's overlay, as any document makes it, an
    upgrade keeps the plan. (Behind a `}` kustomize would pass over them, without a word.)
    """
    operator.run(installing(document))
    lines, _, _, _ = steps_of_the_gate()
    site = operator.folder / "manifests/overlays/site"
    (site / "plan.csv").write_text("node,interface,device\n")
    with (site / "kustomization.yaml").open("a") as file:
        file.write(lines)
    operator.run(*2 * [commands("Upgrade")[1]])
    assert "node,interface" in operator.run("kubectl get configmap -n bwagent bwagent-plan -o yaml")
    assert "name: BWAGENT_RUN_PLAN" in operator.run("kubectl get ds -n bwagent bwagent -o yaml")


def test_a_plan_by_the_chart(operator: Installer) -> None:
    """The same README's lines for the chart name the ConfigMap, whose command runs again after a
    change; agents on closed nodes and on those with GPUs stay.
    """
    profile, image, install = commands("With the chart")
    _, lines, configmap, _ = steps_of_the_gate()
    operator.run(profile, image)
    with (operator.folder / "values.yaml").open("a") as file:
        file.write(lines)
    operator.run(install)
    for plan in ("node,interface,device\n", "node,interface,device\na,b,c\n"):
        (operator.folder / "plan.csv").write_text(plan)
        operator.run(configmap)
    assert "a,b,c" in operator.run("kubectl get configmap -n bwagent bwagent-plan -o yaml")
    told = operator.run("kubectl get ds -n bwagent bwagent -o yaml")
    assert "name: BWAGENT_RUN_PLAN" in told
    for key in ("nvidia.com/gpu", "readiness.k8s.io/backend-cabling"):
        assert f"key: {key}\n" in told


def test_the_gate_without_its_controller(operator: Installer) -> None:
    """Without the CRD the rule alone is missing, with the words of the README; the second of its
    last commands removes the rest.
    """
    _, _, _, remove = steps_of_the_gate()
    readme = GATE.read_text()
    (apply,) = re.findall(r"`(kubectl apply --server-side -k manifests/\S+/gate)`", readme)
    (words,) = re.findall(r"`(no matches for kind [^`]*)`", readme)
    said = operator.sh(apply)
    assert said.returncode != 0
    assert [words in line for line in said.stderr.splitlines() if "no matches" in line] == [True]
    rest = "kubectl get ds,sa -n cabling-readiness -o name | grep cabling-reporter"
    assert len(operator.run(rest).splitlines()) == 2
    operator.sh(remove.splitlines()[1] + " --wait=false")
    assert operator.sh(rest).stdout == ""


def test_what_a_former_overlay_leaves(operator: Installer) -> None:
    """The overlay of 0.2.0 has no policy about Events, so its removal leaves that of today, and the
    chart does not install; after the command of the document it does.
    """
    operator.run(*commands("With kustomize"))
    rows = parsed(operator.run("kubectl kustomize manifests/overlays/site\n"))
    former = [row for row in rows if row["kind"] != "Namespace"]
    former = [row for row in former if row["metadata"]["name"] != "bwagent-events"]
    assert len(rows) - len(former) == 3
    (operator.folder / "former.yaml").write_text(yaml.safe_dump_all(former))
    operator.run("kubectl delete -f former.yaml\n")
    by_chart = "".join(commands("With the chart"))
    assert 'ValidatingAdmissionPolicy "bwagent-events"' in operator.sh(by_chart).stderr
    operator.run(f"{inline('kubectl delete v')}\n", commands("With the chart")[-1])
    assert operator.image() is not None


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
    operator.run(installing(document))
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
