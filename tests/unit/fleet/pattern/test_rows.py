"""The rows of a table: which nodes count."""

from __future__ import annotations

from typing import Any

import pytest

from agent.fleet import silent
from agent.fleet.pattern.grouping import tables
from agent.fleet.pattern.ports import PortNumbers
from tests.support.small_fleets import NOW, fleet, node


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"time": None},
        {"time": NOW - 7201},
        {"time": NOW + 299},
        {"time": NOW + 301},
        {"boot_id": "one", "node_boot_id": "one"},
        {"boot_id": "one", "node_boot_id": "another"},
        {"boot_id": None, "node_boot_id": "another"},
        {"boot_id": "one", "node_boot_id": None},
    ],
)
def test_a_node_counts_unless_it_is_silent(facts: dict[str, Any]) -> None:
    """The pattern and the findings agree on who is silent."""
    members = fleet([node("gpu-001", [], **facts)])
    ((row,),) = tables(members, PortNumbers(members.nodes))
    assert row.is_fresh == (silent.cause(members.nodes[0], NOW) is None)
