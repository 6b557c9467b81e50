"""Server-side apply of a plan: the negotiation with the API server, and the requests.

One request carries all fields of manager `bwagent`. A field that the server refuses keeps the
Node's value, and the request is sent again: leaving an owned field out would remove it.

    200                     done
    409 naming fields       they have other managers: the accelerator's key is left to them, the
                            others are taken over (force)
    409, 422 about the uid  the Node was deleted or recreated: the caller has to get it again
    400, 403, 422           a refusal: of the keys that it names; if it names none, each family of
                            keys is applied by itself
    401                     sent once more: the helper reads the token again for each request
    any other               no key is the cause; agent/kube/errors.py has the reason

Invariants:
- `force` is per request and not per key, so the accelerator's key is settled before it is used, and
  each request starts without it.
- What was accepted before a failure stays: an outcome may have both changes and a failure.
- Refused keys are in `Outcome.back_off`, for later plans to leave unchanged for a while.

Sources: KEP-555 (server-side apply), meta/v1 Status.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from agent.errors import Unavailable
from agent.kube.errors import Answer, Failure, answer_of, failure_of, one_line
from agent.kube.managed_fields import ACC, IB, LABEL, OBSERVED, Field, P, state_of
from agent.kube.plan import ForeignField, body

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from agent.kube.errors import Cause
    from agent.kube.managed_fields import Node
    from agent.kube.plan import Plan
    from agent.kube.transport import Kube, Reply, Request

FAMILIES = (P, IB, ACC, OBSERVED)
MAX_NAMINGS = 4  # denials that name keys; later ones are narrowed down by family
MAX_CONFLICTS = 4  # requests that end in a conflict, since others may write all the time
MAX_UNAUTHORIZED = 2


class Refusal(NamedTuple):
    """A key that stays as it is because the server refused the change."""

    key: str
    status: int | None  # of the denial: 400, 403 or 422
    text: str  # the server's message, one line


class Taken(NamedTuple):
    """A key of the label table that was taken over from another manager."""

    key: str
    manager: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying a plan."""

    applied: Mapping[str, str]  # labels added or changed: key to value
    removed: tuple[str, ...]  # keys of removed labels
    refused: tuple[Refusal, ...] = ()
    back_off: frozenset[str] = frozenset()  # refused keys and families, for `Desired.backed_off`
    left_alone: tuple[ForeignField, ...] = ()  # of the plan, and those found by conflicts
    taken: tuple[Taken, ...] = ()
    failure: Failure | None = None  # the reason for an early end
    node: Node | None = None  # as in the last accepted response
    requests: int = 0


def get_node(kube: Kube, name: str) -> Node | Failure:
    """Get the metadata of a Node."""
    request: Request = {"operation": "get", "node": name}
    reply, answer = _send(kube, request)
    if answer.status == 401:
        reply, answer = _send(kube, request)
    return reply["node"] if answer.accepted else failure_of(answer, name)


def list_nodes(kube: Kube) -> Iterator[Node | Failure]:
    """Yield every Node with fields of manager `bwagent`; a failure comes last.

    Needs the right to `list` nodes, which the agent's ClusterRole does not give.
    """
    page: str | None = ""
    while page is not None:
        reply, answer = _send(kube, {"operation": "list", "continue": page})
        if answer.status != 200 or answer.error:
            yield failure_of(answer, "*")
            return
        yield from reply["nodes"]
        page = reply.get("continue")


def apply(kube: Kube, plan: Plan) -> Outcome:
    """Apply a plan to its Node, due or not."""
    return run_negotiation(plan, lambda request: _send(kube, request)[1])


def _send(kube: Kube, request: Request) -> tuple[Reply, Answer]:
    reply: Reply
    try:
        reply = kube(request)
    except Unavailable as error:
        reply = {"error": "helper", "message": str(error)}
    return reply, answer_of(reply)


