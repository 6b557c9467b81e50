"""The Node behind the API server's door: look at it, apply a plan to it, list those that carry labels of ours.

The law of this module: the door is a callable from the helper's request to its answer (agent/helper/main.py, `kube`),
and a door that is shut is an answer, too. Who asks gets what it asked for, or a `Failure` to act upon; nothing waits
or tries later here, but for the token, which is read anew for each request and so is worth a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.kube.apply import converse
from agent.kube.plan import body
from agent.kube.response import Answer, Failure, answer_of, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.kube.apply import Outcome, Request
    from agent.kube.plan import Plan

Told = Mapping[str, Any]
Kube = Callable[[Told], Told]  # Unavailable where nothing comes back


def look(kube: Kube, node: str) -> Told | Failure:
    """The Node as the API server has it, its metadata only."""
    told, answer = _ask(kube, {"operation": "get", "node": node})
    if answer.status == 401:
        told, answer = _ask(kube, {"operation": "get", "node": node})
    return told["node"] if answer.accepted else failure_of(answer, node)


def apply(kube: Kube, plan: Plan) -> Outcome:
    """Apply a plan to its Node, whether it is due or not."""

    def ask(request: Request) -> Answer:
        document = body(plan, request.labels, request.annotations)
        operation = {
            "operation": "apply",
            "node": plan.node,
            "body": document,
            "force": request.force,
        }
        return _ask(kube, operation)[1]

    return converse(plan, ask)


def nodes(kube: Kube) -> Iterator[Told | Failure]:
    """Every Node that manager `bwagent` wrote on; a failure is the last. Needs `list` on nodes, a person's right."""
    further: str | None = ""
    while further is not None:
        told, answer = _ask(kube, {"operation": "list", "continue": further})
        if answer.status != 200 or answer.error:
            yield failure_of(answer, "*")
            return
        yield from told["nodes"]
        further = told.get("continue")


def _ask(kube: Kube, operation: Told) -> tuple[Told, Answer]:
    try:
        told = kube(operation)
    except Unavailable as error:
        told = {"error": "helper", "message": str(error)}
    return told, answer_of(told)
