"""Every value of the chart at least once, as helm renders it, and the values that are refused; no
cluster is needed.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from agent.commands import run
from tests.support.helm.chart import (
    CHART,
    HelmError,
    Kinds,
    Look,
    endpoint,
    in_policy,
    missing,
    mounted,
    of,
    of_check,
    of_container,
    of_pod,
    rendered,
    setting,
    variable,
    with_values,
)
from tests.support.helm.values import leaves
from tests.support.kube.manifests import TAG, Object, by_kind
from tests.support.real_parts import require

REPOSITORY = "r.example/bwagent"
TIERS = "a.b/{leaf,spine,core}"
MONITORS = {"metrics.podMonitor.enabled": True}
CHECK = {"check.enabled": True}
PEER = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
AFFINITY: Object = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
RACK: Object = {"action": "labeldrop", "regex": "pod"}
REPOSITORIES = (
    *("agent", "a/b/c", "r.example/bwagent", "R.example/bwagent", "localhost:5000/bwagent"),
    *("[fd00::1]:5000/bwagent", "r/a.b_c__d---e"),
)
NO_REPOSITORIES = (
    *("r.example/bwagent:", "r.example/bwagent:0.2.0", "bwagent:0.2.0", "localhost:5000"),
    *("Registry/UPPER", "UPPER", "r.example/Bwagent", "r.example:x/bwagent", "r..example/bwagent"),
    *("/bwagent", "r.example/", "r.example//bwagent", "r.example/a___b", "r.example/-a", "a b"),
    *(f"r.example/bwagent@sha256:{'0' * 64}", "https://r.example/bwagent"),
)
MOUNT = {"name": "machine", "mountPath": "/machine"}


@pytest.fixture(autouse=True)
def _helm() -> None:
    require(missing())


# Values that are set together, and what is seen of the first.
EVERY: list[tuple[Object, Look, object]] = [
    ({"image.repository": REPOSITORY}, of_container("image"), f"{REPOSITORY}:{TAG}"),
    *(
        ({"image.repository": name}, of_container("image"), f"{name}:{TAG}")
        for name in REPOSITORIES
    ),
    ({"image.tag": "1"}, of_container("image"), "bwagent:1"),
    (
        {"image.digest": f"sha256:{'0' * 64}", "image.tag": "1"},
        of_container("image"),
        f"bwagent@sha256:{'0' * 64}",
    ),
    ({"image.pullPolicy": "Never"}, of_container("imagePullPolicy"), "Never"),
    ({"imagePullSecrets": [{"name": "r"}]}, of_pod("imagePullSecrets"), [{"name": "r"}]),
    ({"sources": [], "privileges.hostDevices": True}, setting("SOURCE"), None),
    ({"sources": ["lldp"], "privileges.netRaw": True}, setting("SOURCE"), "lldp"),
    (
        {"privileges.netRaw": True, "sources": ["rdma", "lldp"]},
        of_container("securityContext", "capabilities"),
        {"drop": ["ALL"], "add": ["NET_RAW"]},
    ),
    (
        {"privileges.hostDevices": True, "sources": ["ib"]},
        of_container("securityContext"),
        {"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True, "privileged": True},
    ),
    ({"labelPrefix": "a.b"}, setting("LABEL_PREFIX"), "a.b"),
    ({"labelPrefix": "a.b"}, in_policy("prefix"), "a.b"),
    ({"ibLabelPrefix": ""}, setting("IB_LABEL_PREFIX"), ""),
    ({"ibLabelPrefix": ""}, in_policy("ibPrefix"), ""),
    ({"acceleratorLabel": "a.b/c"}, setting("ACCELERATOR_LABEL"), "a.b/c"),
    ({"acceleratorLabel": "a.b/c"}, in_policy("accelerator"), "a.b/c"),
    ({"tierLabel": TIERS}, setting("TIER_LABEL"), TIERS),
    ({"tierLabel": TIERS}, in_policy("tierLabel"), TIERS),
    ({"formerLabelPrefixes": [TIERS]}, in_policy("formerPrefixes"), TIERS),
    ({"formerLabelPrefixes": ["a.b", "c"]}, setting("FORMER_LABEL_PREFIXES"), "a.b c"),
    ({"formerLabelPrefixes": ["a.b", "c"]}, in_policy("formerPrefixes"), "a.b c"),
    ({"excludeDevices": ["mlx5_[0,1]", "b*"]}, setting("EXCLUDE_DEVICE"), "mlx5_[0,1] b*"),
    ({"backendDevices": ["ibp*"]}, setting("BACKEND_DEVICE"), "ibp*"),
    ({"openvswitch": True}, setting("OPENVSWITCH"), "true"),
    ({"tiers": True}, setting("TIERS"), "true"),
    ({"nvmlLibrary": "/lib/n.so"}, setting("NVML_LIBRARY"), "/lib/n.so"),
    ({"sysfsRoot": "/host/sys"}, setting("SYSFS_ROOT"), "/host/sys"),
    ({"run.dryRun": True}, setting("RUN_DRY_RUN"), "true"),
    ({"run.forceNode": True}, setting("RUN_FORCE_NODE"), "true"),
    ({"run.hold": "5m"}, setting("RUN_HOLD"), "5m"),
    ({"run.minInterval": "1s"}, setting("RUN_MIN_INTERVAL"), "1s"),
    ({"run.resync": "2h"}, setting("RUN_RESYNC"), "2h"),
    ({"run.resync": "5m"}, setting("RUN_RESYNC"), "5m"),
    ({"run.resync": "300"}, setting("RUN_RESYNC"), "300"),
    ({"run.gpuInterval": "1m"}, setting("RUN_GPU_INTERVAL"), "1m"),
    ({"run.portInterval": "0.5"}, setting("RUN_PORT_INTERVAL"), "0.5"),
    ({"run.verdictDelay": "9"}, setting("RUN_VERDICT_DELAY"), "9"),
    ({"run.verbose": True}, setting("RUN_VERBOSE"), "true"),
    ({"run.logFormat": "text"}, setting("RUN_LOG_FORMAT"), "text"),
    ({"plan.configMap": "cables"}, mounted("plan"), "/etc/bwagent/plan"),
    (
        {"plan.file": "a.csv", "plan.configMap": "cables"},
        variable("BWAGENT_RUN_PLAN"),
        "/etc/bwagent/plan/a.csv",
    ),
    ({"check.enabled": True}, of("CronJob", "spec", "schedule"), "17 5 * * 1"),
    ({"check.schedule": "@daily", **CHECK}, of("CronJob", "spec", "schedule"), "@daily"),
    ({"check.image": "mine:1", **CHECK}, of_check("image"), "mine:1"),
    (
        {"check.resources": {"limits": {"memory": "2Gi"}}, **CHECK},
        of_check("resources"),
        {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
    ),
    (
        {"check.baseline.configMap": "accepted", **CHECK},
        of_check("args", 4),
        "--baseline=/etc/cabling-check/baseline.csv",
    ),
    (
        {"check.baseline.file": "a.csv", "check.baseline.configMap": "accepted", **CHECK},
        of_check("args", 4),
        "--baseline=/etc/cabling-check/a.csv",
    ),
    ({"labelPrefix": "a.b", **CHECK}, of_check("args", 2), "--label-prefix=a.b"),
    ({"events": True}, setting("RUN_EVENTS"), "true"),
    ({"policy.enabled": False}, of("ValidatingAdmissionPolicyBinding"), None),
    ({"policy.enabled": False}, setting("RUN_REQUIRE_POLICY"), None),
    (
        {"policy.elsewhere": True, "policy.enabled": False, "labelPrefix": "a.b"},
        of("ValidatingAdmissionPolicy"),
        None,
    ),
    ({"metrics.port": 9000}, variable("BWAGENT_RUN_METRICS_ADDRESS"), "$(NODE_IP):9000"),
    ({"metrics.port": 9000}, of_container("ports", 0, "containerPort"), 9000),
    ({"metrics.tlsSecret": "t"}, mounted("tls"), "/etc/bwagent/tls"),
    ({"metrics.tlsSecret": "t"}, of_container("readinessProbe", "httpGet", "scheme"), "HTTPS"),
    (MONITORS, endpoint("port"), "http"),
    ({"metrics.podMonitor.interval": "1m", **MONITORS}, endpoint("interval"), "1m"),
    (
        {"metrics.podMonitor.scrapeTimeout": "9s500ms", **MONITORS},
        endpoint("scrapeTimeout"),
        "9s500ms",
    ),
    (
        {"metrics.podMonitor.relabelings": [RACK], **MONITORS},
        endpoint("relabelings"),
        [
            {
                "action": "replace",
                "sourceLabels": ["__meta_kubernetes_pod_node_name"],
                "targetLabel": "node",
            },
            RACK,
        ],
    ),
    (
        {"metrics.podMonitor.labels": {"release": "p"}, **MONITORS},
        of("PodMonitor", "metadata", "labels", "release"),
        "p",
    ),
    (  # by which Helm knows its own
        {"metrics.podMonitor.labels": {"app.kubernetes.io/managed-by": "me"}, **MONITORS},
        of("PodMonitor", "metadata", "labels", "app.kubernetes.io/managed-by"),
        "Helm",
    ),
    (
        {
            "metrics.podMonitor.tlsConfig": {"serverName": "a"},
            "metrics.tlsSecret": "t",
            **MONITORS,
        },
        endpoint("tlsConfig"),
        {"serverName": "a"},
    ),
    (
        {"alerts.runbooks": "https://r.example/ops.html", "alerts.enabled": True},
        of("PrometheusRule", "spec", "groups", 1, "rules", 0, "annotations", "runbook_url"),
        "https://r.example/ops.html#bwagentportdown",
    ),
    ({"networkPolicy.enabled": True}, of("NetworkPolicy", "spec", "policyTypes"), ["Ingress"]),
    (
        {"networkPolicy.from": [PEER], "networkPolicy.enabled": True},
        of("NetworkPolicy", "spec", "ingress"),
        [{"from": [PEER], "ports": [{"port": "http"}]}],
    ),
    (
        {"networkPolicy.to": [{"to": [PEER]}], "networkPolicy.enabled": True},
        of("NetworkPolicy", "spec", "egress"),
        [{"to": [PEER]}],
    ),
    (
        {"nodeSelector": {"gpu": "yes"}},
        of_pod("nodeSelector"),
        {"gpu": "yes", "kubernetes.io/os": "linux"},
    ),
    (
        {"tolerations": [{"operator": "Exists"}]},
        of_pod("tolerations"),
        [{"operator": "Exists"}],
    ),
    ({"affinity": AFFINITY}, of_pod("affinity"), AFFINITY),
    ({"priorityClassName": "mine"}, of_pod("priorityClassName"), "mine"),
    ({"priorityClassName": "mine"}, of("PriorityClass"), None),
    (
        {"resources": {"limits": {"rdma/hca": 1}}, "sources": ["ib"]},
        of_container("resources", "limits"),
        {"rdma/hca": 1, "memory": "192Mi"},
    ),
    (
        {"livenessProbe": {"failureThreshold": 9, "initialDelaySeconds": 5}},
        of_container("livenessProbe"),
        {
            "httpGet": {"path": "/healthz", "port": "http"},
            "periodSeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 9,
            "initialDelaySeconds": 5,
        },
    ),
    (
        {"readinessProbe": {"periodSeconds": 1}},
        of_container("readinessProbe"),
        {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
    ),
    (
        {"livenessProbe": {"periodSeconds": None, "timeoutSeconds": None}},
        of_container("livenessProbe"),
        {"httpGet": {"path": "/healthz", "port": "http"}},
    ),
    ({"minReadySeconds": 0}, of("DaemonSet", "spec", "minReadySeconds"), 0),
    (
        {"updateStrategy.type": "OnDelete"},
        of("DaemonSet", "spec", "updateStrategy"),
        {"type": "OnDelete"},
    ),
    (
        {"updateStrategy.maxUnavailable": 3},
        of("DaemonSet", "spec", "updateStrategy", "rollingUpdate", "maxUnavailable"),
        3,
    ),
    ({"revisionHistoryLimit": 3}, of("DaemonSet", "spec", "revisionHistoryLimit"), 3),
    (
        {"serviceAccount.annotations": {"a.b/role": "arn:aws:iam::1:role/x"}},
        of("ServiceAccount", "metadata", "annotations"),
        {"a.b/role": "arn:aws:iam::1:role/x"},
    ),
    ({"commonLabels": {"team": "net"}}, of("ClusterRole", "metadata", "labels", "team"), "net"),
    (
        {"commonLabels": {"team": "net"}},
        of("DaemonSet", "spec", "template", "metadata", "labels", "team"),
        "net",
    ),
    (
        {"podLabels": {"team": "net"}, "commonLabels": {"team": "infra", "cost": "1"}},
        of("DaemonSet", "spec", "template", "metadata", "labels"),
        {"app.kubernetes.io/name": "bwagent", "team": "net", "cost": "1"},
    ),
    (
        {"podLabels": {"team": "net"}},
        of("DaemonSet", "spec", "template", "metadata", "labels"),
        {"app.kubernetes.io/name": "bwagent", "team": "net"},
    ),
    (
        {"podAnnotations": {"a/b": "c"}},
        of("DaemonSet", "spec", "template", "metadata", "annotations", "a/b"),
        "c",
    ),
    ({"extraEnv": [{"name": "A", "value": "b"}]}, variable("A"), "b"),
    (
        {"extraVolumes": [{"name": "machine", "emptyDir": {}}], "extraVolumeMounts": [MOUNT]},
        mounted("machine"),
        "/machine",
    ),
]
# Their files come with the monitoring; test_files_of_the_monitoring has them.
OF_FILES = {"alerts.labels", "dashboard.enabled", "dashboard.labels"}
OF_A_CLUSTER = {"droppedSources"}  # what an upgrade may do: test_chart.py


@pytest.mark.parametrize(
    ("values", "look", "expected"), EVERY, ids=[next(iter(values)) for values, _, _ in EVERY]
)
def test_every_value(tmp_path: Path, values: Object, look: Look, expected: object) -> None:
    """A value is seen where it belongs, and the default is something else."""
    assert look(with_values(tmp_path, values)) == expected
    assert look(default()) != expected


@cache
def default() -> Kinds:
    return by_kind(rendered())


def test_every_value_is_tested() -> None:
    """Each value of the schema is set by a test."""
    tested = {name for values, _, _ in EVERY for name in values}
    assert tested | OF_FILES | OF_A_CLUSTER == {one.name for one in leaves()}


def test_every_flag_has_its_value() -> None:
    """The values set each flag of `run`, but for those that are the Pod's own."""
    names = set()
    for values, _, _ in EVERY:
        names |= {name.rpartition(".")[2] for name in values}
    given = {"".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in names}
    words = {
        "sources": "source",
        "exclude_devices": "exclude_device",
        "backend_devices": "backend_device",
        "config_map": "plan",
        "enabled": "require_policy",
        "port": "metrics_address",
    }
    of_the_pod = {"kubeconfig", "context", "node_name"}
    tls = {"metrics_cert", "metrics_key", "metrics_client_ca"}
    flags = {str(one.name) for one in run.params} - of_the_pod - tls
    assert flags <= {words.get(name, name) for name in given}


