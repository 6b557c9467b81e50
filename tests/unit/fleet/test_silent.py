"""The Nodes whose agent is silent: by age, boot, clock, and annotation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.facts import MAX_SKEW
from agent.fleet.silent import (
    FUTURE,
    NO_ANNOTATION,
    OLD,
    OTHER_BOOT,
    cause,
    causes,
    findings,
    unreadable,
)
from agent.kube.annotation import MAX_AGE
from tests.support.small_fleets import NOW, fleet, node, rack


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, None),
        ({"time": NOW - MAX_AGE}, None),
        ({"time": NOW - MAX_AGE - 1}, OLD),
        ({"time": 0}, OLD),
        ({"time": NOW + MAX_SKEW}, None),
        ({"time": NOW + MAX_SKEW + 1}, FUTURE),
        ({"time": None}, NO_ANNOTATION),
        ({"node_boot_id": "another"}, OTHER_BOOT),
        ({"node_boot_id": "another", "boot_id": None}, None),
        ({"node_boot_id": None}, None),
        ({"node_boot_id": "another", "time": 1}, OTHER_BOOT),
    ],
)
def test_cause(facts: dict[str, Any], expected: str | None) -> None:
    """Two hours by the clock of the fleet; a boot only where both are known."""
    assert cause(node("gpu-001", [], **facts), NOW) == expected


def test_one_finding_for_each_cause() -> None:
    old = [replace(one, time=NOW - 10_000) for one in rack(30)]
    new = [node("gpu-100", [], node_boot_id="another"), node("gpu-101", [])]
    members = fleet([*old, *new])
    first, second = findings(members, causes(members), None)
    assert (first.code, first.severity, len(first.nodes)) == ("silent", "unknown", 30)
    assert first.text == (
        "Look at the agent of 30 nodes (gpu-001, gpu-002, gpu-003, gpu-004, gpu-005, gpu-006, "
        "gpu-007, gpu-008 and 22 more): it has not reported for two hours; the oldest report is "
        "of 2026-11-18T08:20:00Z."
    )
    assert second.text == (
        "Look at the agent of 1 node (gpu-100): it has not reported since the last boot of the "
        "Node."
    )


def test_ids_do_not_depend_on_the_nodes() -> None:
    """The same cause is the same finding tomorrow, when other nodes are silent."""
    ids = set()
    for count in (1, 7):
        members = fleet([replace(one, time=1) for one in rack(count)])
        ids |= {one.id for one in findings(members, causes(members), None)}
    assert len(ids) == 1


def test_nodes_of_which_nothing_is_expected_are_a_remark() -> None:
    members = fleet([replace(one, time=1) for one in rack(3)])
    found = list(findings(members, causes(members), {"gpu-002"}))
    assert [(one.severity, one.nodes) for one in found] == [
        ("info", ("gpu-001", "gpu-003")),
        ("unknown", ("gpu-002",)),
    ]
    assert found[0].id != found[1].id


def test_unreadable_nodes_are_one_finding() -> None:
    nodes = [replace(one, problems=("no JSON",)) for one in rack(2)]
    nodes.append(replace(node("gpu-003", []), problems=("no JSON", "no time")))
    (found,) = unreadable([*nodes, *rack(1, first=9)])
    assert (found.nodes, found.severity) == (("gpu-001", "gpu-002", "gpu-003"), "unknown")
    assert found.text == (
        "3 Nodes could not be read in full: no JSON (gpu-001, gpu-002, gpu-003); no time (gpu-003)."
    )
    assert list(unreadable(rack())) == []
