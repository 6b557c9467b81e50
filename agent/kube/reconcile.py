"""One attempt to make the Node say what it should: what the agent does with the API server, from end to end.

The law of this module: the Node is what the last accepted answer said it is. It is looked at where there is no such
answer, at the start and after anything went wrong; so an agent whose node is well makes one request an hour, and drift
is found by that. What an API server was too busy for has changed nothing: after it the Node is not looked at, or all
whom it sends away would come back with two requests for one. An attempt takes as long as the API server takes, so it is
for a thread (agent/daemon/background.py) and shares nothing with the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube.plan import Desired, plan
from agent.kube.requests import apply, look
from agent.kube.response import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kube.annotation import Annotation
    from agent.kube.apply import Outcome
    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan
    from agent.kube.requests import Kube, Told

NEVER_STALE = (
    2.0**53
)  # seconds since the epoch, behind every annotation: its age is the pacer's concern


@dataclass(frozen=True, slots=True)
class Wish:
    """How the Node should be."""

    labels: Mapping[str, str]
    told: Annotation
    backed_off: frozenset[str] = frozenset()
    always: bool = False  # make a request though nothing has changed


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it."""

    node: Told | None  # as it is now; None: nobody knows
    plan: Plan | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    codes: tuple[int | None, ...] = ()  # the HTTP status of each request


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Speaks for one Node; a dry run reads and plans only."""

    kube: Kube
    name: str
    keys: Keys
    dry_run: bool = False

    def attempt(self, node: Told | None, wish: Wish | None) -> Result:
        """Make the Node as it is wished, or only look at it; `node` is what it said last."""
        codes: list[int | None] = []

        def kube(operation: Told) -> Told:
            try:
                told = self.kube(operation)
            except Unavailable:
                codes.append(None)
                raise
            codes.append(told.get("status"))
            return told

        found = node or look(kube, self.name)
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


def _after(outcome: Outcome, before: Told) -> Told | None:
    """The Node as it is now."""
    if outcome.failure and outcome.failure.kind != "busy":
        return None
    return outcome.node or before
