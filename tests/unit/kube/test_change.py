"""Plans: the changes of a Node, the fields of a request, and the cases with nothing to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import MAX_BYTES
from agent.kube.change import Change, ForeignField, body, change_to, renewed
from agent.kube.managed_fields import ANNOTATION, LABEL, Field
from agent.memory import FarEnd
from tests.support.nodes import (
    ACCELERATOR_KEY,
    ANNOTATED,
    FLAVOR,
    IB_SPEED,
    KEYS,
    LEAF,
    NOW,
    PREFIX,
    SPEED,
    desired,
    node,
    removed,
    rows,
)

EXPECTED = f"{PREFIX}/speed.expected"
(ROW,) = ANNOTATED.interfaces


def labels_of(found: Change) -> dict[str, str]:
    """Return the labels of the request."""
    return {one.key: value for one, value in found.wanted.items() if one.kind == LABEL}


def planned(a_node: dict[str, Any], labels: dict[str, str], **changes: Any) -> Change:
    return change_to(a_node, desired(labels, **changes), KEYS)


def test_a_manager_of_an_absent_label() -> None:
    """An accelerator label that managedFields list and the Node lacks is applied."""
    odd_one = node({}, {"other": {ACCELERATOR_KEY: "b.2"}})
    del odd_one["metadata"]["labels"][ACCELERATOR_KEY]
    found = planned(odd_one, {ACCELERATOR_KEY: "a.1"})
    assert (found.label_changes, found.left_alone) == (((ACCELERATOR_KEY, None, "a.1"),), ())


def test_a_change() -> None:
    """Labels are added, changed or removed; an unchanged one is in the request only."""
    ours = {FLAVOR: "infiniband", SPEED: "2800G", LEAF: "L90.1.3"}
    found = planned(node(ours), {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3200G"})
    assert found.label_changes == (
        (LEAF, "L90.1.3", None),
        (SPEED, "2800G", "3200G"),
        (IB_SPEED, None, "3200G"),
    )
    assert [one.verb for one in found.label_changes] == ["removed", "changed", "added"]
    assert labels_of(found) == {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3200G"}
    assert found.is_due


@pytest.mark.parametrize(
    ("before", "due"),
    [
        ({"time": NOW - 90_000}, False),
        ({"time": NOW + 5}, False),
        ({"time": None}, True),
        ({"time": NOW - 60, "boot_id": "another"}, True),
        ({"time": NOW - 60, "interfaces": ()}, True),
        ({"time": NOW - 60, "agent": "0.0.9"}, False),
        ({"time": NOW - 60, "interfaces": (ROW._replace(gbps=200.0),)}, True),
        ({"time": NOW - 60, "interfaces": (ROW._replace(port_guid="a" * 16),)}, True),
        ({"time": NOW - 60, "interfaces": (ROW._replace(last_far=FarEnd("a")),)}, False),
    ],
)
def test_facts_of_the_annotation(before: dict[str, Any], *, due: bool) -> None:
    """A reboot and a change of interfaces are written, a neighbor with the next request; the age of
    the annotation is the caller's concern.
    """
    found = planned(node({FLAVOR: "roce"}, observed=replace(ANNOTATED, **before)), {FLAVOR: "roce"})
    assert found.is_due == due
    assert found.managed[KEYS.annotation_field] != found.wanted[KEYS.annotation_field]


def test_an_annotation_that_cannot_be_renewed() -> None:
    """Without a full observation since, an old annotation is no reason to write the same again."""
    old = replace(ANNOTATED, time=NOW - 9000)
    found = planned(node({FLAVOR: "roce"}, observed=old), {FLAVOR: "roce"}, annotation=old)
    assert not found.is_due
    assert found.managed[KEYS.annotation_field] == found.wanted[KEYS.annotation_field]


@pytest.mark.parametrize("text", ["", "{", "[" * 60000, "7", '{"schema":4}', "x" * 70000])
def test_a_malformed_annotation(text: str) -> None:
    """A malformed annotation is a problem, and is written again."""
    found = planned(node({FLAVOR: "roce"}, observed=text), {FLAVOR: "roce"})
    assert found.is_due
    assert [problem.subject for problem in found.problems] == [KEYS.annotation]


def test_an_annotation_without_room() -> None:
    """Interfaces without room are a problem, and once the others are written nothing is due."""
    wide = replace(ANNOTATED, interfaces=rows(*((f"ibp{i}", "0000:18:00.0") for i in range(999))))
    found = planned(node({FLAVOR: "roce"}), {FLAVOR: "roce"}, annotation=wide)
    text = found.wanted[KEYS.annotation_field]
    written = json.loads(text)
    assert len(text) <= MAX_BYTES
    assert len(written["ports"]) + written["left_out"] == 999
    assert f"no room for {written['left_out']} rows" in found.problems[0].text
    again = planned(node({FLAVOR: "roce"}, observed=text), {FLAVOR: "roce"}, annotation=wide)
    assert not again.is_due


def test_annotation_of_another_manager() -> None:
    """An annotation that another manager wrote is written again."""
    found = node({FLAVOR: "roce"})
    found["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"] = {}
    assert planned(found, {FLAVOR: "roce"}).is_due


def test_an_accelerator_of_others() -> None:
    """The accelerator's key keeps the value of another manager, which the change names."""
    theirs = {"gpu-feature-discovery": {ACCELERATOR_KEY: "b.2"}}
    found = planned(node({}, theirs), {ACCELERATOR_KEY: "a.1"})
    assert (labels_of(found), found.is_due) == ({}, False)
    left = ForeignField(ACCELERATOR_KEY, "b.2", "a.1", ("gpu-feature-discovery",))
    assert found.left_alone == (left,)


