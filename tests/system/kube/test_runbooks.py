"""The diagnostic commands of the documents on a real machine, with the overlay and with the chart:
each runs as it stands there and prints what the text promises.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from tests.support.commands import (
    DELETE_THE_STRAY,
    DOCUMENTS,
    IN_A_SHELL,
    IN_THE_POD,
    VERIFY_WITH_THE_PLAN,
    Promise,
    blocks,
    commands,
)
from tests.support.helm.chart import missing, profile, rendered
from tests.support.kube.cluster import Cluster
from tests.support.kube.manifests import Object, only, the
from tests.support.kube.operator import INSTALLS, Operator
from tests.support.kube.worker import LEAF, NEIGHBOR, NODE, SPEED, Worker
from tests.support.real_parts import require

P = "backend.coreweave.cloud"
FORMER = "former.example.com"
STRAY = "bwagent-plans"  # the ConfigMap of a plan, whose volume has another name
AWAY = "away"  # a Node without an agent, with a label of a former prefix


@dataclass(frozen=True, slots=True)
class Case:
    """An operator at a machine with an agent that was restarted once and is ready."""

    worker: Worker
    operator: Operator
    install: str

    def filled(self, text: str) -> str:
        """Return a text of the documents with its names in capitals replaced."""
        state = self.worker.pod()
        names = {
            "AGENT": state["metadata"]["name"],
            "POD": state["metadata"]["name"],
            "LEAF": LEAF,
            "NODE": NODE,
            "KEY": f"{P}/speed.current",
            "FORMER": FORMER,
            "NAMESPACE": "bwagent",
            "ACCOUNT": "bwagent",
            "CONFIGMAP": STRAY,
        }
        text = text.replace("//NODE:", f"//{state['status']['hostIP']}:")
        return re.sub(rf"\b({'|'.join(names)})\b", lambda match: names[match[0]], text)

    def holds(self, command: str, promise: Promise, prefix: str = "") -> None:
        """Run a command of the text, and compare what it prints with what it promises."""
        line = prefix + self.filled(command) + (" --yes" if "cleanup" in command else "")
        node = AWAY if "FORMER" in command else NODE
        done = self.operator.sh(f"{line}\n", NODE_NAME=node)
        assert done.returncode == promise.code, done.stderr
        pattern = self.filled(promise.pattern)
        assert re.search(pattern, done.stdout), (line, done.stdout)


@pytest.fixture(scope="module", params=INSTALLS)
def case(
    request: pytest.FixtureRequest, worker: Worker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    """A site with an agent that was restarted, foreign and former labels, a second DaemonSet, an
    expected speed that the Node does not have, and a plan under another name than the agent's.
    """
    require(missing())
    folder = tmp_path_factory.mktemp("operator")
    install = str(request.param)
    with INSTALLS[install](worker, folder):
        case = Case(worker, Operator(worker.cluster, folder / "site"), install)
        worker.until("the agent is ready", lambda: is_well(worker))
        os.kill(worker.container().first(), signal.SIGTERM)
        worker.until("it was restarted", lambda: worker.state().get("restartCount") == 1)
        worker.until("it is ready again", lambda: is_well(worker))
        kubectl = worker.cluster.kubectl
        kubectl("label", "node", NODE, f"{P}/speed.expected=25G")
        kubectl("label", "node", NODE, f"{P}/neighbors.current.x.device=old")
        former(worker.cluster)
        create(worker.cluster, STRAY, "")
        kubectl("create", "namespace", "second")
        kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(second(install)))
        # An agent counts as available some seconds after it is ready (minReadySeconds).
        kubectl("rollout", "status", "-n", "bwagent", "daemonset/bwagent", "--timeout=60s")
        yield case
        kubectl("delete", "namespace", "second", "--timeout=60s")
        kubectl("delete", "configmap", "-n", "bwagent", STRAY, "--ignore-not-found")
        kubectl("label", "node", NODE, f"{P}/speed.expected-", f"{P}/neighbors.current.x.device-")
        worker.cluster.request("DELETE", f"/api/v1/nodes/{AWAY}")


def is_well(worker: Worker) -> bool:
    found = worker.labels(f"{P}/")
    return worker.is_ready() and (SPEED | NEIGHBOR).items() <= found.items()


def create(cluster: Cluster, name: str, plan: str) -> None:
    literal = f"--from-literal=plan.csv={plan}"
    cluster.kubectl("create", "configmap", "-n", "bwagent", name, literal)


def former(cluster: Cluster) -> None:
    """Make a Node that an agent has labeled under a former prefix."""
    cluster.node(AWAY)
    assert cluster.apply(AWAY, {"labels": {f"{FORMER}/flavor": "roce"}}).status == 200


def second(install: str) -> Object:
    """Return a DaemonSet of the other way to install, in another namespace and for no node."""
    if install == "chart":
        daemonset = the("DaemonSet", "lldp")
    else:
        daemonset = only("DaemonSet", rendered(*profile("lldp")))
    template = daemonset["spec"]["template"]
    spec = {**template["spec"], "nodeSelector": {"second": "second"}}
    return {
        **daemonset,
        "metadata": {**daemonset["metadata"], "namespace": "second"},
        "spec": {**daemonset["spec"], "template": {**template, "spec": spec}},
    }


@pytest.mark.parametrize("command", IN_A_SHELL)
def test_a_command(case: Case, command: str) -> None:
    case.holds(command, IN_A_SHELL[command])


@pytest.mark.parametrize("command", IN_THE_POD)
def test_a_command_in_the_pod(case: Case, command: str) -> None:
    """It observes the agent's host, with the agent's settings."""
    pod = case.filled("kubectl exec -n bwagent AGENT -- ")
    case.holds(command, IN_THE_POD[command], pod)


def block(heading: str) -> list[str]:
    (text,) = (text for document in DOCUMENTS for head, text in blocks(document) if head == heading)
    return commands(text)


def test_does_it_work(case: Case) -> None:
    """The three commands after an installation."""
    rollout, labels, probe = (case.operator.run(command) for command in block("Does it work"))
    assert "successfully rolled out" in rollout
    assert re.search(rf"{NODE} .* roce +10G\n", labels)
    assert LEAF in probe


def test_ask_an_agent(case: Case) -> None:
    """Its page is read at the Node's address, and its process gets the signal."""
    page, signal_it = (case.filled(command) for command in block("Ask an agent"))
    assert case.operator.run(page).startswith("ok\n")
    received = '"signal received"'
    before = case.worker.log().count(received)
    case.operator.run(signal_it)
    case.worker.until("it has SIGHUP", lambda: case.worker.log().count(received) > before)
    assert "observe and repair the Node" in case.worker.log()