NOT_IN_SCHEMA: dict[str, tuple[Object, str]] = {
    "a typo": ({"labelPrefx": "a.b"}, "'labelPrefx'"),
    "a typo in a group": ({"image.tga": "1"}, "/image': additional properties 'tga'"),
    "a typo in a flag": ({"run.min_interval": "1s"}, "'min_interval'"),
    "a typo in a toleration": ({"tolerations": [{"keys": "a"}]}, "/tolerations/0"),
    "a group that is none": ({"policy": True}, "/policy"),
    "another type": ({"metrics.port": "9477"}, "/metrics/port"),
    "no such port": ({"metrics.port": 70000}, "/metrics/port"),
    "no such source": ({"sources": ["lldb"]}, "/sources/0"),
    "a source twice": ({"sources": ["rdma", "rdma"]}, "/sources"),
    "no domain": ({"labelPrefix": "a_b"}, "/labelPrefix"),
    "no prefix": ({"labelPrefix": ""}, "/labelPrefix"),
    "a quote for the policy": ({"formerLabelPrefixes": ["a' + 'b"]}, "/formerLabelPrefixes/0"),
    "no pattern": ({"tierLabel": "a.b/tier"}, "/tierLabel"),
    "two names of three": ({"tierLabel": "a.b/{a,b}"}, "/tierLabel"),
    "a quote in a pattern": ({"tierLabel": "a.b/{a,b,'}"}, "/tierLabel"),
    "no key": ({"acceleratorLabel": "accelerator"}, "/acceleratorLabel"),
    "a list in one glob": ({"excludeDevices": ["a,b"]}, "/excludeDevices/0"),
    "no time": ({"run.hold": "soon"}, "/run/hold"),
    "a typo in TLS": (
        {"metrics.podMonitor.tlsConfig": {"servername": "a"}},
        "/metrics/podMonitor/tlsConfig': additional properties 'servername'",
    ),
    "no address": (
        {"alerts.runbooks": "https://r.example/{{ $labels.node }}"},
        "/alerts/runbooks",
    ),
    "a surge": ({"updateStrategy.maxSurge": 1}, "'maxSurge'"),
    "nobody": ({"updateStrategy.maxUnavailable": 0}, "/updateStrategy/maxUnavailable"),
    "more than all": ({"updateStrategy.maxUnavailable": "200%"}, "/updateStrategy/maxUnavailable"),
    "no quantity": ({"resources": {"limits": {"memory": "192MB"}}}, "/resources/limits/memory"),
    "no unit of one's own": ({"resources": {"requests": {"cpu": "100 m"}}}, "/requests/cpu"),
    "less than nothing": ({"resources": {"requests": {"cpu": -1}}}, "/resources/requests/cpu"),
    "no name of a resource": ({"resources": {"limits": {"rdma/": 1}}}, "properties 'rdma/'"),
    "no key of a label": ({"podLabels": {"a b": "c"}}, "/podLabels"),
    "no domain of a key": ({"commonLabels": {"A_B/c": "d"}}, "/commonLabels"),
    "a name of two parts": ({"nodeSelector": {"a/b/c": "d"}}, "/nodeSelector"),
    "a key too long": ({"metrics.podMonitor.labels": {"a" * 64: "b"}}, "/podMonitor/labels"),
    "no label's value": ({"dashboard.labels": {"a": "b c"}}, "/dashboard/labels/a"),
    "a value too long": ({"alerts.labels": {"a": "b" * 64}}, "/alerts/labels/a"),
    "no key of an annotation": ({"podAnnotations": {"a/": "b"}}, "/podAnnotations"),
    "nor of the account's": (
        {"serviceAccount.annotations": {"/a": "b"}},
        "/serviceAccount/annotations",
    ),
    "no key of a taint": ({"tolerations": [{"key": "a b"}]}, "/tolerations/0/key"),
    "no probe": ({"livenessProbe": {"httpGet": {}}}, "'httpGet'"),
    "a probe without end": ({"readinessProbe": {"timeoutSeconds": 0}}, "/readinessProbe"),
    "revisions below none": ({"revisionHistoryLimit": -1}, "/revisionHistoryLimit"),
    "no account of another name": ({"serviceAccount": {"name": "a"}}, "'name'"),
    "no time to scrape": ({"metrics.podMonitor.scrapeTimeout": "10"}, "/podMonitor/scrapeTimeout"),
    "no action": (
        {"metrics.podMonitor.relabelings": [{"action": "rename"}]},
        "/podMonitor/relabelings/0/action",
    ),
    "a typo in a relabeling": (
        {"metrics.podMonitor.relabelings": [{"target_label": "a"}]},
        "/podMonitor/relabelings/0': additional properties 'target_label'",
    ),
    "no value": ({"tolerations": None}, "'tolerations'"),
    "no name of a ConfigMap": ({"plan.configMap": "A_B"}, "/plan/configMap"),
    "no name of a Secret": ({"metrics.tlsSecret": "a b"}, "/metrics/tlsSecret"),
    "no name of a class": ({"priorityClassName": "High"}, "/priorityClassName"),
    "a number": ({"nodeSelector": {"a": 1}}, "/nodeSelector/a"),
}
CONTRADICTIONS: dict[str, tuple[Object, str]] = {
    "no image": ({"image.repository": ""}, "image.repository is empty"),
    **{
        f"no repository: {name}": (
            {"image.repository": name},
            f"image.repository={name} is no name of an image: lower case behind the registry, and",
        )
        for name in NO_REPOSITORIES
    },
    "a source that is not dropped": (
        {"droppedSources": ["rdma"]},
        "droppedSources has rdma, which sources reads",
    ),
    "Helm's labels": (
        {"commonLabels": {"helm.sh/chart": "a"}},
        "commonLabels has helm.sh/chart, which the chart sets",
    ),
    "a scrape longer than its interval": (
        {"metrics.podMonitor.interval": "1m", "metrics.podMonitor.scrapeTimeout": "1m1ms"},
        "metrics.podMonitor.scrapeTimeout=1m1ms is longer than metrics.podMonitor.interval=1m",
    ),
    "more memory than may be": (
        {"resources": {"requests": {"memory": "0.2Gi"}}},
        "resources.requests.memory=0.2Gi is above resources.limits.memory=192Mi",
    ),
    "more CPU than may be": (
        {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "999m"}}},
        "resources.requests.cpu=1 is above resources.limits.cpu=999m",
    ),
    "fewer devices than may be": (
        {"resources": {"requests": {"rdma/hca": 1}, "limits": {"rdma/hca": 2}}},
        "resources.requests.rdma/hca=1 is not resources.limits.rdma/hca=2",
    ),
    "devices without limit": (
        {"resources": {"requests": {"rdma/hca": 1}}},
        "resources.requests has rdma/hca without its limit",
    ),
    "lldp without its capability": ({"sources": ["lldp"]}, "privileges.netRaw"),
    "ib without devices": ({"sources": ["ib"]}, "sources has ib without privileges.hostDevices"),
    "nvml without devices": (
        {"sources": ["rdma", "lldp", "nvml"], "privileges.netRaw": True},
        "sources has nvml without privileges.hostDevices",
    ),
    "a request each second": ({"run.resync": "1s"}, "run.resync=1s is below"),
    "half a bound in minutes": ({"run.resync": "4.9m"}, "run.resync=4.9m is below"),
    "no time between changes": ({"run.minInterval": "0"}, "run.minInterval=0 is below"),
    "a GPU query all the time": ({"run.gpuInterval": "0.5"}, "run.gpuInterval=0.5 is below"),
    "a sweep all the time": ({"run.portInterval": "0.01s"}, "run.portInterval=0.01s is below"),
    "a hold of years": ({"run.hold": "9999h"}, "run.hold=9999h is above"),
    "a resync of two months": ({"run.resync": "86401m"}, "run.resync=86401m is above"),
    "all without devices": ({"sources": []}, "sources is empty"),
    "a capability for nothing": ({"privileges.netRaw": True}, "privileges.netRaw is for"),
    "devices for nothing": ({"privileges.hostDevices": True}, "privileges.hostDevices is for"),
    "a prefix without policy": (
        {"policy.enabled": False, "labelPrefix": "a.b"},
        "labelPrefix is changed with policy.enabled=false",
    ),
    "a former prefix without policy": (
        {"policy.enabled": False, "formerLabelPrefixes": ["a.b"]},
        "formerLabelPrefixes is changed with policy.enabled=false",
    ),
    "a former pattern in use": (
        {"tierLabel": TIERS, "formerLabelPrefixes": [TIERS]},
        f"formerLabelPrefixes has {TIERS}, which is in use",
    ),
    "two policies": ({"policy.elsewhere": True}, "policy.elsewhere is for"),
    "a former prefix in use": (
        {"formerLabelPrefixes": ["ib.coreweave.cloud"]},
        "formerLabelPrefixes has ib.coreweave.cloud, which is in use",
    ),
    "a prefix behind the policy": (
        {"extraEnv": [{"name": "BWAGENT_RUN_LABEL_PREFIX", "value": "a.b"}]},
        "extraEnv has BWAGENT_RUN_LABEL_PREFIX",
    ),
    "another Node": ({"extraEnv": [{"name": "NODE_NAME", "value": "a"}]}, "NODE_NAME"),
    "a monitor without certificate": (
        {"metrics.tlsSecret": "t", **MONITORS},
        "needs metrics.podMonitor.tlsConfig",
    ),
    "a certificate for nothing": (
        {"metrics.podMonitor.tlsConfig": {"serverName": "a"}},
        "tlsConfig without metrics.tlsSecret",
    ),
    "a baseline of no check": (
        {"check.baseline.configMap": "accepted"},
        "check.baseline.configMap without check.enabled",
    ),
    "peers of no policy": ({"networkPolicy.from": [PEER]}, "without networkPolicy.enabled"),
    "Pods of another name": (
        {"podLabels": {"app.kubernetes.io/name": "a"}},
        "podLabels has app.kubernetes.io/name",
    ),
    "a port of root's": (
        {"metrics.port": 443},
        "metrics.port=443 needs a capability that the agent does not have: 1024 or above",
    ),
    "a mount without volume": (
        {"extraVolumeMounts": [MOUNT]},
        "extraVolumeMounts has machine, which is not in extraVolumes",
    ),
    "a volume of the chart's": (
        {"extraVolumes": [{"name": "token", "emptyDir": {}}]},
        "extraVolumes has token, which the chart sets",
    ),
    "a volume twice": (
        {"extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
        "extraVolumes has a twice",
    ),
    "a folder of the chart's": (
        {
            "extraVolumes": [{"name": "a", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "a", "mountPath": "/etc/bwagent/plan/"}],
            "plan.configMap": "cables",
        },
        "extraVolumeMounts has /etc/bwagent/plan, which is mounted already",
    ),
    "a folder twice": (
        {
            "extraVolumes": [{"name": "a", "emptyDir": {}}],
            "extraVolumeMounts": [
                {"name": "a", "mountPath": "/a"},
                {"name": "a", "mountPath": "/a"},
            ],
        },
        "extraVolumeMounts has /a, which is mounted already",
    ),
}


