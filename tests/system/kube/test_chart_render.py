"""The chart as helm renders it: equal to the overlays, and under every name; no cluster is
needed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm.chart import (
    CHART,
    PROFILES,
    SITE,
    container,
    helm,
    missing,
    of,
    profile,
    spec,
    with_values,
)
from tests.support.helm.chart import rendered as template
from tests.support.kube.manifests import (
    IMAGES,
    MANIFESTS,
    OVERLAYS,
    TAG,
    Object,
    by_kind,
    named,
    parsed,
    rendered,
    site_overlay,
    with_settings,
)
from tests.support.kube.programs import missing as no_kubectl
from tests.support.real_parts import require

HELMS = {
    *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version"),
    *("app.kubernetes.io/managed-by", "helm.sh/chart"),
}
CHECKSUM = "checksum/settings"
LONG = "a" * 53  # the longest name of a release
FIELDS = {"env", "volumes", "volumeMounts"}  # of a Pod: lists of named things, in any order
HASH = re.compile(r"\bbwagent-[a-z0-9]{10}$", re.MULTILINE)  # of the settings, by kustomize


@pytest.fixture(autouse=True)
def _helm() -> None:
    require(missing())


def without_helms(one: Object) -> Object:
    """Return an object of the chart without Helm's own labels and the settings' checksum."""
    assert one["metadata"]["labels"].keys() >= HELMS
    if one["kind"] == "DaemonSet":
        assert one["spec"]["template"]["metadata"]["annotations"].pop(CHECKSUM)
    return comparable(one)


def of_kustomize(folder: Path, overlay: str, fields: Object) -> dict[tuple[str, str], Object]:
    """Return an overlay's objects by kind and name, without Namespace and the hash of settings."""
    text = HASH.sub("bwagent", rendered(str(site_overlay(folder, overlay, fields))))
    return named(tuple(comparable(each) for each in parsed(text) if each["kind"] != "Namespace"))


def comparable(one: Object) -> Object:
    """Return an object without Helm's labels, and with the named things of a Pod in order."""
    about = one["metadata"]
    labels = {key: value for key, value in about.pop("labels", {}).items() if key not in HELMS}
    found: Object = in_order({**one, "metadata": {**about, "labels": labels}})
    return found


def in_order(one: Any) -> Any:
    """Return a value with its lists of named things in a Pod sorted."""
    if isinstance(one, dict):
        return {
            key: sorted(value, key=lambda each: str(each["name"]))
            if key in FIELDS
            else in_order(value)
            for key, value in one.items()
        }
    return [in_order(each) for each in one] if isinstance(one, list) else one


def test_every_overlay_has_its_profile() -> None:
    """The profiles are the overlays, and the README has a row for each."""
    assert PROFILES == OVERLAYS
    text = (CHART / "README.md").read_text()
    assert all(f"| `{name}` |" in text for name in PROFILES)


ADDED: dict[str, tuple[Object, tuple[str, ...]]] = {
    "metrics-tls": (
        {"components": ["metrics-tls"]},
        ("--set", "metrics.tlsSecret=bwagent-metrics"),
    ),
    "events": ({"components": ["events"]}, ("--set", "events=true")),
    "plan": (
        {"components": ["examples/cabling-readiness/plan"]},
        ("--set", "plan.configMap=bwagent-plan"),
    ),
    "settings": (
        with_settings(
            "BWAGENT_LABEL_PREFIX=a.example",
            "BWAGENT_FORMER_LABEL_PREFIXES=b.example c.example",
            "BWAGENT_EXCLUDE_DEVICE=mlx5_8 mlx5_9",
        ),
        (
            *("--set", "labelPrefix=a.example"),
            *("--set", "formerLabelPrefixes={b.example,c.example}"),
            *("--set", "excludeDevices={mlx5_8,mlx5_9}"),
        ),
    ),
}


if (MANIFESTS / "monitoring").is_dir():
    ADDED["monitoring"] = (
        {"components": ["monitoring"]},
        (
            *("--set", "metrics.podMonitor.enabled=true"),
            *("--set", "alerts.enabled=true,dashboard.enabled=true"),
        ),
    )


@pytest.mark.parametrize(
    ("overlay", "added"),
    [*((overlay, "as it is") for overlay in OVERLAYS), *(("lldp", added) for added in ADDED)],
)
def test_a_profile_is_its_overlay(tmp_path: Path, overlay: str, added: str) -> None:
    """Object by object, but for Helm's own labels and the Namespace; with the components and
    settings that an own overlay adds, too.
    """
    require(no_kubectl())
    fields, flags = ADDED.get(added, ({}, ()))
    chart = named(template(*profile(overlay), *flags))
    own = of_kustomize(tmp_path, overlay, {"images": IMAGES, **fields})
    assert {key: without_helms(one) for key, one in chart.items()} == own


def test_a_chart_of_charts(tmp_path: Path) -> None:
    """As a dependency of another chart it renders the same, under that one's release."""
    shutil.copytree(CHART, tmp_path / "charts/bwagent")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: site, version: 1.0.0}")
    (tmp_path / "values.yaml").write_text(
        "{global: {a: b}, bwagent: {labelPrefix: a.example, image: {repository: bwagent}}}"
    )
    assert template(chart=tmp_path) == template("--set", "labelPrefix=a.example")


