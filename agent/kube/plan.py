"""The plan: which labels and annotations of the Node have to change.

Invariants:
- Server-side apply removes what its manager leaves out, so a plan lists every field that stays. A
  change that must not be made keeps the Node's value instead of leaving the field out.
- A field of another manager is in no plan, unless it is in the label table. The accelerator's key
  is left alone where another manager has set another value.

A plan is the agent's side only; agent/kube/apply.py finds out which changes the API server accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.kube.annotation import annotation_of, render
from agent.kube.managed_fields import ACC, ANNOTATION, LABEL, Field, state_of
from agent.labels import encode
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys, Node, State


@dataclass(frozen=True, slots=True)
class Desired:
    """The labels and the annotation that the Node should have."""

    labels: Mapping[str, str]
    annotation: Annotation
    backed_off: frozenset[str] = frozenset()  # recently refused keys and families, left unchanged


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A key that is left alone because another manager owns it."""

    key: str
    value: str | None  # on the Node, as last seen
    wanted: str | None  # the agent's value; None: no label any more
    managers: tuple[str, ...]  # as in managedFields or in the server's conflict


@dataclass(frozen=True, slots=True)
class Plan:
    """The fields of manager `bwagent` on a Node, before and after."""

    node: str
    uid: str
    keys: Keys
    managed: Mapping[Field, str]  # fields of manager `bwagent` now, with the Node's values
    wanted: Mapping[Field, str]  # fields of manager `bwagent` afterwards
    on_node: Mapping[Field, str]  # the Node's values of all these fields, whoever set them
    shared: frozenset[Field] = frozenset()  # of `managed`: other managers have them too
    left_alone: tuple[ForeignField, ...] = ()
    postponed: tuple[str, ...] = ()  # recently refused keys that would change
    problems: tuple[Problem, ...] = ()
    due: bool = False  # a label, the boot ID or an interface changes

    @property
    def updates_annotation(self) -> bool:
        """True if the annotation changes, if only in its time."""
        field = Field(ANNOTATION, self.keys.annotation)
        return self.wanted.get(field) != self.managed.get(field)

    @property
    def added(self) -> dict[str, str]:
        """Labels that the Node does not have: key to value."""
        return {label.key: value for label, value in self._labels() if label not in self.on_node}

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """Labels with another value on the Node: key to (value there, value wanted)."""
        found = {}
        for label, value in self._labels():
            before = self.on_node.get(label, value)
            if before != value:
                found[label.key] = (before, value)
        return found

    @property
    def removed(self) -> dict[str, str]:
        """Labels that the Node loses: key to value. One that another manager has too stays."""
        gone = self.managed.keys() - self.wanted.keys() - self.shared
        return {label.key: self.managed[label] for label in sorted(gone) if label.kind == LABEL}

    def _labels(self) -> list[tuple[Field, str]]:
        return sorted((label, value) for label, value in self.wanted.items() if label.kind == LABEL)


def plan(node: Node, desired: Desired, keys: Keys) -> Plan:
    """Return the changes that make `node` as desired, whatever the age of its annotation.

    Raises Malformed if the Node's name or uid is missing; ignores other malformed fields.
    """
    state = state_of(node)
    asked = {Field(LABEL, key): value for key, value in desired.labels.items()}
    faults = _faults(asked, keys)
    asked[Field(ANNOTATION, keys.annotation)] = render(desired.annotation)
    postponed = _postponed(asked.keys() | state.managed, desired.backed_off, keys)
    found = plan_fields(state, asked, faults.keys() | postponed, keys)
    previous, problem = annotation_of(state, keys)
    problems = [
        Problem("labels", label.key, None, f"not written: {fault}")
        for label, fault in faults.items()
    ]
    unchanged = [field.key for field in postponed if asked.get(field) != found.wanted.get(field)]
    return replace(
        found,
        postponed=tuple(sorted(unchanged)),
        problems=(*problems, *([problem] if problem else [])),
        due=_labels_differ(found) or _has_new_facts(found, desired.annotation, previous),
    )


