"""An API server as far as labels go, in memory: it answers the requests of a negotiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.kube.answers import Answer, Cause, Kube, Request
from agent.kube.managed_fields import Node
from agent.kube.plan import Plan, plan
from tests.support.nodes import KEYS, desired, node


@dataclass(slots=True)
class Server:
    """The keys of manager `bwagent`, those of other managers, and the keys that are refused."""

    ours: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    denies: Callable[[str], bool] = lambda _: False
    names: bool = False  # its denials name the keys
    first: list[Answer] = field(default_factory=list)  # given before it does anything
    requests: list[Request] = field(default_factory=list)
    mutates: Mapping[str, str | None] = field(default_factory=dict)  # values that a webhook sets

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        if request["operation"] == "get":
            return Answer(200, node=self.node())
        if self.first:
            return self.first.pop(0)
        asked = labels_in(request) | annotations_in(request)
        conflicts = [key for key, value in asked.items() if self.others.get(key, value) != value]
        if conflicts and not request["force"]:
            return conflict(*conflicts)
        either = asked.keys() | self.ours.keys()
        changes = {key for key in either if asked.get(key) != self.ours.get(key)}
        if denied := sorted(filter(self.denies, changes)):
            named = f"the policy denies: {', '.join(denied)}"
            return denial(named if self.names else "labels of *.coreweave.cloud: no")
        self.others = {
            key: value for key, value in self.others.items() if asked.get(key, value) == value
        }
        stored = {key: self.mutates.get(key, value) for key, value in asked.items()}
        self.ours = {key: value for key, value in stored.items() if value is not None}
        return Answer(200, node=node(self.labels()))

    def node(self) -> Node:
        """Return the Node with the managers of its fields."""
        theirs = {key: value for key, value in self.others.items() if key != KEYS.annotation}
        return node(self.labels(), {"kubectl-edit": theirs}, self.ours.get(KEYS.annotation))

    def labels(self) -> dict[str, str]:
        """Return the labels of manager `bwagent`."""
        return {key: value for key, value in self.ours.items() if key != KEYS.annotation}


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


def a_plan(ours: Mapping[str, str], wanted: Mapping[str, str], **changes: Any) -> Plan:
    """Return the plan for a Node with these labels and without an annotation."""
    return plan(node(ours, observed=None), desired(wanted, **changes), KEYS)


def replies(*answers: Answer) -> tuple[list[Request], Kube]:
    """Return a function that gives these answers, and the list of its requests."""
    left, requests = list(answers), []

    def kube(request: Request) -> Answer:
        requests.append(request)
        return left.pop(0)

    return requests, kube
