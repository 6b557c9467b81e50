"""The keys of --tier-label before a real API server: what the policy permits, what is removed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.encode import tier_keys
from tests.support.kernel_tree import Entries
from tests.support.kube import agents
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.manifests import own_overlay
from tests.support.kube.resident import Agent, P

PATTERN, FORMER = "net.example/{leaf,spine,core}", "old.example/tier-{n}"
KEYS, OLD = tier_keys(PATTERN), tier_keys(FORMER)
BELOW_P = (f"{P}/tier-1.current", f"{P}/tier-2.current")
FOREIGN = (
    *("net.example/rack", "net.example/leaf,spine,core", "net.example/", "net.example/leaf2"),
    *("x.net.example/leaf", "leaf", "old.example/tier-3", "old.example/tier-", "old.example/0"),
    *(f"{P}/tier-0.current", f"{P}/fabric", f"{P}/leaf", "kubernetes.io/leaf"),
)


@pytest.fixture(scope="module")
def patterned(fresh: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """An API server whose policy has both patterns, as an overlay of one's own sets them."""
    settings = (f"BWAGENT_TIER_LABEL={PATTERN}", f"BWAGENT_FORMER_LABEL_PREFIXES=x.org {FORMER}")
    overlay = own_overlay(tmp_path_factory.mktemp("overlay"), "tiers", *settings)
    agents.install(fresh, str(overlay))
    return fresh


@pytest.fixture
def agent(patterned: Cluster) -> agents.Agent:
    return agents.an_agent(patterned, "mighty")


def put(cluster: Cluster, node: str, keys: Iterable[str], manager: str = "bwagent") -> None:
    """Set these labels of the Node as a field manager; there is no other of its keys."""
    labels = dict.fromkeys(keys, "spine1")
    assert cluster.apply(node, {"labels": labels}, manager).status == 200


@pytest.mark.parametrize("key", [*KEYS, *BELOW_P])
def test_the_keys_of_the_pattern(agent: agents.Agent, key: str) -> None:
    """The agent sets, changes and removes them, and those of the tiers below P."""
    for value in ("1", "2"):
        answer = agent.apply({"labels": {key: value}})
        assert answer.status == 200, answer.message
    assert agent.apply({}).status == 200
    assert key not in agent.labels()


@pytest.mark.parametrize("key", [*FOREIGN, *OLD])
def test_nothing_else(agent: agents.Agent, key: str) -> None:
    """No key that the pattern merely resembles; of a former one none is set."""
    for answer in (
        agent.apply({"labels": {key: "1"}}),
        agent.merge({"metadata": {"labels": {key: "1"}}}),
    ):
        assert answer.status == 422
        assert agents.denied(answer) or "Invalid value" in answer.message
    assert key not in agent.labels()


def test_a_former_pattern(agent: agents.Agent) -> None:
    """Its keys are removed, but for those of another manager, and not changed."""
    put(agent.cluster, agent.node, OLD)
    agent.cluster.kubectl("label", "node", agent.node, "old.example/tier-3=1")
    for value in ("2", "spine2"):
        assert agents.denied(agent.merge({"metadata": {"labels": {OLD[1]: value}}}))
    nothing = {"metadata": {"labels": {"old.example/tier-3": None}}}
    assert agents.denied(agent.merge(nothing))
    answer = agent.apply({"labels": {f"{P}/flavor": "infiniband"}})
    assert answer.status == 200, answer.message
    assert not agent.labels().keys() & {*OLD}


@pytest.mark.parametrize("key", [KEYS[1], OLD[1]])
def test_without_a_pattern(mighty: agents.Agent, key: str) -> None:
    """The policy as it is installed permits none."""
    assert agents.denied(mighty.apply({"labels": {key: "1"}}))


def test_another_pattern(patterned: Cluster, tmp_path: Path, two: Entries) -> None:
    """The labels of the former one, and below P, are removed at the start; those of a program that
    has them too stay.
    """
    node = "another-pattern"
    patterned.node(node)
    put(patterned, node, OLD[:1], "topograph")
    put(patterned, node, [*OLD, *BELOW_P])
    token = patterned.token_for_pod_on(node, "bwagent", "bwagent")
    flags = ("--tier-label", PATTERN, "--former-label-prefix", FORMER)
    with Agent(patterned, tmp_path, node, two, *flags, token=token) as resident:
        resident.speaks("800G")
        labels = resident.metadata()["labels"]
        assert labels.keys() & {*OLD, *BELOW_P} == {OLD[0]}
        assert not resident.lines("refused")


def test_cleanup(patterned: Cluster) -> None:
    """It removes the keys of its pattern, and names those of another."""
    node = "cleanup-of-tiers"
    patterned.node(node)
    put(patterned, node, [*KEYS, f"{P}/flavor"])
    words = ("cleanup", "--yes", "--node-name", node)
    environment = patterned.kubeconfig()
    done = bwagent(*words, kubeconfig=environment)
    assert done.returncode == 0, done.stderr
    assert f"{KEYS[1]}: of manager bwagent on Node {node}, and in no" in done.stdout
    assert {*KEYS} == patterned.labels(node).keys() & {*KEYS, f"{P}/flavor"}
    done = bwagent(*words, "--tier-label", PATTERN, kubeconfig=environment)
    assert done.returncode == 0, done.stderr
    assert not patterned.labels(node).keys() & {*KEYS}
