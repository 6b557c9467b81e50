"""One reconciliation of the Node: get it if needed, plan, apply.

Invariants:
- The Node is as in the last accepted response. It is read at the start, on SIGHUP, after a refusal
  and after a failure only, so a healthy agent makes one request an hour, which finds drift as well.
- Fields of manager `bwagent` outside the label table may be another agent's, and are never taken
  from an earlier response: with them on the Node, each apply is preceded by a GET.
- The same applies to an annotation with lost interfaces, which `bwagent cleanup --lost` may have
  removed since.
- After a 429 or 5xx the Node is as known, so do not GET again: that would double the load on an
  overloaded server. (If a PATCH was applied nevertheless, the same one is applied once more.)
- A reconciliation takes as long as the API server does. It runs in a thread
  (agent/daemon/background.py) and shares no state with the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.kube.errors import Failure
from agent.kube.negotiation import apply, get_node
from agent.kube.plan import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.kube.managed_fields import Keys, Node
    from agent.kube.negotiation import Outcome
    from agent.kube.plan import Desired, Plan
    from agent.kube.transport import Kube, Reply, Request


SUCCESSES = (200, 201)
REFUSALS = (400, 403, 409, 422)  # the Node may be another one than known


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconciliation."""

    node: Node | None  # as it is now; None: unknown
    plan: Plan | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    codes: tuple[int | None, ...] = ()  # the HTTP status of each request; None: no response


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciles one Node; a dry run reads and plans only."""

    kube: Kube
    name: str
    keys: Keys
    dry_run: bool = False

    def reconcile(
        self, node: Node | None, desired: Desired | None, *, always: bool = False
    ) -> Result:
        """Make the Node as desired, or only get it (None).

        `node` is the Node of the last result. With `always`, a request is made though nothing
        changed, to refresh the annotation and repair drift.
        """
        kube = _Recorded(self.kube)
        result = self._reconcile(kube, node, desired, always=always)
        return replace(result, codes=tuple(kube.codes))

    def _reconcile(
        self, kube: _Recorded, node: Node | None, desired: Desired | None, *, always: bool
    ) -> Result:
        found = node or get_node(kube, self.name)
        if isinstance(found, Failure):
            return Result(None, failure=found)
        if desired is None:
            return Result(found)
        todo = plan(found, desired, self.keys)
        if self.dry_run or not (todo.due or always):
            return Result(found, todo)
        if node and (todo.outside or desired.annotation.lost):
            return self._reconcile(kube, None, desired, always=always)
        return _apply(kube, found, todo, is_current=node is None)


class _Recorded:
    """A Kube that keeps the status of each reply; None for no reply."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.codes: list[int | None] = []

    def __call__(self, request: Request) -> Reply:
        reply: Reply = {}
        try:
            reply = self.kube(request)
        finally:
            self.codes.append(reply.get("status"))
        return reply


def _apply(kube: _Recorded, node: Node, todo: Plan, *, is_current: bool) -> Result:
    outcome = apply(kube, todo, is_current=is_current)
    is_known = not _is_refused(kube.codes) and _is_known(outcome.failure)
    after = outcome.node or node if is_known else None
    return Result(after, outcome.plan, outcome, outcome.failure)


def _is_refused(codes: Sequence[int | None]) -> bool:
    """Return True after a refusal that neither a GET nor an accepted PATCH followed."""
    decisive = [code for code in codes if code in SUCCESSES or code in REFUSALS]
    return bool(decisive) and decisive[-1] in REFUSALS


def _is_known(failure: Failure | None) -> bool:
    """Return True unless the Node may be another one than before a failure."""
    return failure is None or failure.kind in ("busy", "server")
