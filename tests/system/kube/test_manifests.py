"""The comments, names and settings of the manifests, compared with their content; and the overlays
and examples put before a real API server.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from agent.commands import run
from agent.options import ForAllCommands
from tests.support.kube.cluster import Cluster
from tests.support.kube.deployments import TRANSFORMERS, transformed
from tests.support.kube.manifests import (
    FILES,
    IMAGE,
    IMAGES,
    MANIFESTS,
    NO_IMAGE,
    OVERLAYS,
    TAG,
    TEMPLATES,
    by_kind,
    only,
    own_overlay,
    parsed,
    pod,
    rendered,
    settings,
    the,
)
from tests.support.kube.programs import missing
from tests.support.real_parts import require

# What a reviewer asks about: each stands with its reason beside it or above it.
GRANTS = re.compile(
    r"^\s*(- )?(hostPath:|hostNetwork: true|privileged: true|add: \[|runAsUser: 0|verbs:"
    r"|allowPrivilegeEscalation: null|capabilities: null|seccompProfile: null"
    r"|pod-security.kubernetes.io/enforce:|limits:|requests:|projected:)"
)
NAME = "app.kubernetes.io/name"
# Keys that the examples take from the site's half of the schema.
SITES = {"fabric", "superpod", "rack", "speed.expected"}

every_file = pytest.mark.parametrize(
    "file", [*FILES, *TEMPLATES], ids=lambda file: str(file.relative_to(MANIFESTS))
)


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Return each overlay, as kubectl renders it."""
    require(missing())
    return str(request.param)


def flags() -> set[str]:
    return {str(parameter.name) for parameter in run.params}


def common_flags() -> set[str]:
    """Return the flags that have one variable for all commands."""
    parameters = run.params
    return {str(one.name) for one in parameters if isinstance(one, ForAllCommands)}


def has_reason(lines: list[str], number: int) -> bool:
    """Return True if a comment is in the line, above it, above its item, or in the item's
    first lines.
    """
    start = next((n for n in range(number, 0, -1) if lines[n].lstrip().startswith("- ")), number)
    first = start if number - start <= 2 else number
    return any("#" in lines[n] for n in range(first - 1, min(number + 2, len(lines))))


@every_file
def test_grants_have_reasons(file: Path) -> None:
    """Every volume of the host, capability and other privilege has its reason beside it."""
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        assert not GRANTS.match(line) or has_reason(lines, number), line


@every_file
def test_settings_are_flags(file: Path) -> None:
    """Every variable is a flag: one for all commands if it decides labels, else one of `run`."""
    names = set(re.findall(r"BWAGENT_([A-Z_]+)", file.read_text()))
    if file.name != "former-names.yaml":
        assert {name.lower() for name in names} <= common_flags() | {
            f"run_{name}" for name in flags() - common_flags()
        }


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(MANIFESTS)))
def test_yaml_is_strict(file: Path) -> None:
    """Every file is YAML with lines of at most 120 columns, except lines that cannot be folded."""
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(file.read_text()))
    assert all(len(line) <= 120 or "allowlist" in line for line in file.read_text().splitlines())


