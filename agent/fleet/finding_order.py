"""The order of findings: by severity, then by leaf, so that a person goes to each leaf once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.cables import leaf_key
from agent.fleet.finding import ALL_CODES
from agent.model import natural
from agent.verify.finding import ERROR, INFO, UNKNOWN, WARNING

if TYPE_CHECKING:
    from agent.fleet.finding import FleetFinding

    Order = tuple[object, ...]

CLASSES = {ERROR: 0, WARNING: 0, UNKNOWN: 1, INFO: 2}
RANK = {code: rank for rank, code in enumerate(ALL_CODES)}


def leaf_of(finding: FleetFinding) -> str | None:
    """Return the leaf at which the work begins: that of the wanted end, else of the present one."""
    wanted = finding.moves[0].wanted[0] if finding.moves else None
    return finding.expected[0] or wanted or finding.actual[0]


def rack_of(finding: FleetFinding) -> str | None:
    """Return the rack of that leaf, if the plan has it."""
    return dict(finding.facts).get("far-rack")


def place_of(finding: FleetFinding) -> tuple[str | None, str]:
    """Return rack and leaf, spelled alike for all findings of one leaf."""
    return rack_of(finding), leaf_key(leaf_of(finding) or "")


def order(finding: FleetFinding) -> Order:
    """Return the sort key; findings without a leaf come before those of leaves."""
    port = finding.expected[1] or finding.actual[1] or ""
    return (
        CLASSES[finding.severity],
        *map(_natural, place_of(finding)),
        RANK[finding.code],
        natural(port),
        natural(finding.nodes[0] if finding.nodes else ""),
        finding.id,
    )


def _natural(text: str | None) -> Order:
    return natural(text or "")
