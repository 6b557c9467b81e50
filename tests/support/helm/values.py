"""What values.schema.json says of the chart's values: values.yaml and the README's table."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.helm.chart import CHART

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
NOT_OURS = {"global"}  # helm's own
HEAD = "# Written from values.schema.json: `pytest tests/unit/test_chart.py --update-golden`.\n"
WIDTH = 120


class Value(NamedTuple):
    """One value of the chart, or a group of them, which has no default."""

    path: tuple[str, ...]
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_group(self) -> bool:
        return "default" not in self.schema

    @property
    def default(self) -> str:
        return json.dumps(self.schema["default"])


def values(schema: dict[str, Any] = SCHEMA, path: tuple[str, ...] = ()) -> Iterator[Value]:
    """Yield all groups and values, a group before its values."""
    for name, row in schema["properties"].items():
        if name not in NOT_OURS:
            yield (one := Value((*path, name), row))
            if one.is_group:
                yield from values(row, one.path)


def leaves() -> Iterator[Value]:
    """Yield the values that are no groups."""
    return (one for one in values() if not one.is_group)


def as_yaml() -> str:
    """Return values.yaml: each default below its description."""
    return HEAD + "".join(_entry(one) for one in values())


def _entry(one: Value) -> str:
    indent = "  " * (len(one.path) - 1)
    mark = f"{indent}# "
    gap = "" if indent else "\n"
    text = textwrap.fill(
        one.schema["description"], WIDTH, initial_indent=mark, subsequent_indent=mark
    )
    return f"{gap}{text}\n{indent}{one.path[-1]}:{'' if one.is_group else f' {one.default}'}\n"


def table() -> str:
    return "".join(
        f"| `{one.name}` | {'' if one.is_group else f'`{one.default}`'}"
        f" | {one.schema['description'].replace('|', '&#124;')} |\n"
        for one in values()
    )
