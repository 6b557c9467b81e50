"""The reporter: log lines, conditions, metrics, health and verdict of what happens in the loop.

It receives every event and decides nothing: the loop works the same without it.

The page /verdict has the status of STATUS, and the body that docs/verdict.md describes. It is
rendered here, so that a request takes no lock of the loop.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent import __version__
from agent.grouped import grouped
from agent.kube.annotation import Annotation
from agent.kube.answers import ANOTHER_HOST, Failure
from agent.kube.change import Change, managers_text
from agent.kube.managed_fields import Keys
from agent.kube.negotiation import Outcome, Refusal
from agent.kube.policy import ACCEPTED, INSTALL, PolicyState
from agent.kube.reconcile import Result
from agent.memory import Fact
from agent.model import Problem, RoleChange
from agent.reasons import Verdict
from agent.telemetry.changes import LabelLog
from agent.telemetry.log import Condition, ConditionLog, Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Readiness, Status
from agent.text import utc

if TYPE_CHECKING:
    from agent.cabling.finding import Finding  # loaded where something is expected

    # agent.daemon comes later in the flow of data
    from agent.daemon.observer import Cycle
    from agent.daemon.plan_file import PlanFile

STATUS = {
    Verdict.NO_PLAN: "404 Not Found",  # no expected half that can be read
    Verdict.PENDING: "404 Not Found",  # no verdict yet
    Verdict.FAIL: "503 Service Unavailable",  # a finding of severity `error` is reported
    Verdict.PASS: "200 OK",
    Verdict.UNVERIFIED: "200 OK",
}
REWRITE_WINDOW = 3600.0  # seconds in which a second agent is found
FLAPPING = "five changes in ten minutes: changes of its labels wait up to two minutes"


class MetricsServer(Protocol):
    """The metrics server (agent/telemetry/server.py)."""

    fault: str  # the reason why its address is waited for, or empty

    @property
    def certificate_fault(self) -> str:
        """The reason why changed certificates are not used, or empty."""


class Current(NamedTuple):
    """The verdict after a comparison."""

    verdict: Verdict
    facts: dict[str, Any]  # of the page
    findings: tuple[Finding, ...] = ()  # reported
    came: tuple[Finding, ...] = ()  # reported for the first time
    gone: tuple[Finding, ...] = ()
    rows: int | None = None  # of the expected half
    compared_at: float | None = None  # the last comparison, seconds since the epoch
    fault: str | None = None  # why the halves of now were not compared
    is_contradictory: bool | None = None  # the expected half; None without that half


@dataclass(slots=True)
class Reporter:
    """Reports for one Node. `wall` is in seconds since the epoch, `clock` is monotonic."""

    log: Log
    metrics: Metrics
    state: Status
    keys: Keys
    node: str
    wall: Callable[[], float]
    clock: Callable[[], float]
    dry_run: bool = False
    requires_policy: bool = False
    server: MetricsServer | None = None
    conditions: ConditionLog = field(init=False)
    _labels: LabelLog = field(init=False)
    _readiness: Readiness = field(init=False)
    # Keys that looks at the Node found rewritten within REWRITE_WINDOW, with the times
    _rewrites: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    _cycle: Cycle | None = None  # the last cycle
    _planned: tuple[object, ...] = ()  # what the plan says of this node

    def __post_init__(self) -> None:
        self.conditions = ConditionLog(self.log)
        self._readiness = Readiness(requires_policy=self.requires_policy)
        now = self.clock()
        self._labels = LabelLog(self.log, self.keys, self.wall, now, dry_run=self.dry_run)

    def started(self) -> None:
        """Report the start of the agent."""
        dry_run = "true" if self.dry_run else None
        self.log.info("agent started", node=self.node, version=__version__, dry_run=dry_run)

    def heartbeat(self) -> None:
        """Report an iteration of the loop, and write the log lines that are due."""
        if server := self.server:  # its conditions change in its own threads
            address = of_flag("--metrics-address", "metrics address", "available", server.fault)
            fault = server.certificate_fault
            certificate = of_flag("--metrics-cert", "metrics certificate", "reloaded", fault)
            self.conditions.update("server", address + certificate)
        self.state.heartbeat()
        unready = self._readiness.reasons(self.clock())
        if unready != self.state.unready:
            self.state.unready = unready
            self.metrics.update(ready=not unready)
        self.log.release_due()

    def observed(
        self,
        cycle: Cycle,
        took: Mapping[str, float],
        unavailable: Mapping[str, str],
        dropped: Mapping[str, int],
        flapping: Sequence[str] = (),
    ) -> None:
        """Report an observation.

        `took` has the seconds of background queries, `unavailable` the reason of each event monitor
        that could not be opened, `dropped` the LLDP frames dropped since the start, by reason,
        `flapping` the interfaces whose changes wait (agent/daemon/flapping.py).
        """
        seen, rendered = cycle.observation, cycle.rendered
        held = self._labels.holds.observed(rendered, self.clock())
        begin, end = "events unavailable, polling instead", "events available again"
        present = [
            *(
                Condition("port flapping", "port steady", {"interface": name, "reason": FLAPPING})
                for name in flapping
            ),
            *held,
            *of_problems([*seen.problems, *rendered.problems, *rendered.notes]),
            *(
                Condition(begin, end, {"monitor": name, "reason": reason})
                for name, reason in unavailable.items()
                if reason
            ),
        ]
        self.conditions.update("observation", present)
        durations = {name: max(read, took.get(name, 0.0)) for name, read in cycle.took.items()}
        self.metrics.observed(cycle, durations)
        frames = dict(dropped) if seen.is_asked("lldp") else {}
        expired = self._labels.holds.count
        self.metrics.update(flapping=tuple(flapping), frames_dropped=frames, labels_expired=expired)
        self._readiness.observed(cycle.state)
        self._cycle = cycle

    def roles_changed(self, changes: Sequence[RoleChange]) -> None:
        """Report the roles that were contradicted, each with both verdicts."""
        for change in changes:
            fields = {"device": change.device, "port": str(change.port)}
            self.log.warning("role changed", **fields, before=change.before, after=change.after)
        now = self.metrics.snapshot.roles_changed
        self.metrics.update(roles_changed=now + len(changes))

    def plan_read(self, plan: PlanFile) -> None:
        """Report plan files that are in use since now, or the reason why they are not."""
        self.metrics.update(plan_unread=plan.problem is not None)
        self.conditions.update("plan", of_flag("--plan", "plan", "read", plan.problem))
        expected = plan.expected
        if expected and not plan.problem and expected.stated != self._planned:
            self._planned = expected.stated
            rows, note = len(expected.rows), "; ".join(expected.notes) or None
            self.log.info("plan in use", files=plan.files, rows=rows, note=note)

    def judged(self, now: Current) -> None:
        """Report the verdict on the cables: a comparison was made, or failed."""
        document = {"verdict": now.verdict, "node": self.node, **now.facts}
        self.state.set_verdict(STATUS[now.verdict], json.dumps(document).encode() + b"\n")
        findings = tuple((finding.code, finding.interface or "") for finding in now.findings)
        self.metrics.update(
            findings=findings,
            plan_rows=now.rows,
            verified_at=now.compared_at,
            plan_contradiction=now.is_contradictory,
        )
        fields = {"node": self.node, "reason": now.fault}
        fault = Condition("cables not verified", "cables verified again", fields)
        self.conditions.update("verdict", [fault] if now.fault else [])
        for finding in now.came:
            told = {"code": finding.code, "interface": finding.interface, "text": finding.text}
            self.log.warning("finding", finding.id, **told, id=finding.id)
        for finding in now.gone:
            told = {"code": finding.code, "interface": finding.interface, "id": finding.id}
            self.log.info("finding gone", finding.id, **told)

    def policy_checked(self, state: PolicyState) -> None:
        """Report a check of the admission policy; without a result the earlier state stays."""
        self.metrics.request(state.status)
        if state.in_force is not None:
            self.metrics.update(policy_in_force=state.in_force)
        in_force = self.metrics.snapshot.policy_in_force
        self._readiness.policy_checked(in_force=in_force)
        present = []  # of the last check, and of the last check that had a result
        if in_force is False:
            fields = {"node": self.node, "reason": ACCEPTED, "run": INSTALL}
            present.append(Condition("policy not in force", "policy in force", fields))
        if state.in_force is None:
            unknown = {"node": self.node, "reason": state.text.removeprefix(f"Node {self.node}: ")}
            present.append(Condition("policy not checked", "policy checked", unknown))
        self.conditions.update("policy", present)

    def frames_repeated(self, netdevs: Iterable[str]) -> None:
        """Report LLDP frames of known neighbors, which cause no observation."""
        self.metrics.frames_repeated(netdevs, self.wall())

    def signal_received(self, name: str) -> None:
        """Report a signal."""
        action = "observe and repair the Node" if name == "SIGHUP" else "stop, labels stay"
        self.log.info("signal received", signal=name, action=action)

    def reconciled(self, result: Result, cycle: Cycle | None) -> None:
        """Report a request to the API server: the changed labels, and the refused ones."""
        for code in result.codes:
            self.metrics.request(code)
        self._readiness.sent(result, cycle.state if cycle else None)
        if result.node is not None:
            self.conditions.update("node", [])
        if result.codes and (not result.failure or result.failure.kind == ANOTHER_HOST):
            self._readiness.read(self.clock())
        self._labels.reconciled(result, cycle)
        if result.change is None:
            return
        for taken in result.outcome.taken if result.outcome else ():
            fields = {"key": taken.key, "owner": taken.manager, "value": taken.value}
            self.log.warning("taken over from its owner", **fields)
        refused = self._readiness.refusals
        # Keys rewritten twice have a second agent. Once may be `bwagent probe` or `cleanup --lost`,
        # which write as the same manager.
        now = self.clock()
        rewrites = (
            [*self._rewrites, (now, result.rewritten)] if result.rewritten else self._rewrites
        )
        self._rewrites = [rewrite for rewrite in rewrites if now - rewrite[0] < REWRITE_WINDOW]
        rewritten = self._rewrites if len(self._rewrites) > 1 else []
        contended = sorted({key for _, keys in rewritten for key in keys})
        present = of_labels(result.change, result.outcome, refused, contended)
        self.conditions.update("request", present)
        self.metrics.update(
            keys_foreign=len(result.change.foreign),
            keys_refused=len(refused),
            keys_left_alone=len((result.outcome or result.change).left_alone),
            keys_contended=len(contended),
        )

    def node_read(
        self, annotation: Annotation | None, problems: Iterable[Problem], rows: Iterable[Fact]
    ) -> None:
        """Report the first read of the Node; `problems` are those of its annotations.

        `rows` are those that the Node tells.
        """
        self.conditions.update("request", of_problems(problems))
        observed_at = annotation.reported.time if annotation else None
        self._labels.seed(rows)
        self.log.debug("node read", node=self.node, last_observed=observed_at)
        self.conditions.update("failure", [])

    def applied(self, *, heard: bool) -> None:
        """Report that the Node has its labels, except refused keys; a dry run has planned them.

        `heard` is false if it had so by what was known, and the API server was not asked.
        """
        self.conditions.update("failure", [])
        self._readiness.applied()
        if not (self._readiness.refusals or self.dry_run):
            self.metrics.update(applied_at=self.wall())
        if heard and self._cycle and self._readiness.is_current:
            self._labels.verified(self._cycle, self.clock())

    def failed(self, failure: Failure, wait: float) -> None:
        """Report a failed request; the next request follows after `wait` seconds."""
        reason = failure.text.removeprefix(f"Node {self.node}: ")
        fields: dict[str, Any] = {"node": self.node, "status": failure.status, "reason": reason}
        present = []
        if failure.kind == ANOTHER_HOST:
            fields["reason"] = f"{reason}; nothing is written"
            other = Condition("node is another host", "node is this host", fields)
            self.conditions.update("node", [other])
        else:
            fields["next_attempt"] = utc(int(self.wall() + wait))
            present = [Condition("node request failed", "node reachable again", fields)]
        self.conditions.update("failure", present)
        self._readiness.failed(reason)


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


def of_flag(flag: str, subject: str, state: str, fault: str | None) -> list[Condition]:
    """Return the condition of what a flag names, and the agent cannot use."""
    fields = {"flag": flag, "reason": fault}
    return [Condition(f"{subject} not {state}", f"{subject} {state}", fields)] if fault else []


def of_labels(
    change: Change, outcome: Outcome | None, refusals: Iterable[Refusal], contended: Sequence[str]
) -> list[Condition]:
    """Return the conditions of labels that the Node has not as planned, or not for long."""
    conditions = of_problems(change.problems)
    for refusal in refusals:
        refused = {"key": refusal.key, "status": refusal.status, "reason": refusal.text}
        conditions.append(Condition("label refused", "label no longer refused", refused))
    for left in (outcome or change).left_alone:
        fields = {"key": left.key, "owner": managers_text(left.managers), "value": left.value}
        end = "label no longer left to its owner"
        conditions.append(Condition("label left to its owner", end, fields))
    by_owner = grouped(change.foreign, lambda foreign: managers_text(foreign.managers))
    for owner, held in by_owner.items():
        first = f"{held[0].key}={held[0].value}"
        others = {"owner": owner, "count": len(held), "first": first}
        end = "labels not published are gone"
        conditions.append(Condition("labels not published", end, others))
    if contended:
        counted = {"count": len(contended), "first": contended[0]}
        end = "no second agent writes these labels any more"
        conditions.append(Condition("a second agent writes these labels", end, counted))
    return conditions
