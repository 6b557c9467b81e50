"""PodMonitor and PrometheusRule on a real API server with the Prometheus operator's own CRDs, by
kustomize and by helm, and what the PodMonitor selects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.support import prometheus_operator as operator
from tests.support.helm.chart import CHART, SITE, HelmError, helm
from tests.support.helm.chart import missing as no_helm
from tests.support.helm.chart import rendered as template
from tests.support.helm.values import leaves
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.controllers import eventually
from tests.support.kube.deployments import transformed
from tests.support.kube.manifests import MANIFESTS, Object, parsed
from tests.support.kube.programs import missing
from tests.support.prometheus import MONITORING
from tests.support.real_parts import require

GROUP = "monitoring.coreos.com/v1"
KINDS = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
STRICT = ("apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", "-")
# Fields of metadata that the API server sets.
STORED = {"annotations", "creationTimestamp", "generation", "managedFields", "resourceVersion"}
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
    for path in operator.CRDS:
        bare.kubectl("apply", "--server-side", "-f", str(path))
    for kind in KINDS.values():
        eventually(bare, kind, partial(served, bare, kind))
    return bare


def served(cluster: Cluster, kind: str) -> bool:
    """Return True once the API server serves the objects of a CRD."""
    return cluster.request("GET", f"/apis/{GROUP}/{kind}").status == 200


def of_overlay(folder: Path, more: Object | None = None) -> list[Object]:
    up = os.path.relpath(MANIFESTS, folder.resolve())
    fields: Object = {"components": ["../../monitoring"], **(more or {})}
    components = [one.replace("../..", up) for one in fields["components"]]
    return list(parsed(transformed(folder, "lldp", {**fields, "components": components})))


def of_chart(*flags: str) -> list[Object]:
    return list(template(*ENABLED, *flags, namespace="gpu"))


def the(kind: str, objects: Sequence[Object]) -> Object:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def stored(cluster: Cluster, sent: Object) -> Object:
    """Return an object as the API server has it, without what is its own, or helm's."""
    about = sent["metadata"]
    path = f"/apis/{GROUP}/namespaces/{about['namespace']}/{KINDS[sent['kind']]}/{about['name']}"
    found = cluster.request("GET", path).body
    hidden = {*STORED, "uid"}
    return {
        **found,
        "metadata": {key: one for key, one in found["metadata"].items() if key not in hidden},
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
    for sent in (the(kind, objects) for kind in KINDS):
        assert stored(kinds, sent) == sent
    kinds.kubectl("delete", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(objects))


def test_the_kinds_refuse_a_typo(kinds: Cluster, tmp_path: Path) -> None:
    """The judge refuses a field that it does not know."""
    monitor = the("PodMonitor", of_overlay(tmp_path))
    monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "30s"
    monitor["metadata"]["namespace"] = "default"
    with pytest.raises(KubectlError, match="intervall"):
        kinds.kubectl(*STRICT, stdin=json.dumps(monitor))


def test_by_helm(kinds: Cluster, tmp_path: Path) -> None:
    """Helm installs the same, with TLS, too."""
    config, values = kinds.kubeconfig(), tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(examples()[1]))
    for flags in ((), ("-f", str(values))):
        helm("install", "bwagent", str(CHART), *WHERE, *ENABLED, *flags, kubeconfig=config)
        for sent in (the(kind, of_chart(*flags)) for kind in KINDS):
            assert stored(kinds, sent) == sent
        helm("uninstall", "bwagent", "-n", "gpu", kubeconfig=config)


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
    assert the("PodMonitor", objects)["spec"] == the("PodMonitor", chart)["spec"]


def in_default(objects: list[Object]) -> Object:
    """Return the PodMonitor in a namespace that is there."""
    monitor = the("PodMonitor", objects)
    return {**monitor, "metadata": {**monitor["metadata"], "namespace": "default"}}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_what_the_monitor_selects(tmp_path: Path, *, tls: bool) -> None:
    """It selects the Pods of the DaemonSet in its own namespace, at a port that they have, by the
    scheme that this port speaks, and names the job as the rules have it.
    """
    require(missing())
    objects = of_overlay(tmp_path, examples()[0] if tls else None)
    monitor, agents = the("PodMonitor", objects), the("DaemonSet", objects)
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
