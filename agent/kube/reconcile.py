"""One reconciliation of the Node: get it if needed, compare, apply.

Invariants:
- The Node is as in the last accepted response. It is read at the start, on SIGHUP, after a refusal
  and after a failure. A healthy agent makes one PATCH an hour, and looks at the Node every five
  minutes: in the API server's cache, which may be behind, so nothing is applied by a look alone.
- Fields of manager `bwagent` outside the label table may be another agent's, and are never taken
  from an earlier response: with them on the Node, each apply is preceded by a GET.
- The same applies to an annotation with lost interfaces, which `bwagent cleanup --lost` may have
  removed since.
- After a 429 or 5xx do not GET again: that would double the load on an overloaded server. The Node
  is as known, or as the PATCH that failed would have it, so the next PATCH is sent in any case
  (`always`), though the Node as known may need none by then.
- Of the `room` that a reconciliation has, in requests, no more are made. What is done by then is in
  the result, with the failure `no-room`.
- A reconciliation takes as long as the API server does. It runs in a thread
  (agent/daemon/background.py) and shares no state with the loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.kube.answers import NO_ROOM, SUCCESSES, Answer, Failure, Kube, Request, failure_of
from agent.kube.change import Change, Desired, change_to
from agent.kube.managed_fields import Keys, Node, state_of
from agent.kube.negotiation import Outcome, negotiate
from agent.kube.nodes import ask, get_node

IN_DOUBT = (400, 403, 409, 422)  # the Node may be another than the known Node
OVERLOADED = ("busy", "server")  # kinds of failure after which the Node is not read again


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconciliation."""

    node: Node | None  # as it is now; None: unknown
    change: Change | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    codes: tuple[int | None, ...] = ()  # the HTTP status of each request; None: no response
    rewritten: tuple[str, ...] = ()  # keys whose values another writer of manager bwagent changed
    is_read: bool = False  # the change is for the Node as these requests read it


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciles one Node; a dry run reads and compares only."""

    kube: Kube
    name: str
    keys: Keys
    dry_run: bool = False

    def reconcile(
        self,
        node: Node | None,
        desired: Desired | None,
        *,
        always: bool = False,
        is_current: bool = False,
        room: float = math.inf,
    ) -> Result:
        """Make the Node as desired, or only get it (None).

        `node` is the Node of the last result, or was just read (`is_current`). With `always`, a
        request is made though nothing changed, to refresh the annotation, to repair drift, and to
        settle what a failed request did.
        """
        codes: list[int | None] = []
        kube = _counted(self.kube, codes, room)
        before = node or get_node(kube, self.name)
        if isinstance(before, Failure):
            return Result(None, failure=before, codes=tuple(codes))
        if desired is None:
            return Result(before, codes=tuple(codes))
        todo = change_to(before, desired, self.keys)
        is_current = is_current or node is None
        if self.dry_run or not (todo.is_due or always):
            return Result(before, todo, codes=tuple(codes), is_read=is_current)
        if not is_current and (todo.outside or desired.annotation.lost):
            return self.reconcile(None, desired, always=always, room=room)
        outcome = negotiate(todo, kube, is_current=is_current)
        failure = outcome.failure
        after = outcome.node or before if _is_known(codes, failure) else None
        is_read = is_current or outcome.change is not todo  # renewed by a GET
        return Result(after, outcome.change, outcome, failure, tuple(codes), is_read=is_read)

    def look(self, known: Node | None, desired: Desired, *, room: float = math.inf) -> Result:
        """Read the Node from the API server's cache; if it is not as known, read it and apply.

        `known` is the Node of the last result: no other process writes as manager `bwagent`, unless
        a second agent runs there. The cache may be older than the agent's own last request, so what
        differs there is read again. An API server that is overloaded is not asked for more.
        """
        codes: list[int | None] = []
        kube = _counted(self.kube, codes, room)
        answer = ask(kube, {"operation": "get", "node": self.name, "cached": True})
        if answer.node is None:
            failure = failure_of(answer, self.name)
            node = known if failure.kind in OVERLOADED else None
            return Result(node, failure=failure, codes=tuple(codes))
        todo = change_to(answer.node, desired, self.keys)
        is_as_known = not (todo.is_due or (known and _rewritten(known, answer.node)))
        if self.dry_run or is_as_known:
            return Result(answer.node, todo, codes=tuple(codes))
        result = self.reconcile(None, None, room=room - len(codes))
        codes += result.codes
        if result.node is None:
            return replace(result, codes=tuple(codes))
        rewritten = _rewritten(known, result.node) if known else ()
        left = room - len(codes)
        result = self.reconcile(result.node, desired, is_current=True, room=left)
        return replace(result, codes=(*codes, *result.codes), rewritten=rewritten)


def _counted(kube: Kube, codes: list[int | None], room: float) -> Kube:
    """Return a Kube that adds the status of each request to `codes`, while there is room."""

    def ask_if_room(request: Request) -> Answer:
        if len(codes) >= room:
            return Answer(error=NO_ROOM, message=f"{len(codes)} were made")
        answer = kube(request)
        codes.extend([answer.status] * answer.requests)
        return answer

    return ask_if_room


def _is_known(codes: Sequence[int | None], failure: Failure | None) -> bool:
    """Return True if the Node is as known after requests with these status codes.

    A denial or conflict, with no GET or accepted PATCH after it, may be due to another Node.
    """
    decisive = [code for code in codes if code in SUCCESSES or code in IN_DOUBT]
    if decisive and decisive[-1] in IN_DOUBT:
        return False
    return failure is None or failure.kind in OVERLOADED


def _rewritten(before: Node, after: Node) -> tuple[str, ...]:
    """Return the keys of manager `bwagent` that have other values than before on the same Node."""
    old, new = state_of(before), state_of(after)
    if old.uid != new.uid:
        return ()
    both = old.managed & new.managed
    return tuple(
        sorted(field.key for field in both if old.fields.get(field) != new.fields.get(field))
    )
