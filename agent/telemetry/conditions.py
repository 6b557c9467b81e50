"""Conditions: states that last. A log line marks the beginning, each change, and the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

from agent.grouped import grouped
from agent.kube.negotiation import Refusal
from agent.kube.ownership import managers_text
from agent.kube.policy import ACCEPTED, INSTALL, PolicyState
from agent.kube.reconcile import Result
from agent.model import Problem
from agent.telemetry.log import Log

REWRITE_WINDOW = 3600.0  # seconds


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
    fields: dict[str, Any]  # values of the log; the first is the subject
    is_fault: bool = True  # its beginning is a warning

    @property
    def subject(self) -> dict[str, Any]:
        """The field that stays as it is while the others change."""
        name, value = next(iter(self.fields.items()))
        return {name: value}


class ConditionLog:
    """Logs the conditions that began, changed or ended; each part of the agent has some."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._parts: dict[str, list[Condition]] = {}
        self._logged: dict[str, Condition] = {}

    def update(self, part: str, conditions: Iterable[Condition]) -> None:
        """Take over all present conditions of a part."""
        before, self._parts[part] = self._logged, [*conditions]
        present = chain.from_iterable(self._parts.values())
        self._logged = {f"{known.begin} {known.subject}": known for known in present}
        for identity, condition in before.items():
            if identity not in self._logged:
                self._log.info(condition.end, identity, **condition.subject)
        for identity, condition in self._logged.items():
            if before.get(identity) != condition:
                log = self._log.warning if condition.is_fault else self._log.info
                log(condition.begin, identity, **condition.fields)


def of_flapping(interfaces: Iterable[str]) -> list[Condition]:
    """Return a condition per flapping port."""
    reason = "five changes in ten minutes: changes of its labels wait up to two minutes"
    return [
        Condition("port flapping", "port steady", {"interface": name, "reason": reason})
        for name in interfaces
    ]


def of_problems(problems: Iterable[Problem]) -> list[Condition]:
    """Return one condition per source and subject; several texts of a subject are joined."""
    texts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for problem in problems:
        text = f"{problem.error}: {problem.text}" if problem.error else problem.text
        texts[problem.source, problem.subject].append(text)
    return [
        Condition(
            f"{source} problem",
            f"{source} problem resolved",
            {"subject": subject, "reason": "; ".join(reasons)},
        )
        for (source, subject), reasons in texts.items()
    ]


def of_monitors(unavailable: Mapping[str, str]) -> list[Condition]:
    """Return a condition for each event monitor that has a reason for being unavailable."""
    begin, end = "events unavailable, polling instead", "events available again"
    return [
        Condition(begin, end, {"monitor": name, "reason": reason})
        for name, reason in unavailable.items()
        if reason
    ]


def of_flag(flag: str, subject: str, state: str, fault: str | None) -> list[Condition]:
    """Return the condition of what a flag names, and the agent cannot use."""
    fields = {"flag": flag, "reason": fault}
    return [Condition(f"{subject} not {state}", f"{subject} {state}", fields)] if fault else []


def of_server(server: MetricsServer | None) -> list[Condition]:
    """Return the conditions of the metrics server: no address yet, certificates that do not fit."""
    if server is None:
        return []
    return [
        *of_flag("--metrics-address", "metrics address", "available", server.fault),
        *of_flag("--metrics-cert", "metrics certificate", "reloaded", server.certificate_fault),
    ]


def of_policy(node: str, state: PolicyState, *, in_force: bool | None) -> list[Condition]:
    """Return the conditions of the last check, and of the last check that had a result."""
    conditions = []
    if in_force is False:
        fields = {"node": node, "reason": ACCEPTED, "run": INSTALL}
        conditions.append(Condition("policy not in force", "policy in force", fields))
    if state.in_force is None:
        unknown = {"node": node, "reason": state.text.removeprefix(f"Node {node}: ")}
        conditions.append(Condition("policy not checked", "policy checked", unknown))
    return conditions


class SecondAgent:
    """A second agent that writes the same keys of the Node: found twice within REWRITE_WINDOW.

    Once may be `bwagent probe` or `cleanup --lost`, which write as the same manager.
    """

    def __init__(self) -> None:
        self._rewrites: list[tuple[float, tuple[str, ...]]] = []

    def looked(self, rewritten: tuple[str, ...], now: float) -> None:
        """Take the keys that a look at the Node has found rewritten."""
        rewrites = [*self._rewrites, (now, rewritten)] if rewritten else self._rewrites
        self._rewrites = [rewrite for rewrite in rewrites if now - rewrite[0] < REWRITE_WINDOW]

    @property
    def keys(self) -> list[str]:
        """The keys that both write."""
        rewrites = self._rewrites if len(self._rewrites) > 1 else []
        return sorted({key for _, keys in rewrites for key in keys})

    def conditions(self) -> list[Condition]:
        """Return the condition, if there is a second agent."""
        if not (keys := self.keys):
            return []
        end = "no second agent writes these labels any more"
        fields = {"count": len(keys), "first": keys[0]}
        return [Condition("a second agent writes these labels", end, fields)]


def of_result(result: Result, refusals: Iterable[Refusal]) -> list[Condition]:
    """Return the conditions of labels that the Node has not as planned."""
    change = result.change
    if change is None:
        return []
    conditions = of_problems(change.problems)
    for refusal in refusals:
        refused = {"key": refusal.key, "status": refusal.status, "reason": refusal.text}
        conditions.append(Condition("label refused", "label no longer refused", refused))
    for left in (result.outcome or change).left_alone:
        fields = {"key": left.key, "owner": managers_text(left.managers), "value": left.value}
        end = "label no longer left to its owner"
        conditions.append(Condition("label left to its owner", end, fields))
    by_owner = grouped(change.foreign, lambda foreign: managers_text(foreign.managers))
    for owner, held in by_owner.items():
        first = f"{held[0].key}={held[0].value}"
        others = {"owner": owner, "count": len(held), "first": first}
        end = "labels not published are gone"
        conditions.append(Condition("labels not published", end, others))
    return conditions
