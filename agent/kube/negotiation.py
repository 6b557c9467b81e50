"""Server-side apply of a change: the negotiation with the API server, and the requests.

One request carries all fields of manager `bwagent`. A field that the server refuses keeps the
Node's value, and the request is sent again: leaving an owned field out would remove it.

    200                     done; a key that is not stored as sent, since a mutating webhook has
                            dropped or changed it, is treated as refused
    409 naming fields       they have other managers: the accelerator's key is left to them, the
                            others are taken over (force)
    409 about the version   the Node has changed: it is read again
    409, 422 about the uid  the Node was deleted or recreated: the caller has to get it again
    400, 403, 422           a denial: of the keys that it names; if it names none, each family of
                            keys is applied by itself; if nothing changes, of the keys that were
                            refused before
    401                     sent once more, with the token read again
    any other               no key is the cause; agent/kube/answers.py has the reason

Invariants:
- The Node may have changed since it was read. Before the first denial or conflict is acted on, it
  is read again, and sent anew if that changes the request; one read serves all later steps.
- A refused field stays in every request with the Node's value; a field left to another manager
  is in no further request.
- `force` is per request and not per key, so the accelerator's key is settled before it is used, and
  each group of families starts without it.
- What was accepted before a failure stays: an outcome may have both changes and a failure.
- Refused keys are in `Outcome.to_postpone`, for later changes to leave unchanged for a while.

Sources: KEP-555 (server-side apply), meta/v1 Status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.kube.answers import Answer, Cause, Failure, Kube, Request, failure_of
from agent.kube.change import Change, ForeignField, LabelChange, body, renewed
from agent.kube.managed_fields import (
    ACC,
    FAMILIES,
    FORMER,
    LABEL,
    Field,
    FieldSet,
    Node,
    differing,
    labels_of,
    select,
    state_of,
    without,
)

MAX_CONFLICTS = 4  # requests that end in a conflict, since others may write all the time
MAX_UNAUTHORIZED = 2
MAX_NAMINGS = 4  # denials that name keys; later ones are narrowed down by family
MAX_READS = 3  # of the Node, which others may change all the time
NOT_STORED = "accepted, but not stored as sent: a mutating webhook may have dropped or changed it"

Families = tuple[str, ...]


class Refusal(NamedTuple):
    """A key that stays as it is because the server refused the change, or did not store it."""

    key: str
    status: int | None  # of the denial: 400, 403 or 422; 200: not stored
    text: str  # the server's message, one line


class Taken(NamedTuple):
    """A key of the label table that was taken over from another manager."""

    key: str
    manager: str
    value: str | None  # on the Node, as last read; None: an annotation, or unknown


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying a change."""

    change: Change  # for the Node as last read, if that was during the negotiation
    applied: Mapping[str, str]  # labels added or changed: key to value
    removed: tuple[str, ...]  # keys of removed labels
    refused: tuple[Refusal, ...] = ()
    to_postpone: frozenset[str] = frozenset()  # refused keys and families, for `Desired.postponed`
    left_alone: tuple[ForeignField, ...] = ()  # of the change, and those found by conflicts
    taken: tuple[Taken, ...] = ()
    failure: Failure | None = None  # the reason for an early end
    node: Node | None = None  # as in the last accepted response
    requests: int = 0

    @property
    def changes(self) -> tuple[LabelChange, ...]:
        """The labels that were changed, by key."""
        return self.change.label_changes_to({**dict.fromkeys(self.removed), **self.applied})

    @property
    def is_complete(self) -> bool:
        """True if no request failed and no key was refused."""
        return not (self.failure or self.refused)

    @property
    def fault(self) -> str | None:
        """The failure, or the first refused key, as one line; None if there is neither."""
        if self.failure:
            return self.failure.text
        if self.refused:
            return f"keys refused: {len(self.refused)}, the first is {self.refused[0].key}"
        return None