@pytest.mark.parametrize("name", [None, *PROFILES])
def test_lint(name: str | None) -> None:
    """`helm lint --strict` has nothing to say, with and without a profile."""
    helm("lint", "--strict", str(CHART), *SITE, *(profile(name) if name else ()))


def test_the_default_is_the_least() -> None:
    """Without a profile the chart is `sysfs`: no capability, no file of the host."""
    assert template() == template(*profile("sysfs"))


def test_a_package_is_the_folder(tmp_path: Path) -> None:
    """`helm package` keeps all that the templates read."""
    helm("package", str(CHART), "--destination", str(tmp_path))
    packed = tmp_path / f"bwagent-{TAG}.tgz"
    assert template(*profile("full"), chart=packed) == template(*profile("full"))


@pytest.mark.parametrize(
    ("release", "namespace", "name", "cluster"),
    [
        ("bwagent", "bwagent", "bwagent", "bwagent"),
        ("bwagent", "gpu", "bwagent", "bwagent.gpu"),
        ("foo", "bwagent", "bwagent-foo", "bwagent-foo.bwagent"),
        ("my-bwagent", "x", "my-bwagent", "my-bwagent.x"),
        (LONG, "n" * 63, f"bwagent-{LONG}", f"bwagent-{LONG}.{'n' * 63}"),
    ],
)
def test_names(release: str, namespace: str, name: str, cluster: str) -> None:
    """Every name has `bwagent` in it, and that of an object outside namespaces the namespace,
    too; references follow.
    """
    found = template("--set", "events=true", release=release, namespace=namespace)
    events = cluster.replace(name, f"{name}-events", 1)
    for each in found:
        about = each["metadata"]
        assert about["labels"]["app.kubernetes.io/instance"] == release
        if about["name"] == events:
            assert about.get("namespace", "default") == "default"
        else:
            assert about["name"] == (name if "namespace" in about else cluster)
            assert about.get("namespace", namespace) == namespace
    of_events = {each["kind"]: each for each in found if each["metadata"]["name"] == events}
    assert len(of_events) == 4
    kinds = by_kind(found)
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    assert kinds["ClusterRoleBinding"]["subjects"] == [account]
    assert of_events["RoleBinding"]["subjects"] == [account]
    assert of_events["RoleBinding"]["roleRef"]["name"] == events
    assert of_events["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] == events
    assert kinds["ClusterRoleBinding"]["roleRef"]["name"] == cluster
    assert kinds["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] == cluster
    assert (spec(kinds)["serviceAccountName"], spec(kinds)["priorityClassName"]) == (name, cluster)
    assert container(kinds)["envFrom"] == [{"configMapRef": {"name": name}}]
    # A Pod's name has at most 58 characters of its DaemonSet's.
    assert "bwagent" in name[:58]


def test_the_address_is_known_where_it_is_used() -> None:
    """A variable may refer to those before it."""
    env = container(by_kind(template()))["env"]
    names = [one["name"] for one in env]
    assert names.index("NODE_IP") < names.index("BWAGENT_RUN_METRICS_ADDRESS")


def test_a_large_number(tmp_path: Path) -> None:
    """Helm's numbers are floating point, and Kubernetes' are not."""
    changed = with_values(tmp_path, {"minReadySeconds": 3_000_000})
    assert changed["DaemonSet"]["spec"]["minReadySeconds"] == 3_000_000


def test_a_changed_setting_rolls_out(tmp_path: Path) -> None:
    """The Pods' annotation follows the settings, and nothing else does."""
    look = of("DaemonSet", "spec", "template", "metadata", "annotations", CHECKSUM)
    changed = with_values(tmp_path, {"run.hold": "1m"})
    assert look(changed) != look(with_values(tmp_path, {}))
    assert look(with_values(tmp_path, {"metrics.port": 9000})) == look(with_values(tmp_path, {}))


def test_files_of_the_monitoring(tmp_path: Path) -> None:
    """Rules and dashboard come from files/, as they are."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    rules = 'groups:\n  - name: a\n    rules:\n      - {alert: A, expr: "{{ $labels.a }}"}\n'
    (chart / "files/rules.yaml").write_text(rules)
    (chart / "files/dashboard.json").write_text('{\n  "a": "{{node}}"\n}\n')
    values: Object = {
        "alerts": {"enabled": True, "labels": {"release": "p"}},
        "dashboard": {"enabled": True, "labels": {"grafana": "yes"}},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    found = named(template("-f", str(tmp_path / "values.yaml"), chart=chart))
    rule = found["PrometheusRule", "bwagent"]
    assert rule["spec"] == yaml.safe_load(rules)
    assert rule["metadata"]["labels"]["release"] == "p"
    board = found["ConfigMap", "bwagent-dashboard"]
    assert json.loads(board["data"]["bwagent.json"]) == {"a": "{{node}}"}
    labels = board["metadata"]["labels"]
    assert (labels["grafana"], labels["grafana_dashboard"]) == ("yes", "1")


def test_addresses_of_the_runbooks(tmp_path: Path) -> None:
    """With an address every alert has its own paragraph there, and no path."""
    values = {"alerts.enabled": True, "alerts.runbooks": "https://r.example/ops"}
    groups = with_values(tmp_path, values)["PrometheusRule"]["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        notes = rule["annotations"]
        assert notes["runbook_url"] == f"https://r.example/ops#{rule['alert'].lower()}"
        assert "runbook" not in notes
    assert alerts