def test_another_host(case: Case) -> None:
    """The agent of a Node is found, and observes its own host; so does a capture."""
    said = case.operator.run("".join(block("Another host")).replace("gpu-17", NODE))
    assert LEAF in said
    assert (case.operator.folder / f"{NODE}.tar").is_file()


def test_is_the_policy_in_force(case: Case) -> None:
    """The API server refuses the one command; the other lists what the policy knows it by."""
    (label,) = block("What a stolen token can do")
    refused = case.operator.sh(case.filled(label))
    assert refused.returncode != 0
    assert "ValidatingAdmissionPolicy 'bwagent'" in refused.stderr
    (listing,) = block("Under other names")
    assert re.search(r"agents\.bwagent .*\[run\]", case.operator.run(case.filled(listing)))


def test_no_pod_at_all(case: Case) -> None:
    """The level of Pod Security of the namespace forbids them: the command shows it."""
    level, kubectl = "pod-security.kubernetes.io/enforce", case.worker.cluster.kubectl
    kubectl("label", "--overwrite", "namespace", "bwagent", f"{level}=baseline")
    try:
        kubectl("delete", "pod", "-n", "bwagent", case.worker.pod()["metadata"]["name"])
        command = "kubectl describe daemonset --namespace bwagent bwagent\n"
        case.worker.until(
            "it says so",
            lambda: 'violates PodSecurity "baseline' in case.operator.run(command),
        )
    finally:
        kubectl("label", "--overwrite", "namespace", "bwagent", f"{level}=privileged")
    kubectl("rollout", "restart", "-n", "bwagent", "daemonset/bwagent")
    case.worker.until("it is there again", lambda: is_well(case.worker))


def test_a_plan_under_the_right_name(case: Case) -> None:
    """The stray ConfigMap goes; the command of the runbooks takes the plan of the volume, and the
    Node's labels.
    """
    plan = f"node,interface,device,port-id,port-name\n{NODE},rxe0,another,,\n"
    create(case.worker.cluster, "bwagent-plan", plan)
    try:
        case.operator.run(f"{case.filled(DELETE_THE_STRAY)}\n")
        kubectl = case.worker.cluster.kubectl
        kubectl("delete", "pod", "-n", "bwagent", case.worker.pod()["metadata"]["name"])
        case.worker.until("it is there again", lambda: is_well(case.worker))
        promise = Promise(r"(?s)(?=.*10G of 25G).*another", code=3)
        case.holds(VERIFY_WITH_THE_PLAN, promise)
    finally:
        case.worker.cluster.kubectl("delete", "configmap", "-n", "bwagent", "bwagent-plan")
