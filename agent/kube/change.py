"""The change of a Node: whose its fields are, and how manager `bwagent` wants them.

    backend.example.com/flavor      mine: of manager `bwagent`, and in the label table
    old.example.com/flavor          outside: of manager `bwagent`, left by an agent with another
                                    --label-prefix, which may still run
    backend.example.com/speed.current     foreign: set by kubectl-label before the agent

Rules of ownership:
- Fields outside the table are removed under the prefixes that the operator has named as former
  ones, unless an agent with another prefix labels the Node now: its annotation `*/observed` is
  younger than MAX_AGE. All others stay as they are, with a line for the operator.
- Foreign labels under P and IB that the agent does not publish either are reported.
  `cleanup --foreign` removes them; nothing else does, and nothing here touches the accelerator's
  key.
- A key without a manager has lost its owner: metadata.managedFields were reset. The API server
  gives it to BEFORE_FIRST_APPLY with the next server-side apply. The agent cannot remove it.

Invariants of a change:
- Server-side apply removes what its manager leaves out, so a change lists every field that stays.
  What must not change keeps the Node's value instead of being left out.
- A field of another manager is in no change, unless it is in the label table. The accelerator's key
  is left alone where another manager has set another value.
- Fields of manager `bwagent` outside the label table may be another agent's, so a request that
  carries or removes them is for the very version of the Node that the change is for.

A change is the agent's side only; agent/kube/negotiation.py finds out what of it the API server
accepts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.kube.annotation import (
    MAX_AGE,
    MAX_BYTES,
    Annotation,
    Interfaces,
    annotation_of,
    fabric_text,
    fitted,
    lost_in,
    render,
    reported_time,
    without_lost,
)
from agent.kube.managed_fields import (
    ACC,
    ANNOTATION,
    FAMILIES,
    IB,
    LABEL,
    OBSERVED,
    TABLE,
    Field,
    Fields,
    FieldSet,
    Keys,
    Node,
    P,
    State,
    differing,
    labels_of,
    prefix_of,
    select,
    state_of,
    without,
)
from agent.memory import Identity
from agent.model import Problem

if TYPE_CHECKING:  # an agent without --tiers does not load it
    from agent.infiniband.fabric_memory import FabricMemory


# k8s.io/apimachinery, util/managedfields/internal/skipnonapplied.go.
BEFORE_FIRST_APPLY = "before-first-apply"


class Owned(NamedTuple):
    """Fields of a Node by their owner."""

    mine: FieldSet
    outside: FieldSet
    former: FieldSet  # of `outside`: to be removed
    running: FieldSet  # annotations of agents with other prefixes that label the Node now
    foreign: FieldSet  # labels under P and IB that manager `bwagent` does not have
    ownerless: FieldSet  # of the table


def owned(state: State, keys: Keys, now: float | None = None) -> Owned:
    """Return the owners of a Node's fields.

    `now` is in seconds since the epoch; without it every agent is taken for running.
    """
    family = {field: keys.family(field) for field in state.fields}
    managed = state.managed & family.keys()
    mine = {field for field in managed if family[field] in TABLE}
    outside, others = managed - mine, family.keys() - managed
    running = {field for field in family if outside and _is_running(field, state, keys, now)}
    return Owned(
        mine,
        outside,
        former={field for field in outside if not running and keys.is_former(field)},
        running=running,
        foreign={field for field in others if family[field] in (P, IB)},
        ownerless={
            field
            for field in others
            if family[field] in TABLE and {*state.others.get(field, ())} <= {BEFORE_FIRST_APPLY}
        },
    )


def _is_running(field: Field, state: State, keys: Keys, now: float | None) -> bool:
    """Return True for the annotation of another agent if it is younger than MAX_AGE.

    Two clocks may differ by as much.
    """
    prefix = prefix_of(field)
    is_report = field.kind == ANNOTATION and field.key == f"{prefix}/{OBSERVED}"
    if not is_report or prefix == keys.prefix:
        return False
    time = reported_time(state.fields[field])
    return time is not None and (now is None or abs(now - time) < MAX_AGE)


def left_outside(node: str, owners: Owned, keys: Keys) -> list[Problem]:
    """Return a line for each prefix outside the table whose fields stay, and for each other key."""
    running = {prefix_of(field) or "" for field in owners.running}
    lines = {}
    for field in sorted(owners.outside - owners.former):
        prefix = prefix_of(field)
        if prefix is None:
            text = f"{kubectl_removal(node, field)} removes this key, which is in no label table"
        elif prefix in running:
            text = f"another bwagent labels this Node under {prefix}, this one under {keys.prefix}"
        elif prefix in keys.former:
            others = ", ".join(sorted(running))
            text = f"left as they are: another bwagent labels this Node under {others}"
        else:
            text = f"{cleanup_command(prefix)} removes these labels of a former prefix"
        lines[prefix or field.key] = text
    return [Problem("node", subject, None, text) for subject, text in lines.items()]


def cleanup_command(prefix: str) -> str:
    """Return the command that removes the fields of both families under a prefix, and no others."""
    flags = f"--label-prefix {prefix} --ib-label-prefix {prefix} --accelerator-label="
    return f"bwagent cleanup {flags}"


def kubectl_removal(node: str, field: Field) -> str:
    """Return the command of kubectl that removes a field, whoever owns it."""
    verb = "annotate" if field.kind == ANNOTATION else "label"
    return shlex.join(["kubectl", verb, "node", node, f"{field.key}-"])


def managers_text(managers: Iterable[str]) -> str:
    """Return the managers of a field as text."""
    return ", ".join(managers) or "no manager"


@dataclass(frozen=True, slots=True)
class Desired:
    """The labels and the annotation that the Node should have."""

    labels: Mapping[str, str]  # as rendered: valid values of keys in the label table
    annotation: Annotation
    postponed: frozenset[str] = frozenset()  # recently refused keys and families, left unchanged
    now: float | None = None  # seconds since the epoch; None: unknown
    # keys that stay as the Node has them: facts are missing that their labels are made of
    frozen: frozenset[str] = frozenset()
    # lost interfaces that the Node's annotation had; what it lacks now is forgotten
    confirmed: frozenset[Identity] = frozenset()
    fabric: FabricMemory | None = None  # the switches above, for their annotation


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A key that is left alone because another manager owns it, or it has lost its owner."""

    key: str
    value: str | None  # on the Node, as last seen
    wanted: str | None  # the agent's value; None: no label any more
    managers: tuple[str, ...]  # as in managedFields or in the server's conflict; () for none
    kind: str = LABEL


