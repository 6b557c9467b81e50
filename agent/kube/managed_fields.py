"""Ownership of a Node's labels and annotations, read from metadata.managedFields.

Invariants:
- A label is owned if its key is in the label table *and* managedFields list it for manager
  `bwagent`, operation Apply. A prefix proves nothing: the site's expected half lives below the same
  prefixes.
- Fields that manager `bwagent` has outside the table (agent/kube/change.py: under a former
  prefix, say, or of a second agent) are in each request as well, since server-side apply removes
  what its manager leaves out.
- A missing, null or mistyped part of a Node reads as empty.

Shapes: meta/v1 ObjectMeta and ManagedFieldsEntry; fieldsV1 as in structured-merge-diff, `f:` before
a field's name.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent.encode import Naming
from agent.errors import Malformed
from agent.facts import TIME, read
from agent.kube import MANAGER
from agent.kube.answers import objects, part
from agent.labels.render import keys_of, rows_of, subject_of
from agent.labels.table import LABELS

Node = Mapping[str, Any]  # the JSON object, of which its metadata is read

OBSERVED = "observed"  # the annotation's name below P, and the family of both
FABRIC = "fabric"  # the name of the annotation of the switches above, with --tiers
P, IB, ACC = "P", "IB", "ACC"  # families of label keys, by prefix; ACC: whole keys
TABLE = (P, IB, ACC, OBSERVED)
FORMER = "former"  # the family of what is removed: fields of the table's shape, a former prefix
FAMILIES = (*TABLE, FORMER)
LABEL, ANNOTATION = "labels", "annotations"


class Field(NamedTuple):
    """A label or an annotation of a Node."""

    kind: str  # "labels" or "annotations", the name of its map in metadata
    key: str


Fields = Mapping[Field, str]  # with their values
FieldSet = AbstractSet[Field]


def select(fields: Fields, which: Container[Field]) -> dict[Field, str]:
    """Return those of `fields` that are in `which`."""
    return {field: value for field, value in fields.items() if field in which}


def without(fields: Fields, dropped: Container[Field]) -> dict[Field, str]:
    """Return those of `fields` that are not in `dropped`."""
    return {field: value for field, value in fields.items() if field not in dropped}


def differing(before: Fields, after: Fields) -> set[Field]:
    """Return the fields that one of these lacks, or that have another value there."""
    return {field for field, _ in before.items() ^ after.items()}


def labels_of(fields: Fields) -> dict[str, str]:
    """Return the labels among `fields`, by key."""
    return {field.key: value for field, value in sorted(fields.items()) if field.kind == LABEL}


def prefix_of(field: Field) -> str | None:
    """Return the prefix of a field of the table's shape, under any naming; None for any other."""
    prefix, _, name = field.key.rpartition("/")
    is_of_table = name in {OBSERVED, FABRIC} if field.kind == ANNOTATION else any(rows_of(name))
    return prefix if prefix and is_of_table else None


@dataclass(frozen=True, slots=True)
class Keys:
    """The label and annotation keys that the agent may write under one naming."""

    naming: Naming
    former: Collection[str] = ()  # prefixes, and keys of tiers, that the operator has given up

    @property
    def prefix(self) -> str:
        """The prefix P."""
        return self.naming.prefix

    @property
    def accelerator(self) -> str:
        """The accelerator's key; "" is none."""
        return self.naming.accelerator

    @property
    def annotation(self) -> str:
        """The key of the annotation."""
        return f"{self.prefix}/{OBSERVED}"

    @property
    def fabric_field(self) -> Field:
        """The annotation of the switches above as a field."""
        return Field(ANNOTATION, f"{self.prefix}/{FABRIC}")

    @property
    def written(self) -> tuple[str, ...]:
        """The prefixes, and the whole keys, of the labels that are written."""
        prefix, ib_prefix, accelerator, tiers = self.naming
        return tuple(filter(None, (prefix, ib_prefix, accelerator, *tiers)))

    @property
    def annotation_field(self) -> Field:
        """The annotation as a field."""
        return Field(ANNOTATION, self.annotation)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The keys of the tiers above the leaf group, closest first."""
        return tuple(key for row in LABELS if row.tier for key in keys_of(row, self.naming))

    def family(self, field: Field) -> str | None:
        """Return `P`, `IB`, `ACC`, `observed` or `former`; None for any other key."""
        kind, key = field
        if kind == ANNOTATION:
            family = OBSERVED if field in {self.annotation_field, self.fabric_field} else None
        else:
            subject = subject_of(key, self.naming)
            family = subject.family if subject else None
        return FORMER if family is None and self.is_former(field) else family

    def is_former(self, field: Field) -> bool:
        """Return True for a field of the table's shape, or of a tier, that was given up."""
        return prefix_of(field) in self.former or field.key in self.former

    def of_families(self, fields: Iterable[Field], families: Container[str]) -> set[Field]:
        """Return the fields of these families."""
        return {field for field in fields if self.family(field) in families}

    def interface(self, key: str) -> str | None:
        """Return the interface named in a label key, such as `ibp0`; None if there is none."""
        subject = subject_of(key, self.naming)
        return subject.interface if subject else None


@dataclass(frozen=True, slots=True)
class State:
    """The labels and annotations of a Node, and their field managers."""

    name: str
    uid: str
    version: str  # metadata.resourceVersion; "": unknown
    fields: Fields  # every label and annotation
    managed: frozenset[Field]  # fields of manager `bwagent`, operation Apply
    others: Mapping[Field, tuple[str, ...]]  # field to its other managers
    written: float | None  # when manager `bwagent` last changed a field, seconds since the epoch


def state_of(node: Node) -> State:
    """Read a Node as the API server sent it. Raises Malformed if name or uid is missing.

    An entry of a subresource is that of another manager of the same name; an entry of `status`
    may have labels, as a kubelet's.
    """
    metadata = part(node, "metadata")
    name, uid = metadata.get("name"), metadata.get("uid")
    if not (isinstance(name, str) and name and isinstance(uid, str) and uid):
        raise Malformed(f"Node {name or ''!r}: the API server sent one without a name or a uid")
    fields = {
        Field(kind, key): value
        for kind in (LABEL, ANNOTATION)
        for key, value in part(metadata, kind).items()
        if isinstance(value, str)
    }
    managed: set[Field] = set()
    others: dict[Field, tuple[str, ...]] = {}  # each manager once, whatever its entries
    written: list[float] = []
    for entry in objects(metadata.get("managedFields")):
        listed = part(part(entry, "fieldsV1"), "f:metadata")
        entry_fields = {
            Field(kind, key.removeprefix("f:"))
            for kind in (LABEL, ANNOTATION)
            for key in part(listed, f"f:{kind}")
            if key.startswith("f:")
        }
        manager = str(entry.get("manager") or "unnamed")
        is_apply = (manager, entry.get("operation")) == (MANAGER, "Apply")
        if is_apply and not entry.get("subresource"):
            managed |= entry_fields
            written += read(entry, {"time": TIME})[0].values()
            continue
        for field in entry_fields:
            before = others.get(field, ())
            others[field] = before if manager in before else (*before, manager)
    return State(
        name,
        uid,
        version=str(metadata.get("resourceVersion") or ""),
        fields=fields,
        managed=frozenset(managed),
        others=others,
        written=max(written, default=None),
    )


def owned_labels(state: State, keys: Keys) -> dict[str, str]:
    """Return the labels of the table that belong to manager `bwagent` on this Node."""
    return labels_of(select(state.fields, keys.of_families(state.managed, TABLE)))