def negotiate(change: Change, kube: Kube, *, is_current: bool = True) -> Outcome:
    """Apply a change to its Node, due or not; `is_current` if the Node was just read for it.

    All families of keys go in one request. A denial that names keys refuses these, and the rest is
    sent again. A denial that names none is narrowed down: each family is applied by itself, up to
    the first failure, and a family that is denied is refused as a whole.

    Example: `P/flavor` and `IB/speed.current` change, a policy denies "P/flavor". The second
    request carries the new speed and the Node's old flavor.
    Example: a policy denies "labels of *.coreweave.cloud". P, IB and the annotation are refused one
    after the other, the accelerator's key is applied.
    """
    session = _Session(change, kube, is_current=is_current)
    groups: list[Families] = [FAMILIES]
    namings = 0
    while groups:
        families = groups.pop(0)
        answer = session.settle(families)
        if answer.node is not None:
            continue
        if not answer.is_denial:
            return session.outcome(failure_of(answer, change.node))
        changing = tuple(family for family in families if session.changes((family,)))
        changes = session.changes(changing)
        named = {field for field in changes if answer.names(field.key)}
        # Naming all changes of several families says no more than naming none.
        is_everything = named == changes and len(changing) > 1
        if named and not is_everything and namings < MAX_NAMINGS:
            namings += 1
            session.refuse(named, answer, {field.key for field in named})
            groups = [families, *groups] if session.changes(families) else groups
        elif not changing:
            if not session.refuse_postponed(answer):
                return session.outcome(failure_of(answer, change.node))
        elif len(changing) == 1:
            session.refuse(changes, answer, {*changing})
        else:
            groups = [(family,) for family in changing]
    return session.outcome(None)