@pytest.mark.parametrize(
    "file", sorted((MANIFESTS / "examples").glob("*.yaml")), ids=lambda file: str(file.name)
)
def test_examples_use_labels_that_exist(file: Path) -> None:
    """An example's keys are the agent's or the site's."""
    keys = set(re.findall(r"backend\.coreweave\.cloud/([\w.-]+)", file.read_text()))
    neighbors = {key for key in keys if re.fullmatch(r"neighbors\.current\.\w+\.device", key)}
    assert keys or file.name == "flow-schema.yaml"
    assert keys - neighbors - SITES <= {"flavor", "speed.current", "leafgroup.current"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_readme_lists_the_overlays(name: str) -> None:
    """The README of the manifests has a row for each overlay."""
    assert f"| `{name}` |" in (MANIFESTS / "README.md").read_text()


def test_policy_follows_the_settings(overlay: str) -> None:
    """The policy names the labels that the flags name, in every overlay."""
    rows = the("ValidatingAdmissionPolicy", overlay)["spec"]["variables"]
    names = {row["name"]: row["expression"].strip("'") for row in rows}
    flag = settings(overlay)
    assert names["prefix"] == flag["BWAGENT_LABEL_PREFIX"]
    assert names["ibPrefix"] == flag["BWAGENT_IB_LABEL_PREFIX"]
    assert names["accelerator"] == flag["BWAGENT_ACCELERATOR_LABEL"]
    assert names["tierLabel"] == flag["BWAGENT_TIER_LABEL"] == ""
    assert names["formerPrefixes"] == flag["BWAGENT_FORMER_LABEL_PREFIXES"] == ""


NAMES_OF_LABELS = {
    "LABEL_PREFIX": ("prefix", "a.example"),
    "IB_LABEL_PREFIX": ("ibPrefix", ""),
    "ACCELERATOR_LABEL": ("accelerator", "a.example/x"),
    "TIER_LABEL": ("tierLabel", "a.example/{leaf,spine,core}"),
    "FORMER_LABEL_PREFIXES": ("formerPrefixes", "a.example"),
}


@pytest.mark.parametrize("flag", NAMES_OF_LABELS)
def test_names_of_labels_of_an_own_overlay(tmp_path: Path, flag: str) -> None:
    """The policy takes each from the variable for all commands. With that of `run` alone, which
    0.1.0 had, the build fails and names it: `run` prefers it, and the policy would not follow.
    """
    require(missing())
    variable, value = NAMES_OF_LABELS[flag]
    overlay = own_overlay(tmp_path, "lldp", f"BWAGENT_{flag}={value}")
    rows = the("ValidatingAdmissionPolicy", str(overlay))["spec"]["variables"]
    assert {"name": variable, "expression": f"'{value}'"} in rows
    own_overlay(tmp_path, "lldp", f"BWAGENT_RUN_{flag}={value}")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        rendered(str(overlay))
    assert f"/data/BWAGENT_RUN_{flag} failed" in failed.value.stderr


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_references_follow(tmp_path: Path, overlay: str, name: str) -> None:
    """The binding's policy and role, and the accounts of its subject and of the Pod, are those of
    the overlay under each of kustomize's transformers.
    """
    require(missing())
    found = by_kind(parsed(transformed(tmp_path, overlay, TRANSFORMERS[name])))
    names = {kind: row["metadata"]["name"] for kind, row in found.items()}
    account = found["ServiceAccount"]["metadata"]
    binding = found["ValidatingAdmissionPolicyBinding"]["spec"]
    assert binding["policyName"] == names["ValidatingAdmissionPolicy"]
    assert found["ClusterRoleBinding"]["roleRef"]["name"] == names["ClusterRole"]
    (subject,) = found["ClusterRoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    daemonset = found["DaemonSet"]
    assert daemonset["metadata"]["namespace"] == account["namespace"] == names["Namespace"]
    assert daemonset["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]


def test_every_object_is_found_by_its_label(overlay: str, tmp_path: Path) -> None:
    """`kubectl get ... -A -l app.kubernetes.io/name=bwagent` lists all that an overlay applies, its
    components included; the selector of the DaemonSet, which cannot be changed, is that of 0.1.0.
    """
    components = {"components": ["events", "monitoring"]}
    for found in parsed(transformed(tmp_path, overlay, components)):
        assert found["metadata"].get("labels", {}).get(NAME) == "bwagent", found["metadata"]
    spec = the("DaemonSet", overlay)["spec"]
    assert spec["selector"] == {"matchLabels": spec["template"]["metadata"]["labels"]}
    assert spec["template"]["metadata"]["labels"] == {NAME: "bwagent"}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_references_of_events(tmp_path: Path, name: str) -> None:
    """Role and RoleBinding of the component are in namespace `default`, and the account is that of
    the overlay, under each of kustomize's transformers; so is the policy's binding.
    """
    require(missing())
    added = {"components": ["events"], "transformers": ["events/in-default"]}
    text = transformed(tmp_path, "lldp", {**TRANSFORMERS[name], **added})
    objects = parsed(text)
    account = only("ServiceAccount", objects)["metadata"]
    found = {row["kind"]: row for row in objects if "-events" in row["metadata"]["name"]}
    names = {kind: row["metadata"]["name"] for kind, row in found.items()}
    assert {found[kind]["metadata"]["namespace"] for kind in ("Role", "RoleBinding")} == {"default"}
    assert found["RoleBinding"]["roleRef"]["name"] == names["Role"]
    (subject,) = found["RoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    policy = found["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"]
    assert policy == names["ValidatingAdmissionPolicy"]
    assert only("ConfigMap", objects)["data"]["BWAGENT_RUN_EVENTS"] == "true"


def test_events_need_no_transformer(tmp_path: Path) -> None:
    """Without a `namespace:` the component alone is the same."""
    require(missing())
    fields = {"namePrefix": "a", "nameSuffix": "b", "components": ["events"]}
    alone = transformed(tmp_path, "lldp", fields)
    with_it = {**fields, "transformers": ["events/in-default"]}
    assert alone == transformed(tmp_path, "lldp", with_it)


def test_reference_of_older_kustomize() -> None:
    """Kustomize before 5.5 does not know by itself that a binding names its policy."""
    base = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())
    (file,) = base["configurations"]
    (row,) = yaml.safe_load((MANIFESTS / "base" / file).read_text())["nameReference"]
    assert row["kind"] == "ValidatingAdmissionPolicy"
    reference = {"kind": "ValidatingAdmissionPolicyBinding", "path": "spec/policyName"}
    assert row["fieldSpecs"] == [reference]


def test_the_image_has_to_be_set(overlay: str) -> None:
    """The image of the overlays is no name of one, and says what to do."""
    assert pod(overlay)["spec"]["containers"][0]["image"] == f"{NO_IMAGE}:{TAG}"


def test_the_image_of_an_own_overlay(tmp_path: Path) -> None:
    """With the line of the documents it is that of the site, with the version of the code."""
    require(missing())
    images = yaml.safe_load(transformed(tmp_path, "lldp", {"images": IMAGES}).split("---\n")[-1])
    (container,) = images["spec"]["template"]["spec"]["containers"]
    assert (images["kind"], container["image"]) == ("DaemonSet", IMAGE)


def test_nothing_is_made_on_the_host(overlay: str) -> None:
    """No volume makes a folder on the node, or needs a shared mount of it."""
    spec = pod(overlay)["spec"]
    paths = [volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume]
    assert {path["type"] for path in paths} <= {"Directory"}
    assert not [
        mount for mount in spec["containers"][0]["volumeMounts"] if "mountPropagation" in mount
    ]


def test_one_port(overlay: str) -> None:
    """Metrics and health are served where the probes look for them."""
    (container,) = pod(overlay)["spec"]["containers"]
    (port,) = container["ports"]
    (address,) = (
        row["value"] for row in container["env"] if row["name"] == "BWAGENT_RUN_METRICS_ADDRESS"
    )
    assert address == f"$(NODE_IP):{port['containerPort']}"
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert probes == [{"path": path, "port": port["name"]} for path in ("/healthz", "/readyz")]


@pytest.mark.parametrize(("name", "added"), [("sysfs", {}), ("lldp", {"add": ["NET_RAW"]})])
def test_least_privilege(name: str, added: dict[str, list[str]]) -> None:
    """Without devices the agent has no file of the host, no privilege, and at most NET_RAW."""
    require(missing())
    spec = pod(name)["spec"]
    context = spec["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], **added}
    assert (context["privileged"], context["allowPrivilegeEscalation"]) == (False, False)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [list(volume) for volume in spec["volumes"]] == [["name", "projected"]]


def test_every_overlay(overlay: str) -> None:
    """No overlay writes to its own image, shares the host's PID namespace, or has a token for
    longer than an hour.
    """
    spec = pod(overlay)["spec"]
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    assert not spec.get("hostPID")
    assert not spec.get("hostIPC")
    assert not spec["automountServiceAccountToken"]
    (token,) = (
        volume["projected"]["sources"][0] for volume in spec["volumes"] if "projected" in volume
    )
    assert token["serviceAccountToken"]["expirationSeconds"] <= 3600


def test_files_of_the_host_are_read_only(overlay: str) -> None:
    """Of the host's files only /dev may be written to."""
    spec = pod(overlay)["spec"]
    of_the_host = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = [
        mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] in of_the_host
    ]
    assert {mount["mountPath"] for mount in mounts if not mount.get("readOnly")} <= {"/dev"}


def test_tolerations_of_coreweave() -> None:
    """The overlay for tainted nodes tolerates each of them, and what the base tolerates."""
    require(missing())
    keys = {row["key"]: row.get("effect") for row in pod("coreweave")["spec"]["tolerations"]}
    theirs = {"is_gpu": None, "is_cpu_compute": None, "node.coreweave.cloud/reserved": None}
    assert keys == {**theirs, "sunk.coreweave.com/lock": "NoExecute", "nvidia.com/gpu": None}
    assert "node.coreweave.cloud/class" in pod("coreweave")["spec"]["nodeSelector"]


DRY_RUN = (
    *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
    *("--warnings-as-errors", "-f", "-"),
)


# Every overlay as it is, and every transformer over one.
ONCE = [
    (overlay, name)
    for overlay in OVERLAYS
    for name in TRANSFORMERS
    if name == "as it is" or overlay == "full"
]
EVERY = [(overlay, name) for overlay in OVERLAYS for name in TRANSFORMERS]


@pytest.mark.parametrize(
    ("overlay", "name"),
    [pytest.param(*one, marks=() if one in ONCE else pytest.mark.sweep) for one in EVERY],
)
def test_overlay_is_accepted(installed: Cluster, tmp_path: Path, overlay: str, name: str) -> None:
    """The API server takes every object of every overlay, under each transformer, with strict
    validation and without a warning.
    """
    fields = TRANSFORMERS[name]
    namespace = fields.get("namespace", "bwagent")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    installed.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    installed.kubectl(*DRY_RUN, stdin=transformed(tmp_path, overlay, fields))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pod_security_level(installed: Cluster, overlay: str) -> None:
    """The namespace admits the Pod, and the next stricter level of Pod Security would not."""
    admit = "/api/v1/namespaces/{}/pods?dryRun=All"
    assert installed.request("POST", admit.format("bwagent"), pod(overlay)).status == 201
    name = f"baseline-{overlay}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    installed.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    installed.kubectl("-n", name, "create", "serviceaccount", "bwagent")
    refusal = installed.request("POST", admit.format(name), pod(overlay))
    assert refusal.status == 403
    assert "baseline" in refusal.message


@pytest.mark.parametrize("example", ["affinity", "spread-by-leaf"])
def test_example_is_accepted(installed: Cluster, example: str) -> None:
    """The API server takes the examples."""
    installed.kubectl("create", "namespace", example)
    installed.kubectl("-n", example, "create", "serviceaccount", "default")
    file = str(MANIFESTS / "examples" / f"{example}.yaml")
    installed.kubectl("-n", example, "apply", "--server-side", "--dry-run=server", "-f", file)
