"""The dashboard, read into Grafana's own types of a dashboard and its panels: what these types do
not have, Grafana ignores, and what they have as another type, it cannot show.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
UNIONS = (typing.Union, types.UnionType)
OF_GRAFANA = "grafana_foundation_sdk."


def faults(board: dict[str, Any]) -> list[str]:
    """Return the paths of the fields that Grafana does not know, or not with this value."""
    read = Dashboard.from_json(board)
    kept = json.loads(JSONEncoder().encode(read))
    panels = {"row", *Runtime().panelcfg_variants}
    unknown = [one["type"] for one in board["panels"] if one["type"] not in panels]
    return [*unknown, *_lost(board, kept, ""), *_mistyped(read, Dashboard, "")]


def _lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield the paths of what is given and not kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            yield from _lost(value, kept.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, pair in enumerate(zip(given, kept, strict=True)):
            yield from _lost(*pair, f"{path}[{index}]")
    elif given != kept:
        yield path


def _mistyped(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Yield the paths of the values that are not of their type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, dict) and hasattr(hint, "from_json"):
        value = hint.from_json(value)  # which Dashboard.from_json() leaves to others
    if origin in UNIONS:
        fitting = [one for one in arguments if _fits(value, one)]
        yield from min(
            (list(_mistyped(value, one, path)) for one in fitting), default=[path], key=len
        )
    elif origin is list and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _mistyped(one, arguments[0], f"{path}[{index}]")
    elif not _fits(value, hint):
        yield path
    elif type(value).__module__.startswith(OF_GRAFANA) and not isinstance(value, enum.Enum):
        for name, inner in typing.get_type_hints(type(value)).items():
            yield from _mistyped(getattr(value, name), inner, f"{path}.{name}")


def _fits(value: Any, hint: Any) -> bool:
    """Return True if a value is of a type, whatever it contains."""
    kind = typing.get_origin(hint) or hint
    if kind in {Any, object} or (isinstance(value, dict) and hasattr(kind, "from_json")):
        return True
    if kind is typing.Literal:
        return value in typing.get_args(hint)
    if issubclass(kind, enum.Enum):
        return value in {one.value for one in kind}
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
