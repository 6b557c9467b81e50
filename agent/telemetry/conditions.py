"""Conditions: states that last. A log line marks the beginning, each change, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent.kube.ownership import managers_text
from agent.kube.policy import ACCEPTED, INSTALL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.kube.negotiation import Refusal
    from agent.kube.plan import ForeignField
    from agent.kube.policy import PolicyState
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
        before, self._logged = self._logged, {one.identity: one for one in conditions}
        for identity, one in before.items():
            if identity not in self._logged:
                self._log.info(one.end, str(identity), **dict([one.fields[0]]))
        for identity, one in self._logged.items():
            if before.get(identity) != one:
                self._log.warning(one.begin, str(identity), **dict(one.fields))


def of_problems(problems: Iterable[Problem]) -> list[Condition]:
    """Return one condition per source and subject; several texts of one are joined."""
    texts: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        text = f"{problem.error}: {problem.text}" if problem.error else problem.text
        texts.setdefault((problem.source, problem.subject), []).append(text)
    return [_problem(*subject, "; ".join(found)) for subject, found in texts.items()]


def of_monitors(unavailable: Mapping[str, str]) -> list[Condition]:
    """Return a condition for each event monitor that has a reason for being unavailable."""
    return [_unavailable(name, reason) for name, reason in unavailable.items() if reason]


def of_server(server: MetricsServer | None) -> list[Condition]:
    """Return the conditions of the metrics server: no address yet, certificates that do not fit."""
    if server is None:
        return []
    found = (
        _of_flag("--metrics-address", "metrics address", "available", server.fault),
        _of_flag("--metrics-cert", "metrics certificate", "reloaded", server.certificate_fault),
    )
    return [one for one in found if one]


def of_plan(fault: str | None) -> list[Condition]:
    """Return the condition of plan files that are not in use as they are now."""
    found = _of_flag("--plan", "plan", "read", fault or "")
    return [found] if found else []


def of_policy(node: str, state: PolicyState, *, in_force: bool | None) -> list[Condition]:
    """Return the conditions of the last check, and of the last one that had a result."""
    found = []
    if in_force is False:
        fields = (("node", node), ("reason", ACCEPTED), ("run", INSTALL))
        found.append(Condition("policy not in force", "policy in force", fields))
    if state.in_force is None:
        reason = state.text.removeprefix(f"Node {node}: ")
        unknown = (("node", node), ("reason", reason))
        found.append(Condition("policy not checked", "policy checked", unknown))
    return found


def _of_flag(flag: str, subject: str, state: str, reason: str) -> Condition | None:
    fields = (("flag", flag), ("reason", reason))
    return Condition(f"{subject} not {state}", f"{subject} {state}", fields) if reason else None


def of_result(result: Result, refusals: Iterable[Refusal]) -> list[Condition]:
    """Return the conditions of labels that the Node has not as planned."""
    plan, outcome = result.plan, result.outcome
    if plan is None:
        return []
    return [
        *of_problems(plan.problems),
        *map(_refused, refusals),
        *(_left_alone(foreign) for foreign in (outcome or plan).left_alone),
        *_foreign(plan.foreign),
    ]


def _problem(source: str, subject: str, reason: str) -> Condition:
    fields = (("subject", subject), ("reason", reason))
    return Condition(f"{source} problem", f"{source} problem resolved", fields)


def _unavailable(name: str, reason: str) -> Condition:
    return Condition(
        "events unavailable, polling instead",
        "events available again",
        (("monitor", name), ("reason", reason)),
    )


def _refused(refusal: Refusal) -> Condition:
    fields = (("key", refusal.key), ("status", refusal.status), ("reason", refusal.text))
    return Condition("label refused", "label no longer refused", fields)


def _foreign(keys: Iterable[ForeignField]) -> list[Condition]:
    """Return a condition for each manager of labels that the agent does not publish."""
    by_owner: dict[str, list[ForeignField]] = {}
    for one in keys:
        by_owner.setdefault(managers_text(one.managers), []).append(one)
    return [_not_published(owner, held) for owner, held in by_owner.items()]


def _not_published(owner: str, held: Sequence[ForeignField]) -> Condition:
    fields = (("owner", owner), ("count", len(held)), ("first", f"{held[0].key}={held[0].value}"))
    return Condition("labels not published", "labels not published are gone", fields)


def _left_alone(foreign: ForeignField) -> Condition:
    owner = managers_text(foreign.managers)
    fields = (("key", foreign.key), ("owner", owner), ("value", foreign.value))
    return Condition("label left to its owner", "label no longer left to its owner", fields)