def plan_fields(
    state: State, asked: Mapping[Field, str], frozen: AbstractSet[Field], keys: Keys
) -> Plan:
    """Return the plan for the fields `asked`, in which `frozen` fields stay as they are.

    Fields outside the label table stay too. `due`, `postponed` and `problems` are left empty.
    """
    managed = state.managed_values()
    foreign = {field for field in asked if _is_foreign(field, asked[field], state, keys)}
    wanted = _kept(managed, frozen, keys)
    wanted |= {field: asked[field] for field in asked if field not in frozen | foreign}
    either = managed.keys() | wanted.keys()
    shared = managed.keys() & state.others.keys()
    left_alone = foreign | (shared - wanted.keys())
    return Plan(
        node=state.name,
        uid=state.uid,
        keys=keys,
        managed=managed,
        wanted=wanted,
        on_node={field: state.fields[field] for field in either if field in state.fields},
        shared=frozenset(shared),
        left_alone=tuple(_foreign_field(field, asked, state) for field in sorted(left_alone)),
    )


def _kept(managed: Mapping[Field, str], frozen: AbstractSet[Field], keys: Keys) -> dict[Field, str]:
    """Return the managed fields that are frozen or outside the label table."""
    return {
        field: value
        for field, value in managed.items()
        if field in frozen or keys.family(field) is None
    }


def _foreign_field(field: Field, asked: Mapping[Field, str], state: State) -> ForeignField:
    return ForeignField(field.key, state.fields[field], asked.get(field), state.others[field])


def body(plan: Plan, fields: Mapping[Field, str]) -> dict[str, Any]:
    """Return the body of a server-side apply; the uid makes a recreated Node a conflict."""
    metadata: dict[str, Any] = {"name": plan.node, "uid": plan.uid}
    for kind, key in sorted(fields):
        # A map only where it has a key: an empty one would be a field to own.
        metadata.setdefault(kind, {})[key] = fields[Field(kind, key)]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _faults(labels: Mapping[Field, str], keys: Keys) -> dict[Field, str]:
    """Return the labels that must not be written, each with the reason."""
    found = {}
    for label, value in labels.items():
        if fault := _fault(label, value, keys):
            found[label] = fault
    return found


def _fault(label: Field, value: str, keys: Keys) -> str | None:
    if keys.family(label) is None:
        return "the key is not in the label table"
    if fault := encode.key_fault(label.key):
        return fault
    if not value or encode.value(value) != value:
        return f"{value[:80]!r} is no label value"
    return None


def _postponed(fields: AbstractSet[Field], backed_off: AbstractSet[str], keys: Keys) -> set[Field]:
    """Return the fields whose key or family was recently refused."""
    return {field for field in fields if {field.key, keys.family(field)} & backed_off}


def _is_foreign(field: Field, value: str, state: State, keys: Keys) -> bool:
    """Return True for the accelerator's key if another manager has set another value."""
    if keys.family(field) != ACC or field not in state.others:
        return False
    return state.fields.get(field, value) != value


def _labels_differ(plan: Plan) -> bool:
    either = plan.managed.keys() | plan.wanted.keys()
    labels = [field for field in either if field.kind == LABEL]
    return any(plan.managed.get(label) != plan.wanted.get(label) for label in labels)


def _has_new_facts(plan: Plan, wanted: Annotation, previous: Annotation | None) -> bool:
    """Return True if the annotation changes in more than its time.

    It is new, has no time, belongs to another manager or cannot be parsed, or it is of another boot
    or of other interfaces.
    """
    if not plan.updates_annotation:
        return False
    if previous is None or previous.time is None:
        return True
    if Field(ANNOTATION, plan.keys.annotation) not in plan.managed:
        return True
    return (previous.boot_id, previous.interfaces) != (wanted.boot_id, wanted.interfaces)
