"""Conditions: states that last. A log line marks the beginning, each change, and the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from agent.kube.answers import ANOTHER_HOST, Failure
from agent.kube.change import ForeignField
from agent.kube.negotiation import Refusal
from agent.kube.ownership import managers_text
from agent.kube.policy import ACCEPTED, INSTALL, PolicyState
from agent.kube.reconcile import Result
from agent.model import Problem
from agent.telemetry.log import Log, Value


class MetricsServer(Protocol):
    """The metrics server (agent/telemetry/server.py)."""

    fault: str  # the reason why its address is waited for, or empty

    @property
    def certificate_fault(self) -> str:
        """The reason why changed certificates are not used, or empty."""


class Condition(NamedTuple):
    """A state that lasts, by the message of its beginning and its subject.

    Both together limit its lines in the log: several conditions may have the Node as subject.
    """

    begin: str  # message
    end: str  # message
    fields: tuple[tuple[str, Value], ...]  # the first is the subject

    @property
    def identity(self) -> tuple[str, Value]:
        """The part that stays as it is while the other fields change."""
        return self.begin, self.fields[0][1]


class ConditionLog:
    """Logs the conditions that began, changed or ended."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._logged: dict[tuple[str, Value], Condition] = {}

    def update(self, conditions: Iterable[Condition]) -> None:
        """Take over all present conditions."""
        before = self._logged
        self._logged = {condition.identity: condition for condition in conditions}
        for identity, condition in before.items():
            if identity not in self._logged:
                self._log.info(condition.end, str(identity), **dict([condition.fields[0]]))
        for identity, condition in self._logged.items():
            if before.get(identity) != condition:
                self._log.warning(condition.begin, str(identity), **dict(condition.fields))


def of_flapping(interfaces: Iterable[str]) -> list[Condition]:
    """Return a condition per flapping port."""
    reason = "five changes in ten minutes: changes of its labels wait up to two minutes"
    return [
        Condition("port flapping", "port steady", (("interface", name), ("reason", reason)))
        for name in interfaces
    ]


def of_problems(problems: Iterable[Problem]) -> list[Condition]:
    """Return one condition per source and subject; several texts of a subject are joined."""
    texts: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        text = f"{problem.error}: {problem.text}" if problem.error else problem.text
        texts.setdefault((problem.source, problem.subject), []).append(text)
    return [
        Condition(
            f"{source} problem",
            f"{source} problem resolved",
            (("subject", subject), ("reason", "; ".join(reasons))),
        )
        for (source, subject), reasons in texts.items()
    ]


def of_monitors(unavailable: Mapping[str, str]) -> list[Condition]:
    """Return a condition for each event monitor that has a reason for being unavailable."""
    return [
        Condition(
            "events unavailable, polling instead",
            "events available again",
            (("monitor", name), ("reason", reason)),
        )
        for name, reason in unavailable.items()
        if reason
    ]


def of_server(server: MetricsServer | None) -> list[Condition]:
    """Return the conditions of the metrics server: no address yet, certificates that do not fit."""
    if server is None:
        return []
    return [
        *_of_flag("--metrics-address", "metrics address", "available", server.fault),
        *_of_flag("--metrics-cert", "metrics certificate", "reloaded", server.certificate_fault),
    ]


def of_plan(fault: str | None) -> list[Condition]:
    """Return the condition of plan files that are not in use as they are now."""
    return _of_flag("--plan", "plan", "read", fault)


def _of_flag(flag: str, subject: str, state: str, reason: str | None) -> list[Condition]:
    fields = (("flag", flag), ("reason", reason))
    return [Condition(f"{subject} not {state}", f"{subject} {state}", fields)] if reason else []


def of_node(node: str, failure: Failure | None) -> list[Condition]:
    """Return the condition of a Node that is another host."""
    if not (failure and failure.kind == ANOTHER_HOST):
        return []
    reason = f"{failure.text.removeprefix(f'Node {node}: ')}; nothing is written"
    fields = (("node", node), ("reason", reason))
    return [Condition("node is another host", "node is this host", fields)]


def of_policy(node: str, state: PolicyState, *, in_force: bool | None) -> list[Condition]:
    """Return the conditions of the last check, and of the last check that had a result."""
    conditions = []
    if in_force is False:
        fields = (("node", node), ("reason", ACCEPTED), ("run", INSTALL))
        conditions.append(Condition("policy not in force", "policy in force", fields))
    if state.in_force is None:
        reason = state.text.removeprefix(f"Node {node}: ")
        unknown = (("node", node), ("reason", reason))
        conditions.append(Condition("policy not checked", "policy checked", unknown))
    return conditions


class SecondAgent:
    """A second agent that writes the same keys of the Node: found twice within WINDOW seconds.

    Once may be `bwagent probe` or `cleanup --lost`, which write as the same manager.
    """

    WINDOW = 3600.0

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()  # that both write
        self._rewrites: list[tuple[float, tuple[str, ...]]] = []

    def looked(self, rewritten: tuple[str, ...], now: float) -> None:
        """Take the keys that a look at the Node has found rewritten."""
        rewrites = [*self._rewrites, (now, rewritten)] if rewritten else self._rewrites
        self._rewrites = [rewrite for rewrite in rewrites if now - rewrite[0] < self.WINDOW]
        if len(self._rewrites) < 2:
            self.keys = ()
        elif not self.keys:  # one line, whichever of them follow
            self.keys = tuple(sorted({key for _, keys in self._rewrites for key in keys}))

    def conditions(self) -> list[Condition]:
        """Return the condition, if there is a second agent."""
        if not self.keys:
            return []
        fields = (("count", len(self.keys)), ("first", self.keys[0]))
        end = "no second agent writes these labels any more"
        return [Condition("a second agent writes these labels", end, fields)]


def of_result(result: Result, refusals: Iterable[Refusal]) -> list[Condition]:
    """Return the conditions of labels that the Node has not as planned."""
    change, outcome = result.change, result.outcome
    if change is None:
        return []
    conditions = of_problems(change.problems)
    for refusal in refusals:
        refused = (("key", refusal.key), ("status", refusal.status), ("reason", refusal.text))
        conditions.append(Condition("label refused", "label no longer refused", refused))
    for left in (outcome or change).left_alone:
        owned = (("key", left.key), ("owner", managers_text(left.managers)), ("value", left.value))
        conditions.append(
            Condition("label left to its owner", "label no longer left to its owner", owned)
        )
    by_owner: dict[str, list[ForeignField]] = {}
    for foreign in change.foreign:
        by_owner.setdefault(managers_text(foreign.managers), []).append(foreign)
    for owner, held in by_owner.items():
        first = f"{held[0].key}={held[0].value}"
        fields = (("owner", owner), ("count", len(held)), ("first", first))
        conditions.append(
            Condition("labels not published", "labels not published are gone", fields)
        )
    return conditions
