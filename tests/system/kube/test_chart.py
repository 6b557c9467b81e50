"""The chart on a real API server, by the real helm: what is refused before anything is applied,
names, namespaces and policies of several releases.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.helm.chart import CHART, SITE, HelmError, helm, missing, nested, profile
from tests.support.kube.agents import Agent, P, a_node, denied
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import TAG
from tests.support.real_parts import require

LONG = "a" * 53  # the longest name of a release
OTHER = "other.example.com"
# All that a release has, but for Helm's own record of it.
OBJECTS = (
    *("/api/v1/serviceaccounts", "/api/v1/configmaps", "/apis/apps/v1/daemonsets"),
    *(f"/apis/rbac.authorization.k8s.io/v1/clusterrole{one}" for one in ("s", "bindings")),
    *(f"/apis/rbac.authorization.k8s.io/v1/role{one}" for one in ("s", "bindings")),
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/networking.k8s.io/v1/networkpolicies",
)
SETTINGS = "/api/v1/namespaces/gpu/configmaps/bwagent"
HELMS = "?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm"
RELEASES = "/api/v1/secrets", "?fieldSelector=type%3Dhelm.sh%2Frelease.v1"


@pytest.fixture(autouse=True)
def _helm() -> None:
    require(missing())


def run(cluster: Cluster, verb: str, release: str, namespace: str, *flags: str) -> str:
    """Install or upgrade a release; return the notes."""
    where = ("-n", namespace, "--create-namespace")
    return helm(verb, release, str(CHART), *where, *SITE, *flags, kubeconfig=cluster.kubeconfig())


@contextmanager
def release_of(cluster: Cluster, release: str, namespace: str, *flags: str) -> Iterator[str]:
    """Install a release for the block; yield the notes."""
    notes = run(cluster, "install", release, namespace, *flags)
    assert objects(cluster)
    try:
        yield notes
    finally:
        helm("uninstall", release, "-n", namespace, kubeconfig=cluster.kubeconfig())
    assert objects(cluster) == {}


def objects(cluster: Cluster) -> dict[str, str]:
    """Return the versions of all objects of the chart, by path."""
    return {path: one for kind in OBJECTS for path, one in listed(cluster, kind, HELMS)}


def listed(cluster: Cluster, kind: str, query: str) -> list[tuple[str, str]]:
    """Return path and version of each object of a kind."""
    rows = cluster.request("GET", kind + query).body["items"]
    about = [row["metadata"] for row in rows]
    return [
        (f"{kind}/{one.get('namespace', '')}/{one['name']}", one["resourceVersion"])
        for one in about
    ]


def refused(
    cluster: Cluster, release: str, namespace: str, *flags: str, verb: str = "install"
) -> str:
    """Return the message of an installation or upgrade that fails and changes nothing."""
    before = objects(cluster), listed(cluster, *RELEASES)
    with pytest.raises(HelmError) as failed:
        run(cluster, verb, release, namespace, *flags)
    assert (objects(cluster), listed(cluster, *RELEASES)) == before
    return str(failed.value)


def test_beside_an_overlay(installed: Cluster) -> None:
    """The overlay's agents on the same nodes are an error that names them, and so is a prefix that
    its policy would refuse.
    """
    message = refused(installed, "foo", "gpu", "--set", f"labelPrefix={OTHER}")
    assert "the DaemonSet bwagent in namespace bwagent has its agents on the same nodes" in message
    assert f'labelPrefix differs from "{P}" of the ValidatingAdmissionPolicy bwagent' in message


def test_an_overlay_is_not_taken_unasked(installed: Cluster) -> None:
    """Under the overlay's own names the DaemonSet has to go first, whatever is taken over: of it
    Helm would leave the volumes that the chart does not have.
    """
    for flags in ((), ("--take-ownership",)):
        message = refused(installed, "bwagent", "bwagent", *flags)
        assert "the DaemonSet bwagent in namespace bwagent is not of this release" in message
        assert "--cascade=orphan" in message


def test_a_wrong_value_applies_nothing(fresh: Cluster) -> None:
    """Neither one that the schema refuses nor a contradiction."""
    assert "'labelPrefx'" in refused(fresh, "bwagent", "gpu", "--set", "labelPrefx=a.b")
    assert "privileges.netRaw" in refused(fresh, "bwagent", "gpu", "--set", "sources={lldp}")


def test_an_upgrade_that_reads_less(fresh: Cluster) -> None:
    """An upgrade without the profile of the installation fails, names what it would switch off, and
    changes nothing; a value permits it. One that reads more needs none.
    """
    lldp, full = profile("lldp"), profile("full")
    with release_of(fresh, "bwagent", "gpu", *lldp):
        for flags in ((), ("--reset-values",), profile("sysfs")):
            assert "sources leaves out lldp, which the running agents read" in not_upgraded(
                fresh, *flags
            )
        run(fresh, "upgrade", "bwagent", "gpu", *full)
        message = not_upgraded(fresh, *lldp)
        assert all(f"sources leaves out {one}" in message for one in ("ib", "nvml"))
        run(fresh, "upgrade", "bwagent", "gpu", *lldp, *dropped("ib,nvml"))
        assert "leaves out lldp" in not_upgraded(fresh, *dropped("ib,nvml"))
        run(fresh, "upgrade", "bwagent", "gpu", *dropped("lldp"))
        assert fresh.request("GET", SETTINGS).body["data"]["BWAGENT_SOURCE"] == "rdma"
        run(fresh, "upgrade", "bwagent", "gpu")


def not_upgraded(cluster: Cluster, *flags: str) -> str:
    return refused(cluster, "bwagent", "gpu", *flags, verb="upgrade")


def dropped(names: str) -> tuple[str, str]:
    return "--set", f"droppedSources={{{names}}}"


def test_no_image(fresh: Cluster) -> None:
    """Without the image's place nothing is applied, and the error says how to name it."""
    with pytest.raises(HelmError, match=r"image\.repository=registry\.example\.com/bwagent"):
        helm("install", "bwagent", str(CHART), kubeconfig=fresh.kubeconfig())
    assert objects(fresh) == {}


