"""Ownership: the keys of the label table, and the managers of a Node's fields."""

from __future__ import annotations

from typing import Any

import pytest

from agent.encode import Naming
from agent.errors import Malformed
from agent.kube.managed_fields import (
    ANNOTATION,
    LABEL,
    Field,
    Keys,
    owned_labels,
    state_of,
)
from agent.labels.table import LABELS
from tests.support.nodes import (
    ACCELERATOR_KEY,
    FLAVOR,
    IB_PREFIX,
    IB_SPEED,
    KEYS,
    LEAF,
    PREFIX,
    SPEED,
    entry,
    node,
)

OTHERS = ["speed.expected", "fabric", "leafgroup", "superpod", "rack", "observed"]
OTHERS += ["neighbors.current.ibp0", "neighbors.expected.ibp0.device"]
OF_IB = ("speed.expected", "flavor", "neighbors.current.ibp0.port-name")
ELSEWHERE = ("backendxcoreweave.cloud/flavor", "x.backend.coreweave.cloud/flavor", "flavor", "")


@pytest.mark.parametrize("row", LABELS, ids=lambda row: row.key)
def test_keys_of_the_table(row: Any) -> None:
    """Every row of the label table has its family, under any prefixes."""
    keys = Keys(Naming("p.example", "ib.example", "acc.example/domain"))
    family, _, name = row.key.replace("{if}", "mlx5_0-3").partition("/")
    key = {"P": "p.example/", "IB": "ib.example/", "ACC": "acc.example/domain"}[family] + name
    assert keys.family(Field(LABEL, key)) == family
    assert keys.interface(key) == ("mlx5_0-3" if "{if}" in row.key else None)
    assert keys.annotation == "p.example/observed"


def test_keys_of_a_pattern() -> None:
    """They are of the family of whole keys; those of the tiers below P are the agent's, too."""
    keys = Keys(Naming(tiers=("a.b/leaf", "a.b/spine", "a.b/core")))
    assert {keys.family(Field(LABEL, key)) for key in keys.naming.tiers} == {"ACC"}
    assert keys.tiers == ("a.b/spine", "a.b/core")
    assert KEYS.tiers == (f"{PREFIX}/tier-1.current", f"{PREFIX}/tier-2.current")
    assert {keys.family(Field(LABEL, key)) for key in KEYS.tiers} == {"P"}
    assert KEYS.family(Field(LABEL, "a.b/leaf")) is None


def test_the_other_keys() -> None:
    """The accelerator's key and the annotation are families of their own, without an interface."""
    assert KEYS.family(Field(LABEL, ACCELERATOR_KEY)) == "ACC"
    assert KEYS.family(Field(ANNOTATION, f"{PREFIX}/observed")) == "observed"
    assert KEYS.family(Field(ANNOTATION, FLAVOR)) is None
    assert KEYS.interface(ACCELERATOR_KEY) is None


@pytest.mark.parametrize(
    "key",
    [
        *(f"{PREFIX}/{name}" for name in OTHERS),
        *(f"{IB_PREFIX}/{name}" for name in OF_IB),
        *ELSEWHERE,
    ],
)
def test_keys_of_the_site(key: str) -> None:
    """A key outside the table has no family and is not owned, whatever its prefix and manager."""
    assert KEYS.family(Field(LABEL, key)) is None
    assert owned_labels(state_of(node({key: "x", FLAVOR: "roce"})), KEYS) == {FLAVOR: "roce"}


def test_an_empty_family() -> None:
    """A family without a prefix has no keys."""
    keys = Keys(Naming(ib_prefix="", accelerator=""))
    assert keys.family(Field(LABEL, "/speed.current")) is None
    assert keys.family(Field(LABEL, IB_SPEED)) is None
    assert keys.family(Field(LABEL, "")) is None


def test_owned_by_managed_fields() -> None:
    """A label of the table is owned if managedFields list it for `bwagent`, operation Apply, no
    subresource.
    """
    found = node({FLAVOR: "roce"}, {"kubectl-label": {SPEED: "1G"}})
    found["metadata"]["managedFields"] += [
        entry("bwagent", "Update", {SPEED: "1G"}),
        {**entry("bwagent", "Apply", {SPEED: "1G"}), "subresource": "status"},
        entry("bwagent", "Apply", {LEAF: "gone from the labels"}),
    ]
    assert owned_labels(state_of(found), KEYS) == {FLAVOR: "roce"}


def test_the_state_of_a_node() -> None:
    """Its name and uid, and its labels and annotations with their managers."""
    state = state_of(node({FLAVOR: "roce"}, {"nfd": {SPEED: "1G"}}, "{}"))
    flavor, speed, annotation = Field(LABEL, FLAVOR), Field(LABEL, SPEED), KEYS.annotation_field
    assert (state.name, state.uid) == ("n1", "u-1")
    assert state.fields == {flavor: "roce", speed: "1G", annotation: "{}"}
    assert state.managed == {flavor, annotation}


def test_the_other_managers_of_a_field() -> None:
    """All of them, in the order of managedFields, beside the agent or without it; an entry without
    a name has one of its own.
    """
    theirs = {"nfd": {SPEED: "1G", FLAVOR: "roce"}, "": {SPEED: "1G"}}
    state = state_of(node({FLAVOR: "roce"}, theirs))
    assert state.others == {
        Field(LABEL, SPEED): ("nfd", "unnamed"),
        Field(LABEL, FLAVOR): ("nfd",),
    }
    assert Field(LABEL, FLAVOR) in state.managed


def test_the_entries_of_a_subresource_and_of_one_manager() -> None:
    """A manager may have several: it is named once. One of `status` has its labels, too."""
    found = node({FLAVOR: "roce"}, {"nfd": {SPEED: "1G"}})
    status = {"subresource": "status"}
    found["metadata"]["managedFields"] += [
        entry("nfd", "Apply", {SPEED: "1G"}),
        {**entry("kubelet", "Update", {SPEED: "1G"}), **status},
        {**entry("bwagent", "Apply", {FLAVOR: "roce"}), **status},
    ]
    assert state_of(found).others == {
        Field(LABEL, SPEED): ("nfd", "kubelet"),
        Field(LABEL, FLAVOR): ("bwagent",),
    }


@pytest.mark.parametrize("path", ["fieldsV1", "f:metadata", "f:labels"])
@pytest.mark.parametrize("odd", [None, [], "x", 7, {"f:metadata": None}, {"x": {}, "f:": {}}])
def test_malformed_managed_fields(path: str, odd: object) -> None:
    """A malformed entry of managedFields has no fields."""
    odd_one = node({FLAVOR: "roce"})
    inside = odd_one["metadata"]["managedFields"][0]
    for name in ("fieldsV1", "f:metadata", "f:labels"):
        if name == path:
            inside[name] = odd
            break
        inside = inside[name]
    assert owned_labels(state_of(odd_one), KEYS) == {}


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        ({}, "''"),
        ({"metadata": None}, "''"),
        ({"metadata": {"name": "n1"}}, "'n1'"),
        ({"metadata": {"name": 1, "uid": "u"}}, "1"),
    ],
)
def test_not_a_node(odd: dict[str, Any], name: str) -> None:
    """A Node without a name or a uid is malformed."""
    words = f"^Node {name}: the API server sent one without a name or a uid$"
    with pytest.raises(Malformed, match=words):
        state_of(odd)
