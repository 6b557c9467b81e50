"""The state of a negotiation with the API server: what is settled, and what is still to change.

It begins with a plan, for the Node as it was when it was last read. `managed` has the fields of the
last accepted request; `wanted` loses the changes that the server refuses and the fields that other
managers keep.

Invariants:
- A refused field stays in every request with the Node's value, since leaving it out removes it.
- A field that is left to another manager is in no further request.
- The Node is read again before a refusal or a conflict is acted on, unless it was just read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from agent.kube.managed_fields import (
    ACC,
    FORMER,
    LABEL,
    Field,
    differing,
    labels_of,
    select,
    state_of,
    without,
)
from agent.kube.plan import ForeignField, body, replan

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from agent.kube.errors import Answer, Cause, Failure
    from agent.kube.managed_fields import Fields, FieldSet, Node
    from agent.kube.plan import Plan
    from agent.kube.transport import Request

    Families = tuple[str, ...]

MAX_NAMINGS = 4  # denials that name keys; later ones are narrowed down by family
MAX_READS = 3  # of the Node, which others may change all the time


class Refusal(NamedTuple):
    """A key that stays as it is because the server refused the change."""

    key: str
    status: int | None  # of the denial: 400, 403 or 422
    text: str  # the server's message, one line


class Taken(NamedTuple):
    """A key of the label table that was taken over from another manager."""

    key: str
    manager: str
    value: str | None  # on the Node, as last read; None: an annotation, or unknown


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying a plan."""

    plan: Plan  # for the Node as last read, if that was during the negotiation
    applied: Mapping[str, str]  # labels added or changed: key to value
    removed: tuple[str, ...]  # keys of removed labels
    refused: tuple[Refusal, ...] = ()
    back_off: frozenset[str] = frozenset()  # refused keys and families, for `Desired.backed_off`
    left_alone: tuple[ForeignField, ...] = ()  # of the plan, and those found by conflicts
    taken: tuple[Taken, ...] = ()
    failure: Failure | None = None  # the reason for an early end
    node: Node | None = None  # as in the last accepted response
    requests: int = 0

    @property
    def is_complete(self) -> bool:
        """True if no request failed and no key was refused."""
        return not (self.failure or self.refused)


