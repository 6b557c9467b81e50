"""What the API server makes of a plan, found out request by request: a generator without any I/O.

The law of this module: one request carries all that is ours, so what the server will not have is taken out of it and
the rest is sent again, and taken out means "as the Node has it": leaving an owned key out would remove it.

    200                     done
    409 naming fields       somebody else holds them: the accelerator's is theirs, the others are taken (force)
    409, 422 about the uid  the Node was made anew: whoever asked looks again
    400, 403, 422           a key was refused: those that the answer names; where it names none, each family is tried
    401                     once more: the token is read again for every request
    all else                nobody's key is at fault; answers.py says whose fault it is

Force is per request and not per key, so the accelerator's key is settled before it. Refused keys come back in
`Outcome.back_off`, for the next plans to leave as they are for a while. What was accepted on the way stays accepted: an
outcome may have applied something and failed. Sources: KEP-555 (server-side apply), meta/v1 Status.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from agent.kube.managed_fields import ACC, ANNOTATION, IB, LABEL, OBSERVED, Field, P, state_of
from agent.kube.plan import ForeignField
from agent.kube.response import Answer, failure_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from typing import Any

    from agent.kube.plan import Plan
    from agent.kube.response import Cause, Failure

FAMILIES = (P, IB, ACC, OBSERVED)
NAMINGS = 4  # denials that name keys; after that the rest is settled by family
CONFLICTS = 3  # rounds about one request; others may be writing all the time


class Request(NamedTuple):
    """One server-side apply as manager `bwagent`."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    force: bool


class Refusal(NamedTuple):
    """A key that stays as it is because the server would not have it otherwise."""

    key: str
    text: str  # the server's words, one line