@cache
def refusals() -> dict[str, str]:
    """Return what helm says of the cases, by their names: it names all errors of the values, so
    each run has as many cases as set no value of one another.
    """
    batches: list[Object] = []
    places = {}
    for name, (values, _) in NOT_IN_SCHEMA.items():
        free = (one for one in batches if not meet(one, values))
        if (batch := next(free, None)) is None:
            batches.append(batch := {})
        batch |= values
        places[name] = batch
    said = {id(one): refusal(one) for one in batches}
    return {name: said[id(batch)] for name, batch in places.items()}


def meet(one: Object, other: Object) -> bool:
    pairs = [(f"{a}.", f"{b}.") for a in one for b in other]
    return any(a.startswith(b) or b.startswith(a) for a, b in pairs)


def refusal(values: Object) -> str:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(HelmError) as refused:
        with_values(Path(folder), values)
    return str(refused.value)


@pytest.mark.parametrize("name", NOT_IN_SCHEMA)
def test_the_schema_refuses(name: str) -> None:
    """A value that is none is an error that names it."""
    _, message = NOT_IN_SCHEMA[name]
    head, *errors = refusals()[name].splitlines()
    assert "values don't meet the specifications of the schema" in head
    assert [message in error for error in errors].count(True) == 1


@pytest.mark.parametrize(
    ("less", "more"),
    [("1", 1.5), ("1e3", "1001"), ("1k", "1Ki"), ("1Mi", 1048577), ("999u", "1m"), (".5", "1.")],
)
def test_quantities(tmp_path: Path, less: str | float, more: str | float) -> None:
    """A request is compared with its limit in every unit."""
    with_values(tmp_path, {"resources": {"requests": {"cpu": less}, "limits": {"cpu": more}}})
    with pytest.raises(HelmError, match=r"is above resources\.limits\.cpu"):
        with_values(tmp_path, {"resources": {"requests": {"cpu": more}, "limits": {"cpu": less}}})


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(name: str) -> None:
    """Values that contradict each other are an error that names both."""
    values, message = CONTRADICTIONS[name]
    said = refusal(values)
    assert "values: " in said
    assert message in said


def test_all_contradictions_are_one_error() -> None:
    """Nobody has to try again for the next one."""
    text = refusal({"sources": ["lldp", "ib"], "policy.elsewhere": True})
    assert all(name in text for name in ("has lldp", "has ib", "policy.elsewhere"))


@pytest.mark.parametrize(("value", "file"), [("alerts", "rules"), ("dashboard", "dashboard")])
def test_a_missing_file_is_named(tmp_path: Path, value: str, file: str) -> None:
    """A chart that was packed without a file says so."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("rules.*", "dashboard.*"))
    with pytest.raises(HelmError, match=rf"{value}\.enabled, and this chart has no files/{file}"):
        with_values(tmp_path, {f"{value}.enabled": True}, chart)
