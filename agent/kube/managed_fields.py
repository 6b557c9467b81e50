"""Whose a label of a Node is: the keys that are ours to write, and what the Node says of who wrote what.

The law of this module: a key is ours when it is in the label table *and* the Node's managedFields give it to manager
`bwagent`, never because it starts as ours do; the site's expected half lives below the same prefixes. What stands under
our name without being in the table (of another prefix, say) is carried along as it is, since server-side apply removes
what its manager leaves out.

A Node is what a server sent, so every part of it may be missing, null or of an odd type; that reads as "nothing there".
Shapes: meta/v1 ObjectMeta and ManagedFieldsEntry; fieldsV1 as in structured-merge-diff, `f:` before a field's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed
from agent.labels.table import LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.labels.table import Naming

MANAGER = "bwagent"
OBSERVED = "observed"  # the annotation, below P
P, IB, ACC = "P", "IB", "ACC"  # families of label keys; the annotation is one of its own
LABEL, ANNOTATION = "labels", "annotations"


class Field(NamedTuple):
    """A label or an annotation: its kind as metadata calls it, and its key."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that are ours to write, under one naming."""

    annotation: str
    accelerator: str  # "": none
    patterns: tuple[tuple[str, re.Pattern[str]], ...]

    def family(self, field: Field) -> str | None:
        """`P`, `IB`, `ACC`, or `observed` for the annotation; None: not ours."""
        if field.kind == ANNOTATION:
            return OBSERVED if field.key == self.annotation else None
        if field.key == self.accelerator and field.key:
            return ACC
        return next(
            (family for family, pattern in self.patterns if pattern.fullmatch(field.key)), None
        )

    def interface(self, key: str) -> str | None:
        """The interface in a label key; None where it names none."""
        found = next(filter(None, (pattern.fullmatch(key) for _, pattern in self.patterns)), None)
        return found["interface"] if found and "interface" in found.re.groupindex else None


def keys_of(naming: Naming) -> Keys:
    """The keys of the label table under this naming."""
    prefixes = {P: naming.prefix, IB: naming.ib_prefix}
    rows = (row.key.partition("/") for row in LABELS)
    patterns = tuple(
        (family, _pattern(f"{prefixes[family]}/{name}"))
        for family, _, name in rows
        if prefixes.get(family)
    )
    return Keys(f"{naming.prefix}/{OBSERVED}", naming.accelerator, patterns)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.escape(template).replace(r"\{if\}", "(?P<interface>.+)"))


@dataclass(frozen=True, slots=True)
class State:
    """What a Node carries, and who is said to have put it there."""

    name: str
    uid: str
    fields: Mapping[Field, str]  # every label and annotation
    held: frozenset[Field]  # given to manager `bwagent`, operation Apply
    others: Mapping[Field, tuple[str, ...]]  # given to these managers, too or instead

    def ours(self) -> dict[Field, str]:
        """What stands under our name, with its value."""
        return {field: value for field, value in self.fields.items() if field in self.held}


def state_of(node: Mapping[str, Any]) -> State:
    """A Node as the API server sent it; Malformed when it does not even have a name and a uid."""
    metadata = _mapping(node, "metadata")
    name, uid = metadata.get("name"), metadata.get("uid")
    if not (isinstance(name, str) and name and isinstance(uid, str) and uid):
        raise Malformed(f"Node {name or ''!r}: the API server sent one without a name or a uid")
    held: set[Field] = set()
    others: dict[Field, tuple[str, ...]] = {}
    for manager, ours, fields in _entries(metadata.get("managedFields")):
        if ours:
            held |= fields
        else:
            others |= {field: (*others.get(field, ()), manager) for field in fields}
    return State(name, uid, _fields(metadata), frozenset(held), others)


def owned(node: Mapping[str, Any], keys: Keys) -> dict[str, str]:
    """The labels of the table that the Node's managedFields give to manager `bwagent`: key to value."""
    ours = state_of(node).ours()
    return {
        field.key: value
        for field, value in ours.items()
        if field.kind == LABEL and keys.family(field)
    }


def _fields(metadata: dict[str, Any]) -> dict[Field, str]:
    return {
        Field(kind, key): value
        for kind in (LABEL, ANNOTATION)
        for key, value in _mapping(metadata, kind).items()
        if isinstance(value, str)
    }


def _entries(managed: object) -> Iterable[tuple[str, bool, set[Field]]]:
    """(manager, whether it is us, the fields it has) for each entry; subresources do not own metadata."""
    for entry in managed if isinstance(managed, list) else ():
        if not isinstance(entry, dict) or entry.get("subresource"):
            continue
        manager, metadata = (
            str(entry.get("manager") or "unnamed"),
            _mapping(entry, "fieldsV1", "f:metadata"),
        )
        fields = {
            Field(kind, key.removeprefix("f:"))
            for kind in (LABEL, ANNOTATION)
            for key in _mapping(metadata, f"f:{kind}")
            if key.startswith("f:")
        }
        yield manager, manager == MANAGER and entry.get("operation") == "Apply", fields


def _mapping(value: object, *path: str) -> dict[str, Any]:
    """The object at the end of a path; empty where the path leads elsewhere."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
