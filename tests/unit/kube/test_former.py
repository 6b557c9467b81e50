"""Fields of manager `bwagent` outside the label table: what is removed, what stays, which lines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.kube.annotation import MAX_AGE
from agent.kube.managed_fields import (
    ANNOTATION,
    FORMER,
    LABEL,
    Field,
    Keys,
    owned_labels,
    prefix_of,
    state_of,
)
from agent.kube.ownership import owned
from agent.kube.plan import Plan, body, plan
from agent.labels.table import LABELS, Naming
from tests.support.nodes import ANNOTATED, FLAVOR, KEYS, NOW, PREFIX, desired, node, removed

OLD = "old.example"
OURS = {FLAVOR: "roce", f"{OLD}/flavor": "roce", f"{OLD}/speed.current": "1G"}
LISTED = Keys(Naming(), [OLD, "x.example"])


def a_node(age: float | None = None, prefix: str = OLD, **labels: str) -> dict[str, Any]:
    """Return a Node with labels of a former prefix, and an annotation of this age."""
    found = node(OURS | labels, {"site": {f"{OLD}/rack": "1"}})
    if age is not None:
        text = json.dumps({"schema": 1, "time": f"{_rfc3339(NOW - age)}"})
        found["metadata"]["annotations"][f"{prefix}/observed"] = text
        managed = found["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]
        managed["f:annotations"][f"f:{prefix}/observed"] = {}
    return found


def _rfc3339(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat()


def planned(a_node: dict[str, Any], keys: Any = LISTED, **changes: Any) -> Plan:
    return plan(a_node, desired({FLAVOR: "roce"}, **{"now": NOW, **changes}), keys)


def reasons(found: Plan) -> dict[str, str]:
    return {problem.subject: problem.text for problem in found.problems}


@pytest.mark.parametrize("row", LABELS, ids=lambda row: row.key)
def test_shape_of_the_table(row: Any) -> None:
    """A key under any prefix has the shape of a row; the accelerator's has none."""
    _, slash, name = row.key.replace("{if}", "mlx5_0-3").partition("/")
    assert prefix_of(Field(LABEL, f"p.example{slash}{name}")) == ("p.example" if slash else None)


@pytest.mark.parametrize(
    "field",
    [
        *(Field(LABEL, f"{OLD}/{name}") for name in ("rack", "observed", "speed.expected", "")),
        *(Field(LABEL, name) for name in ("flavor", "/flavor", "", "a.b")),
        *(Field(ANNOTATION, name) for name in ("observed", f"{OLD}/flavor", f"{OLD}/observed2")),
    ],
)
def test_other_shapes(field: Field) -> None:
    """A key of the site, a name without a prefix and another annotation are no rows."""
    assert prefix_of(field) is None
    assert LISTED.family(field) is None


def test_family() -> None:
    """Fields of the table's shape are of family `former` under a listed prefix, and never owned."""
    assert LISTED.family(Field(LABEL, f"{OLD}/flavor")) == FORMER
    assert LISTED.family(Field(ANNOTATION, f"{OLD}/observed")) == FORMER
    assert KEYS.family(Field(LABEL, f"{OLD}/flavor")) is None
    assert LISTED.family(Field(LABEL, f"{OLD}x/flavor")) is None
    assert owned_labels(a_node(), LISTED) == {FLAVOR: "roce"}
    assert Keys(Naming(), [PREFIX]).family(Field(LABEL, FLAVOR)) == "P"


def test_nothing_outside_the_table() -> None:
    """A Node without such fields has no line, and its request is for any version of it."""
    found = planned(node({FLAVOR: "roce"}))
    assert (found.outside, found.problems, found.is_due) == (frozenset(), (), False)


@pytest.mark.parametrize("age", [None, MAX_AGE, MAX_AGE + 1, -MAX_AGE, 1e8])
def test_removal(age: float | None) -> None:
    """Under a listed prefix everything goes, the annotation too, if that is as old as two hours."""
    found = planned(a_node(age))
    assert (removed(found), found.is_due) == (
        {f"{OLD}/flavor": "roce", f"{OLD}/speed.current": "1G"},
        True,
    )
    assert not any(field.key.startswith(OLD) for field in found.wanted)
    assert found.problems == ()


def test_only_the_annotation_is_left() -> None:
    """It is removed as well."""
    found = a_node(MAX_AGE)
    for key in (f"{OLD}/flavor", f"{OLD}/speed.current"):
        del found["metadata"]["labels"][key]
    todo = planned(found)
    assert (removed(todo), todo.is_due) == ({}, True)
    assert todo.gone == {Field(ANNOTATION, f"{OLD}/observed")}


