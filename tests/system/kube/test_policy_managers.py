"""The policy and managedFields: Nodes that others, or the agent before there was a policy, have
written to. tests/support/kube/attacks.py has what is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.kube.agents import ACC, IB, MIGHTY, Agent, P, denied
from tests.support.kube.attacks import JUNK
from tests.support.kube.cluster import Answer

SITE = "site.example/rack"
FLAVOR, SPEED = f"{P}/flavor", f"{P}/speed.current"
OURS = {FLAVOR: "roce", SPEED: "800G"}


def apply_as(agent: Agent, manager: str, labels: dict[str, str]) -> Answer:
    return agent.cluster.apply(agent.node, {"labels": labels}, manager)


def entries(agent: Agent) -> list[dict[str, Any]]:
    return list(agent.cluster.metadata(agent.node).get("managedFields", []))


def another(managed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one entry that is not the agent's."""
    (entry,) = (entry for entry in managed if entry["manager"] != "bwagent")
    return entry


def holders(agent: Agent, key: str) -> set[str]:
    return {
        entry["manager"]
        for entry in entries(agent)
        if f"f:{key}" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
    }


def reset(agent: Agent) -> None:
    assert agent.cluster.merge(agent.node, {"managedFields": [{}]}).status == 200
    assert entries(agent) == []


