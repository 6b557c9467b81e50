"""The expected half as JSON, between the helper that reads plan files and the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.plans.model import End, Place
from agent.verify.expected import Expected, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]


def dump(expected: Expected) -> Json:
    """Return an expected half as JSON."""
    return expected._asdict() | {
        "rows": [row._replace(fields=dict(row.fields)) for row in expected.rows],
        "taken": [[*end, text] for end, text in expected.taken.items()],
        "devices": sorted(expected.devices),
    }


def load(document: Json) -> Expected:
    """Return the expected half that `dump` wrote."""
    return Expected(**document)._replace(
        rows=tuple(map(_row, document["rows"])),
        taken={(device, port): text for device, port, text in document["taken"]},
        devices=frozenset(document["devices"]),
        interfaces=tuple(document["interfaces"]),
        notes=tuple(document["notes"]),
    )


def _row(values: Sequence[Any]) -> Row:
    row = Row(*values)
    return row._replace(place=Place(*row.place), near=_end(row.near), far=_end(row.far))


def _end(values: Sequence[Any] | None) -> End | None:
    return End(*values) if values else None