class Taken(NamedTuple):
    """A key of ours that another manager held."""

    key: str
    manager: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a plan."""

    applied: Mapping[str, str]  # labels added or changed: key to value
    removed: tuple[str, ...]  # labels that went
    refused: tuple[Refusal, ...] = ()
    back_off: frozenset[str] = (
        frozenset()
    )  # keys, and families where no key was named: for `Desired.backed_off`
    left_alone: tuple[
        ForeignField, ...
    ] = ()  # others' keys: those of the plan, and those that a conflict told of
    taken: tuple[Taken, ...] = ()
    failure: Failure | None = None  # what ended it early
    node: Mapping[str, Any] | None = None  # as the last accepted request left it
    requests: int = 0


def negotiate(plan: Plan) -> Generator[Request, Answer, Outcome]:
    """Apply a plan: yields requests, is sent answers, returns what came of it. At least one request is made."""
    session = _Session(plan)
    failure = yield from session.settle(FAMILIES)
    return session.outcome(failure)


def converse(plan: Plan, ask: Callable[[Request], Answer]) -> Outcome:
    """Hold a whole negotiation: `ask` gives the answer to a request."""
    talk = negotiate(plan)
    try:
        request = next(talk)
        while True:
            request = talk.send(ask(request))
    except StopIteration as end:
        return cast("Outcome", end.value)


class _Session:
    """Where a negotiation stands: what is under our name, and what is to be."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ours = dict(plan.held)  # on the Node, as far as we know
        self.wanted = dict(plan.wanted)
        self.requests = self.namings = 0
        self.node: Mapping[str, Any] | None = None
        self.refused: dict[Field, str] = {}
        self.back_off: set[str] = set()
        self.left_alone = list(plan.left_alone)
        self.taken: dict[Field, str] = {}
        self.lost: set[Field] = set()  # ours when we began, others' since

    def settle(self, families: tuple[str, ...]) -> Generator[Request, Answer, Failure | None]:
        """Make the changes of these families, without those that are refused; the failure that ended it early."""
        answer = yield from self.send(families)
        while answer.denied:
            named = self.named(answer, families)
            if not named:
                return (yield from self.narrow(families, answer))
            self.namings += 1
            self.refuse(named, answer, {one.key for one in named})
            if not self.changes(families):
                return None
            answer = yield from self.send(families)
        return None if answer.accepted else failure_of(answer, self.plan.node)

    def narrow(
        self, families: tuple[str, ...], denial: Answer
    ) -> Generator[Request, Answer, Failure | None]:
        """A denial of these families' changes names no key: try each family by itself."""
        left = tuple(family for family in families if self.changes((family,)))
        if not left:
            return failure_of(denial, self.plan.node)
        if len(left) == 1:
            self.refuse(self.changes(left), denial, set(left))
            return None
        for family in left:
            if failure := (yield from self.settle((family,))):
                return failure
        return None

    def send(self, families: tuple[str, ...]) -> Generator[Request, Answer, Answer]:
        """One request with the changes of these families, and again where a token or a conflict asks for it."""
        force, answer = False, Answer()
        tokens = conflicts = 0
        while tokens < 2 and conflicts <= CONFLICTS:
            fields = self.fields(families)
            answer = yield _request(fields, force=force)
            self.requests += 1
            if answer.accepted:
                self.ours, self.node = fields, answer.node
            if answer.status == 401:
                tokens += 1
            elif answer.conflicts:
                conflicts += 1
                force = self.yield_fields(answer.conflicts, families) or force
            else:
                break
        return answer

    def fields(self, families: tuple[str, ...]) -> dict[Field, str]:
        """All that is ours: as wanted in these families, as it is in the others."""
        changes = self.changes(families)
        kept = {one: value for one, value in self.ours.items() if one not in changes}
        return kept | {one: self.wanted[one] for one in changes if one in self.wanted}

    def changes(self, families: tuple[str, ...]) -> set[Field]:
        """What is to change in these families."""
        either = self.ours.keys() | self.wanted.keys()
        differ = {one for one in either if self.ours.get(one) != self.wanted.get(one)}
        return {one for one in differ if self.plan.keys.family(one) in families}

    def yield_fields(self, conflicts: Iterable[Cause], families: tuple[str, ...]) -> bool:
        """Leave others what is theirs; whether anything remains that is to be taken from them."""
        take = False
        for cause in conflicts:
            one = _field(cause.field)
            if self.is_to_take(one, families):
                self.taken[one] = cause.manager
                take = True
            else:
                self.leave(one, cause)
        return take

    def is_to_take(self, one: Field, families: tuple[str, ...]) -> bool:
        """It is ours by the table and meant to have this value, not just carried along; the accelerator's never is."""
        family = self.plan.keys.family(one)
        carried = one in self.refused or one.key in self.plan.postponed
        return one in self.wanted and family in families and family != ACC and not carried

    def leave(self, one: Field, cause: Cause) -> None:
        wanted = self.wanted.pop(one, None)
        if self.ours.pop(one, None) is not None:
            self.lost.add(one)
        self.left_alone.append(ForeignField(one.key, None, wanted, (cause.manager,)))

    def named(self, denial: Answer, families: tuple[str, ...]) -> set[Field]:
        """The changes that a denial names; none where it names all of them, so that each family gets its chance."""
        if self.namings >= NAMINGS:
            return set()
        changes = self.changes(families)
        named = {one for one in changes if denial.names(one.key)}
        several = len({self.plan.keys.family(one) for one in changes}) > 1
        return set() if several and named == changes else named

    def refuse(self, fields: Iterable[Field], denial: Answer, back_off: set[str]) -> None:
        """These stay as the Node has them."""
        self.back_off |= back_off
        for one in fields:
            self.refused[one] = one_line(denial.message) or f"status {denial.status}"
            self.wanted.pop(one, None)
            if one in self.ours:
                self.wanted[one] = self.ours[one]

    def with_value(self, held: ForeignField) -> ForeignField:
        """A conflict does not tell what others say; the Node does that came back."""
        if held.value is not None or self.node is None:
            return held
        fields = state_of(self.node).fields
        return replace(held, value=fields.get(Field(LABEL, held.key)))

    def outcome(self, failure: Failure | None) -> Outcome:
        before = self.plan.on_node
        applied = {
            one.key: value
            for one, value in self.ours.items()
            if one.kind == LABEL and before.get(one) != value
        }
        removed = self.plan.held.keys() - self.ours.keys() - self.plan.shared - self.lost
        taken = {
            one: manager for one, manager in self.taken.items() if one in self.ours and self.node
        }
        return Outcome(
            applied=dict(sorted(applied.items())),
            removed=tuple(sorted(one.key for one in removed if one.kind == LABEL)),
            refused=tuple(Refusal(one.key, text) for one, text in sorted(self.refused.items())),
            back_off=frozenset(self.back_off),
            left_alone=tuple(self.with_value(held) for held in self.left_alone),
            taken=tuple(Taken(one.key, manager) for one, manager in sorted(taken.items())),
            failure=failure,
            node=self.node,
            requests=self.requests,
        )


def _request(fields: Mapping[Field, str], *, force: bool) -> Request:
    labels = {one.key: value for one, value in fields.items() if one.kind == LABEL}
    return Request(
        labels, {one.key: value for one, value in fields.items() if one.kind == ANNOTATION}, force
    )


def _field(path: str) -> Field:
    """The field that a cause names by its path."""
    metadata, _, key = path.removeprefix(".").removeprefix("metadata.").partition(".")
    return Field(metadata, key)
