"""The reporter: log lines, metrics and health of the events in the daemon's loop.

It receives every event and decides nothing: the loop works the same without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from agent import __version__
from agent.kube.annotation import Annotation
from agent.kube.answers import ANOTHER_HOST, Failure
from agent.kube.change import Change, LabelChange
from agent.kube.managed_fields import Keys
from agent.kube.policy import PolicyState
from agent.kube.reconcile import Result
from agent.memory import Fact
from agent.model import Problem, RoleChange
from agent.telemetry import conditions
from agent.telemetry.changes import (
    DryRun,
    HeldLabels,
    OtherWriters,
    Start,
    Unknown,
    reason_of,
)
from agent.telemetry.conditions import Condition, ConditionLog, MetricsServer, SecondAgent
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Readiness, Refusals, Status
from agent.text import utc

if TYPE_CHECKING:  # agent.daemon comes later in the flow of data
    from agent.daemon.observer import Cycle
    from agent.daemon.plan_file import PlanFile

MAX_REMOVALS = 1024  # with a remembered reason
# The parts that have conditions, in the order of their lines.
PARTS = ("server", "plan", "policy", "flapping", "observation", "node", "request")


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
    _held: HeldLabels = field(init=False)
    _conditions: ConditionLog = field(init=False)
    _readiness: Readiness = field(init=False)
    _start: Start = field(init=False)
    _cycle: Cycle | None = None  # the last cycle
    _applied_rows: Sequence[Fact] | None = None  # at first those of the annotation; None: unknown
    _removals: dict[str, str] = field(default_factory=dict)  # the reasons, by key
    _refusals: Refusals = field(default_factory=Refusals)
    _second: SecondAgent = field(default_factory=SecondAgent)
    _server: MetricsServer | None = None
    _present: dict[str, list[Condition]] = field(
        default_factory=lambda: {part: [] for part in PARTS}
    )
    _planned: tuple[object, ...] = ()  # what the plan says of this node
    _dry_run: DryRun = field(default_factory=DryRun)
    _unknown: Unknown = field(default_factory=Unknown)
    _others: OtherWriters = field(default_factory=OtherWriters)
    _failing: bool = False

    def __post_init__(self) -> None:
        self._held = HeldLabels(self.log)
        self._conditions = ConditionLog(self.log)
        self._readiness = Readiness(self.state, requires_policy=self.requires_policy)
        self._start = Start(self.log, self.keys.speed)

    def started(self) -> None:
        """Report the start of the agent."""
        dry_run = "true" if self.dry_run else None
        self.log.info("agent started", node=self.node, version=__version__, dry_run=dry_run)

    def server_started(self, server: MetricsServer) -> None:
        """Report the metrics server, if its address does not exist yet."""
        self._server = server
        self._watch_server()

    def heartbeat(self) -> None:
        """Report an iteration of the loop, and write the log lines that are due."""
        self.state.heartbeat()
        self._watch_server()
        self._readiness.check(self.clock())
        self.metrics.update(ready=self._readiness.is_ready)
        self.log.release_due()

    def _watch_server(self) -> None:
        """Log the conditions of the metrics server, which change in its own threads."""
        present = conditions.of_server(self._server)
        if present != self._present["server"]:
            self._log_conditions("server", present)

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
        flapping: Sequence[str] = (),
    ) -> None:
        """Report an observation.

        `took` has the seconds of background queries, `unavailable` the reason of each event monitor
        that could not be opened, `dropped` the LLDP frames dropped since the start, by reason,
        `flapping` the interfaces whose changes wait (agent/daemon/flapping.py).
        """
        seen, rendered, expired = cycle.observation, cycle.rendered, cycle.expired
        durations = {name: max(read, took.get(name, 0.0)) for name, read in cycle.took.items()}
        self.metrics.observed(cycle, durations)
        too_long = len(rendered.problems)
        self.metrics.rendered(rendered.labels, rendered.kept, len(expired), too_long)
        self.metrics.update(flapping=tuple(flapping))
        self._log_conditions("flapping", conditions.of_flapping(flapping))
        self._readiness.observed(cycle.state)
        if seen.is_asked("lldp"):
            self.metrics.update(frames_dropped=dict(dropped))
        self._held.observed(rendered, expired, self.clock())
        problems = conditions.of_problems([*seen.problems, *rendered.problems, *rendered.notes])
        self._log_conditions("observation", problems + conditions.of_monitors(unavailable))
        self._cycle = cycle
        self._start.observed(self.clock())

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
        self._log_conditions("plan", conditions.of_plan(plan.problem))
        expected = plan.expected()
        if expected and not plan.problem and expected.stated != self._planned:
            self._planned = expected.stated
            rows, note = len(expected.rows), "; ".join(expected.notes) or None
            self.log.info("plan in use", files=plan.files, rows=rows, note=note)

    def policy_checked(self, state: PolicyState) -> None:
        """Report a check of the admission policy; without a result the earlier state stays."""
        self.metrics.request(state.status)
        if state.in_force is not None:
            self.metrics.update(policy_in_force=state.in_force)
        in_force = self.metrics.snapshot.policy_in_force
        self._readiness.policy_checked(in_force=in_force)
        present = conditions.of_policy(self.node, state, in_force=in_force)
        self._log_conditions("policy", present)

    def frames_repeated(self, netdevs: Iterable[str]) -> None:
        """Report LLDP frames of known neighbors, which cause no observation."""
        now = self.wall()
        for netdev in netdevs:
            self.metrics.frame_repeated(netdev, now)

    def signal_received(self, name: str) -> None:
        """Report a signal."""
        action = "observe and repair the Node" if name == "SIGHUP" else "stop, labels stay"
        self.log.info("signal received", signal=name, action=action)

    def reconciled(self, result: Result, cycle: Cycle | None) -> None:
        """Report a request to the API server: the changed labels, and the refused ones."""
        for code in result.codes:
            self.metrics.request(code)
        self._readiness.sent(result, cycle.state if cycle else None)
        present = conditions.of_node(self.node, result.failure)
        if present or result.node is not None:
            self._log_conditions("node", present)
        if result.codes and (present or not result.failure):
            self._readiness.read(self.clock())
        if result.change is None:
            self._others.read(result)
            return
        self.metrics.update(keys_foreign=len(result.change.foreign))
        if cycle:
            self._log_changes(result, result.change, cycle)
        self._others.read(result)
        if cycle and not result.failure:
            self._applied_rows = cycle.known.facts
        for taken in result.outcome.taken if result.outcome else ():
            fields = {"key": taken.key, "owner": taken.manager, "value": taken.value}
            self.log.warning("taken over from its owner", **fields)
        self._refusals.reconciled(result)
        refused, left_alone = self._refusals.present, (result.outcome or result.change).left_alone
        self.metrics.update(keys_refused=len(refused), keys_left_alone=len(left_alone))
        self._second.looked(result.rewritten, self.clock())
        self.metrics.update(keys_contended=len(self._second.keys))
        present = conditions.of_result(result, refused) + self._second.conditions()
        self._log_conditions("request", present)

    def node_read(
        self, annotation: Annotation | None, problem: Problem | None, rows: Iterable[Fact]
    ) -> None:
        """Report the first read of the Node; `problem` is that of its annotation.

        `rows` are those that the Node tells.
        """
        # Logged with those of the next observation.
        self._present["request"] = conditions.of_problems([problem] if problem else [])
        observed_at = annotation.reported.time if annotation else None
        self._applied_rows = tuple(rows) or None
        self.log.debug("node read", node=self.node, last_observed=observed_at)
        self._recovered()

    def applied(self, *, heard: bool) -> None:
        """Report that the Node has its labels, except refused keys; a dry run has planned them.

        `heard` is false if it had so by what was known, and the API server was not asked.
        """
        self._recovered()
        refusals = self._refusals.present
        if not (refusals or self.dry_run):
            self.metrics.update(applied_at=self.wall())
        self._readiness.applied(refusals)
        if refusals:
            self._start.end()
        if heard and self._cycle and self._readiness.is_current:
            self._start.verified(self._cycle, self.clock())

    def failed(self, failure: Failure, wait: float) -> None:
        """Report a failed request; the next request follows after `wait` seconds."""
        reason = failure.text.removeprefix(f"Node {self.node}: ")
        if failure.kind == ANOTHER_HOST:  # a condition (`reconciled`)
            self._recovered()
        else:
            self._failing, following = True, utc(int(self.wall() + wait))
            fields = {"node": self.node, "status": failure.status, "reason": reason}
            self.log.warning("node request failed", **fields, next_attempt=following)
        self._readiness.failed(reason)

    def annotation_age(self, annotation: Annotation | None) -> float:
        """Return the seconds since the annotation was written; 0 if that is unknown."""
        time = annotation.reported.time if annotation else None
        return 0.0 if time is None else self.wall() - time

    def _recovered(self) -> None:
        if self._failing:
            self.log.info("node reachable again", node=self.node)
        self._failing = False

    def _log_changes(self, result: Result, of_node: Change, cycle: Cycle) -> None:
        """Log the changes of a request, and those of requests before whose outcome was unknown."""
        now = utc(int(self.wall()))
        late_changes = self._unknown.found(result)
        for change, sent in late_changes:
            self._log_change(change, cycle, sent=utc(int(sent)), found=now)
        if result.failure and result.failure.maybe_done:
            self._unknown.lost(result, self.wall())
        known = {(change.key, change.after) for change, _ in late_changes}
        own = {change.key: change.after for change, _ in late_changes}
        made = result.outcome.changes if result.outcome else ()
        for change in self._dry_run.changes(of_node) if self.dry_run else made:
            if (change.key, change.after) not in known:
                others = None if self.dry_run else self._others.reason(change, result, own)
                self._log_change(change, cycle, others)

    def _log_change(
        self, change: LabelChange, cycle: Cycle, others: str | None = None, **times: str
    ) -> None:
        """Log a change; if its answer was lost, with the times of its request and of its finding.

        `others` is what another writer had done to the label.
        """
        self._start.end()
        if others and self._others.is_repair(change):
            reason: str | None = others
        elif change.key in cycle.expired:
            reason = self._held.expiry(change.key)
        else:
            seen = cycle.observation, cycle.known
            reason = reason_of(change, *seen, self.keys, self._applied_rows)
        # a label that is added again has the reason of its removal
        removed = self._removals.pop(change.key, None)
        if change.after is None and reason and len(self._removals) < MAX_REMOVALS:
            self._removals[change.key] = reason
        if change.before is None and reason is None and removed:
            reason = f"removed before: {removed}"
        if others and reason != others:
            reason = f"{others}; {reason}" if reason else others
        message = f"label would be {change.verb}" if self.dry_run else f"label {change.verb}"
        fields = {"key": change.key, "from": change.before, "to": change.after}
        self.log.info(message, **fields, reason=reason, **times)

    def _log_conditions(self, part: str, present: list[Condition]) -> None:
        self._present[part] = present
        self._conditions.update(chain.from_iterable(self._present.values()))