def test_an_accelerator_of_the_same_value() -> None:
    """The accelerator's key is shared with a manager that has the same value; removed by the agent,
    it stays.
    """
    theirs, label = {"nfd": {ACCELERATOR_KEY: "a.1"}}, {ACCELERATOR_KEY: "a.1"}
    assert labels_of(planned(node({}, theirs), label)) == label
    found = planned(node(label, theirs), {})
    assert (removed(found), found.is_due) == ({}, True)
    assert found.left_alone == (ForeignField(ACCELERATOR_KEY, "a.1", None, ("nfd",)),)


def test_drift() -> None:
    """A key of the table that others changed or removed is restored."""
    found = planned(node({}, {"kubectl-edit": {FLAVOR: "x"}}), {FLAVOR: "roce", SPEED: "0G"})
    assert found.label_changes == ((FLAVOR, "x", "roce"), (SPEED, None, "0G"))


@pytest.mark.parametrize("postponed", [{FLAVOR, SPEED, IB_SPEED, LEAF}, {"P", "IB"}])
def test_recently_refused(postponed: set[str]) -> None:
    """A recently refused key is not changed, not added and not removed; one that needs no change is
    not postponed. An annotation of which that is all is not due.
    """
    found = planned(
        node({FLAVOR: "roce", SPEED: "1G", LEAF: "a"}),
        {FLAVOR: "roce", SPEED: "2G", IB_SPEED: "2G", ACCELERATOR_KEY: "a.1"},
        postponed=frozenset(postponed),
    )
    assert labels_of(found) == {FLAVOR: "roce", SPEED: "1G", LEAF: "a", ACCELERATOR_KEY: "a.1"}
    assert set(found.postponed) == {SPEED, LEAF, IB_SPEED}
    assert not planned(node({}, observed=None), {}, postponed=frozenset({"observed"})).is_due


FROZEN = frozenset({SPEED, IB_SPEED})


def test_a_frozen_label_stays_as_the_node_has_it() -> None:
    """It is in every request until facts make it again; one that is not there is not added."""
    found = planned(node({FLAVOR: "infiniband", SPEED: "3200G"}), {}, frozen=FROZEN)
    assert labels_of(found) == {SPEED: "3200G"}
    assert planned(node({SPEED: "3200G"}), {}, frozen=frozenset()).label_changes == (
        (SPEED, "3200G", None),
    )


