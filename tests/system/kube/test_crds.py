"""Objects of other projects' kinds on a real API server, by the projects' own CRDs: PodMonitor and
PrometheusRule of the Prometheus operator, Topology and ResourceFlavor of Kueue.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agent.fleet.exports.kueue import kueue as kueue_manifests
from tests.support import kueue
from tests.support import prometheus_operator as operator
from tests.support.helm.chart import CHART, SITE, HelmError, helm
from tests.support.helm.chart import missing as no_helm
from tests.support.helm.chart import rendered as template
from tests.support.helm.values import leaves
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.controllers import define
from tests.support.kube.deployments import transformed
from tests.support.kube.manifests import Object, only, parsed
from tests.support.kube.programs import missing
from tests.support.prometheus import MONITORING
from tests.support.real_parts import require
from tests.support.wired_fleets import NAMING, mixed, tall, tiered

GROUP = "monitoring.coreos.com/v1"
KINDS = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
STRICT = ("apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", "-")
# Fields of metadata that the API server sets.
STORED = {"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"}
ENABLED = ("--set", "metrics.podMonitor.enabled=true,alerts.enabled=true,dashboard.enabled=true")
WHERE = ("-n", "gpu", "--create-namespace", *SITE)


@pytest.fixture(scope="module")
def bare(fresh: Cluster) -> Cluster:
    """An API server without the kinds of the operator."""
    require(no_helm())
    return fresh


@pytest.fixture(scope="module")
def kinds(bare: Cluster) -> Cluster:
    require(operator.missing())
    define(bare, [f"/apis/{GROUP}/{kind}" for kind in KINDS.values()], *operator.CRDS)
    return bare


def of_overlay(folder: Path, more: Object | None = None) -> list[Object]:
    fields: Object = {"components": ["../../monitoring"], **(more or {})}
    components = [one.removeprefix("../../") for one in fields["components"]]
    return list(parsed(transformed(folder, "lldp", {**fields, "components": components})))


def of_chart(*flags: str) -> list[Object]:
    return list(template(*ENABLED, *flags, namespace="gpu"))


def stored(cluster: Cluster, sent: Object) -> Object:
    """Return an object as the API server has it, without what is its own."""
    about = sent["metadata"]
    path = f"/apis/{GROUP}/namespaces/{about['namespace']}/{KINDS[sent['kind']]}/{about['name']}"
    found = cluster.request("GET", path).body
    return {
        **found,
        "metadata": {key: one for key, one in found["metadata"].items() if key not in STORED},
    }


def examples() -> tuple[Object, Object]:
    """Return the examples of the README for /metrics over TLS: kustomization and values."""
    section = (MONITORING / "README.md").read_text().partition("\n### With TLS\n")[2]
    blocks = section.partition("\n## ")[0].split("```yaml\n")[1:]
    overlay, values = (yaml.safe_load(block.partition("```")[0]) for block in blocks)
    return overlay, values


def own(bare: Cluster) -> str:
    """Return the names of all objects of the chart."""
    kinds = "daemonsets,configmaps,serviceaccounts,clusterroles,validatingadmissionpolicies"
    label = "app.kubernetes.io/managed-by=Helm"
    return bare.kubectl("get", kinds, "-A", "-l", label, "-o", "name")


@pytest.mark.parametrize(
    ("value", "kind"), [("metrics.podMonitor", "PodMonitor"), ("alerts", "PrometheusRule")]
)
def test_without_the_kinds(bare: Cluster, value: str, kind: str) -> None:
    """Helm names what is missing, and applies nothing, on an upgrade neither."""
    config = bare.kubeconfig()
    release = ("bwagent", str(CHART), *WHERE)
    flags = (*release, "--set", f"{value}.enabled=true")
    reason = f'no matches for kind "{kind}" in version "{GROUP}"(.|\n)*install(ed)? .*first'
    with pytest.raises(HelmError, match=reason):
        helm("install", *flags, kubeconfig=config)
    assert own(bare) == ""
    helm("install", *release, kubeconfig=config)
    before = own(bare)
    with pytest.raises(HelmError, match=reason):
        helm("upgrade", *flags, "--set", "run.hold=1m", kubeconfig=config)
    assert own(bare) == before
    assert helm("status", "bwagent", "-n", "gpu", kubeconfig=config).count("STATUS: deployed") == 1
    settings = bare.kubectl("get", "configmap", "bwagent", "-n", "gpu", "-o", "yaml")
    assert "RUN_HOLD" not in settings
    helm("uninstall", "bwagent", "-n", "gpu", kubeconfig=config)


def test_by_kustomize(kinds: Cluster, tmp_path: Path) -> None:
    """The API server validates all of the component strictly, and adds nothing to it: a later
    comparison with the files finds no difference.
    """
    objects = of_overlay(tmp_path)
    kinds.kubectl(*STRICT, stdin=yaml.safe_dump_all(objects))
    for sent in (only(kind, objects) for kind in KINDS):
        assert stored(kinds, sent) == sent
    kinds.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(objects))


def test_the_kinds_refuse_a_typo(kinds: Cluster, tmp_path: Path) -> None:
    """The judge refuses a field that it does not know."""
    monitor = only("PodMonitor", of_overlay(tmp_path))
    monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "30s"
    monitor["metadata"]["namespace"] = "default"
    with pytest.raises(KubectlError, match="intervall"):
        kinds.kubectl(*STRICT, stdin=json.dumps(monitor))


def test_the_schema_of_tls() -> None:
    """The values of tlsConfig are the fields of the operator, which helm does not check."""
    require(operator.missing())
    (version,) = yaml.safe_load(operator.CRDS[0].read_text())["spec"]["versions"]
    of_spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    endpoint = of_spec["podMetricsEndpoints"]["items"]["properties"]
    (ours,) = (one for one in leaves() if one.name == "metrics.podMonitor.tlsConfig")
    assert fields(ours.schema) == fields(endpoint["tlsConfig"])


def fields(schema: Object) -> Object:
    """Return the names of the fields below a schema, as a tree."""
    return {name: fields(row) for name, row in schema.get("properties", {}).items()}


def test_the_overlay_with_tls(kinds: Cluster, tmp_path: Path) -> None:
    """The README's overlay with both components is valid, and equal to its values of the chart."""
    overlay, values = examples()
    objects = of_overlay(tmp_path, overlay)
    kinds.kubectl(*STRICT, "--dry-run=server", stdin=json.dumps(in_default(objects)))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    chart = of_chart("-f", str(tmp_path / "values.yaml"))
    assert only("PodMonitor", objects)["spec"] == only("PodMonitor", chart)["spec"]


