"""The plan: which labels and annotations of the Node have to change.

Invariants:
- Server-side apply removes what its manager leaves out, so a plan lists every field that stays. A
  change that must not be made keeps the Node's value instead of leaving the field out.
- A field of another manager is in no plan, unless it is in the label table. The accelerator's key
  is left alone where another manager has set another value.
- Fields of manager `bwagent` outside the label table may be another agent's, so a request that
  carries or removes them is for the very version of the Node that the plan is for.

A plan is the agent's side only; agent/kube/negotiation.py finds out which changes the API server
accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.kube.annotation import (
    MAX_BYTES,
    Annotation,
    annotation_of,
    fitted,
    render,
    without_lost,
)
from agent.kube.foreign import ownerless, unpublished
from agent.kube.former import review
from agent.kube.managed_fields import (
    ACC,
    FAMILIES,
    LABEL,
    Field,
    differing,
    labels_of,
    select,
    state_of,
    without,
)
from agent.labels import encode
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from agent.kube.interfaces import Identity, Lost, LostInterface
    from agent.kube.managed_fields import Fields, FieldSet, Keys, Node, State


@dataclass(frozen=True, slots=True)
class Desired:
    """The labels and the annotation that the Node should have."""

    labels: Mapping[str, str]
    annotation: Annotation
    backed_off: frozenset[str] = frozenset()  # recently refused keys and families, left unchanged
    now: float | None = None  # seconds since the epoch; None: unknown
    # lost interfaces that the Node's annotation had; one that it lacks now is forgotten
    confirmed: frozenset[Identity] = frozenset()


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A key that is left alone because another manager owns it, or it has lost its owner."""

    key: str
    value: str | None  # on the Node, as last seen
    wanted: str | None  # the agent's value; None: no label any more
    managers: tuple[str, ...]  # as in managedFields or in the server's conflict; () for none
    kind: str = LABEL


@dataclass(frozen=True, slots=True)
class Plan:
    """The fields of manager `bwagent` on a Node, before and after."""

    node: str
    uid: str
    version: str  # of the Node that the plan is for
    keys: Keys
    managed: Fields  # fields of manager `bwagent` now, with the Node's values
    wanted: Fields  # fields of manager `bwagent` afterwards
    on_node: Fields  # the Node's values of all these fields, whoever set them
    shared: frozenset[Field] = frozenset()  # of `managed`: other managers have them too
    left_alone: tuple[ForeignField, ...] = ()
    foreign: tuple[ForeignField, ...] = ()  # under P and IB, neither owned nor wanted
    postponed: tuple[str, ...] = ()  # recently refused keys that would change
    problems: tuple[Problem, ...] = ()
    due: bool = False  # a label, the boot ID or an interface changes
    desired: Desired | None = None  # None: nothing, all owned fields are removed
    forgotten: tuple[LostInterface, ...] = ()  # that the annotation has, or had, as lost
    only_forgets: bool = False  # every other field stays as it is
    written: float | None = None  # of a removal: when `bwagent` last changed a field (State)

    @property
    def outside(self) -> FieldSet:
        """Fields of manager `bwagent` outside the label table; see agent/kube/former.py."""
        return self.managed.keys() - self.keys.in_table(self.managed)

    @property
    def updates_labels(self) -> bool:
        """True if a label of manager `bwagent` is added, changed or removed."""
        return labels_of(self.managed) != labels_of(self.wanted)

    @property
    def updates_annotation(self) -> bool:
        """True if the annotation changes, if only in its time."""
        return self.keys.annotation_field in differing(self.managed, self.wanted)

    @property
    def added(self) -> dict[str, str]:
        """Labels that the Node does not have: key to value."""
        return labels_of(without(self.wanted, self.on_node))

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """Labels with another value on the Node: key to (value there, value wanted)."""
        before, after = labels_of(self.on_node), labels_of(self.wanted)
        changed = [key for key in after if before.get(key, after[key]) != after[key]]
        return {key: (before[key], after[key]) for key in changed}

    @property
    def gone(self) -> FieldSet:
        """Fields that the Node loses. One that another manager has too stays."""
        return self.managed.keys() - self.wanted.keys() - self.shared

    @property
    def removed(self) -> dict[str, str]:
        """Labels that the Node loses: key to value."""
        return labels_of(select(self.managed, self.gone))