def test_two_releases(fresh: Cluster) -> None:
    """Two in two namespaces, on other nodes; not on the same, in one namespace, or with other
    names of labels.
    """
    a, b = ("--set", "nodeSelector.class=a"), ("--set", "nodeSelector.class=b")
    with release_of(fresh, "bwagent", "first", *a):
        assert "on the same nodes" in refused(fresh, "bwagent", "second", *a)
        assert "on the same nodes" in refused(fresh, "bwagent", "second")
        assert "a namespace of its own" in refused(fresh, "another", "first", *b)
        message = refused(fresh, "bwagent", "second", *b, "--set", f"ibLabelPrefix={OTHER}")
        assert 'ibLabelPrefix differs from "ib.coreweave.cloud" of the' in message
        assert "ValidatingAdmissionPolicy bwagent.first" in message
        run(fresh, "install", "bwagent", "second", *b)
        policies = fresh.kubectl("get", "validatingadmissionpolicies", "-o", "name").split()
        names = ["bwagent-events.first", "bwagent-events.second", "bwagent.first", "bwagent.second"]
        assert [name.partition("/")[2] for name in policies] == names
        run(fresh, "upgrade", "bwagent", "first", *a)
        helm("uninstall", "bwagent", "-n", "second", kubeconfig=fresh.kubeconfig())


def test_without_a_policy(fresh: Cluster) -> None:
    """The notes say what is missing; a prefix that a policy elsewhere has to permit is checked
    against those that are there.
    """
    off = ("--set", "policy.enabled=false")
    with release_of(fresh, "bwagent", "gpu", *off) as notes:
        assert "NO POLICY IS INSTALLED" in notes
        assert not [path for path in objects(fresh) if "validatingadmission" in path]


def test_labels_that_stay(fresh: Cluster, tmp_path: Path) -> None:
    """The notes of another prefix have the value that removes the labels of both former ones; it
    works as it stands there.
    """
    former = ("--set", "formerLabelPrefixes={e.f}")
    with release_of(fresh, "bwagent", "gpu"):
        flags = ("--set", "labelPrefix=a.b,ibLabelPrefix=c.d")
        notes = run(fresh, "upgrade", "bwagent", "gpu", *flags, *former)
        assert "--reuse-values" not in notes
        (line,) = (line for line in notes.splitlines() if line.startswith("  formerLabelPrefixes"))
        (tmp_path / "values.yaml").write_text(line.strip())
        last = ("-f", str(tmp_path / "values.yaml"))
        notes = run(fresh, "upgrade", "bwagent", "gpu", *flags, *last)
        assert "stay" not in notes.partition("ask one")[2]
        policy = fresh.kubectl("get", "validatingadmissionpolicy", "bwagent.gpu", "-o", "json")
        variables = {row["name"]: row for row in json.loads(policy)["spec"]["variables"]}
        found = set(variables["formerPrefixes"]["expression"].strip("'").split())
        assert found == {"e.f", P, "ib.coreweave.cloud"}


