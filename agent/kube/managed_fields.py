"""Ownership of a Node's labels and annotations, read from metadata.managedFields.

Invariants:
- A label is owned if its key is in the label table *and* managedFields list it for manager
  `bwagent`, operation Apply. A prefix proves nothing: the site's expected half lives below the same
  prefixes.
- Fields that manager `bwagent` has outside the table (under an earlier prefix, say) stay in every
  request unchanged, since server-side apply removes what its manager leaves out.
- A missing, null or mistyped part of a Node reads as empty.

Shapes: meta/v1 ObjectMeta and ManagedFieldsEntry; fieldsV1 as in structured-merge-diff, `f:` before
a field's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed
from agent.kube import MANAGER
from agent.labels.table import LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.labels.table import Naming

Node = Mapping[str, Any]  # the JSON object, of which its metadata is read

OBSERVED = "observed"  # the annotation's name below P, and its family
P, IB, ACC = "P", "IB", "ACC"  # families of label keys, by prefix
LABEL, ANNOTATION = "labels", "annotations"


class Field(NamedTuple):
    """A label or an annotation of a Node."""

    kind: str  # "labels" or "annotations", the name of its map in metadata
    key: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The label and annotation keys that the agent may write under one naming."""

    annotation: str
    accelerator: str  # "": none
    patterns: tuple[tuple[str, re.Pattern[str]], ...]  # (family, pattern of a label key)

    def family(self, field: Field) -> str | None:
        """Return `P`, `IB`, `ACC` or `observed`; None for a key that is not in the table."""
        if field.kind == ANNOTATION:
            return OBSERVED if field.key == self.annotation else None
        if field.key and field.key == self.accelerator:
            return ACC
        for family, pattern in self.patterns:
            if pattern.fullmatch(field.key):
                return family
        return None

    def interface(self, key: str) -> str | None:
        """Return the interface named in a label key, such as `ibp0`; None if there is none."""
        for _, pattern in self.patterns:
            if found := pattern.fullmatch(key):
                return found.groupdict().get("interface")
        return None


def keys_of(naming: Naming) -> Keys:
    """Return the keys of the label table under this naming."""
    prefixes = {P: naming.prefix, IB: naming.ib_prefix}
    patterns = []
    for row in LABELS:
        family, _, name = row.key.partition("/")
        if prefix := prefixes.get(family):
            patterns.append((family, _pattern(f"{prefix}/{name}")))
    return Keys(f"{naming.prefix}/{OBSERVED}", naming.accelerator, tuple(patterns))


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.escape(template).replace(r"\{if\}", "(?P<interface>.+)"))


@dataclass(frozen=True, slots=True)
class State:
    """The labels and annotations of a Node, and their field managers."""

    name: str
    uid: str
    fields: Mapping[Field, str]  # every label and annotation
    managed: frozenset[Field]  # fields of manager `bwagent`, operation Apply
    others: Mapping[Field, tuple[str, ...]]  # field to its other managers

    def managed_values(self) -> dict[Field, str]:
        """Return the fields of manager `bwagent` that the Node carries, with their values."""
        return {field: value for field, value in self.fields.items() if field in self.managed}


def state_of(node: Node) -> State:
    """Read a Node as the API server sent it. Raises Malformed if name or uid is missing."""
    metadata = _mapping(node, "metadata")
    name, uid = metadata.get("name"), metadata.get("uid")
    if not (isinstance(name, str) and name and isinstance(uid, str) and uid):
        raise Malformed(f"Node {name or ''!r}: the API server sent one without a name or a uid")
    managed: set[Field] = set()
    others: dict[Field, tuple[str, ...]] = {}
    for manager, is_agent, fields in _entries(metadata.get("managedFields")):
        if is_agent:
            managed |= fields
        else:
            others |= {field: (*others.get(field, ()), manager) for field in fields}
    return State(name, uid, _fields(metadata), frozenset(managed), others)


def owned_labels(node: Node, keys: Keys) -> dict[str, str]:
    """Return the labels of the table that belong to manager `bwagent` on this Node."""
    managed = state_of(node).managed_values()
    return {
        field.key: value
        for field, value in managed.items()
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
    """Yield (manager, True for the agent's own entry, fields) of each entry of managedFields.

    Entries of a subresource are left out: `status` owns no metadata.
    """
    for entry in managed if isinstance(managed, list) else ():
        if not isinstance(entry, dict) or entry.get("subresource"):
            continue
        manager = str(entry.get("manager") or "unnamed")
        metadata = _mapping(entry, "fieldsV1", "f:metadata")
        fields = {
            Field(kind, key.removeprefix("f:"))
            for kind in (LABEL, ANNOTATION)
            for key in _mapping(metadata, f"f:{kind}")
            if key.startswith("f:")
        }
        yield manager, manager == MANAGER and entry.get("operation") == "Apply", fields


def _mapping(value: object, *path: str) -> dict[str, Any]:
    """Return the object at the end of a path, empty if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
