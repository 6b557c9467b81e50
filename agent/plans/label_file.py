"""The labels in a file of YAML or JSON: a mapping of keys, or a Node's manifest with them.

Invariants:
- a value is the text as it stands: YAML 1.1 reads `3_4` as 34, `1:2` as 62 and `010` as 8;
- aliases and merge keys of YAML are not expanded;
- a key that is given twice is returned twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed
from agent.plans.model import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.plans.source import Source

MAX_SIZE = 1 << 20  # bytes; Kubernetes stores no larger object
NULLS = frozenset({"", "~", "null", "Null", "NULL"})  # as plain scalars


class Member(NamedTuple):
    """One key of a mapping."""

    key: str
    value: Any
    row: int | None  # None: not known


Members = list[Member]


def labels_in(source: Source) -> list[tuple[str, str | None, Place]]:
    """Return key, value and place of each label; None for a value that is no text.

    Raises Malformed for a file that is too large, nested too deeply, or no YAML or JSON.
    """
    if len(source.data) > MAX_SIZE:
        raise Malformed(f"{source.file}: labels of more than {MAX_SIZE >> 20} MiB")
    try:
        labels = _labels(source)
    except RecursionError as error:
        raise Malformed(f"{source.file}: nested too deeply") from error
    place = source.place
    return [(key, value, place._replace(row=row)) for key, value, row in labels]


def _labels(source: Source) -> Members:
    """Return the members of the mapping, or of `metadata.labels` of a Node."""
    if source.looks_like_json:
        return _json_labels(source)
    return _yaml_labels(source)


def _json_labels(source: Source) -> Members:
    _ = source.json  # raises Malformed with the row of a defect
    document = json.loads(
        source.text, object_pairs_hook=_json_members, parse_int=str, parse_float=str
    )
    return [
        one._replace(value=one.value if isinstance(one.value, str) else None)
        for one in _below(document, _of_json)
    ]


def _json_members(pairs: list[tuple[str, Any]]) -> tuple[Member, ...]:
    return tuple(Member(key, value, None) for key, value in pairs)


def _of_json(value: Any) -> Members:
    return [*value] if isinstance(value, tuple) else []


def _yaml_labels(source: Source) -> Members:
    members = _below(_composed(source), _of_yaml)
    return [one._replace(value=_scalar(one.value)) for one in members]


def _composed(source: Source) -> Any:
    """Return the root node of the YAML document; nothing is constructed of it."""
    import yaml

    try:
        return yaml.compose(source.text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(source.file, None, mark.line + 1 if mark else None)
        problem = getattr(error, "problem", None) or "malformed"
        raise Malformed(f"{place}: no YAML: {problem}") from None


def _of_yaml(node: Any) -> Members:
    """Return the members of a node; none if it is no mapping."""
    if getattr(node, "id", None) != "mapping":
        return []
    return [
        Member(str(key.value), value, key.start_mark.line + 1)
        for key, value in node.value
        if key.id == "scalar"
    ]


def _scalar(node: Any) -> str | None:
    """Return the text of a scalar; None for a null, and for any other node."""
    is_null = node.id == "scalar" and node.style is None and node.value in NULLS
    return None if node.id != "scalar" or is_null else str(node.value)


def _below(document: Any, members: Callable[[Any], Members]) -> Members:
    """Return the members of the labels of a document."""
    top = members(document)
    for metadata in (one.value for one in top if one.key == "metadata"):
        if inside := members(metadata):
            return [label for one in inside if one.key == "labels" for label in members(one.value)]
    return top
