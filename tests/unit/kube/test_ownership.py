"""Fields of manager `bwagent` outside the label table: what is removed, what stays, which lines.
Fields of others inside it: reported, removed only by their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agent.cleanup import removal_patch
from agent.encode import Naming
from agent.kube.annotation import MAX_AGE
from agent.kube.change import (
    BEFORE_FIRST_APPLY,
    Change,
    ForeignField,
    change_to,
    kubectl_removal,
    owned,
)
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
from agent.labels.table import LABELS
from agent.text import utc
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import (
    FLAVOR,
    IB_SPEED,
    KEYS,
    LEAF,
    NOW,
    PREFIX,
    SPEED,
    desired,
    entry,
    node,
    removed,
)

OLD = "old.example"
EXPECTED = f"{PREFIX}/speed.expected"
OURS = {FLAVOR: "roce", f"{OLD}/flavor": "roce", f"{OLD}/speed.current": "1G"}
LISTED = Keys(Naming(), [OLD, "x.example"])


def report(age: float) -> str:
    """Return the annotation of an agent that reported so many seconds ago."""
    return json.dumps({"schema": 1, "time": utc(int(NOW - age))})


def a_node(age: float | None = None, prefix: str = OLD, **labels: str) -> dict[str, Any]:
    """Return a Node with labels of a former prefix, and an annotation of this age."""
    found = node(OURS | labels, {"site": {f"{OLD}/rack": "1"}})
    if age is not None:
        found["metadata"]["annotations"][f"{prefix}/observed"] = report(age)
        managed = found["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]
        managed["f:annotations"][f"f:{prefix}/observed"] = {}
    return found


def planned(a_node: dict[str, Any], keys: Any = LISTED, **changes: Any) -> Change:
    return change_to(a_node, desired({FLAVOR: "roce"}, **{"now": NOW, **changes}), keys)


def reasons(found: Change) -> dict[str, str]:
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
    assert owned_labels(state_of(a_node()), LISTED) == {FLAVOR: "roce"}
    assert Keys(Naming(), [PREFIX]).family(Field(LABEL, FLAVOR)) == "P"


@pytest.mark.parametrize("age", [None, MAX_AGE, MAX_AGE + 1, -MAX_AGE, 1e8])
def test_removal(age: float | None) -> None:
    """Under a listed prefix everything goes, the annotation too, if that is as old as two hours;
    the agent's own, however young, holds nothing back.
    """
    found = planned(a_node(age))
    labels = {f"{OLD}/flavor": "roce", f"{OLD}/speed.current": "1G"}
    assert (removed(found), found.is_due, found.problems) == (labels, True, ())
    assert not any(field.key.startswith(OLD) for field in found.wanted)


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
    shared["metadata"]["managedFields"].append(entry("x", "Update", {f"{OLD}/flavor": "roce"}))
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
    found, partial = a_node(age=60), {"boot_id": "b", "time": utc(NOW - 60)}
    text = json.dumps({"schema": 1, "time": None, "partial": partial})
    found["metadata"]["annotations"][f"{OLD}/observed"] = text
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
    labels = {Field(LABEL, key) for key in OURS if key != FLAVOR}
    assert found.outside == labels | {Field(ANNOTATION, f"{OLD}/observed")}
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


def test_postponed() -> None:
    """Keys whose removal was refused stay while they are postponed."""
    found = planned(a_node(), postponed=frozenset({f"{OLD}/flavor"}))
    assert removed(found) == {f"{OLD}/speed.current": "1G"}
    assert found.postponed == (f"{OLD}/flavor",)
    found = planned(a_node(), postponed=frozenset({FORMER}))
    assert (removed(found), found.is_due) == ({}, False)


def foreign(
    ours: Mapping[str, str], others: Mapping[str, str], wanted: Mapping[str, str]
) -> list[str]:
    found = change_to(node(ours, {"kubectl-label": others}), desired(wanted), KEYS)
    return [one.key for one in found.foreign]


def test_what_another_manager_holds_and_nobody_publishes() -> None:
    """Under P and IB only: not the accelerator's key, not the expected half, not other labels."""
    others = {LEAF: "a", IB_SPEED: "1G", ACC: "a.1", EXPECTED: "1G", "site.example/rack": "1"}
    assert foreign({}, others, {SPEED: "1G"}) == [LEAF, IB_SPEED]


@pytest.mark.parametrize(
    ("ours", "wanted"),
    [({}, {LEAF: "b"}), ({LEAF: "a"}, {LEAF: "a"}), ({LEAF: "a"}, {})],
    ids=["is taken over", "shared", "is removed now"],
)
def test_what_the_agent_publishes_is_not_foreign(
    ours: dict[str, str], wanted: dict[str, str]
) -> None:
    """Nor what it owns until now."""
    assert foreign(ours, {LEAF: "a"}, wanted) == []


def test_a_refused_key_is_published() -> None:
    """The agent would set it."""
    wanted = desired({LEAF: "b"}, postponed=frozenset({LEAF}))
    assert change_to(node({}, {"kubectl-label": {LEAF: "a"}}), wanted, KEYS).foreign == ()


def test_value_and_managers() -> None:
    """A foreign key has the Node's value, and all of its managers."""
    others = {"kubectl-label": {LEAF: "a"}, "labeler": {LEAF: "a"}}
    found = change_to(node({}, others), desired({}), KEYS).foreign
    assert found == (ForeignField(LEAF, "a", None, ("kubectl-label", "labeler")),)


def test_fields_without_an_owner() -> None:
    """After a reset of managedFields nobody owns anything, or BEFORE_FIRST_APPLY everything."""
    found = node({FLAVOR: "roce", ACC: "a.1"}, {"site": {EXPECTED: "1G"}})
    everything = dict.fromkeys((FLAVOR, ACC, EXPECTED), ""), {KEYS.annotation: ""}
    for managers in ([], [entry(BEFORE_FIRST_APPLY, "Update", *everything)]):
        found["metadata"]["managedFields"] = managers
        lost = {Field(LABEL, FLAVOR), Field(LABEL, ACC), KEYS.annotation_field}
        assert owned(state_of(found), KEYS).ownerless == lost
    found = node({FLAVOR: "roce"}, {"nfd": {SPEED: "1G"}})
    assert owned(state_of(found), KEYS).ownerless == set()


def test_the_patch_is_for_one_version() -> None:
    """Of the very Node; a slash in a key is escaped."""
    found = node({}, {"nfd": {FLAVOR: "roce"}}, version="7")
    assert removal_patch(state_of(found), [FLAVOR]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u-1"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "remove", "path": f"/metadata/labels/{PREFIX}~1flavor"},
    ]


def test_the_command_for_one_field() -> None:
    """It is quoted for a shell."""
    assert kubectl_removal("n1", Field(LABEL, ACC)) == f"kubectl label node n1 {ACC}-"
    odd = Field(ANNOTATION, "a/b;c")
    assert kubectl_removal("n1", odd) == "kubectl annotate node n1 'a/b;c-'"
