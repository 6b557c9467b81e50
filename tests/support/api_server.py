"""An API server as far as labels go, in memory: it answers the requests of a negotiation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.kube.answers import Answer, Cause, Kube, Request, read
from agent.kube.change import Change, change_to
from tests.support.nodes import KEYS, desired, node
from tests.support.server_side_apply import (
    ANNOTATIONS,
    LABELS,
    MANAGER,
    ApiServer,
    Key,
    Reply,
    status,
)

OTHER = "kubectl-edit"  # the other manager


@dataclass(slots=True)
class Server:
    """The API server by the answers of a session, in one negotiation."""

    api: ApiServer
    first: list[Answer] = field(default_factory=list)  # given before it does anything
    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.first and request["operation"] != "get":
            return self.first.pop(0)
        return ask(self.api, request)

    def labels(self) -> dict[str, str]:
        """Return the labels of manager `bwagent`."""
        return self.api.values(MANAGER, "Apply")

    @property
    def ours(self) -> dict[str, str]:
        """The labels of manager `bwagent`, and its annotation."""
        return self.labels() | self.api.values(MANAGER, "Apply", ANNOTATIONS)

    @property
    def others(self) -> dict[str, str]:
        """The labels of the other manager, and its annotation."""
        found = [self.api.values(OTHER, "Update", kind) for kind in (LABELS, ANNOTATIONS)]
        return found[0] | found[1]

    def update(self, key: str, value: str) -> None:
        """Change a label as the other manager."""
        self.api.update(OTHER, {(LABELS, key): value})


def holding(  # noqa: PLR0913 - what a server has
    ours: Mapping[str, str] = {},
    others: Mapping[str, str] = {},
    *,
    denies: Callable[[str], bool] = lambda _: False,
    names: bool = False,
    first: Sequence[Answer] = (),
    mutates: Mapping[str, str | None] = {},
) -> Server:
    """Return a server with the keys of manager `bwagent`, and of another that has changed them.

    A policy denies changes of keys, and its denials name them or not; a webhook sets values.
    """

    def refuse(changed: Collection[Key]) -> Reply | None:
        denied = sorted(name for _, name in changed if denies(name))
        named = f"the policy denies: {', '.join(denied)}"
        text = named if names else "labels of *.coreweave.cloud: no"
        return status(422, text, "Invalid") if denied else None

    api = ApiServer(refuses=[refuse], stores=lambda key, value: mutates.get(key[1], value))
    for manager, operation, values in ((MANAGER, "Apply", ours), (OTHER, "Update", others)):
        for kind, is_annotation in ((LABELS, False), (ANNOTATIONS, True)):
            mine = {k: v for k, v in values.items() if (k == KEYS.annotation) is is_annotation}
            api.hold(manager, operation, mine, kind)
    return Server(api, list(first))


def ask(api: ApiServer, request: Mapping[str, Any]) -> Answer:
    """Return what the agent's session makes of the response to a request."""
    response = api.handle(request)
    return read("get", response.status, response.headers, response.body)


def labels_in(request: Request) -> dict[str, str]:
    """Return the labels of a request."""
    return dict(request["body"]["metadata"].get("labels", {}))


def annotations_in(request: Request) -> dict[str, str]:
    """Return the annotations of a request."""
    return dict(request["body"]["metadata"].get("annotations", {}))


def operations(requests: list[Request]) -> list[str]:
    """Return the operation of each request."""
    return [request["operation"] for request in requests]


def conflict(*keys: str, manager: str = "kubectl-edit") -> Answer:
    """Return a 409 about keys of another manager."""
    causes = []
    for key in keys:
        kind = "annotations" if key == KEYS.annotation else "labels"
        message = f'conflict with "{manager}" using v1'
        causes.append(Cause("FieldManagerConflict", f".metadata.{kind}.{key}", message))
    return Answer(409, "Conflict", f"Apply failed with {len(keys)} conflicts", tuple(causes))


def denial(message: str, status: int = 422) -> Answer:
    """Return the refusal of an admission policy."""
    return Answer(status, "Invalid", message)


def a_change(ours: Mapping[str, str], wanted: Mapping[str, str], **changes: Any) -> Change:
    """Return the change for a Node with these labels and without an annotation."""
    return change_to(node(ours, observed=None), desired(wanted, **changes), KEYS)


def replies(*answers: Answer) -> tuple[list[Request], Kube]:
    """Return a function that gives these answers, and the list of its requests."""
    left, requests = list(answers), []

    def kube(request: Request) -> Answer:
        requests.append(request)
        return left.pop(0)

    return requests, kube
