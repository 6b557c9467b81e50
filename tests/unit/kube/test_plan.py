"""What has to change on a Node: whose keys are whose, what goes into a request, and when there is
nothing to do.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.kube.annotation import Annotation, render
from agent.kube.commands import removal, removals
from agent.kube.managed_fields import ANNOTATION, LABEL, Field, keys_of, owned_labels
from agent.kube.plan import ForeignField, Plan, body, plan
from agent.labels.table import LABELS, Naming
from tests.support.nodes import (
    ACCELERATOR_KEY,
    ANNOTATED,
    FLAVOR,
    IB_PREFIX,
    IB_SPEED,
    KEYS,
    LEAF,
    NOW,
    PREFIX,
    SPEED,
    desired,
    entry,
    node,
)

EXPECTED = f"{PREFIX}/speed.expected"
THEIRS = (
    EXPECTED,
    *(
        f"{PREFIX}/{name}"
        for name in (
            "fabric",
            "leafgroup",
            "superpod",
            "rack",
            "observed",
            "neighbors.current.ibp0",
        )
    ),
    f"{PREFIX}/neighbors.expected.ibp0.device",
    *(
        f"{IB_PREFIX}/{name}"
        for name in ("speed.expected", "flavor", "neighbors.current.ibp0.port-name")
    ),
    *("backendxcoreweave.cloud/flavor", "x.backend.coreweave.cloud/flavor", "flavor", ""),
)


def labels_of(found: Plan) -> dict[str, str]:
    """The labels of the request."""
    return {one.key: value for one, value in found.wanted.items() if one.kind == LABEL}


def planned(a_node: dict[str, Any], labels: dict[str, str], **changes: Any) -> Plan:
    return plan(a_node, desired(labels, **changes), KEYS)


@pytest.mark.parametrize("row", LABELS, ids=lambda row: row.key)
def test_keys_of_the_table(row: Any) -> None:
    """Every row of the label table is ours, under the prefixes that were chosen."""
    keys = keys_of(Naming("p.example", "ib.example", "acc.example/domain"))
    family, _, name = row.key.replace("{if}", "mlx5_0-3").partition("/")
    key = {"P": "p.example/", "IB": "ib.example/", "ACC": "acc.example/domain"}[family] + name
    assert keys.family(Field(LABEL, key)) == family
    assert keys.interface(key) == ("mlx5_0-3" if "{if}" in row.key else None)


def test_the_other_keys() -> None:
    """The accelerator's key and the annotation are ours; the accelerator's key alone has no
    interface.
    """
    assert KEYS.family(Field(LABEL, ACCELERATOR_KEY)) == "ACC"
    assert KEYS.family(Field(ANNOTATION, f"{PREFIX}/observed")) == "observed"
    assert KEYS.interface(ACCELERATOR_KEY) is None


@pytest.mark.parametrize("key", THEIRS)
def test_keys_of_the_site(key: str) -> None:
    """What shares a prefix with our keys is not ours for that, even under our manager's name."""
    assert KEYS.family(Field(LABEL, key)) is None
    assert owned_labels(node({key: "x", FLAVOR: "roce"}), KEYS) == {FLAVOR: "roce"}


def test_an_empty_family() -> None:
    """Families that are switched off have no keys."""
    keys = keys_of(Naming(ib_prefix="", accelerator=""))
    assert keys.family(Field(LABEL, "/speed.current")) is None
    assert keys.family(Field(LABEL, IB_SPEED)) is None
    assert keys.family(Field(LABEL, "")) is None


def test_owned_by_managed_fields() -> None:
    """A label of the table is owned when managedFields give it to `bwagent`, operation Apply, no
    subresource.
    """
    found = node({FLAVOR: "roce"}, {"kubectl-label": {SPEED: "1G"}})
    managed = found["metadata"]["managedFields"]
    managed += [
        entry("bwagent", "Update", {SPEED: "1G"}),
        {**entry("bwagent", "Apply", {SPEED: "1G"}), "subresource": "status"},
    ]
    managed += [entry("bwagent", "Apply", {LEAF: "gone from the labels"})]
    assert owned_labels(found, KEYS) == {FLAVOR: "roce"}