class _Session:
    """The fields of manager `bwagent` on the Node and the wanted ones, during a negotiation."""

    def __init__(self, change: Change, kube: Kube, *, is_current: bool) -> None:
        self._kube = kube
        self._is_current = is_current  # the Node was just read
        self._is_accepted = False  # a request was
        self._applies = self._reads = 0  # requests
        self._node: Node | None = None  # as in the last successful response
        self._refused: dict[Field, Refusal] = {}
        self._to_postpone: set[str] = set()  # keys and families
        self._taken: dict[Field, str] = {}  # with the previous manager
        self._lost: set[Field] = set()  # managed, but another manager's now
        self._begin(change)

    def _begin(self, change: Change) -> None:
        """Begin with a change, or go on with a new one; what was refused stays refused."""
        self._change = change
        self._managed = dict(change.managed)  # on the Node, as of the last accepted request
        self._wanted = dict(change.wanted)
        self._left_alone = list(change.left_alone)
        self._keep(self._refused.keys())

    def _keep(self, fields: FieldSet) -> None:
        """Keep the Node's values of these fields."""
        self._wanted = without(self._wanted, fields) | select(self._managed, fields)

    def changes(self, families: Families) -> set[Field]:
        """Return the fields of these families that are to change."""
        return self._change.keys.of_families(differing(self._managed, self._wanted), families)

    def refuse(self, fields: FieldSet, denial: Answer, to_postpone: set[str]) -> None:
        """Keep the Node's values of fields that a denial is about."""
        self._keep(fields)
        self._to_postpone |= to_postpone
        for field in fields:
            self._refused[field] = Refusal(field.key, denial.status, denial.text)

    def refuse_postponed(self, denial: Answer) -> bool:
        """Take the denial of a request without changes for what it leaves out; False if nothing.

        When that is tried again is as before.

        Example: a policy denies all that the agent sends, and the annotation is to be refreshed
        before the hour after the last refusal is over. A failure would be repeated in minutes.
        """
        keys = self._change.keys
        for key in self._change.postponed:
            annotations = (keys.annotation_field, keys.fabric_field)
            field = next((own for own in annotations if own.key == key), Field(LABEL, key))
            self._refused[field] = Refusal(key, denial.status, denial.text)
        return bool(self._change.postponed)

    def settle(self, families: Families) -> Answer:
        """Send the changes of these families, the other fields unchanged; return the last answer.

        The request is repeated after a 401, for a Node that has changed, and after a conflict
        without the fields that are left to their managers, with force if others are to be taken.

        Example: kubectl-edit has set `P/flavor`. The answer is 409 without force, 200 with it.
        """
        force, answers = False, Counter[int | None]()
        while True:
            request, fields = self._request(families, force=force)
            self._applies += 1
            answer = self._kube(request)
            if answer.node is not None:
                # The Node is as stored; what the server has not stored is refused.
                stored = select(state_of(answer.node).fields, fields)
                lost = self.changes(families) & differing(fields, stored)
                self._managed, self._node = stored, answer.node
                self._is_current = self._is_accepted = True
                denial = replace(answer, message=NOT_STORED)
                self.refuse(lost, denial, {field.key for field in lost})
                return answer
            read = self._read_again(answer)
            if read and read.node is None:
                # The failure of the GET, whatever its status, refuses no key.
                answer = replace(read, error=failure_of(read, self._change.node).kind)
            elif read and self._request(families, force=force) != (request, fields):
                force = False
                continue
            taken = [self._resolve(cause, families) for cause in answer.conflicts]
            force = force or any(taken)
            limit = MAX_UNAUTHORIZED if answer.status == 401 else 1
            answers[answer.status] += 1
            if answers[answer.status] >= (MAX_CONFLICTS if answer.conflicts else limit):
                return answer

    def _read_again(self, answer: Answer) -> Answer | None:
        """GET the Node if the answer may be due to a change of it since it was read; None if not.

        Once a request was accepted, the rest is left to the next reconciliation.
        """
        is_unsure = not self._is_current and (answer.is_denial or answer.conflicts)
        is_older = is_unsure or (answer.outdated_version and self._version())
        if self._is_accepted or self._reads >= MAX_READS or not is_older:
            return None
        read = self._kube({"operation": "get", "node": self._change.node})
        self._reads += 1
        if read.node is not None:
            self._begin(renewed(read.node, self._change))
            self._node, self._is_current = read.node, True
        return read

    def _request(self, families: Families, *, force: bool) -> tuple[Request, dict[Field, str]]:
        """Return the request that changes these families, and the fields that it leaves."""
        changes = self.changes(families)
        fields = without(self._managed, changes) | select(self._wanted, changes)
        document = body(self._change, fields, self._version())
        name = self._change.node
        return {"operation": "apply", "node": name, "body": document, "force": force}, fields

    def _version(self) -> str:
        """Return the version of the Node if the request is for that version only; else ""."""
        if not (self._change.outside or self._change.only_forgets):
            return ""
        return state_of(self._node).version if self._node else self._change.version

    def _resolve(self, conflict: Cause, families: Families) -> bool:
        """Take over the field of a conflict, or leave it to its manager; True if it is taken.

        Taken is a key of the label table that the request means to set: not the accelerator's, nor
        a field that is only carried along.
        """
        kind, _, key = conflict.field.removeprefix(".").removeprefix("metadata.").partition(".")
        field = Field(kind, key)
        family = self._change.keys.family(field)
        is_carried = field in self._refused or key in self._change.postponed
        is_set = field in self._wanted and not is_carried
        if is_set and family in families and family not in (ACC, FORMER):
            self._taken[field] = conflict.manager
            return True
        wanted = self._wanted.pop(field, None)
        self._left_alone.append(ForeignField(key, None, wanted, (conflict.manager,)))
        if field in self._managed:
            self._lost.add(field)
            del self._managed[field]
        return False

    def outcome(self, failure: Failure | None) -> Outcome:
        """Return what was changed since the start, with their circumstances."""
        change = self._change
        still_there = self._managed.keys() | change.shared | self._lost
        taken = select(self._taken, self._managed) if self._is_accepted else {}
        before = labels_of(change.on_node)
        # A conflict names the field's manager only; the value is that of the last response.
        now = state_of(self._node).fields if self._node is not None else {}
        return Outcome(
            change,
            applied=labels_of(select(self._managed, differing(change.on_node, self._managed))),
            removed=tuple(labels_of(without(change.managed, still_there))),
            refused=tuple(refusal for _, refusal in sorted(self._refused.items())),
            to_postpone=frozenset(self._to_postpone),
            left_alone=tuple(
                replace(field, value=now.get(Field(LABEL, field.key)))
                if field.value is None
                else field
                for field in self._left_alone
            ),
            taken=tuple(
                Taken(field.key, manager, before.get(field.key))
                for field, manager in sorted(taken.items())
            ),
            failure=failure,
            node=self._node,
            requests=self._applies + self._reads,
        )
