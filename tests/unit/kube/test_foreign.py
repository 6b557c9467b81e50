"""Keys of the label table that the agent does not own: reported, removed only by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.cleanup import removal_patch
from agent.kube.managed_fields import ANNOTATION, LABEL, Field, FieldSet, Node, state_of
from agent.kube.ownership import BEFORE_FIRST_APPLY, kubectl_removal, owned
from agent.kube.plan import ForeignField, plan
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, LEAF, PREFIX, SPEED, desired, node

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED = f"{PREFIX}/speed.expected"


def foreign(
    ours: Mapping[str, str], others: Mapping[str, str], wanted: Mapping[str, str]
) -> list[str]:
    found = plan(node(ours, {"kubectl-label": others}), desired(wanted), KEYS)
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
    wanted = desired({LEAF: "b"}, backed_off=frozenset({LEAF}))
    assert plan(node({}, {"kubectl-label": {LEAF: "a"}}), wanted, KEYS).foreign == ()


def test_value_and_managers() -> None:
    """A foreign key has the Node's value, and all of its managers."""
    others = {"kubectl-label": {LEAF: "a"}, "labeler": {LEAF: "a"}}
    found = plan(node({}, others), desired({}), KEYS).foreign
    assert found == (ForeignField(LEAF, "a", None, ("kubectl-label", "labeler")),)


def ownerless(found: Node) -> FieldSet:
    return owned(state_of(found), KEYS).ownerless


def reset(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a Node with labels and the annotation of the agent, and these managedFields."""
    found = node({FLAVOR: "roce", ACC: "a.1"}, {"site": {EXPECTED: "1G"}})
    found["metadata"]["managedFields"] = entries
    return found


def test_fields_without_an_owner() -> None:
    """After a reset of managedFields nobody owns anything, or BEFORE_FIRST_APPLY everything."""
    lost = {Field(LABEL, FLAVOR), Field(LABEL, ACC), KEYS.annotation_field}
    assert ownerless(reset([])) == lost
    labels: dict[str, object] = {f"f:{key}": {} for key in (FLAVOR, ACC, EXPECTED)}
    metadata = {"f:labels": labels, "f:annotations": {f"f:{KEYS.annotation}": {}}}
    entry = {
        "manager": BEFORE_FIRST_APPLY,
        "operation": "Update",
        "fieldsV1": {"f:metadata": metadata},
    }
    assert ownerless(reset([entry])) == lost
    assert ownerless(node({FLAVOR: "roce"}, {"nfd": {SPEED: "1G"}})) == set()


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


def test_an_empty_node() -> None:
    """No label, no key of anybody."""
    assert not any(owned(state_of(node(observed=None)), KEYS))