@pytest.mark.parametrize("part", ["managedFields", "labels", "annotations"])
@pytest.mark.parametrize(
    "odd", [None, [], {}, "x", 7, [None, 7, "x"], [{"fieldsV1": 7}], {"a": 7, FLAVOR: None}]
)
def test_odd_nodes(part: str, odd: object) -> None:
    """Metadata that is missing, null or of an odd type means that nothing is known, and everything
    is applied.
    """
    odd_one = node({FLAVOR: "roce"})
    odd_one["metadata"][part] = odd
    found = planned(odd_one, {FLAVOR: "roce"})
    assert labels_of(found) == {FLAVOR: "roce"}
    del odd_one["metadata"][part]
    assert labels_of(planned(odd_one, {FLAVOR: "roce"})) == {FLAVOR: "roce"}


@pytest.mark.parametrize("path", ["fieldsV1", "f:metadata", "f:labels"])
@pytest.mark.parametrize("odd", [None, [], "x", 7, {"f:metadata": None}, {"x": {}, "f:": {}}])
def test_odd_managed_fields(path: str, odd: object) -> None:
    """An entry of managedFields with odd insides owns nothing."""
    odd_one = node({FLAVOR: "roce"})
    inside = odd_one["metadata"]["managedFields"][0]
    for name in ("fieldsV1", "f:metadata", "f:labels"):
        if name == path:
            inside[name] = odd
            break
        inside = inside[name]
    assert owned_labels(odd_one, KEYS) == {}


@pytest.mark.parametrize(
    "odd",
    [{}, {"metadata": None}, {"metadata": {"name": "n1"}}, {"metadata": {"name": 1, "uid": "u"}}],
)
def test_no_node_at_all(odd: dict[str, Any]) -> None:
    """What has neither name nor uid is no Node."""
    with pytest.raises(Malformed, match="Node"):
        planned(odd, {})


def test_a_fresh_node() -> None:
    """A Node without any of our labels gets them all."""
    found = planned(node(observed=None), {FLAVOR: "roce", SPEED: "3200G"})
    assert (found.added, found.changed, found.removed) == ({FLAVOR: "roce", SPEED: "3200G"}, {}, {})
    assert found.due