def plan(node: Node, desired: Desired, keys: Keys) -> Plan:
    """Return the changes that make `node` as desired, whatever the age of its annotation.

    Raises Malformed if the Node's name or uid is missing; ignores other malformed fields.
    """
    state = state_of(node)
    previous, problem = annotation_of(state, keys)
    forgotten = _removed_by_others(desired, previous)
    annotation = fitted(without_lost(desired.annotation, forgotten))
    asked = _asked(desired.labels, annotation, keys)
    faults = _faults(asked, keys)
    postponed = _postponed(asked.keys() | state.managed, desired.backed_off, keys)
    former = review(state, keys, desired.now)
    frozen = faults.keys() | postponed | former.kept
    found = plan_fields(state, asked, frozen, keys)
    return replace(
        found,
        postponed=_keys_of(postponed & differing(asked, found.wanted)),
        problems=(
            *_unwritable(faults),
            *_no_room(annotation, keys),
            *filter(None, [problem]),
            *former.problems,
        ),
        due=_is_due(found, annotation, previous),
        desired=desired,
        forgotten=forgotten,
    )


def _removed_by_others(desired: Desired, on_node: Annotation | None) -> Lost:
    """Return the lost interfaces that the Node's annotation had, and does not have any more."""
    if on_node is None:
        return ()
    removed = desired.confirmed - {one.identity for one in on_node.lost}
    return tuple(one for one in desired.annotation.lost if one.identity in removed)


def forgetting(node: Node, keys: Keys) -> Plan:
    """Return the plan that removes the lost interfaces from the annotation, and nothing else.

    An annotation of another manager is left alone; one that cannot be parsed is a problem.
    """
    state = state_of(node)
    annotation, problem = annotation_of(state, keys)
    field = keys.annotation_field
    lost = annotation.lost if annotation else ()
    is_due = bool(lost) and field in state.managed
    asked = {field: render(without_lost(annotation, lost))} if annotation and is_due else {}
    todo = plan_fields(state, asked, state.managed - asked.keys(), keys)
    theirs = [_foreign_field(field, {}, state)] if lost and not is_due else []
    return replace(
        todo,
        due=is_due,
        left_alone=(*todo.left_alone, *theirs),
        problems=tuple(filter(None, [problem])) if annotation is None else (),
        forgotten=lost if is_due else (),
        only_forgets=True,
    )


def removal(node: Node, keys: Keys) -> Plan:
    """Return the plan that removes all owned labels and the annotation; not due if there are none.

    It leaves alone what other managers have too, and what has lost its owner. Labels under a former
    prefix are found with that prefix's keys.
    """
    state = state_of(node)
    todo = plan_fields(state, {}, frozenset(), keys)
    lost = tuple(_foreign_field(field, {}, state) for field in sorted(ownerless(state, keys)))
    due = todo.managed != todo.wanted
    left_alone = todo.left_alone + lost
    return replace(todo, left_alone=left_alone, foreign=(), due=due, written=state.written)


def replan(node: Node, outdated: Plan) -> Plan:
    """Return the plan of the same purpose for the Node as it is now."""
    if outdated.only_forgets:
        return forgetting(node, outdated.keys)
    if outdated.desired is None:
        return removal(node, outdated.keys)
    return plan(node, outdated.desired, outdated.keys)


def _asked(labels: Mapping[str, str], annotation: Annotation, keys: Keys) -> dict[Field, str]:
    fields = {Field(LABEL, key): value for key, value in labels.items()}
    return fields | {keys.annotation_field: render(annotation)}


def plan_fields(state: State, asked: Fields, frozen: FieldSet, keys: Keys) -> Plan:
    """Return the plan for the fields `asked`, in which `frozen` fields stay as they are.

    Fields outside the label table stay too, but for those of family `former`. `due`, `postponed`,
    `problems` and `desired` are left empty.
    """
    managed = state.managed_values()
    foreign = _foreign(asked, state, keys)
    wanted = _kept(managed, frozen, keys) | without(asked, frozen | foreign)
    shared = managed.keys() & state.others.keys()
    left_alone = foreign | (shared - wanted.keys())
    return Plan(
        node=state.name,
        uid=state.uid,
        version=state.version,
        keys=keys,
        managed=managed,
        wanted=wanted,
        on_node=select(state.fields, managed.keys() | wanted.keys()),
        shared=frozenset(shared),
        left_alone=tuple(_foreign_field(field, asked, state) for field in sorted(left_alone)),
        foreign=tuple(
            _foreign_field(field, asked, state)
            for field in sorted(unpublished(state, asked.keys(), keys))
        ),
    )


