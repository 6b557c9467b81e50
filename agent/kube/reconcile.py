"""One reconciliation of the Node: get it if needed, plan, apply.

Invariants:
- The Node is as in the last accepted response. It is read at the start and after a failure only, so
  a healthy agent makes one request an hour, which finds drift as well.
- A 429 changed nothing, so do not GET again: that would double the load on an overloaded server.
- A reconciliation takes as long as the API server does. It runs in a thread
  (agent/daemon/background.py) and shares no state with the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
        kube = _Recorded(self.kube)
        result = self._reconcile(kube, node, desired, always=always)
        return replace(result, codes=tuple(kube.codes))

    def _reconcile(
        self, kube: Kube, node: Node | None, desired: Desired | None, *, always: bool
    ) -> Result:
        found = node or get_node(kube, self.name)
        if isinstance(found, Failure):
            return Result(None, failure=found)
        if desired is None:
            return Result(found)
        return self._update(kube, found, desired, always=always)

    def _update(self, kube: Kube, node: Node, desired: Desired, *, always: bool) -> Result:
        todo = plan(node, desired, self.keys)
        if self.dry_run or not (todo.due or always):
            return Result(node, todo)
        outcome = apply(kube, todo)
        return Result(_after(outcome, node), todo, outcome, outcome.failure)


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


def _after(outcome: Outcome, before: Node) -> Node | None:
    """Return the Node after an outcome; None if it has to be read again."""
    if outcome.failure and outcome.failure.kind != "busy":
        return None
    return outcome.node or before
