"""What has to change on the Node: the Node as it is and the labels as they should be in, one apply request out.

The law of this module: server-side apply removes what its manager leaves out, so a request always carries everything
that is to stay, and a change that is not to be made is "as it is", not "left out". What is not ours is in no request:
neither another's key nor, where somebody else holds it with another value, the accelerator's.

A plan says what the Node should look like under our name; whether the server agrees is found out in negotiate.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.kube.annotation import parse, render
from agent.kube.managed_fields import ACC, ANNOTATION, LABEL, Field, owned, state_of
from agent.labels import encode
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys, State

__all__ = ["RESYNC", "Desired", "Held", "Plan", "body", "owned", "plan", "towards"]

RESYNC = 3600.0  # seconds; the annotation is no older than that


@dataclass(frozen=True, slots=True)
class Desired:
    """How the Node should be."""

    labels: Mapping[str, str]
    observed: Annotation
    backed_off: frozenset[str] = (
        frozenset()
    )  # keys and families that were refused lately: they stay as they are
    resync: float = RESYNC


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A key that is left alone, because somebody else holds it."""

    key: str
    value: str | None  # on the Node, as last seen
    wanted: str | None  # what we would say; None: nothing any more
    managers: tuple[str, ...]  # as managedFields or the server name them


@dataclass(frozen=True, slots=True)
class Plan:
    """What manager `bwagent` holds on a Node, and what it should hold; values by label or annotation."""

    node: str
    uid: str
    keys: Keys
    held: Mapping[Field, str]  # under our name now, with what the Node says
    wanted: Mapping[Field, str]  # under our name afterwards
    on_node: Mapping[Field, str]  # what the Node says of any of these now, whoever said it
    shared: frozenset[Field] = (
        frozenset()
    )  # of `held`: others hold it too, so it stays when we let go
    left_alone: tuple[ForeignField, ...] = ()
    postponed: tuple[str, ...] = ()  # keys that were refused lately: they stay as they are
    problems: tuple[Problem, ...] = ()
    due: bool = False  # something changed, or the annotation is to be refreshed

    @property
    def added(self) -> dict[str, str]:
        """Labels that the Node does not have: key to value."""
        return {label.key: value for label, value in self._labels() if label not in self.on_node}

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """Labels with another value on the Node: key to (value there, value wanted)."""
        before = [(label, self.on_node.get(label, value), value) for label, value in self._labels()]
        return {label.key: (was, value) for label, was, value in before if was != value}

    @property
    def removed(self) -> dict[str, str]:
        """Labels that go: key to the value that they have."""
        gone = self.held.keys() - self.wanted.keys() - self.shared
        return {label.key: self.held[label] for label in sorted(gone) if label.kind == LABEL}

    def _labels(self) -> list[tuple[Field, str]]:
        return sorted((label, value) for label, value in self.wanted.items() if label.kind == LABEL)


def plan(node: Mapping[str, Any], desired: Desired, keys: Keys, now: float) -> Plan:
    """What has to change on `node` for it to be as desired; `now` is in seconds since the epoch.

    `node` is the Node as the API server sent it: Malformed without name and uid, whatever else is odd is not there.
    """
    state = state_of(node)
    asked = {Field(LABEL, key): value for key, value in desired.labels.items()}
    faults = {
        label: fault for label, value in asked.items() if (fault := _fault(label, value, keys))
    }
    asked[Field(ANNOTATION, keys.annotation)] = render(desired.observed)
    postponed = {
        one for one in asked.keys() | state.held if {one.key, keys.family(one)} & desired.backed_off
    }
    found = towards(state, asked, faults.keys() | postponed, keys)
    previous, problem = parse(state.fields.get(Field(ANNOTATION, keys.annotation)), keys.annotation)
    problems = [
        Problem("labels", label.key, None, f"not written: {fault}")
        for label, fault in faults.items()
    ]
    return replace(
        found,
        postponed=tuple(
            sorted(one.key for one in postponed if asked.get(one) != found.wanted.get(one))
        ),
        problems=(*problems, *([problem] if problem else [])),
        due=_labels_differ(found) or _is_stale(found, desired, previous, now),
    )


def towards(
    state: State, asked: Mapping[Field, str], frozen: AbstractSet[Field], keys: Keys
) -> Plan:
    """The plan for what is asked, where `frozen` fields stay as they are; whether it is due is not said."""
    ours = state.ours()
    kept = {one: value for one, value in ours.items() if one in frozen or keys.family(one) is None}
    foreign = {one for one in asked if _is_another_s(one, asked[one], state, keys)}
    wanted = kept | {one: value for one, value in asked.items() if one not in frozen | foreign}
    shared = ours.keys() & state.others.keys()
    return Plan(
        node=state.name,
        uid=state.uid,
        keys=keys,
        held=ours,
        wanted=wanted,
        on_node={
            one: state.fields[one] for one in ours.keys() | wanted.keys() if one in state.fields
        },
        shared=frozenset(shared),
        left_alone=tuple(
            ForeignField(one.key, state.fields[one], asked.get(one), state.others[one])
            for one in sorted(foreign | (shared - wanted.keys()))
        ),
    )


def body(plan: Plan, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """The server-side apply body; with the uid, so that a Node that was made anew is a conflict."""
    metadata: dict[str, Any] = {"name": plan.node, "uid": plan.uid}
    # An empty map would be claimed as a field of its own.
    metadata |= {
        kind: dict(sorted(of.items()))
        for kind, of in ((LABEL, labels), (ANNOTATION, annotations))
        if of
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _fault(label: Field, value: str, keys: Keys) -> str | None:
    """Why this label is not to be written, whoever asked for it."""
    if keys.family(label) is None:
        return "it is no key of bwagent's label table"
    if fault := encode.key_fault(label.key):
        return fault
    return None if value and encode.value(value) == value else f"{value[:80]!r} is no label value"


def _is_another_s(one: Field, value: str, state: State, keys: Keys) -> bool:
    """The accelerator's key is written by others, too; where they say something else, theirs stands."""
    return keys.family(one) == ACC and one in state.others and state.fields.get(one, value) != value


def _labels_differ(plan: Plan) -> bool:
    return any(
        plan.held.get(one) != plan.wanted.get(one)
        for one in plan.held.keys() | plan.wanted.keys()
        if one.kind == LABEL
    )


def _is_stale(plan: Plan, desired: Desired, previous: Annotation | None, now: float) -> bool:
    """The annotation is to be written anew: it is old, of another boot, of other interfaces, or not to be read."""
    annotation = Field(ANNOTATION, plan.keys.annotation)
    if plan.wanted.get(annotation) == plan.held.get(annotation):
        return False
    if previous is None or previous.time is None or annotation not in plan.held:
        return True
    told = desired.observed
    same = (previous.boot_id, previous.interfaces) == (told.boot_id, told.interfaces)
    return not (same and 0 <= now - previous.time < desired.resync)