@dataclass(slots=True)
class Session:
    """The fields of manager `bwagent` on the Node and the wanted ones, during a negotiation."""

    plan: Plan
    managed: dict[Field, str]  # on the Node, as of the last accepted request
    wanted: dict[Field, str]
    left_alone: list[ForeignField]
    is_current: bool  # the Node was just read
    node: Node | None = None  # as in the last successful response
    is_accepted: bool = False  # a request was
    reads: int = 0
    requests: int = 0
    namings: int = 0  # denials that named keys
    refused: dict[Field, Refusal] = dataclasses.field(default_factory=dict)
    back_off: set[str] = dataclasses.field(default_factory=set)
    taken: dict[Field, str] = dataclasses.field(default_factory=dict)  # with the previous manager
    lost: set[Field] = dataclasses.field(default_factory=set)  # managed, but another manager's now

    def changes(self, families: Families) -> set[Field]:
        """Return the fields of these families that are to change."""
        return self.plan.keys.of_families(differing(self.managed, self.wanted), families)

    def changing(self, families: Families) -> Families:
        """Return those of these families that have changes."""
        return tuple(family for family in families if self.changes((family,)))

    def fields(self, families: Families) -> dict[Field, str]:
        """Return the fields of a request: as wanted in these families, unchanged in the others."""
        changes = self.changes(families)
        return without(self.managed, changes) | select(self.wanted, changes)

    def request(self, fields: Fields, *, force: bool) -> Request:
        """Return the request that makes these the fields of manager `bwagent`."""
        document = body(self.plan, fields, self._version())
        return {"operation": "apply", "node": self.plan.node, "body": document, "force": force}

    def record(self, answer: Answer, fields: dict[Field, str]) -> None:
        """Record the answer to a request with these fields."""
        self.requests += 1
        if answer.accepted:
            self.managed, self.node = fields, answer.node
            self.is_current = self.is_accepted = True

    def _version(self) -> str:
        """Return the version of the Node if the request is for that one only; else ""."""
        if not (self.plan.outside or self.plan.only_forgets):
            return ""
        return state_of(self.node).version if self.node else self.plan.version

    def is_outdated(self, answer: Answer) -> bool:
        """Return True if the Node has to be read again before the next request.

        A refusal may be due to a Node that has changed since it was read. Once a request was
        accepted, the rest is left to the next reconciliation.
        """
        if self.is_accepted or self.reads == MAX_READS:
            return False
        is_refusal = answer.denied or bool(answer.conflicts)
        is_outdated = answer.outdated_version and bool(self._version())
        return is_outdated or (is_refusal and not self.is_current)

    def read(self, node: Node) -> None:
        """Go on with the plan for the Node as it is now; what was refused stays refused."""
        self.plan = replan(node, self.plan)
        self.managed, self.wanted = dict(self.plan.managed), dict(self.plan.wanted)
        self.left_alone = list(self.plan.left_alone)
        self._keep(self.refused)
        self.node, self.is_current = node, True
        self.reads += 1

    def resolve(self, conflicts: Iterable[Cause], families: Families) -> bool:
        """Drop fields owned by other managers; return True if the rest needs force=true."""
        taken = [self._resolve(cause, families) for cause in conflicts]
        return any(taken)

    def _resolve(self, conflict: Cause, families: Families) -> bool:
        """Take one field over, or drop it; return True if it is taken over."""
        field = _field(conflict.field)
        may_take = self._may_take(field, families)
        if may_take:
            self.taken[field] = conflict.manager
        else:
            self._leave(field, conflict.manager)
        return may_take

    def _may_take(self, field: Field, families: Families) -> bool:
        """Return True for a key of the label table that the request means to set.

        Never for the accelerator's key, nor for a field that is only carried along.
        """
        family = self.plan.keys.family(field)
        if family in (ACC, FORMER) or family not in families:
            return False
        return field in self.wanted and not self._is_carried(field)

    def _is_carried(self, field: Field) -> bool:
        """Return True if the field is sent with the Node's value because it was refused."""
        return field in self.refused or field.key in self.plan.postponed

    def _leave(self, field: Field, manager: str) -> None:
        """Leave a field to its other manager."""
        wanted = self.wanted.pop(field, None)
        self.left_alone.append(ForeignField(field.key, None, wanted, (manager,)))
        if field in self.managed:
            self.lost.add(field)
            del self.managed[field]

    def named(self, denial: Answer, families: Families) -> set[Field]:
        """Return the changes that a denial names.

        Empty if it names all changes of several families, which gives no more to go by than naming
        none, and after MAX_NAMINGS denials.
        """
        if self.namings >= MAX_NAMINGS:
            return set()
        changes = self.changes(families)
        named = {field for field in changes if denial.names(field.key)}
        is_everything = named == changes and len(self.changing(families)) > 1
        return set() if is_everything else named

    def refuse_named(self, named: FieldSet, denial: Answer) -> None:
        """Keep the Node's values of the fields that a denial names."""
        self.namings += 1
        self._refuse(named, denial)
        self.back_off |= {field.key for field in named}

    def refuse_family(self, family: str, denial: Answer) -> None:
        """Keep the Node's values of a whole family."""
        self._refuse(self.changes((family,)), denial)
        self.back_off.add(family)

    def _refuse(self, fields: FieldSet, denial: Answer) -> None:
        self._keep(fields)
        for field in fields:
            self.refused[field] = Refusal(field.key, denial.status, denial.text)

    def _keep(self, fields: Container[Field]) -> None:
        self.wanted = without(self.wanted, fields) | select(self.managed, fields)

    def outcome(self, failure: Failure | None) -> Outcome:
        """Return the changes made since the plan, with their circumstances."""
        return Outcome(
            self.plan,
            applied=self._applied(),
            removed=self._removed(),
            refused=tuple(refusal for _, refusal in sorted(self.refused.items())),
            back_off=frozenset(self.back_off),
            left_alone=tuple(self._with_value(field) for field in self.left_alone),
            taken=self._taken(),
            failure=failure,
            node=self.node,
            requests=self.requests,
        )

    def _applied(self) -> dict[str, str]:
        changed = differing(self.plan.on_node, self.managed)
        return labels_of(select(self.managed, changed))

    def _removed(self) -> tuple[str, ...]:
        still_there = self.managed.keys() | self.plan.shared | self.lost
        return tuple(labels_of(without(self.plan.managed, still_there)))

    def _taken(self) -> tuple[Taken, ...]:
        taken = select(self.taken, self.managed) if self.is_accepted else {}
        before = labels_of(self.plan.on_node)
        return tuple(
            Taken(field.key, manager, before.get(field.key))
            for field, manager in sorted(taken.items())
        )

    def _with_value(self, foreign: ForeignField) -> ForeignField:
        """Add the value from the last response: a conflict names the field's manager only."""
        if foreign.value is None and self.node is not None:
            return replace(foreign, value=_label(self.node, foreign.key))
        return foreign


def begin(plan: Plan, *, is_current: bool) -> Session:
    """Return the session at the beginning of a negotiation."""
    managed, wanted = dict(plan.managed), dict(plan.wanted)
    return Session(plan, managed, wanted, list(plan.left_alone), is_current)


def _label(node: Node, key: str) -> str | None:
    return state_of(node).fields.get(Field(LABEL, key))


def _field(path: str) -> Field:
    """Return the field that a cause names, `.metadata.labels.KEY`."""
    kind, _, key = path.removeprefix(".").removeprefix("metadata.").partition(".")
    return Field(kind, key)