def test_a_node_without_managed_fields(agent: Agent) -> None:
    """Somebody has reset them: the first apply, with which the API server begins anew, is admitted;
    an update, which nobody would be named for, is not.
    """
    reset(agent)
    assert denied(agent.merge({"metadata": {"labels": OURS}}))
    assert agent.apply({"labels": OURS}).status == 200
    assert holders(agent, FLAVOR) == {"bwagent"}
    assert holders(agent, SITE) == {"before-first-apply"}
    assert agent.apply({}).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"f:metadata": {"f:labels": {f"f:{SITE}": JUNK}}},
        {"f:metadata": {"f:labels": {"f:not.there/a": {}}}},
        {"f:metadata": {"f:finalizers": {'v:"not.there/a"': {}}}},
        {"f:metadata": {"f:ownerReferences": {'k:{"uid":"mine"}': {}}}},
        {"f:metadata": {"f:mine": JUNK}},
        {"f:metadata": JUNK},
        {"f:spec": {"f:podCIDR": {}}},
        {"f:spec": JUNK},
        {"f:status": JUNK},
        JUNK,
    ],
    ids=str,
)
def test_a_forged_beginning(mighty: Agent, fields: dict[str, Any]) -> None:
    """On a Node without managed fields a request may begin them with what the Node has only."""
    reset(mighty)
    forged = {
        "manager": "before-first-apply",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    before = mighty.cluster.request("GET", mighty.path).body
    assert denied(mighty.merge({"metadata": {"managedFields": [forged]}}))
    there = forged | {"fieldsV1": {"f:metadata": {"f:labels": {f"f:{SITE}": {}}}}}
    assert denied(mighty.merge({"metadata": {"managedFields": [there, forged]}}))
    assert mighty.cluster.request("GET", mighty.path).body == before


def test_many_fields_before_a_reset(agent: Agent) -> None:
    """The first apply is admitted on a large Node, too, with taints, Pod networks and owners."""
    labels = {f"site.example/label-{number}": "x" for number in range(1000)}
    networks = {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"], "providerID": "cloud://1"}
    admin = replace(agent, token=agent.cluster.admin)
    assert admin.merge({"metadata": {"labels": labels}, "spec": networks}).status == 200
    reset(agent)
    answer = agent.apply({"labels": OURS})
    assert answer.status == 200, answer.message
    assert holders(agent, "site.example/label-1") == {"before-first-apply"}


def test_many_managers(agent: Agent) -> None:
    """The policy's cost stays within the API server's budget on a Node with many other managers,
    each of which loses a label to the agent.
    """
    for number in range(50):
        labels = {f"{P}/neighbors.current.m{number}.device": "x"}
        labels |= {f"site{number}.example/label-{one}": "x" for one in range(50)}
        assert apply_as(agent, f"manager-{number}", labels).status == 200
    ours = {f"{P}/neighbors.current.m{number}.device": "y" for number in range(400)}
    answer = agent.apply({"labels": ours})
    assert answer.status == 200, answer.message
    assert len(entries(agent)) > 50
    assert agent.apply({}).status == 200


def test_own_labels_before_a_reset(agent: Agent) -> None:
    """Labels of the agent that nobody holds any more become the agent's again."""
    agent.apply({"labels": OURS})
    reset(agent)
    assert agent.apply({"labels": OURS | {SPEED: "400G"}}).status == 200
    assert "bwagent" in holders(agent, SPEED)


def test_labels_of_other_managers(agent: Agent) -> None:
    """Own labels that two others have written are taken over, one entry of managedFields ends."""
    agent.cluster.kubectl("label", "node", agent.node, f"{FLAVOR}=mine")
    assert apply_as(agent, "theirs", {SPEED: "1G", "theirs.example/a": "1"}).status == 200
    assert agent.apply({"labels": OURS, "annotations": {f"{P}/observed": "{}"}}).status == 200
    assert holders(agent, FLAVOR) == holders(agent, SPEED) == {"bwagent"}
    assert holders(agent, "theirs.example/a") == {"theirs"}
    assert agent.apply({}).status == 200


def test_a_label_left_to_its_manager(agent: Agent) -> None:
    """The agent can leave a label that another manager holds, too."""
    assert apply_as(agent, "gfd", {ACC: "a.1"}).status == 200
    assert agent.apply({"labels": OURS | {ACC: "a.1"}}).status == 200
    assert holders(agent, ACC) == {"bwagent", "gfd"}
    assert agent.apply({"labels": OURS}).status == 200
    assert holders(agent, ACC) == {"gfd"}


def test_foreign_labels_held_before(agent: Agent) -> None:
    """What manager bwagent already holds, it may go on holding, and leave to others; where it alone
    holds a foreign label it has to go on.
    """
    carried = {SITE: "1", "x.example/flavor": "roce"}
    agent.cluster.apply(agent.node, {"labels": carried})
    assert agent.apply({"labels": OURS | carried}).status == 200
    assert denied(agent.apply({"labels": OURS | {SITE: "1"}}))
    carried.pop(SITE)
    assert agent.apply({"labels": OURS | carried}).status == 200
    assert "bwagent" not in holders(agent, SITE)


def test_a_forged_entry(agent: Agent) -> None:
    """A foreign field that the agent's entry has from before the policy goes out of it."""
    agent.apply({"labels": OURS})
    managed = entries(agent)
    entry = next(entry for entry in managed if entry["manager"] == "bwagent")
    entry["fieldsV1"]["f:metadata"]["f:finalizers"] = {'v:"site.example/drain"': {}}
    assert agent.cluster.merge(agent.node, {"managedFields": managed}).status == 200
    assert agent.apply({"labels": OURS | {SPEED: "400G"}}).status == 200
    (entry,) = (entry for entry in entries(agent) if entry["manager"] == "bwagent")
    assert entry["fieldsV1"]["f:metadata"].keys() == {"f:labels"}


def test_removal_of_own_labels_of_others(agent: Agent) -> None:
    """Own labels may be removed whoever holds them, and nothing else with them."""
    assert (
        apply_as(agent, "theirs", {f"{IB}/speed.current": "1G", "a.example/a": "1"}).status == 200
    )
    gone = {f"{IB}/speed.current": None}
    assert denied(agent.merge({"metadata": {"labels": gone | {"a.example/a": None}}}))
    assert agent.merge({"metadata": {"labels": gone}}).status == 200
    assert f"{IB}/speed.current" not in agent.labels()


def test_labels_and_annotations_as_a_whole(mighty: Agent) -> None:
    """Who created the Node holds the maps, too: member `.`, or the empty set once the agent has
    taken each key in it over. They stay so when the agent removes the last key.
    """
    name = f"{mighty.node}-bare"
    cluster = mighty.cluster
    cluster.node(name, labels={FLAVOR: "mine"}, annotations={f"{P}/observed": "mine"})
    agent = Agent(cluster, name, cluster.token_for_pod_on(name, "bwagent", MIGHTY))
    assert agent.apply({"labels": OURS, "annotations": {f"{P}/observed": "{}"}}).status == 200
    managed = entries(agent)
    maps = another(managed)["fieldsV1"]["f:metadata"]
    assert maps == {"f:labels": {}, "f:annotations": {}}
    for part in list(maps):
        kept = maps.pop(part)
        assert denied(agent.merge({"metadata": {"managedFields": managed}}))
        maps[part] = kept
    assert agent.apply({}).status == 200
    assert "labels" not in agent.cluster.request("GET", agent.path).body["metadata"]
    assert another(entries(agent))["fieldsV1"]["f:metadata"] == maps


def test_no_map_as_a_whole_for_another_manager(mighty: Agent) -> None:
    """With the last key of a manager goes its entry; no map as a whole remains for it."""
    assert apply_as(mighty, "theirs", {FLAVOR: "mine"}).status == 200
    managed = entries(mighty)
    theirs = next(entry for entry in managed if entry["manager"] == "theirs")
    gone = {"labels": {FLAVOR: None}, "managedFields": managed}
    nothing: dict[str, Any] = {}
    for fields in ({"f:labels": nothing}, nothing):
        theirs["fieldsV1"]["f:metadata"] = fields
        assert denied(mighty.merge({"metadata": gone}))
    assert mighty.merge({"metadata": {"labels": {FLAVOR: None}}}).status == 200


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_an_update_in_the_second_of_another_managers(mighty: Agent, kind: str) -> None:
    """An update in the name of a manager that has the key changes nothing of managedFields but the
    time, which has no fractions: in the same second, nothing at all.
    """
    key, kubectl = FLAVOR if kind == "labels" else f"{P}/observed", "?fieldManager=kubectl"
    for number in range(5):
        written = {kind: {key: f"theirs-{number}"}}
        assert mighty.cluster.merge(mighty.node, written, kubectl).status == 200
        forged = mighty.merge({"metadata": {kind: {key: f"mine-{number}"}}}, kubectl)
        assert denied(forged), forged.body
