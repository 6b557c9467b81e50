"""The policy's limits of size, and Nodes that exceed them: no agent is locked out by an excess, and
the policy's cost stays within the API server's budget up to the largest Node that etcd stores.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kube.agents import ACC, IB, Agent, P, an_agent, denied
from tests.support.kube.attacks import (
    AS_BWAGENT,
    EVENTS,
    MAX_ANNOTATION,
    MAX_LABELS,
    MAX_MESSAGE,
    an_event,
)
from tests.support.kube.cluster import MERGE, Answer, Cluster

HUGE = 12_000  # labels, about 1.5 MB
OBSERVED = f"{P}/observed"


def keys(prefix: str, count: int) -> list[str]:
    return [f"{prefix}/neighbors.current.m{number}.device" for number in range(count)]


def labels(names: list[str], value: str = "x") -> dict[str, Any]:
    return {"labels": dict.fromkeys(names, value)}


def write(agent: Agent, metadata: dict[str, Any]) -> None:
    """Write as an administrator in the name of manager `bwagent`: the state before the policy."""
    answer = agent.cluster.apply(agent.node, metadata)
    assert answer.status == 200, answer.message


def test_number_of_labels(mighty: Agent) -> None:
    """The limit can be reached, with the longest values, and not exceeded."""
    names = keys(P, MAX_LABELS - 1)
    assert mighty.apply(labels([*names, ACC], "x" * 63)).status == 200
    refused = mighty.apply(labels([*names, ACC, f"{P}/flavor"]))
    assert denied(refused)
    assert "400 labels" in refused.message
    assert mighty.apply(labels([*names, f"{P}/flavor"])).status == 200


@pytest.mark.parametrize("prefix", [P, pytest.param(IB, marks=pytest.mark.sweep)])
def test_a_huge_node_is_reduced(mighty: Agent, prefix: str) -> None:
    """An agent may change and remove labels of an excess, and not add to them."""
    names = keys(prefix, HUGE)
    write(mighty, labels(names))
    assert denied(mighty.apply(labels([*names, f"{P}/flavor"])))
    assert mighty.apply(labels([*names[2:], f"{P}/flavor"])).status == 200
    assert mighty.apply(labels([*names[:20], f"{P}/flavor"])).status == 200
    assert len([key for key in mighty.labels() if key in names]) == 20


def test_a_huge_node_of_another_manager(mighty: Agent) -> None:
    """Labels of ours that another manager has written hold the agent up no more."""
    names = keys(P, HUGE)
    mighty.cluster.merge(mighty.node, labels(names))
    assert mighty.apply(labels([f"{P}/flavor", *names[:20]], "y")).status == 200
    assert mighty.merge({"metadata": {"labels": dict.fromkeys(names[20:])}}).status == 200
    assert len([key for key in mighty.labels() if key in names]) == 20


def test_length_of_the_annotation(mighty: Agent) -> None:
    """The limit can be reached; a longer annotation may become shorter, and hinders no label."""

    def written(size: int) -> dict[str, Any]:
        return {"annotations": {OBSERVED: "x" * size}}

    assert mighty.apply(written(MAX_ANNOTATION)).status == 200
    assert denied(mighty.apply(written(MAX_ANNOTATION + 1)))
    write(mighty, written(100_000))
    assert mighty.apply(labels([f"{P}/flavor"]) | written(100_000)).status == 200
    assert denied(mighty.apply(written(100_001)))
    assert mighty.apply(written(99_999)).status == 200
    assert mighty.apply(written(10)).status == 200


def test_length_of_an_event(mighty: Agent) -> None:
    """The limit can be reached; the longest message that etcd stores is refused for its length, and
    not for its cost.
    """

    def written(size: int, character: str = "x") -> Answer:
        event = an_event(mighty.node, f"{mighty.node}.{size}", message=character * size)
        return mighty.cluster.request("POST", EVENTS + AS_BWAGENT, event, token=mighty.token)

    assert written(MAX_MESSAGE, "\N{SNOWMAN}").status == 201
    for size in (MAX_MESSAGE + 1, 1_000_000):
        assert denied(written(size))
        assert "1024 characters" in written(size).message


def test_a_megabyte_of_managed_fields(mighty: Agent) -> None:
    """It is refused within the policy's cost, in a new Event and in one that is there."""
    fields: dict[str, Any] = {f"f:{number}{'x' * 1000}": {} for number in range(1000)}
    entry = {"manager": "bwagent", "operation": "Update", "apiVersion": "v1"}
    forged = {"managedFields": [entry | {"fieldsType": "FieldsV1", "fieldsV1": fields}]}
    event = an_event(mighty.node)
    ask, token = mighty.cluster.request, mighty.token
    metadata = {"metadata": event["metadata"] | forged}
    assert denied(ask("POST", EVENTS + AS_BWAGENT, event | metadata, token=token))
    assert ask("POST", EVENTS + AS_BWAGENT, event, token=token).status == 201
    path = f"{EVENTS}/{event['metadata']['name']}{AS_BWAGENT}"
    assert denied(ask("PATCH", path, {"metadata": forged}, kind=MERGE, token=token))


def test_many_labels_of_the_site(installed: Cluster) -> None:
    """Labels of the site do not count."""
    agent = an_agent(installed, "bwagent")
    theirs = {f"site.example/label-{number}": "x" * 63 for number in range(1000)}
    installed.merge(agent.node, {"labels": theirs})
    assert agent.apply(labels(keys(P, MAX_LABELS))).status == 200
