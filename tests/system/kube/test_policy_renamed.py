"""Agents whose account and Pods have lost the name `bwagent`: by patches of an overlay, or by those
of a post-renderer of Helm. The policies follow them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.helm import chart
from tests.support.kube.agents import Agent, P, a_node, forbidden
from tests.support.kube.attacks import AS_BWAGENT, ATTACKS, EVENTS, an_event, scene
from tests.support.kube.cluster import Answer, Cluster
from tests.support.kube.controllers import eventually
from tests.support.kube.deployments import Deployment, deployment, transformed
from tests.support.kube.manifests import MANIFESTS, rendered, site_overlay
from tests.support.real_parts import require

NAMESPACE, NAME = "bwagent", "netlabels"
ACCOUNT = "ServiceAccount|DaemonSet"
ALL = f"{ACCOUNT}|ClusterRole|ClusterRoleBinding|ValidatingAdmissionPolicy(Binding)?"
ELSEWHERE = "Event in another namespace"  # which the accounts here may not, by RBAC


def refused(answer: Answer) -> bool:
    """True if a policy of whatever name refused the request."""
    return answer.status == 422 and "ValidatingAdmissionPolicy '" in answer.message


def renaming(kinds: str) -> dict[str, object]:
    """Return the field of a kustomization that renames the objects `bwagent` of these kinds."""
    target = {"kind": kinds, "name": "bwagent"}
    patch = f"- {{op: replace, path: /metadata/name, value: {NAME}}}"
    return {"patches": [{"target": target, "patch": patch, "options": {"allowNameChange": True}}]}


def of_an_overlay(folder: Path, kinds: str) -> str:
    """Render an overlay with the component of Events under the patches."""
    overlay = folder / "overlay"
    overlay.mkdir()
    site_overlay(overlay, "sysfs", {"components": ["events"]})
    return transformed(folder, str(overlay), renaming(kinds))


def of_the_chart(folder: Path, kinds: str) -> str:
    """Render the chart under the patches, as a post-renderer does."""
    (folder / "release.yaml").write_text(yaml.safe_dump_all(chart.rendered("--set", "events=true")))
    kustomization = {"resources": ["release.yaml"], **renaming(kinds)}
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return rendered(str(folder))


@pytest.fixture(scope="module")
def server(fresh: Cluster) -> Cluster:
    """An API server where RBAC restricts two accounts to Nodes and Events, and to nothing more."""
    require(chart.missing())
    fresh.kubectl("create", "namespace", NAMESPACE)
    fresh.kubectl("-n", NAMESPACE, "create", "serviceaccount", "other")
    verbs = "--verb=get,list,create,update,patch,delete,deletecollection"
    to = tuple(f"--serviceaccount={NAMESPACE}:{name}" for name in (NAME, "other"))
    nodes, events = "nodes,nodes/status,nodes/proxy", "events,events.events.k8s.io"
    for command in (
        ("clusterrole", "mighty", verbs, f"--resource={nodes}"),
        ("clusterrolebinding", "mighty", "--clusterrole=mighty", *to),
        ("-n", "default", "role", "mighty", verbs, f"--resource={events}"),
        ("-n", "default", "rolebinding", "mighty", "--role=mighty", *to),
    ):
        fresh.kubectl("create", *command)
    return fresh


@pytest.fixture(
    scope="module",
    params=[(of_an_overlay, ACCOUNT), (of_an_overlay, ALL), (of_the_chart, ACCOUNT)],
    ids=["overlay", "overlay, all names", "chart"],
)
def renamed(
    request: pytest.FixtureRequest, server: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A deployment in force whose account and Pods have another name."""
    render: Callable[[Path, str], str]
    render, kinds = request.param
    made = deployment(render(tmp_path_factory.mktemp("renamed"), kinds))
    assert (made.account, made.namespace) == (NAME, NAMESPACE)
    stdin = yaml.safe_dump_all(one for one in made.objects if one["kind"] != "Namespace")
    server.kubectl("apply", "--server-side", "-f", "-", stdin=stdin)
    probe = an_agent(server)
    eventually(server, "the policies in force", lambda: all(map(refused, forbidden(probe))))
    yield made
    server.kubectl("delete", "-f", "-", stdin=stdin)


def an_agent(server: Cluster) -> Agent:
    """Return a token of the account and of a Pod of the DaemonSet."""
    node = a_node(server)
    return Agent(server, node, server.token_for_pod_on(node, NAME, NAMESPACE, f"{NAME}-"))


def test_every_attack(server: Cluster, renamed: Deployment) -> None:
    """The policies refuse every attack, and no Node and no Event has changed."""
    attacked = scene(server, renamed.account, renamed.namespace, renamed.prefix)
    before = attacked.versions()
    answers = {name: attack(attacked) for name, attack in ATTACKS.items()}
    assert answers.pop(ELSEWHERE).status == 403
    assert [name for name, answer in answers.items() if not refused(answer)] == []
    assert attacked.versions() == before


def test_the_agent_itself(server: Cluster, renamed: Deployment) -> None:
    """Labels, annotation and Events are written."""
    agent = an_agent(server)
    written = {"labels": {f"{P}/flavor": "roce"}, "annotations": {f"{P}/observed": "{}"}}
    assert agent.apply(written).status == 200
    event = server.request("POST", EVENTS + AS_BWAGENT, an_event(agent.node), token=agent.token)
    assert event.status == 201, event.message
    assert renamed.account == NAME


def test_the_command_of_the_readme(server: Cluster, renamed: Deployment) -> None:
    """It lists what the policies know the account by, and lists it for no other account."""
    lines = (MANIFESTS / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("kubectl auth can-i --list"))
    words = line.replace("NAMESPACE", renamed.namespace).split()[1:]
    own, other = (
        server.kubectl(*(word.replace("ACCOUNT", account) for word in words))
        for account in (NAME, "other")
    )
    assert "agents.bwagent" in own
    assert "agents.bwagent" not in other


def test_another_account(server: Cluster, renamed: Deployment) -> None:
    """An account with permissions for Nodes and Events that no role of the agent's gives is not
    restricted.
    """
    node = a_node(server)
    token = server.token_for_pod_on(node, "other", renamed.namespace)
    assert all(answer.status < 400 for answer in forbidden(Agent(server, node, token)))