def test_a_frozen_label_of_another_manager_is_not_adopted() -> None:
    """Neither its value, nor the key: somebody has changed it since the agent wrote it."""
    found = planned(node({}, {"kubectl-edit": {SPEED: "1G"}}), {}, frozen=FROZEN)
    assert (labels_of(found), found.label_changes) == ({}, ())


AS_PLANNED = node({FLAVOR: "roce"}, {"nfd": {"a": "b"}}, version="1")


@pytest.mark.parametrize(
    "now",
    [
        node({FLAVOR: "roce"}, {"nfd": {"a": "b"}}, version="2"),
        node({FLAVOR: "x"}, {"nfd": {"a": "b"}}),
        node({FLAVOR: "roce"}, {"nfd": {"a": "b", LEAF: "c"}}),
        node({FLAVOR: "roce"}, {"nfd": {"a": "b"}, "x": {"a": "b", FLAVOR: "roce"}}),
        node({FLAVOR: "roce"}, {"nfd": {"a": "b"}}, observed="{"),
    ],
    ids=["as planned, another version", "value", "label of others", "managers", "annotation"],
)
def test_a_plan_for_the_node_as_it_is_now(now: dict[str, Any]) -> None:
    """It is the change that would be made now."""
    labels = {FLAVOR: "infiniband", ACCELERATOR_KEY: "a.1"}
    assert renewed(now, planned(AS_PLANNED, labels)) == planned(now, labels)


def test_the_body() -> None:
    """The request names the Node and its uid, and has no empty map."""
    found, head = planned(node(), {FLAVOR: "roce"}), {"name": "n1", "uid": "u-1"}
    metadata = {**head, "labels": {FLAVOR: "roce"}}
    sent = body(found, {Field(LABEL, FLAVOR): "roce"})
    assert sent == {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    sent = body(found, {Field(ANNOTATION, "a/b"): "c"})
    assert sent["metadata"] == {**head, "annotations": {"a/b": "c"}}


KEYS_OF_METADATA = ["managedFields", "labels", "annotations", "fieldsV1", "f:metadata", "f:labels"]
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYS_OF_METADATA, f"f:{FLAVOR}"]) | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json_like, json_like, json_like)
def test_any_metadata(labels: object, annotations: object, managed: object) -> None:
    """Any metadata gives a change with the wanted label."""
    others = {"labels": labels, "annotations": annotations, "managedFields": managed}
    found = planned({"metadata": {"name": "n", "uid": "u", **others}}, {FLAVOR: "roce"})
    assert found.wanted[Field(LABEL, FLAVOR)] == "roce"


some_labels = st.dictionaries(
    st.sampled_from(
        [FLAVOR, SPEED, LEAF, IB_SPEED, ACCELERATOR_KEY, EXPECTED, "old.example/flavor"]
    ),
    st.sampled_from(["a", "b"]),
)


@given(some_labels, some_labels, some_labels)
def test_any_managers(ours: dict[str, str], theirs: dict[str, str], wanted: dict[str, str]) -> None:
    """A request has keys of the table and managed fields only; once applied, nothing is due."""
    wanted = {key: value for key, value in wanted.items() if KEYS.family(Field(LABEL, key))}
    found = planned(node(ours, {"other": theirs}), wanted)
    assert all(one in found.managed or KEYS.family(one) for one in found.wanted)
    assert {key for key in ours if not KEYS.family(Field(LABEL, key))} <= labels_of(found).keys()
    left = {held.key: held.value for held in found.left_alone if held.value is not None}
    again = {
        key: value for key, value in theirs.items() if labels_of(found).get(key, value) == value
    } | left
    assert not planned(node(labels_of(found), {"other": again} if again else None), wanted).is_due