def test_a_change() -> None:
    """Added, changed and removed are told apart; what stays is in the request and not in the
    difference.
    """
    ours = {FLAVOR: "infiniband", SPEED: "2800G", LEAF: "L90.1.3"}
    found = planned(node(ours), {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3200G"})
    assert found.added == {IB_SPEED: "3200G"}
    assert found.changed == {SPEED: ("2800G", "3200G")}
    assert found.removed == {LEAF: "L90.1.3"}
    assert labels_of(found) == {FLAVOR: "infiniband", SPEED: "3200G", IB_SPEED: "3200G"}
    assert found.due


def test_nothing_to_do() -> None:
    """Nothing is written when nothing changed and the annotation is fresh."""
    assert not planned(node({FLAVOR: "roce"}), {FLAVOR: "roce"}).due


@pytest.mark.parametrize(
    ("before", "due"),
    [
        ({"time": NOW - 90_000}, False),
        ({"time": NOW + 5}, False),
        ({"time": None}, True),
        ({"time": NOW - 60, "boot_id": "another"}, True),
        ({"time": NOW - 60, "interfaces": ()}, True),
        ({"time": NOW - 60, "agent": "0.0.9"}, False),
    ],
)
def test_facts_of_the_annotation(before: dict[str, Any], *, due: bool) -> None:
    """A reboot and a change of interfaces are written; the age of the annotation is the caller's
    concern.
    """
    found = planned(node({FLAVOR: "roce"}, observed=replace(ANNOTATED, **before)), {FLAVOR: "roce"})
    assert (found.due, found.updates_annotation) == (due, True)


def test_an_annotation_that_cannot_be_renewed() -> None:
    """Without a full observation since, an old annotation is no reason to write the same again."""
    old = replace(ANNOTATED, time=NOW - 9000)
    found = planned(node({FLAVOR: "roce"}, observed=old), {FLAVOR: "roce"}, annotation=old)
    assert (found.due, found.updates_annotation) == (False, False)


@pytest.mark.parametrize("text", ["", "{", "[" * 60000, "7", '{"schema":2}', "x" * 70000])
def test_a_spoilt_annotation(text: str) -> None:
    """An annotation that makes no sense is reported, and written anew."""
    found = planned(node({FLAVOR: "roce"}, observed=text), {FLAVOR: "roce"})
    assert found.due
    assert [problem.subject for problem in found.problems] == [KEYS.annotation]


def test_foreign_labels_stay_out() -> None:
    """Labels of others are in no request, whoever's prefix they have."""
    theirs = {"site": {EXPECTED: "3200G", "site.example/rack": "1", "kubernetes.io/hostname": "n1"}}
    found = planned(node({FLAVOR: "roce"}, theirs), {FLAVOR: "roce", SPEED: "0G"})
    assert labels_of(found) == {FLAVOR: "roce", SPEED: "0G"}
    assert found.removed == {}


def test_labels_of_ours_outside_the_table() -> None:
    """What stands under our name without being in the table is carried along: leaving it out would
    remove it.
    """
    ours = {FLAVOR: "roce", EXPECTED: "3200G", "old.example/flavor": "roce"}
    found = planned(node(ours), {FLAVOR: "roce"})
    assert labels_of(found) == ours
    assert not found.due


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        (EXPECTED, "3200G", "table"),
        ("flavor", "roce", "table"),
        (f"{PREFIX}/neighbors.current.{'a' * 60}.device", "x", "63"),
        (SPEED, "not a value", "no label value"),
        (SPEED, "", "no label value"),
        (SPEED, "a" * 64, "no label value"),
    ],
)
def test_labels_that_are_not_ours_to_write(key: str, value: str, word: str) -> None:
    """A foreign key, one that is too long and a value that is none are refused in words, and change
    nothing.
    """
    found = planned(node({SPEED: "1G"}), {SPEED: "1G", key: value})
    assert labels_of(found) == {SPEED: "1G"}
    assert word in found.problems[0].text
    assert found.problems[0].subject == key


def test_an_accelerator_of_others() -> None:
    """The accelerator's key stays as another manager has it, and the plan says who."""
    found = planned(
        node({}, {"gpu-feature-discovery": {ACCELERATOR_KEY: "b.2"}}), {ACCELERATOR_KEY: "a.1"}
    )
    assert labels_of(found) == {}
    assert found.left_alone == (
        ForeignField(ACCELERATOR_KEY, "b.2", "a.1", ("gpu-feature-discovery",)),
    )
    assert not found.due


def test_an_accelerator_of_the_same_value() -> None:
    """Where others say the same, the accelerator's key is ours, too; when it ends it stays
    theirs.
    """
    theirs = {"nfd": {ACCELERATOR_KEY: "a.1"}}
    assert labels_of(planned(node({}, theirs), {ACCELERATOR_KEY: "a.1"})) == {
        ACCELERATOR_KEY: "a.1"
    }
    found = planned(node({ACCELERATOR_KEY: "a.1"}, theirs), {})
    assert (found.removed, found.due) == ({}, True)
    assert found.left_alone == (ForeignField(ACCELERATOR_KEY, "a.1", None, ("nfd",)),)


def test_drift() -> None:
    """A key of the table that somebody else changed or took away is brought back."""
    found = planned(node({}, {"kubectl-edit": {FLAVOR: "x"}}), {FLAVOR: "roce", SPEED: "0G"})
    assert found.changed == {FLAVOR: ("x", "roce")}
    assert found.added == {SPEED: "0G"}