@pytest.mark.parametrize("level", [pytest.param("baseline", marks=pytest.mark.sweep), "restricted"])
def test_a_namespace_that_forbids(fresh: Cluster, level: str) -> None:
    """An existing namespace works; where its Pod Security level forbids the Pods, the notes have
    the command that permits them.
    """
    label = f"pod-security.kubernetes.io/enforce={level}"
    fresh.kubectl("create", "namespace", level)
    fresh.kubectl("label", "namespace", level, label)
    with release_of(fresh, "bwagent", level) as notes:
        assert f"THE NAMESPACE {level} FORBIDS THE PODS" in notes
        (command,) = (line for line in notes.splitlines() if "kubectl label" in line)
        fresh.kubectl(*command.split()[1:])
        assert "FORBIDS" not in run(fresh, "upgrade", "bwagent", level)


def test_the_longest_name(fresh: Cluster) -> None:
    """A release of 53 characters in a namespace of 63: every object is accepted, and the policy
    restricts its account.
    """
    namespace = "n" * 63
    with release_of(fresh, LONG, namespace):
        restricted(fresh, f"bwagent-{LONG}", namespace)


def test_events(fresh: Cluster) -> None:
    """The account may write Events in namespace `default`, and in no other; without the value in
    none.
    """
    who = "--as=system:serviceaccount:gpu:bwagent-foo"

    def may(verb: str, namespace: str) -> bool:
        question = ("auth", "can-i", verb, "events", "-n", namespace, who)
        try:
            return fresh.kubectl(*question).strip() == "yes"
        except KubectlError:
            return False

    with release_of(fresh, "foo", "gpu", "--set", "events=true"):
        eventually(fresh, "the Role is in force", lambda: may("create", "default"))
        assert may("patch", "default")
        assert not any(may(verb, "default") for verb in ("get", "list", "delete", "update"))
        assert not may("create", "gpu")
        run(fresh, "upgrade", "foo", "gpu", "--set", "events=false")
        eventually(fresh, "the Role is gone", lambda: not may("create", "default"))


def restricted(cluster: Cluster, account: str, namespace: str) -> None:
    """Wait until an account labels its own Node, with own labels only."""
    node = a_node(cluster)
    agent = Agent(cluster, node, cluster.token_for_pod_on(node, account, namespace))

    def forbidden() -> bool:
        return denied(agent.merge({"metadata": {"labels": {"foreign": os.urandom(4).hex()}}}))

    eventually(cluster, f"the policy of {account}", forbidden)
    assert agent.apply({"labels": {f"{P}/flavor": "roce"}}).status == 200


def test_a_renamed_value(fresh: Cluster, tmp_path: Path) -> None:
    """A release with a value that this chart has under another name is not upgraded: the error
    names it, and the release stays as it is.
    """
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    for path in (older / "values.schema.json", older / "values.yaml"):
        path.write_text(path.read_text().replace("labelPrefix", "prefix"))
    for path in (older / "templates").iterdir():
        path.write_text(path.read_text().replace(".Values.labelPrefix", ".Values.prefix"))
    chart = older / "Chart.yaml"
    chart.write_text(chart.read_text().replace(TAG, "0.0.9"))
    config = fresh.kubeconfig()
    file = tmp_path / "values.json"
    file.write_text(json.dumps(nested({"prefix": OTHER, "image.repository": "bwagent"})))
    where = ("-n", "gpu", "--create-namespace")
    helm("install", "bwagent", str(older), *where, "-f", str(file), kubeconfig=config)
    for flags in (("--reuse-values",), ("--reset-then-reuse-values",), ("-f", str(file))):
        with pytest.raises(HelmError, match="'prefix'"):
            run(fresh, "upgrade", "bwagent", "gpu", *flags)
    (row,) = json.loads(helm("list", "-n", "gpu", "-o", "json", kubeconfig=config))
    assert (row["revision"], row["chart"]) == ("1", "bwagent-0.0.9")
    run(fresh, "upgrade", "bwagent", "gpu", "--set", f"labelPrefix={OTHER}")
    helm("rollback", "bwagent", "-n", "gpu", kubeconfig=config)
    helm("uninstall", "bwagent", "-n", "gpu", kubeconfig=config)
    assert objects(fresh) == {}
