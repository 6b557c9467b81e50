"""A new agent under the admission policy of a release before: it lacks keys of the label table."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from agent.kube.answers import Failure
from agent.kube.change import change_to
from agent.kube.negotiation import Outcome, negotiate
from agent.kube.nodes import get_node
from tests.support.kube import agents
from tests.support.kube.agents import a_node
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import session
from tests.support.kube.controllers import eventually
from tests.support.kube.manifests import MANIFESTS
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, LEAF, PREFIX, SPEED, desired

OLDER = Path(agents.__file__).with_name("overlay-0.1.0.yaml")
NEW = (f"{PREFIX}/leafgroup.current", f"{PREFIX}/leaves.current")
OTHERS = {FLAVOR: "infiniband", SPEED: "3200G", LEAF: "L90.1.3", IB_SPEED: "3200G", ACC: "a.1"}
ALL = OTHERS | dict.fromkeys(NEW, "L90.1.3")


def older() -> str:
    """Return the policy as it was without the keys."""
    text = (MANIFESTS / "base" / "policy.yaml").read_text()
    without = re.sub(r"variables\.prefix \+ '/(leaves|leafgroup)\.current',\s*", "", text)
    without = re.sub(r"'leafgroup\.current',\s*", "", without)
    assert "leafgroup.current" not in without
    assert len(text) - len(without) > 100
    return without


def wordless() -> str:
    """Return that policy without the names of the keys in its messages."""
    return re.sub(r"\n +messageExpression: .*(\n {8,}.*)*", "", older())


def in_force(cluster: Cluster, policy: str, word: str) -> Cluster:
    """Replace the policy, and wait until it refuses a new key with this word."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=policy)
    probe = agents.an_agent(cluster, "mighty")

    def refuses() -> bool:
        answer = probe.apply({"labels": {NEW[0]: str(time.monotonic_ns())}})
        return answer.status == 422 and (NEW[0] in answer.message) == (word == "named")

    eventually(cluster, "the policy in force", refuses)
    return cluster


@pytest.fixture(scope="module")
def older_cluster(fresh: Cluster) -> Cluster:
    """An API server with the manifests in it."""
    agents.install(fresh, "sysfs")
    return fresh


class Upgraded:
    """A new agent with a token of its Pod, on a Node of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.node = cluster, a_node(cluster)
        token = cluster.token_for_pod_on(self.node, "bwagent", "bwagent")
        self.kube = session(cluster.kubeconfig(token))

    def apply(self, labels: dict[str, str]) -> Outcome:
        return negotiate(change_to(self.read(), desired(labels), KEYS), self.kube)

    def read(self) -> Any:
        found = get_node(self.kube, self.node)
        assert not isinstance(found, Failure), found.text
        return found

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node below the agent's prefixes."""
        labels = self.read()["metadata"]["labels"]
        return {key: value for key, value in labels.items() if key in ALL}


@pytest.mark.slow
def test_the_new_keys_alone_are_refused(older_cluster: Cluster) -> None:
    """All others are applied and kept up to date, the next plan postpones what was refused, and
    with the new policy the Node has them all.
    """
    agent = Upgraded(in_force(older_cluster, older(), "named"))
    outcome = agent.apply(ALL)
    assert outcome.failure is None
    assert {one.key for one in outcome.refused} == {*NEW}
    assert (outcome.requests, agent.labels()) == (2, OTHERS)
    again = change_to(agent.read(), desired(ALL, postponed=outcome.to_postpone), KEYS)
    assert (again.is_due, again.postponed) == (False, NEW)
    changed = agent.apply(ALL | {SPEED: "2800G"})
    assert agent.labels() == OTHERS | {SPEED: "2800G"}
    assert changed.requests == 2
    older_cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-k", str(MANIFESTS / "overlays" / "sysfs")
    )
    eventually(older_cluster, "nothing is refused", lambda: not agent.apply(ALL).refused)
    assert agent.labels() == ALL


@pytest.mark.slow
def test_a_policy_that_names_no_key(older_cluster: Cluster) -> None:
    """The family of the new keys is refused, the others are applied; it takes a request for each,
    and ends.
    """
    agent = Upgraded(in_force(older_cluster, wordless(), "unnamed"))
    outcome = agent.apply(ALL)
    assert outcome.failure is None
    assert {one.key for one in outcome.refused} == {key for key in ALL if key.startswith(PREFIX)}
    assert agent.labels() == {IB_SPEED: "3200G", ACC: "a.1"}
    assert outcome.requests <= 6
    again = change_to(agent.read(), desired(ALL, postponed=outcome.to_postpone), KEYS)
    assert not again.is_due


@pytest.mark.slow
def test_back_to_0_1_0(older_cluster: Cluster) -> None:
    """Its policy refuses the removal of labels that it does not know, and with it every request of
    its agent; the chart's README has the command that removes them.
    """
    overlay = str(MANIFESTS / "overlays/sysfs")
    older_cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", overlay)
    agent = agents.an_agent(older_cluster, "bwagent")
    eventually(older_cluster, "a policy", lambda: agent.apply({"labels": ALL}).status == 200)
    in_force(older_cluster, OLDER.read_text(), "named")
    refusal = agent.apply({"labels": OTHERS})
    assert agents.denied(refusal)
    assert all(key in refusal.message for key in NEW)
    readme = (MANIFESTS / "chart/README.md").read_text()
    (command,) = (one for one in readme.splitlines() if one.startswith("kubectl label nodes"))
    older_cluster.kubectl(*command.split()[1:])
    assert agent.apply({"labels": OTHERS}).status == 200
    assert OTHERS.items() <= agent.labels().items()
    assert not set(NEW) & agent.labels().keys()
