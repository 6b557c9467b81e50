"""The reporter: log lines, metrics and health of the events in the daemon's loop.

It receives every event and decides nothing: the loop works the same without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent import __version__
from agent.telemetry.change_reasons import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized

    from agent.daemon.observer import Cycle
    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys
    from agent.kube.plan import Plan
    from agent.kube.reconcile import Result
    from agent.model import Problem
    from agent.telemetry.log import Log, Value
    from agent.telemetry.metrics import Metrics

    Change = tuple[str, str | None, str | None]  # key, value before, value after


class Status(Protocol):
    """Health and readiness (agent/telemetry/status.py)."""

    def heartbeat(self) -> None:
        """Record an iteration of the loop."""

    def mark_ready(self) -> None:
        """Record that the first observation was applied."""


class Condition(NamedTuple):
    """A state that lasts: one line when it begins, when its fields change, and when it ends."""

    begin: str  # message
    end: str  # message
    fields: tuple[tuple[str, Value], ...]  # the first is the subject


@dataclass(slots=True)
class Reporter:
    """Reports for one Node. `wall` is in seconds since the epoch, `clock` is monotonic."""

    log: Log
    metrics: Metrics
    state: Status
    keys: Keys
    node: str
    hold: float  # seconds
    wall: Callable[[], float]
    clock: Callable[[], float]
    dry_run: bool = False
    _logged: dict[tuple[str, Value], Condition] = field(default_factory=dict)
    _observed: list[Condition] = field(default_factory=list)
    _applied: list[Condition] = field(default_factory=list)  # of the last request
    # Of a dry run: key -> (value on the Node, value last logged).
    _pretended: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    _failing: bool = False

    def started(self) -> None:
        """Report the start of the agent."""
        dry_run = "true" if self.dry_run else None
        self.log.info("agent started", node=self.node, version=__version__, dry_run=dry_run)

    def server_started(self, fault: str) -> None:
        """Report the metrics address, if it does not exist yet."""
        if fault:
            self.log.warning("metrics address not available yet", reason=fault)

    def heartbeat(self) -> None:
        """Report an iteration of the loop, and write the log lines that are due."""
        self.state.heartbeat()
        self.log.release_due()

    def pause(self) -> float:
        """Return the seconds until the next log line is due."""
        wait = self.log.release_due()
        return math.inf if wait is None else wait

    def observed(
        self,
        cycle: Cycle,
        took: Mapping[str, float],
        unavailable: Mapping[str, str],
        dropped: Mapping[str, int],
    ) -> None:
        """Report an observation.

        `took` has the seconds of background queries, `unavailable` the reason of each event monitor
        that could not be opened, `dropped` the LLDP frames dropped since the start, by reason.
        """
        rendered, reads = cycle.rendered, cycle.took
        durations = {source: max(reads[source], took.get(source, 0.0)) for source in reads}
        self.metrics.observed(cycle.observation, durations)
        self.metrics.rendered(
            rendered.labels, rendered.held, len(cycle.expired), len(rendered.problems)
        )
        self.metrics.frames_dropped(dropped)
        for key, value in cycle.expired.items():
            self.log.warning("label expired", key=key, value=value, hold=f"{self.hold:g}s")
        problems = [*cycle.observation.problems, *rendered.problems]
        monitors = [_unavailable(name, reason) for name, reason in unavailable.items() if reason]
        self._observed = [*_conditions(problems), *monitors]
        self._log_conditions()

    def frames_repeated(self, netdevs: Iterable[str]) -> None:
        """Report LLDP frames of known neighbors, which cause no observation."""
        now = self.wall()
        for netdev in netdevs:
            self.metrics.frame_repeated(netdev, now)

    def signal_received(self, name: str) -> None:
        """Report a signal."""
        action = "observe now" if name == "SIGHUP" else "stop, labels stay"
        self.log.info("signal received", signal=name, action=action)

    def reconciled(self, result: Result, cycle: Cycle | None) -> None:
        """Report a request to the API server: the changed labels, and the refused ones."""
        for code in result.codes:
            self.metrics.request(code)
        if result.plan is None:
            return
        if cycle:
            changes = self._pretend(result.plan) if self.dry_run else _applied(result)
            for change in changes:
                self._log_change(change, cycle)
        self._applied = [*_unapplied(result)]
        self._log_conditions()

    def node_read(self, annotation: Annotation | None, problem: Problem | None) -> None:
        """Report the first read of the Node; `problem` is that of its annotation."""
        self._applied = _conditions([problem] if problem else [])
        observed_at = annotation.time if annotation else None
        self.log.debug("node read", node=self.node, last_observed=observed_at)
        self._recovered()

    def applied(self, refused: Sized) -> None:
        """Report that the Node has its labels, except the refused keys."""
        self._recovered()
        self.metrics.applied(self.wall(), refused)
        self.state.mark_ready()

    def failed(self, text: str) -> None:
        """Report a failed request; the next one follows after a back-off."""
        self._failing = True
        reason = text.removeprefix(f"Node {self.node}: ")
        self.log.warning("node request failed", node=self.node, reason=reason)

    def annotation_age(self, annotation: Annotation | None) -> float:
        """Return the seconds since the annotation's time; 0 without one."""
        if annotation is None or annotation.time is None:
            return 0.0
        return self.wall() - annotation.time

    def _recovered(self) -> None:
        if self._failing:
            self.log.info("node reachable again", node=self.node)
        self._failing = False

    def _log_change(self, change: Change, cycle: Cycle) -> None:
        key, before, after = change
        verb = "removed" if after is None else "added" if before is None else "changed"
        fields = {
            "key": key,
            "from": before,
            "to": after,
            "reason": reason_of(key, cycle, self.keys, self.hold),
        }
        self.log.info(f"label would be {verb}" if self.dry_run else f"label {verb}", **fields)

    def _log_conditions(self) -> None:
        """Log the conditions that began, changed or ended."""
        before = self._logged
        self._logged = {
            (one.begin, one.fields[0][1]): one for one in chain(self._observed, self._applied)
        }
        for subject, one in before.items():
            if subject not in self._logged:
                self.log.info(one.end, **dict(one.fields[:1]))
        for subject, one in self._logged.items():
            if before.get(subject) != one:
                self.log.warning(one.begin, **dict(one.fields))

    def _pretend(self, plan: Plan) -> list[Change]:
        """Return the changes of a dry run's plan since the last one that was logged."""
        logged = self._pretended
        self._pretended = {key: (on_node, to) for key, on_node, to in _planned(plan)}
        changes = []
        for key in sorted(logged.keys() | self._pretended.keys()):
            on_node, _ = self._pretended.get(key) or logged[key]
            before = logged[key][1] if key in logged else on_node
            after = self._pretended[key][1] if key in self._pretended else on_node
            if before != after:
                changes.append((key, before, after))
        return changes