@pytest.mark.parametrize("backed_off", [{SPEED, IB_SPEED, LEAF}, {"P", "IB"}])
def test_refused_lately(backed_off: set[str]) -> None:
    """What was refused lately stays as it is: not changed, not added and not removed."""
    found = planned(
        node({SPEED: "1G", LEAF: "a"}),
        {SPEED: "2G", IB_SPEED: "2G", ACCELERATOR_KEY: "a.1"},
        backed_off=frozenset(backed_off),
    )
    assert labels_of(found) == {SPEED: "1G", LEAF: "a", ACCELERATOR_KEY: "a.1"}
    assert set(found.postponed) == {SPEED, LEAF, IB_SPEED}


def test_the_annotation_refused_lately() -> None:
    """An annotation that was refused is not tried again for its age."""
    assert not planned(node({}, observed=None), {}, backed_off=frozenset({"observed"})).due


def test_the_body() -> None:
    """The request names the Node and its uid, and claims no empty map."""
    found = planned(node(), {FLAVOR: "roce"})
    assert body(found, {Field(LABEL, FLAVOR): "roce"}) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "u-1", "labels": {FLAVOR: "roce"}},
    }
    assert body(found, {Field(ANNOTATION, "a/b"): "c"})["metadata"] == {
        "name": "n1",
        "uid": "u-1",
        "annotations": {"a/b": "c"},
    }


def test_cleanup() -> None:
    """Cleanup lets go of the owned labels and the annotation, and of nothing else under our
    name.
    """
    found = removal(
        node({FLAVOR: "roce", "old.example/flavor": "roce"}, {"site": {EXPECTED: "1G"}}), KEYS
    )
    assert found.removed == {FLAVOR: "roce"}
    assert labels_of(found) == {"old.example/flavor": "roce"}
    assert Field(ANNOTATION, KEYS.annotation) not in found.wanted
    assert found.due


def test_cleanup_of_many() -> None:
    """Nodes that carry nothing of ours are left out."""
    assert [one.removed for one in removals([node(observed=None), node({SPEED: "1G"})], KEYS)] == [
        {SPEED: "1G"}
    ]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "managedFields",
                    "labels",
                    "annotations",
                    "fieldsV1",
                    "f:metadata",
                    "f:labels",
                    f"f:{FLAVOR}",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json_like, json_like, json_like)
def test_any_metadata(labels: object, annotations: object, managed: object) -> None:
    """Whatever a server puts there, a plan comes out, and only our keys are in it."""
    metadata = {
        "name": "n",
        "uid": "u",
        "labels": labels,
        "annotations": annotations,
        "managedFields": managed,
    }
    found = planned({"metadata": metadata}, {FLAVOR: "roce"})
    assert found.wanted[Field(LABEL, FLAVOR)] == "roce"


some_labels = st.dictionaries(
    st.sampled_from(
        [FLAVOR, SPEED, LEAF, IB_SPEED, ACCELERATOR_KEY, EXPECTED, "old.example/flavor"]
    ),
    st.sampled_from(["a", "b"]),
)


@given(some_labels, some_labels, some_labels)
def test_nobody_elses_key(
    ours: dict[str, str], theirs: dict[str, str], wanted: dict[str, str]
) -> None:
    """A request holds keys of the table, and what stood under our name before; applied, there is
    nothing to do.
    """
    wanted = {key: value for key, value in wanted.items() if KEYS.family(Field(LABEL, key))}
    found = planned(node(ours, {"other": theirs}), wanted)
    assert all(one in found.managed or KEYS.family(one) for one in found.wanted)
    assert {key for key in ours if not KEYS.family(Field(LABEL, key))} <= labels_of(found).keys()
    left = {held.key: held.value for held in found.left_alone if held.value is not None}
    again = {
        key: value for key, value in theirs.items() if labels_of(found).get(key, value) == value
    } | left
    assert not planned(node(labels_of(found), {"other": again} if again else None), wanted).due


def test_the_annotation_is_small() -> None:
    """Sixteen interfaces fit into two kilobytes."""
    text = render(
        Annotation(NOW, "b" * 36, tuple((f"mlx5_{i}", f"0000:{i:02x}:00.0") for i in range(16)))
    )
    assert len(text) < 2048
    assert json.loads(text)["time"] == "2027-01-15T08:00:00Z"