def _kept(managed: Fields, frozen: FieldSet, keys: Keys) -> dict[Field, str]:
    """Return the managed fields that are frozen or of no family."""
    return without(managed, keys.of_families(managed, FAMILIES) - frozen)


def _foreign(asked: Fields, state: State, keys: Keys) -> set[Field]:
    """Return the accelerator's key if another manager has set another value."""
    theirs = select(state.fields, state.others)
    accelerator = keys.of_families(asked, (ACC,)) & theirs.keys()
    return {field for field in accelerator if theirs[field] != asked[field]}


def _foreign_field(field: Field, asked: Fields, state: State) -> ForeignField:
    value, managers = state.fields[field], state.others.get(field, ())
    return ForeignField(field.key, value, asked.get(field), managers, field.kind)


def body(plan: Plan, fields: Fields, version: str = "") -> dict[str, Any]:
    """Return the body of a server-side apply.

    The uid makes a recreated Node a conflict, and the version any Node that has changed.
    """
    metadata = {"name": plan.node, "uid": plan.uid, **_maps(fields)}
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _maps(fields: Fields) -> dict[str, dict[str, str]]:
    """Return `labels` and `annotations` of metadata.

    A map is there only if it has a key: an empty one would be a field to own.
    """
    maps: dict[str, dict[str, str]] = {}
    for (kind, key), value in sorted(fields.items()):
        maps.setdefault(kind, {})[key] = value
    return maps


def _faults(fields: Fields, keys: Keys) -> dict[Field, str]:
    """Return the labels that must not be written, each with the reason."""
    labels = [field for field in fields if field.kind == LABEL]
    faults = {label: _fault(label, fields[label], keys) for label in labels}
    return {label: fault for label, fault in faults.items() if fault}


def _fault(label: Field, value: str, keys: Keys) -> str | None:
    if keys.family(label) is None:
        return "the key is not in the label table"
    return encode.key_fault(label.key) or _value_fault(value)


def _value_fault(value: str) -> str | None:
    if value and encode.value(value) == value:
        return None
    return f"{value[:80]!r} is no label value"


def _unwritable(faults: Fields) -> Iterable[Problem]:
    for label, fault in faults.items():
        yield Problem("labels", label.key, None, f"not written: {fault}")


def _no_room(annotation: Annotation, keys: Keys) -> Iterable[Problem]:
    """Yield a problem if the annotation lacks interfaces."""
    if annotation.dropped:
        text = f"no room for {annotation.dropped} interfaces: at most {MAX_BYTES} bytes are written"
        yield Problem("node", keys.annotation, None, text)


def _postponed(fields: FieldSet, backed_off: AbstractSet[str], keys: Keys) -> set[Field]:
    """Return the fields whose key or family was recently refused."""
    return {field for field in fields if {field.key, keys.family(field)} & backed_off}


def _keys_of(fields: Iterable[Field]) -> tuple[str, ...]:
    return tuple(sorted(field.key for field in fields))


def _is_due(plan: Plan, wanted: Annotation, previous: Annotation | None) -> bool:
    """Return True if a field changes, the annotation in more than its time."""
    has_new_facts = plan.updates_annotation and _has_new_facts(plan, wanted, previous)
    return plan.updates_labels or bool(plan.gone) or has_new_facts


def _has_new_facts(plan: Plan, wanted: Annotation, previous: Annotation | None) -> bool:
    """Return True if an annotation that changes does so in more than its time.

    It is new, has no time, belongs to another manager or cannot be parsed, it is the first of a
    full observation or of another boot, or has other facts of interfaces.
    """
    if previous is None or previous.reported.time is None:
        return True
    if previous.time is None and wanted.time is not None:
        return True
    return plan.keys.annotation_field not in plan.managed or previous.facts != wanted.facts
