"""The finding `unstable` of one node."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cabling.expected import Expected
from agent.cabling.finding import Finding
from agent.cabling.judge import VerifyOptions, verify
from agent.reasons import BadLink
from tests.support.cabling import cable, changed, node, plan, rails

LEAF = "leaf03 port swp5"
PLAN = plan(rails())


def bad(*interfaces: str, end: str = "near", expected: Expected = PLAN) -> list[Finding]:
    """The findings of a node with these bad links."""
    seen = node(rails())
    for name in interfaces:
        seen = changed(seen, name, bad_link=BadLink(end, 1_790_000_000))
    return list(verify(expected, seen, VerifyOptions(ignore=("mlx5_7",))).findings)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("near", f"Reseat and clean the plug of mlx5_3, then replace the cable to {LEAF}: the"),
        ("far", f"Reseat and clean the plug at {LEAF}, then replace the cable to mlx5_3: the path"),
        ("cable", f"Replace the cable of mlx5_3 to {LEAF}: both directions have errors, last"),
        ("cannot-tell", f"Look at the cable of mlx5_3 to {LEAF}: it has errors, and the counters"),
    ],
)
def test_one_link_has_its_end(end: str, text: str) -> None:
    [found] = bad("mlx5_3", end=end)
    assert (found.code, found.severity, found.interfaces) == ("unstable", "warning", ("mlx5_3",))
    assert found.text.startswith(text)
    assert found.text.endswith(", last at 2026-09-21T14:13:20Z.")
    assert found.actual == found.moves[0].wanted == ("leaf03", "swp5")
    facts = {"bad-end": end, "last-errors": "2026-09-21T14:13:20Z"}
    assert facts.items() <= dict(found.facts).items()


def test_both_ends_have_their_place() -> None:
    places: dict[str, Any] = {"near": ("A1", "69"), "far": ("B3", "40")}
    others = [cable(f"mlx5_{n}", *end) for n, end in enumerate(rails()) if n != 3]
    placed = cable("mlx5_3", "leaf03", "swp5", fields={"Label": "C42"}, **places)
    [found] = bad("mlx5_3", expected=plan({}, placed, *others))
    assert "of mlx5_3 (rack A1, unit 69, cable C42), then replace the cable to" in found.text
    assert "leaf03 port swp5 (rack B3, unit 40): the path" in found.text
    assert found.moves[0].near_spot.rack == "A1"


def test_several_links_of_one_node_are_its_hcas() -> None:
    [found] = bad("mlx5_1", "mlx5_3", "mlx5_7")
    assert found.text == (
        "Look at the HCAs of gpu-017: 2 of its 7 links have errors, last at 2026-09-21T14:13:20Z:"
        " mlx5_1 to leaf01 port swp5, mlx5_3 to leaf03 port swp5: look at seat, firmware and"
        " temperature of the HCAs before any cable."
    )
    assert found.interfaces == ("mlx5_1", "mlx5_3")


def test_a_quiet_node_and_cables_to_ignore_have_none() -> None:
    assert bad() == bad("mlx5_7") == []
    marked = cable("mlx5_3", "leaf03", "swp5", mark="ignore")
    others = [cable(f"mlx5_{n}", *end) for n, end in enumerate(rails()) if n != 3]
    assert bad("mlx5_3", expected=plan({}, marked, *others)) == []