def in_default(objects: list[Object]) -> Object:
    """Return the PodMonitor in a namespace that is there."""
    monitor = only("PodMonitor", objects)
    return {**monitor, "metadata": {**monitor["metadata"], "namespace": "default"}}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_what_the_monitor_selects(tmp_path: Path, *, tls: bool) -> None:
    """It selects the Pods of the DaemonSet in its own namespace, at a port that they have, by the
    scheme that this port speaks, and names the job as the rules have it.
    """
    require(missing())
    objects = of_overlay(tmp_path, examples()[0] if tls else None)
    monitor, agents = only("PodMonitor", objects), only("DaemonSet", objects)
    assert monitor["metadata"]["namespace"] == agents["metadata"]["namespace"]
    assert monitor["spec"].keys() == {"jobLabel", "selector", "podMetricsEndpoints"}
    template = agents["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "bwagent"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = template["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    served_by = container["livenessProbe"]["httpGet"].get("scheme", "HTTP")
    assert endpoint.get("scheme", "http").upper() == served_by == ("HTTPS" if tls else "HTTP")
    assert ("tlsConfig" in endpoint) is tls


APPLY = ("apply", "--server-side", "--field-manager=fleet-export", "-f", "-")
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def queues(fresh: Cluster) -> Cluster:
    """The API server with Kueue's Topology and ResourceFlavor."""
    require(kueue.missing())
    define(fresh, [f"{KUEUE}/{kind}" for kind in ("topologies", "resourceflavors")], *kueue.CRDS)
    return fresh


def test_kueues_crds_take_it(queues: Cluster) -> None:
    """The API server validates Topology and ResourceFlavor by Kueue's own CRDs; it may be applied
    again.
    """
    text = kueue_manifests(tall(), NAMING).text
    for _ in range(2):
        queues.kubectl(*APPLY, stdin=text)
    topology = queues.request("GET", f"{KUEUE}/topologies/bwagent").body
    assert [one["nodeLabel"] for one in topology["spec"]["levels"]] == [
        *(f"{NAMING.prefix}/{name}" for name in ("fabric", "superpod", "leafgroup.current")),
        NAMING.accelerator,
        "kubernetes.io/hostname",
    ]
    flavor = queues.request("GET", f"{KUEUE}/resourceflavors/bwagent-infiniband").body
    assert flavor["spec"]["topologyName"] == "bwagent"


def test_kueues_crds_take_tiers(queues: Cluster) -> None:
    """The tiers that agents publish are levels above the leaf groups."""
    queues.kubectl("delete", "topologies.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io", "--all")
    queues.kubectl(*APPLY, stdin=kueue_manifests(tiered(), NAMING).text)
    levels = [
        level["nodeLabel"]
        for level in queues.request("GET", f"{KUEUE}/topologies/bwagent").body["spec"]["levels"]
    ]
    assert levels == [
        *(f"{NAMING.prefix}/tier-{tier}.current" for tier in (2, 1)),
        f"{NAMING.prefix}/leafgroup.current",
        "kubernetes.io/hostname",
    ]


def test_kueues_crds_take_kinds_of_machines(queues: Cluster) -> None:
    """Machines with NVLink domains and without are two flavors, each with its Topology; levels of
    the operator are levels.
    """
    queues.kubectl(*APPLY, stdin=kueue_manifests(mixed(), NAMING).text)
    for kind in ("nvidia-gb300", "nvidia-h100-80gb"):
        name = f"bwagent-infiniband-{kind}"
        assert queues.request("GET", f"{KUEUE}/topologies/{name}").status == 200
        flavor = queues.request("GET", f"{KUEUE}/resourceflavors/{name}").body
        assert flavor["spec"]["topologyName"] == name
    text = kueue_manifests(tall(), NAMING, (f"{NAMING.prefix}/superpod",)).text
    assert "fabric" not in text
    queues.kubectl(*APPLY, "--dry-run=server", stdin=text.replace("name: bwagent", "name: other"))


def test_kueues_crds_refuse_other_levels(queues: Cluster) -> None:
    """The judge refuses a label key that is none, and by a CEL rule a level that is there twice."""
    text = kueue_manifests(tall(), NAMING).text
    for odd, why in (("leaf group", "nodeLabel"), ("superpod", "unique")):
        with pytest.raises(KubectlError, match=why):
            queues.kubectl(*APPLY, "--dry-run=server", stdin=text.replace("leafgroup.current", odd))
