"""The JSON document of `fleet verify`, schema 1 (docs/fleet.schema.json); data is never in keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import agent
from agent.fleet.verdict import outcome, verdict
from agent.text import utc
from agent.verify.finding import end_document

if TYPE_CHECKING:
    from agent.fleet.finding import FleetFinding, Move, PortRef
    from agent.fleet.judged import Group, Judged

    Json = dict[str, Any]

SCHEMA = 1


def json_text(judged: Judged) -> str:
    """Return the document as text."""
    return json.dumps(document(judged), indent=2) + "\n"


def document(judged: Judged) -> Json:
    """Return the document."""
    fleet = judged.fleet
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "source": fleet.source,
        "time": utc(fleet.now),
        "verdict": verdict(judged),
        "outcome": outcome(judged),
        "by": "pattern" if judged.by_pattern else "plan",
        "nodes": len(fleet.nodes),
        "other_nodes": fleet.others,
        "planned": judged.planned,
        "as_planned": judged.as_planned,
        "problems": list(fleet.problems),
        "notes": list(judged.notes),
        "findings": [finding_document(one) for one in judged.findings],
        "groups": [_group(one) for one in judged.groups],
    }


def finding_document(one: FleetFinding) -> Json:
    """Return the JSON object of a finding."""
    return {
        "id": one.id,
        "code": one.code,
        "severity": one.severity,
        "nodes": list(one.nodes),
        "ports": [_port(port) for port in one.ports],
        "expected": end_document(*one.expected),
        "actual": end_document(*one.actual),
        "text": one.text,
        "moves": [_move(move) for move in one.moves],
        "confidence": one.confidence,
        "majority": one.majority,
        "facts": [{"name": name, "value": value} for name, value in one.facts],
    }


def _port(port: PortRef) -> Json:
    return {"node": port.node, "interface": port.interface}


def _move(move: Move) -> Json:
    ends = {"actual": end_document(*move.actual), "wanted": end_document(*move.wanted)}
    return _port(move.port) | ends


def _group(group: Group) -> Json:
    return {
        "name": group.name,
        "nodes": list(group.nodes),
        "leaves": list(group.leaves),
        "pattern": group.pattern,
    }
