"""The platform positions of nodes, in the sentences of findings: for the person who walks there.

A plan's rack and unit come first: where it has those of a node's end, the chassis is not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.cabling.findings.finding import INFO, Finding
from agent.fleet.model import FleetNode
from agent.text import listed

MAX_NODES = 3  # of a finding, each with its tray; of more, the chassis that all are in


def told(findings: Iterable[Finding], nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Yield the findings with the positions of their nodes, if each node has one; no remark."""
    positions = {node.name: node.position for node in nodes if node.position}
    for finding in findings:
        known = [(name, positions[name]) for name in finding.nodes if name in positions]
        is_planned = any(move.near.rack for move in finding.moves)
        if finding.severity == INFO or is_planned or not 0 < len(known) == len(finding.nodes):
            yield finding
            continue
        chassis = {position.chassis for _, position in known}
        if len(known) <= MAX_NODES:
            text = f"{listed([f'{name} is {position}' for name, position in known])}."
        elif len(chassis) == 1:
            text = f"All {len(known)} nodes are in chassis {chassis.pop()}."
        else:
            yield finding
            continue
        yield finding._replace(text=f"{finding.text} {text}")
