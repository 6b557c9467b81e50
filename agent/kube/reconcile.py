"""One reconciliation of the Node: get it if needed, plan, apply.

Invariants:
- The Node is as in the last accepted response. It is read at the start and after a failure only, so
  a healthy agent makes one request an hour, which finds drift as well.
- A 429 changed nothing, so do not GET again: that would double the load on an overloaded server.
- A reconciliation takes as long as the API server does. It runs in a thread
  (agent/daemon/background.py) and shares no state with the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube.apply import apply, get_node
from agent.kube.plan import Desired, plan
from agent.kube.response import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kube.annotation import Annotation
    from agent.kube.apply import Json, Kube, Outcome
    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan

NEVER_STALE = 2.0**53  # seconds since the epoch, after every annotation: the schedule knows its age


@dataclass(frozen=True, slots=True)
class Wish:
    """The labels and the annotation that the Node should have."""

    labels: Mapping[str, str]
    told: Annotation
    backed_off: frozenset[str] = frozenset()
    always: bool = False  # make a request though nothing has changed


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconciliation."""

    node: Json | None  # as it is now; None: unknown
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

    def reconcile(self, node: Json | None, wish: Wish | None) -> Result:
        """Make the Node as desired, or only get it.

        `node` is the Node of the last result.
        """
        codes: list[int | None] = []

        def kube(request: Json) -> Json:
            try:
                reply = self.kube(request)
            except Unavailable:
                codes.append(None)
                raise
            codes.append(reply.get("status"))
            return reply

        found = node or get_node(kube, self.name)
        if isinstance(found, Failure):
            return Result(None, failure=found, codes=tuple(codes))
        if wish is None:
            return Result(found, codes=tuple(codes))
        desired = Desired(wish.labels, wish.told, wish.backed_off, math.inf)
        todo = plan(found, desired, self.keys, NEVER_STALE)
        if self.dry_run or not (todo.due or wish.always):
            return Result(found, todo, codes=tuple(codes))
        outcome = apply(kube, todo)
        return Result(_after(outcome, found), todo, outcome, outcome.failure, tuple(codes))


def _after(outcome: Outcome, before: Json) -> Json | None:
    """Return the Node after an outcome; None if it has to be read again."""
    if outcome.failure and outcome.failure.kind != "busy":
        return None
    return outcome.node or before
