"""The recipe in manifests/examples/cabling-readiness, put before a real API server: its objects,
what the reporter's token can do, and what the agent gains by it; and the condition that the
reporter makes of the page /verdict of a real agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kernel_tree import Entries
from tests.support.kube import resident
from tests.support.kube.agents import Agent, a_node
from tests.support.kube.cluster import Answer, Cluster
from tests.support.kube.manifests import MANIFESTS, Object, named, objects
from tests.support.kube.readiness import (
    ACCOUNT,
    CONDITION,
    MAX_BODY_BYTES,
    NAMESPACE,
    RECIPE,
    RULES,
    Check,
    Reporter,
    a_reporter,
    built,
    check,
    denied,
    the_daemon_set,
)
from tests.support.kube.resident import IB, P

GOOD = Check("True", "EndpointOK", "is ready")
BAD = Check("False", "EndpointNotReady", "answered 503: {}")
DRY_RUN = ("--server-side", "--force-conflicts", "--dry-run=server", "--warnings-as-errors")


@pytest.fixture
def reporter(gated: Cluster) -> Reporter:
    return a_reporter(gated)


@pytest.fixture
def unconfined(gated: Cluster) -> Iterator[Reporter]:
    """An account with the reporter's role and a name that no policy matches."""
    name = "unconfined"
    gated.kubectl("-n", NAMESPACE, "create", "serviceaccount", name)
    binding = ("--clusterrole=cabling-reporter", f"--serviceaccount={NAMESPACE}:{name}")
    gated.kubectl("create", "clusterrolebinding", name, *binding)
    yield a_reporter(gated, name)
    gated.kubectl("-n", NAMESPACE, "delete", "serviceaccount", name)
    gated.kubectl("delete", "clusterrolebinding", name)


def test_objects_are_accepted(gated: Cluster) -> None:
    """The API server takes every object of the gate and of the agent with a plan, with strict
    validation and without a warning.
    """
    for folder in ("gate", "agent"):
        gated.kubectl("apply", *DRY_RUN, "-k", str(RECIPE / folder))
    gated.kubectl("apply", *DRY_RUN, "-f", str(RECIPE / "npd" / "rule.yaml"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("taint", {"key": "example.com/backend-cabling", "effect": "NoSchedule"}),
        ("nodeSelector", {}),
        ("enforcementMode", "always"),
        ("conditions", [{"type": CONDITION, "requiredStatus": "true"}]),
    ],
)
def test_rules_that_the_schema_refuses(gated: Cluster, field: str, value: object) -> None:
    """The schema that takes the rule is no empty one."""
    rule = yaml.safe_load((RECIPE / "gate" / "rule.yaml").read_text())
    rule["metadata"]["name"], rule["spec"][field] = "other", value
    answer = gated.request("POST", f"{RULES}?dryRun=All", rule)
    assert (answer.status, f"spec.{field}" in answer.message) == (422, True)


def test_the_reporter_writes_its_condition(reporter: Reporter) -> None:
    """It creates its condition and moves it."""
    for found in (GOOD, BAD, GOOD):
        answer = reporter.report(found)
        assert answer.status == 200, answer.message
        assert reporter.condition()["status"] == found.status


def changed(reporter: Reporter, change: Callable[[Object], object], node: str = "") -> Answer:
    """Send a Node's status with a change; a dry run, after all checks."""
    path = f"/api/v1/nodes/{node or reporter.node}"
    body = reporter.cluster.request("GET", path, token=reporter.token).body
    change(body)
    return reporter.put(body, "?dryRun=All")