def _planned(plan: Plan) -> list[Change]:
    """Return the label changes of a plan."""
    return sorted(
        [
            *((key, None, value) for key, value in plan.added.items()),
            *((key, before, after) for key, (before, after) in plan.changed.items()),
            *((key, value, None) for key, value in plan.removed.items()),
        ],
        key=lambda change: change[0],
    )


def _applied(result: Result) -> list[Change]:
    """Return the label changes that the API server accepted."""
    if result.plan is None or result.outcome is None:
        return []
    applied, removed = result.outcome.applied, result.outcome.removed
    before = {key: value for key, value, _ in _planned(result.plan)}
    changes = [(key, before.get(key), applied.get(key)) for key in sorted({*applied, *removed})]
    return [change for change in changes if change[1] != change[2]]


def _conditions(problems: Iterable[Problem]) -> list[Condition]:
    """Return one condition per source and subject; several texts of one are joined."""
    texts: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        text = f"{problem.error}: {problem.text}" if problem.error else problem.text
        texts.setdefault((problem.source, problem.subject), []).append(text)
    return [
        Condition(
            f"{source} problem",
            f"{source} problem resolved",
            (("subject", subject), ("reason", "; ".join(found))),
        )
        for (source, subject), found in texts.items()
    ]


def _unavailable(name: str, reason: str) -> Condition:
    return Condition(
        "events unavailable, polling instead",
        "events available again",
        (("monitor", name), ("reason", reason)),
    )


def _unapplied(result: Result) -> Iterable[Condition]:
    """Return the conditions of labels that the Node has not as planned."""
    plan, outcome = result.plan, result.outcome
    if plan is None:
        return
    yield from _conditions(plan.problems)
    for refusal in outcome.refused if outcome else ():
        refused = (("key", refusal.key), ("status", refusal.status), ("reason", refusal.text))
        yield Condition("label refused", "label accepted again", refused)
    for foreign in (outcome or plan).left_alone:
        owner = ", ".join(foreign.managers)
        left = (("key", foreign.key), ("owner", owner), ("value", foreign.value))
        yield Condition("label left to its owner", "label no longer left to its owner", left)
