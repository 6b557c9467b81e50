"""Server-side apply of a plan: the negotiation with the API server, and the requests.

One request carries all fields of manager `bwagent`. A field that the server refuses keeps the
Node's value, and the request is sent again: leaving an owned field out would remove it.

    200                     done
    409 naming fields       they have other managers: the accelerator's key is left to them, the
                            others are taken over (force)
    409 about the version   the Node has changed: it is read again
    409, 422 about the uid  the Node was deleted or recreated: the caller has to get it again
    400, 403, 422           a refusal: of the keys that it names; if it names none, each family of
                            keys is applied by itself
    401                     sent once more: the helper reads the token again for each request
    any other               no key is the cause; agent/kube/errors.py has the reason

Invariants:
- The Node may have changed since the plan was made. Before the first refusal or conflict is acted
  on, it is read again, and sent anew if that changes the request; one read serves all later steps.
- `force` is per request and not per key, so the accelerator's key is settled before it is used, and
  each request starts without it.
- What was accepted before a failure stays: an outcome may have both changes and a failure.
- Refused keys are in `Outcome.back_off`, for later plans to leave unchanged for a while.

Sources: KEP-555 (server-side apply), meta/v1 Status.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from agent.errors import Unavailable
from agent.kube.errors import Answer, Failure, answer_of, failure_of
from agent.kube.managed_fields import FAMILIES
from agent.kube.session import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent.kube.managed_fields import Node
    from agent.kube.plan import Plan
    from agent.kube.session import Families, Outcome, Session
    from agent.kube.transport import Kube, Reply, Request

    # Generators that yield requests and receive answers, by what they return.
    Negotiating = Generator[Request, Answer, Outcome]
    Applying = Generator[Request, Answer, Failure | None]
    Sending = Generator[Request, Answer, Answer]
    Reading = Generator[Request, Answer, Answer | None]

MAX_CONFLICTS = 4  # requests that end in a conflict, since others may write all the time
MAX_UNAUTHORIZED = 2


def get_node(kube: Kube, name: str) -> Node | Failure:
    """Get the metadata of a Node."""
    answer = exchange(kube, {"operation": "get", "node": name})
    return answer.node if answer.accepted and answer.node else failure_of(answer, name)


def exchange(kube: Kube, request: Request) -> Answer:
    """Send a request that needs no negotiation, once more after a 401; return the answer."""
    reply = reply_of(kube, request)
    if reply.get("status") == 401:
        reply = reply_of(kube, request)
    return answer_of(reply)


def list_nodes(kube: Kube) -> Iterator[Node | Failure]:
    """Yield every Node; a failure comes last.

    Needs the right to `list` nodes, which the agent's ClusterRole does not give.
    """
    page: str | None = ""
    while page is not None:
        reply = reply_of(kube, {"operation": "list", "continue": page})
        answer = answer_of(reply)
        if answer.status != 200 or answer.error:
            yield failure_of(answer, "*")
            return
        yield from reply["nodes"]
        page = reply.get("continue")


def apply(kube: Kube, plan: Plan, *, is_current: bool = True) -> Outcome:
    """Apply a plan to its Node, due or not; `is_current` if the Node was just read for it."""

    def send(request: Request) -> Answer:
        return answer_of(reply_of(kube, request))

    return run_negotiation(plan, send, is_current=is_current)


def reply_of(kube: Kube, request: Request) -> Reply:
    """Send a request; the absence of a reply becomes one with an error of kind `helper`."""
    try:
        return kube(request)
    except Unavailable as error:
        return {"error": "helper", "message": str(error)}


def run_negotiation(
    plan: Plan, send: Callable[[Request], Answer], *, is_current: bool = True
) -> Outcome:
    """Run `negotiate` to its end; `send` returns the answer to a request."""
    negotiation = negotiate(plan, is_current=is_current)
    try:
        request = next(negotiation)
        while True:
            request = negotiation.send(send(request))
    except StopIteration as end:
        return cast("Outcome", end.value)


def negotiate(plan: Plan, *, is_current: bool = True) -> Negotiating:
    """Apply a plan: yield requests, receive answers, return the outcome.

    A generator without I/O; it makes at least one request.
    """
    session = begin(plan, is_current=is_current)
    failure = yield from _apply(session, FAMILIES)
    return session.outcome(failure)


def _apply(session: Session, families: Families) -> Applying:
    """Apply the changes of these families except refused keys; return the failure, if any."""
    answer = yield from _send(session, families)
    if answer.denied:
        return (yield from _apply_less(session, families, answer))
    return None if answer.accepted else failure_of(answer, session.plan.node)


def _apply_less(session: Session, families: Families, denial: Answer) -> Applying:
    """Apply what a denial leaves of these families.

    The keys that it names are refused, and the rest is sent again. If it names none, it is narrowed
    down by family.

    Example: `P/flavor` and `IB/speed.current` change, a policy denies "P/flavor". The second
    request carries the new speed and the Node's old flavor.
    """
    named = session.named(denial, families)
    if not named:
        return (yield from _apply_each(session, families, denial))
    session.refuse_named(named, denial)
    if not session.changes(families):
        return None
    return (yield from _apply(session, families))


def _apply_each(session: Session, families: Families, denial: Answer) -> Applying:
    """Apply each of these families by itself after a denial that names no key.

    With one family left, all of its changes are refused; with none, the denial is a failure.

    Example: a policy denies "labels of *.coreweave.cloud". P, IB and the annotation are refused one
    after the other, the accelerator's key is applied.
    """
    changing = session.changing(families)
    if not changing:
        return failure_of(denial, session.plan.node)
    if len(changing) == 1:
        session.refuse_family(changing[0], denial)
        return None
    return (yield from _apply_in_turn(session, changing))


def _apply_in_turn(session: Session, families: Families) -> Applying:
    """Apply one family after the other, up to the first failure."""
    for family in families:
        failure = yield from _apply(session, (family,))
        if failure:
            return failure
    return None


def _send(session: Session, families: Families) -> Sending:
    """Send the changes of these families; return the last answer.

    The request is repeated after a 401, and after a conflict without the fields that are left to
    their managers, with force if others are to be taken over.

    Example: kubectl-edit has set `P/flavor`. The answer is 409 without force, 200 with it.
    """
    force, answers = False, Counter[int | None]()
    while True:
        answer = yield from _send_once(session, families, force=force)
        force = session.resolve(answer.conflicts, families) or force
        answers[answer.status] += 1
        if answers[answer.status] >= _max_requests(answer):
            return answer


def _send_once(session: Session, families: Families, *, force: bool) -> Sending:
    fields = session.fields(families)
    request = session.request(fields, force=force)
    answer = yield request
    session.record(answer, fields)
    if not session.is_outdated(answer):
        return answer
    failure = yield from _read(session)
    if failure:
        return failure
    again = session.request(session.fields(families), force=force)
    return answer if again == request else (yield from _send_once(session, families, force=False))


def _read(session: Session) -> Reading:
    """Read the Node, and plan for it; return the answer if that fails."""
    answer = yield {"operation": "get", "node": session.plan.node}
    session.requests += 1
    if answer.accepted and answer.node is not None:
        session.read(answer.node)
        return None
    return replace(answer, error=failure_of(answer, session.plan.node).kind)


def _max_requests(answer: Answer) -> int:
    """Return the number of requests that may end in such an answer before it is final."""
    if answer.conflicts:
        return MAX_CONFLICTS
    return MAX_UNAUTHORIZED if answer.status == 401 else 1