OURS = {"type": CONDITION, "status": "True"}
READY = {"type": "Ready", "status": "True"}
ADDRESS = {"type": "InternalIP", "address": "192.0.2.1"}
ATTACKS: dict[str, Callable[[Object], object]] = {
    "a label": lambda node: node["metadata"]["labels"].update(rack="2"),
    "the annotations": lambda node: node["metadata"]["annotations"].clear(),
    "ready": lambda node: node["status"].update(conditions=[READY]),
    "more room": lambda node: node["status"].update(capacity={"cpu": "1000"}),
    "another address": lambda node: node["status"].update(addresses=[ADDRESS]),
    "another Node": lambda node: node["status"].update(conditions=[OURS]),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_policy_confines_the_reporter(
    reporter: Reporter, unconfined: Reporter, name: str
) -> None:
    """What its role permits beyond one condition of its own Node, the policy refuses."""
    node = a_node(reporter.cluster) if name == "another Node" else ""
    assert changed(unconfined, ATTACKS[name], node).status == 200
    assert denied(changed(reporter, ATTACKS[name], node))


def test_a_token_without_a_node(reporter: Reporter) -> None:
    """A token of the account that is bound to no Pod writes nothing."""
    token = reporter.cluster.token_for_pod_on(None, ACCOUNT, NAMESPACE)
    assert denied(changed(replace(reporter, token=token), ATTACKS["another Node"]))


@pytest.mark.parametrize(
    ("method", "suffix"), [("PUT", ""), ("PATCH", ""), ("PATCH", "/status"), ("DELETE", "")]
)
def test_the_role_of_the_reporter(reporter: Reporter, method: str, suffix: str) -> None:
    """It has no other verb: no taint, no label, no deletion."""
    path = f"/api/v1/nodes/{reporter.node}"
    body = reporter.cluster.request("GET", path).body
    answer = reporter.cluster.request(
        method, path + suffix, body, kind="application/merge-patch+json", token=reporter.token
    )
    assert (answer.status, "cannot" in answer.message) == (403, True)


def test_an_agents_name_would_be_refused(gated: Cluster) -> None:
    """A Pod with `bwagent` in its name is an agent to the agent's policy, and may write no
    status: the reason for the recipe's names.
    """
    answer = a_reporter(gated, prefix="bwagent-reporter").report(GOOD)
    assert (answer.status, "ValidatingAdmissionPolicy 'bwagent'" in answer.message) == (422, True)


def test_the_agent_has_no_status(agent: Agent) -> None:
    """The recipe leaves the agent's account as it is: it writes no condition itself."""
    body = {"status": {"conditions": [OURS]}}
    assert agent.merge(body, "/status").status == 403


def test_the_agent_gains_a_file_and_a_toleration(gated: Cluster) -> None:
    """Against its overlay: one variable, one read-only volume, one toleration, one ConfigMap, and
    nothing else in any object.
    """
    del gated  # for kubectl
    before, after = named(objects("full")), named(built(RECIPE / "agent"))
    assert set(after) - set(before) == {("ConfigMap", "bwagent-plan")}
    key = ("DaemonSet", "bwagent")
    spec = after[key]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    removed = (
        taken(container["env"], {"BWAGENT_RUN_PLAN"}),
        taken(container["volumeMounts"], {"plan"}),
        taken(spec["volumes"], {"plan"}),
        taken(spec["tolerations"], {"readiness.k8s.io/backend-cabling"}, "key"),
    )
    assert [len(one) for one in removed] == [1, 1, 1, 1]
    assert removed[1][0]["readOnly"]
    assert after == {**before, ("ConfigMap", "bwagent-plan"): after["ConfigMap", "bwagent-plan"]}


def taken(rows: list[Object], names: set[str], key: str = "name") -> list[Object]:
    """Remove the rows with these names, and return them."""
    found = [row for row in rows if row[key] in names]
    rows[:] = [row for row in rows if row not in found]
    return found


def test_one_label_one_condition_one_taint(gated: Cluster) -> None:
    """Rule, reporter, policy and toleration name the same label, condition and taint."""
    del gated  # for kubectl
    found = {one["kind"]: one for one in built(RECIPE / "gate")}
    rule, pod = found["NodeReadinessRule"]["spec"], found["DaemonSet"]["spec"]["template"]["spec"]
    (condition,) = rule["conditions"]
    environment = {row["name"]: row.get("value") for row in pod["containers"][0]["env"]}
    variables = found["ValidatingAdmissionPolicy"]["spec"]["variables"]
    assert condition["type"] == environment["CONDITION_TYPE"] == CONDITION
    assert {"name": "condition", "expression": f"'{CONDITION}'"} in variables
    assert rule["nodeSelector"]["matchLabels"] == pod["nodeSelector"]
    for each in (pod, the_daemon_set("agent")["spec"]["template"]["spec"]):
        (one,) = (row for row in each["tolerations"] if row["key"] == rule["taint"]["key"])
        assert one.get("effect") in {None, rule["taint"]["effect"]}
    other = yaml.safe_load((RECIPE / "npd" / "rule.yaml").read_text())["spec"]
    assert (other["taint"], other["nodeSelector"]) == (rule["taint"], rule["nodeSelector"])


def test_the_reporter_polls_the_agents_port(gated: Cluster) -> None:
    """The endpoint is the address that the agent serves at, the port that the base names."""
    del gated  # for kubectl
    pod = the_daemon_set("gate")["spec"]["template"]["spec"]
    (endpoint,) = (
        row["value"] for row in pod["containers"][0]["env"] if row["name"] == "CHECK_ENDPOINT"
    )
    base = (MANIFESTS / "base" / "agent" / "daemonset.yaml").read_text()
    address = endpoint.removeprefix("http://").removesuffix("/verdict")
    assert f"value: {address} #" in base


EXPECTED = {f"{P}/speed.expected": "800G"}
SHORT = ("--verdict-delay", "1")
PORTS = 64


def reported(cluster: Cluster, name: str, labels: Mapping[str, str]) -> Reporter:
    """Create a Node with an expected half, and its reporter."""
    cluster.node(name, labels=dict(labels))
    return a_reporter(cluster, node=name)


def url(agent: resident.Agent) -> str:
    """Return the address of the page, by the agent's command line."""
    words = agent.process.args
    assert isinstance(words, list)
    return f"http://{words[words.index('--metrics-address') + 1]}/verdict"


def report(reporter: Reporter, agent: resident.Agent) -> tuple[str, str]:
    """Poll once, write the condition; return its status and reason."""
    reporter.report(check(url(agent)))
    condition = reporter.condition()
    return condition["status"], condition["reason"]


def document(reporter: Reporter) -> dict[str, Any]:
    """Return the page that is in the message of the condition."""
    text = reporter.condition()["message"]
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def codes(page: Mapping[str, Any]) -> set[str]:
    return {one["code"] for one in page["findings"]}


def test_a_pull_and_a_repair(gated: Cluster, tmp_path: Path, two: Entries) -> None:
    """A port that goes down closes the gate, with the finding in the message, and opens it when it
    is back.
    """
    reporter = reported(gated, "verdict-pull", EXPECTED)
    with resident.Agent(gated, tmp_path, reporter.node, two, *SHORT) as agent:
        agent.until(lambda: report(reporter, agent) == ("True", "EndpointOK"))
        agent.set("ibp1", "state", "1: DOWN")
        agent.until(lambda: report(reporter, agent) == ("False", "EndpointNotReady"))
        page = document(reporter)
        assert (page["verdict"], page["node"]) == ("fail", reporter.node)
        assert codes(page) == {"speed"}
        agent.set("ibp1", "state", "4: ACTIVE")
        agent.until(lambda: report(reporter, agent) == ("True", "EndpointOK"))


def test_many_findings(gated: Cluster, tmp_path: Path, two: Entries) -> None:
    """A page with a finding for each of 64 ports is what the reporter reads of it, whole, and what
    the API server takes as a message.
    """
    labels = {f"{P}/neighbors.expected.ibp{number}.device": "L90.1.1" for number in range(PORTS)}
    ports = {f"{P}/neighbors.expected.ibp{number}.port-id": "40" for number in range(PORTS)}
    reporter = reported(gated, "verdict-many", labels | ports | {f"{IB}/speed.expected": "800G"})
    with resident.Agent(gated, tmp_path, reporter.node, two, *SHORT) as agent:
        agent.until(lambda: "missing-interface" in check(url(agent)).message)
        assert report(reporter, agent)[0] == "False"
        assert len(reporter.condition()["message"]) < MAX_BODY_BYTES
        missing = {one["interface"] for one in document(reporter)["findings"]}
        assert len(missing) >= PORTS - 2
