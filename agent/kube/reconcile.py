"""One reconciliation of the Node: get it if needed, plan, apply.

Invariants:
- The Node is as in the last accepted response. It is read at the start and after a failure only, so
  a healthy agent makes one request an hour, which finds drift as well.
- A 429 changed nothing, so do not GET again: that would double the load on an overloaded server.
- A reconciliation takes as long as the API server does. It runs in a thread
  (agent/daemon/background.py) and shares no state with the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube.apply import apply, get_node
from agent.kube.errors import Failure
from agent.kube.plan import plan

if TYPE_CHECKING:
    from agent.kube.managed_fields import Keys, Node
    from agent.kube.plan import Desired, Plan
    from agent.kube.session import Outcome
    from agent.kube.transport import Kube, Reply, Request


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
        codes: list[int | None] = []
        kube = _counted(self.kube, codes)
        found = node or get_node(kube, self.name)
        if isinstance(found, Failure):
            return Result(None, failure=found, codes=tuple(codes))
        if desired is None:
            return Result(found, codes=tuple(codes))
        todo = plan(found, desired, self.keys)
        if self.dry_run or not (todo.due or always):
            return Result(found, todo, codes=tuple(codes))
        outcome = apply(kube, todo)
        return Result(_after(outcome, found), todo, outcome, outcome.failure, tuple(codes))


def _counted(kube: Kube, codes: list[int | None]) -> Kube:
    """Return a Kube that appends the status of each reply to `codes`; None for no reply."""

    def counted(request: Request) -> Reply:
        try:
            reply = kube(request)
        except Unavailable:
            codes.append(None)
            raise
        codes.append(reply.get("status"))
        return reply

    return counted


def _after(outcome: Outcome, before: Node) -> Node | None:
    """Return the Node after an outcome; None if it has to be read again."""
    if outcome.failure and outcome.failure.kind != "busy":
        return None
    return outcome.node or before
