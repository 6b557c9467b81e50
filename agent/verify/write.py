"""Write what is seen as a plan: the golden picture of a good day."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agent.labels import encode
from agent.plans.own import COLUMNS, rows_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.labels.table import Naming
    from agent.verify.seen import SeenNode

FORMATS = ("csv", "labels")


def written(node: SeenNode, naming: Naming, kind: str) -> tuple[str, list[str]]:
    """Return the plan as text, empty for a node without any, and a note for each port it lacks."""
    notes = [
        f"{port.interface}: left out, no neighbor seen"
        for port in node.ports.values()
        if not port.far_ends
    ]
    return (_csv(node) if kind == "csv" else _labels(node, naming)), notes


def _csv(node: SeenNode) -> str:
    ends = [(port.interface, port.far_ends[0]) for port in node.ports.values() if port.far_ends]
    rows = [(node.name, name, end.device, end.port_id, end.port_name) for name, end in ends]
    return rows_text([COLUMNS, *rows]) if rows else ""


def _labels(node: SeenNode, naming: Naming) -> str:
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in _expected(node, naming))
    return "".join(lines)


def _expected(node: SeenNode, naming: Naming) -> Iterator[tuple[str, str]]:
    """Yield the expected labels of the ports, and of their speed if every rate is known."""
    for port in node.ports.values():
        for end in port.far_ends[:1]:
            texts = {
                "device": end.device,
                "port-id": end.port_id,
                "port-name": end.port_name or "",
            }
            for part, text in texts.items():
                key = f"{naming.prefix}/neighbors.expected.{port.interface}.{part}"
                if (value := encode.value(text)) and not encode.key_fault(key):
                    yield key, value
    rates = [port.rate_gbps for port in node.ports.values()]
    if rates and None not in rates:
        yield f"{naming.prefix}/speed.expected", encode.gbps(sum(filter(None, rates)))