def run_negotiation(plan: Plan, send: Callable[[Request], Answer]) -> Outcome:
    """Run `negotiate` to its end; `send` returns the answer to a request."""
    negotiation = negotiate(plan)
    try:
        request = next(negotiation)
        while True:
            request = negotiation.send(send(request))
    except StopIteration as end:
        return cast("Outcome", end.value)


def negotiate(plan: Plan) -> Generator[Request, Answer, Outcome]:
    """Apply a plan: yield requests, receive answers, return the outcome.

    A generator without I/O; it makes at least one request.
    """
    session = _Session(plan)
    failure = yield from session.apply(FAMILIES)
    return session.outcome(failure)


class _Session:
    """The state of a negotiation: the fields of manager `bwagent` on the Node, and the wanted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.managed = dict(plan.managed)  # on the Node, as of the last accepted request
        self.wanted = dict(plan.wanted)
        self.requests = 0
        self.namings = 0
        self.node: Node | None = None
        self.refused: dict[Field, Refusal] = {}
        self.back_off: set[str] = set()
        self.left_alone = list(plan.left_alone)
        self.taken: dict[Field, str] = {}  # with the previous manager
        self.lost: set[Field] = set()  # managed in the plan, another manager's since

    def apply(self, families: tuple[str, ...]) -> Generator[Request, Answer, Failure | None]:
        """Apply the changes of these families except refused keys; return the failure, if any.

        A denial that names keys takes them out of the request, and the rest is sent again. One that
        names none is narrowed down by family.

        Example: `P/flavor` and `IB/speed.current` change, a policy denies "P/flavor". The second
        request carries the new speed and the Node's old flavor.
        """
        answer = yield from self.send(families)
        while answer.denied:
            named = self.named(answer, families)
            if not named:
                return (yield from self.apply_each(families, answer))
            self.namings += 1
            self.refuse(named, answer, {field.key for field in named})
            if not self.changes(families):
                return None
            answer = yield from self.send(families)
        return None if answer.accepted else failure_of(answer, self.plan.node)

    def apply_each(
        self, families: tuple[str, ...], denial: Answer
    ) -> Generator[Request, Answer, Failure | None]:
        """Apply each of these families by itself after a denial that names no key.

        With one family left, all of its changes are refused; with none, the denial is a failure.

        Example: a policy denies "labels of *.coreweave.cloud". P, IB and the annotation are refused
        one after the other, the accelerator's key is applied.
        """
        changing = [family for family in families if self.changes((family,))]
        if not changing:
            return failure_of(denial, self.plan.node)
        if len(changing) == 1:
            self.refuse(self.changes(families), denial, set(changing))
            return None
        for family in changing:
            failure = yield from self.apply((family,))
            if failure:
                return failure
        return None

    def send(self, families: tuple[str, ...]) -> Generator[Request, Answer, Answer]:
        """Send the changes of these families; return the last answer.

        The request is repeated after a 401, and after a conflict without the fields that are left
        to their managers, with force if others are to be taken over.

        Example: kubectl-edit has set `P/flavor`. The answer is 409 without force, 200 with it.
        """
        answer, force = Answer(), False
        unauthorized = conflicts = 0
        while unauthorized < MAX_UNAUTHORIZED and conflicts < MAX_CONFLICTS:
            fields = self.fields(families)
            answer = yield self.request(fields, force=force)
            self.requests += 1
            if answer.accepted:
                self.managed, self.node = fields, answer.node
            if answer.status == 401:
                unauthorized += 1
            elif answer.conflicts:
                conflicts += 1
                force = self.yield_fields(answer.conflicts, families) or force
            else:
                break
        return answer

    def fields(self, families: tuple[str, ...]) -> dict[Field, str]:
        """Return the fields of a request: as wanted in these families, unchanged in the others."""
        changes = self.changes(families)
        fields = {field: value for field, value in self.managed.items() if field not in changes}
        return fields | {field: self.wanted[field] for field in changes if field in self.wanted}

    def request(self, fields: Mapping[Field, str], *, force: bool) -> Request:
        """Return the request that makes these the fields of manager `bwagent`."""
        document = body(self.plan, fields)
        return {"operation": "apply", "node": self.plan.node, "body": document, "force": force}

    def changes(self, families: tuple[str, ...]) -> set[Field]:
        """Return the fields of these families that are to change."""
        return {
            field
            for field in self.managed.keys() | self.wanted.keys()
            if self.managed.get(field) != self.wanted.get(field)
            and self.plan.keys.family(field) in families
        }

    def yield_fields(self, conflicts: Iterable[Cause], families: tuple[str, ...]) -> bool:
        """Drop fields owned by other managers; return True if the rest needs force=true."""
        needs_force = False
        for cause in conflicts:
            field = _field(cause.field)
            if self.may_take(field, families):
                self.taken[field] = cause.manager
                needs_force = True
            else:
                self.skip(field, cause)
        return needs_force

    def may_take(self, field: Field, families: tuple[str, ...]) -> bool:
        """Return True for a key of the label table that the request means to set.

        Never for the accelerator's key, nor for a field that is only carried along.
        """
        family = self.plan.keys.family(field)
        carried = field in self.refused or field.key in self.plan.postponed
        return field in self.wanted and family in families and family != ACC and not carried

    def skip(self, field: Field, cause: Cause) -> None:
        """Leave a field to its other manager."""
        wanted = self.wanted.pop(field, None)
        if self.managed.pop(field, None) is not None:
            self.lost.add(field)
        self.left_alone.append(ForeignField(field.key, None, wanted, (cause.manager,)))

    def named(self, denial: Answer, families: tuple[str, ...]) -> set[Field]:
        """Return the changes that a denial names.

        Empty if it names all changes of several families, which tells no more than naming none, and
        after MAX_NAMINGS denials.
        """
        if self.namings >= MAX_NAMINGS:
            return set()
        changes = self.changes(families)
        named = {field for field in changes if denial.names(field.key)}
        changing = {self.plan.keys.family(field) for field in changes}
        return set() if named == changes and len(changing) > 1 else named

    def refuse(self, fields: Iterable[Field], denial: Answer, back_off: AbstractSet[str]) -> None:
        """Keep the Node's values of these fields."""
        self.back_off |= back_off
        for field in fields:
            text = one_line(denial.message) or f"status {denial.status}"
            self.refused[field] = Refusal(field.key, denial.status, text)
            self.wanted.pop(field, None)
            if field in self.managed:
                self.wanted[field] = self.managed[field]

    def outcome(self, failure: Failure | None) -> Outcome:
        """Return the changes made since the plan, with their circumstances."""
        return Outcome(
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
        before = self.plan.on_node
        return {
            field.key: value
            for field, value in sorted(self.managed.items())
            if field.kind == LABEL and before.get(field) != value
        }

    def _removed(self) -> tuple[str, ...]:
        gone = self.plan.managed.keys() - self.managed.keys() - self.plan.shared - self.lost
        return tuple(sorted(field.key for field in gone if field.kind == LABEL))

    def _taken(self) -> tuple[Taken, ...]:
        if not self.node:
            return ()
        taken = sorted(self.taken.items())
        return tuple(Taken(field.key, by) for field, by in taken if field in self.managed)

    def _with_value(self, foreign: ForeignField) -> ForeignField:
        """Add the value from the last response: a conflict names the field's manager only."""
        if foreign.value is not None or self.node is None:
            return foreign
        fields = state_of(self.node).fields
        return replace(foreign, value=fields.get(Field(LABEL, foreign.key)))


def _field(path: str) -> Field:
    """Return the field that a cause names, `.metadata.labels.KEY`."""
    kind, _, key = path.removeprefix(".").removeprefix("metadata.").partition(".")
    return Field(kind, key)
