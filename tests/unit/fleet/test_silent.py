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


def test_ids_do_not_depend_on_the_nodes() -> None:
    """The same cause is the same finding tomorrow, when other nodes are silent."""
    ids = set()
    for count in (1, 7):
        members = fleet([replace(one, time=1) for one in rack(count)])
        ids |= {one.id for one in findings(members, causes(members), None)}
    assert len(ids) == 1