class LabelChange(NamedTuple):
    """A label's value on the Node before and after; None: the Node has no such label."""

    key: str
    before: str | None
    after: str | None

    @property
    def verb(self) -> str:
        """`added`, `changed` or `removed`."""
        if self.after is None:
            return "removed"
        return "added" if self.before is None else "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """The fields of manager `bwagent` on a Node, before and after."""

    node: str
    uid: str
    version: str  # of the Node that the change is for
    keys: Keys
    managed: Fields  # fields of manager `bwagent` now, with the Node's values
    wanted: Fields  # fields of manager `bwagent` afterwards
    on_node: Fields  # the Node's values of all these fields, whoever set them
    outside: FieldSet = frozenset()  # of `managed`: not in the label table
    shared: FieldSet = frozenset()  # of `managed`: other managers have them too
    left_alone: tuple[ForeignField, ...] = ()
    foreign: tuple[ForeignField, ...] = ()  # under P and IB, neither owned nor wanted
    postponed: tuple[str, ...] = ()  # recently refused keys that would change
    problems: tuple[Problem, ...] = ()
    has_news: bool = True  # the annotation changes in more than its time, if it does
    desired: Desired | None = None  # None: nothing, all owned fields are removed
    state: State | None = None  # of the Node that the change for `desired` is for
    forgotten: Interfaces = ()  # that the annotation has, or had, as lost
    only_forgets: bool = False  # every other field stays as it is
    written: float | None = None  # of a removal: when `bwagent` last changed a field (State)

    @property
    def is_due(self) -> bool:
        """True if a field changes, the annotation in more than its time."""
        changes = differing(self.managed, self.wanted)
        return bool(changes if self.has_news else changes - {self.keys.annotation_field})

    @property
    def label_changes(self) -> tuple[LabelChange, ...]:
        """The labels that the Node gets, changes or loses, by key."""
        after = {
            **dict.fromkeys(labels_of(select(self.managed, self.gone))),
            **labels_of(self.wanted),
        }
        return self.label_changes_to(after)

    def label_changes_to(self, after: Mapping[str, str | None]) -> tuple[LabelChange, ...]:
        """Return what has another value on the Node than these, by key; None: no label."""
        before = labels_of(self.on_node)
        changes = (LabelChange(key, before.get(key), after[key]) for key in sorted(after))
        return tuple(change for change in changes if change.before != change.after)

    @property
    def gone(self) -> FieldSet:
        """Fields that the Node loses. A field that another manager has too stays."""
        return self.managed.keys() - self.wanted.keys() - self.shared


def change_to(node: Node, desired: Desired, keys: Keys) -> Change:
    """Return the change that makes `node` as desired, whatever the age of its annotation.

    Raises Malformed if the Node's name or uid is missing; ignores other malformed fields.
    """
    state = state_of(node)
    previous, malformed = annotation_of(state, keys)
    # Lost interfaces that the Node's annotation had, and does not have any more, are forgotten.
    dropped = desired.confirmed - lost_in(previous) if previous else frozenset()
    forgotten = tuple(row for row in desired.annotation.lost if row.identity in dropped)
    annotation = fitted(without_lost(desired.annotation, forgotten))
    asked = {Field(LABEL, key): value for key, value in desired.labels.items()}
    asked[keys.annotation_field] = render(annotation)
    if desired.fabric and desired.fabric.time:
        asked[keys.fabric_field] = fabric_text(desired.fabric)
    problems = []
    if annotation.left_out:
        text = f"no room for {annotation.left_out} rows: at most {MAX_BYTES} bytes are written"
        problems.append(Problem("node", keys.annotation, None, text))
    owners = owned(state, keys, desired.now)
    problems += [malformed] if malformed else []
    problems += left_outside(state.name, owners, keys)
    postponed = {
        field
        for field in asked.keys() | state.managed
        if {field.key, keys.family(field)} & desired.postponed
    }
    stays = {field for field in state.managed if field.key in desired.frozen}
    frozen = postponed | stays | (owners.outside - owners.former)
    todo = _change_fields(state, asked, frozen, keys, owners)
    return replace(
        todo,
        postponed=tuple(sorted(field.key for field in postponed & differing(asked, todo.wanted))),
        problems=tuple(problems),
        has_news=(
            previous is None
            or previous.reported.time is None
            or (previous.time is None and annotation.time is not None)
            or keys.annotation_field not in todo.managed
            or previous.facts != annotation.facts
        ),
        desired=desired,
        state=state,
        forgotten=forgotten,
    )


def forgetting(node: Node, keys: Keys) -> Change:
    """Return the change that removes the lost interfaces from the annotation, and nothing else.

    An annotation of another manager is left alone; a malformed annotation is a problem.
    """
    state = state_of(node)
    annotation, problem = annotation_of(state, keys)
    field = keys.annotation_field
    lost = annotation.lost if annotation else ()
    is_ours = field in state.managed
    asked = {field: render(without_lost(annotation, lost))} if annotation and lost else {}
    asked = asked if is_ours else {}
    todo = _change_fields(state, asked, state.managed - asked.keys(), keys, owned(state, keys))
    theirs = [_foreign_field(field, {}, state)] if lost and not is_ours else []
    return replace(
        todo,
        left_alone=(*todo.left_alone, *theirs),
        problems=(problem,) if problem and annotation is None else (),
        forgotten=lost if is_ours else (),
        only_forgets=True,
    )


def removal(node: Node, keys: Keys) -> Change:
    """Return the change that removes all owned labels and the annotation; not due without any.

    It leaves alone what other managers have too, and what has lost its owner. Labels under a former
    prefix are found with that prefix's keys.
    """
    state = state_of(node)
    owners = owned(state, keys)
    todo = _change_fields(state, {}, frozenset(), keys, owners)
    lost = tuple(_foreign_field(field, {}, state) for field in sorted(owners.ownerless))
    return replace(todo, left_alone=todo.left_alone + lost, foreign=(), written=state.written)


def renewed(node: Node, outdated: Change) -> Change:
    """Return the change of the same purpose for the Node as it is now."""
    if outdated.only_forgets:
        return forgetting(node, outdated.keys)
    if outdated.desired is None:
        return removal(node, outdated.keys)
    state = state_of(node)
    if outdated.state == replace(state, version=outdated.version):
        return replace(outdated, state=state, version=state.version)  # it depends on nothing else
    return change_to(node, outdated.desired, outdated.keys)


def _change_fields(
    state: State, asked: Fields, frozen: FieldSet, keys: Keys, owners: Owned
) -> Change:
    """Return the change for the fields `asked`, in which `frozen` fields stay as they are.

    Fields outside the label table stay too, but for those of family `former`.
    """
    managed = select(state.fields, state.managed)
    # The accelerator's key, if another manager has set another value.
    foreign = {
        field
        for field in keys.of_families(asked, (ACC,))
        if state.others.get(field) and state.fields.get(field, asked[field]) != asked[field]
    }
    kept = without(managed, keys.of_families(managed, FAMILIES) - frozen)
    wanted = kept | without(asked, frozen | foreign)
    shared = managed.keys() & state.others.keys()
    left_alone = foreign | (shared - wanted.keys())
    unpublished = owners.foreign - asked.keys()
    return Change(
        node=state.name,
        uid=state.uid,
        version=state.version,
        keys=keys,
        managed=managed,
        wanted=wanted,
        on_node=select(state.fields, managed.keys() | wanted.keys()),
        outside=owners.outside,
        shared=shared,
        left_alone=tuple(_foreign_field(field, asked, state) for field in sorted(left_alone)),
        foreign=tuple(_foreign_field(field, asked, state) for field in sorted(unpublished)),
    )


def _foreign_field(field: Field, asked: Fields, state: State) -> ForeignField:
    value, managers = state.fields[field], state.others.get(field, ())
    return ForeignField(field.key, value, asked.get(field), managers, field.kind)


def body(change: Change, fields: Fields, version: str = "") -> dict[str, Any]:
    """Return the body of a server-side apply.

    The uid makes a recreated Node a conflict, and the version any Node that has changed. A map of
    labels or annotations is there only if it has a key: an empty map would be a field to own.
    """
    metadata: dict[str, Any] = {"name": change.node, "uid": change.uid}
    for (kind, key), value in sorted(fields.items()):
        metadata.setdefault(kind, {})[key] = value
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