def test_a_key_that_others_have_too() -> None:
    """It stays on the Node, and is no longer the agent's."""
    shared = a_node()
    shared["metadata"]["managedFields"].append(
        {
            "manager": "x",
            "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:{OLD}/flavor": {}}}},
        }
    )
    found = planned(shared)
    assert removed(found) == {f"{OLD}/speed.current": "1G"}
    assert [held.key for held in found.left_alone] == [f"{OLD}/flavor"]


@pytest.mark.parametrize("age", [0, MAX_AGE - 1, -60, 1 - MAX_AGE])
@pytest.mark.parametrize("keys", [KEYS, LISTED], ids=["not listed", "listed"])
def test_a_running_agent(keys: Any, age: float) -> None:
    """A young annotation is that of a running agent: everything stays, and one line names both."""
    found = planned(a_node(age), keys)
    assert (removed(found), found.is_due) == ({}, False)
    text = f"another bwagent labels this Node under {OLD}, this one under {PREFIX}"
    assert reasons(found) == {OLD: text}


def test_a_running_agent_with_a_failing_source() -> None:
    """Its annotation has no time of a full observation; nothing of it is removed."""
    found = a_node(age=60)
    report = {"schema": 1, "time": None, "partial": {"boot_id": "b", "time": _rfc3339(NOW - 60)}}
    found["metadata"]["annotations"][f"{OLD}/observed"] = json.dumps(report)
    assert removed(planned(found)) == {}


def test_a_running_agent_of_a_third_prefix() -> None:
    """With any other agent on the Node nothing is removed."""
    found = planned(a_node(60, "b.example"))
    assert (removed(found), found.is_due) == ({}, False)
    assert "this one under" in reasons(found)["b.example"]
    assert reasons(found)[OLD].endswith("another bwagent labels this Node under b.example")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema":2}', '{"schema":1,"time":null}', "x" * 70000]
)
def test_a_malformed_annotation(text: str) -> None:
    """An annotation without a time is none of a running agent."""
    odd = a_node(60)
    odd["metadata"]["annotations"][f"{OLD}/observed"] = text
    assert removed(planned(odd)).keys() == OURS.keys() - {FLAVOR}


def test_an_unknown_time() -> None:
    """Without a clock every annotation is that of a running agent."""
    found = owned(state_of(a_node(1e8)), LISTED)
    assert found.outside == {
        *(Field(LABEL, key) for key in OURS if key != FLAVOR),
        Field(ANNOTATION, f"{OLD}/observed"),
    }
    assert not found.former


def test_a_prefix_that_is_not_listed() -> None:
    """Everything stays, and the line has the command that removes it."""
    found = planned(a_node(1e8), KEYS)
    assert (removed(found), found.is_due) == ({}, False)
    command = f"bwagent cleanup --label-prefix {OLD} --ib-label-prefix {OLD} --accelerator-label="
    assert reasons(found)[OLD] == f"{command} removes these labels of a former prefix"


def test_a_key_of_another_shape() -> None:
    """A former accelerator's key stays, with the command that removes it."""
    key = "old.example/accelerator"
    found = planned(a_node(None, OLD, **{key: "a.1"}))
    assert reasons(found).keys() == {key}
    assert reasons(found)[key].startswith(f"kubectl label node n1 {key}- removes")
    assert Field(LABEL, key) in found.wanted


def test_backed_off() -> None:
    """Keys whose removal was refused stay for the time of the back-off."""
    found = planned(a_node(), backed_off=frozenset({f"{OLD}/flavor"}))
    assert removed(found) == {f"{OLD}/speed.current": "1G"}
    assert found.postponed == (f"{OLD}/flavor",)
    found = planned(a_node(), backed_off=frozenset({FORMER}))
    assert (removed(found), found.is_due) == ({}, False)


def test_version() -> None:
    """A request with fields outside the table, or that removes some, is for one version only."""
    found = a_node()
    found["metadata"]["resourceVersion"] = "17"
    for keys in (KEYS, LISTED):
        todo = planned(found, keys)
        assert todo.outside
        assert todo.version == "17"
    assert body(todo, todo.wanted, todo.version)["metadata"]["resourceVersion"] == "17"
    assert "resourceVersion" not in body(todo, todo.wanted)["metadata"]


def test_own_annotation_is_not_another_agents() -> None:
    """The agent's own annotation, however young, holds nothing back."""
    fresh = node(OURS, observed=replace(ANNOTATED, time=NOW))
    assert removed(planned(fresh)).keys() == OURS.keys() - {FLAVOR}
