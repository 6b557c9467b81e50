"""The verdict on the cables: the page /verdict, the metrics, and the log lines.

    404  no-plan, pending         no expected half that can be read, or no verdict yet
    503  fail                     a finding of severity `error` is reported
    200  pass, unverified         none is

docs/verdict.md has the body. It is rendered by the loop, so that a request takes no lock of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.reasons import Verdict
from agent.telemetry.conditions import Condition, ConditionLog
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Status

if TYPE_CHECKING:  # loaded where something is expected
    from agent.cabling.findings.finding import Finding

STATUS = {
    Verdict.NO_PLAN: "404 Not Found",
    Verdict.PENDING: "404 Not Found",
    Verdict.FAIL: "503 Service Unavailable",
    Verdict.PASS: "200 OK",
    Verdict.UNVERIFIED: "200 OK",
}
NO_PLAN = "no --plan and no expected labels on the Node"
NO_ROWS = "no expected labels on the Node, and no rows for it in --plan"
NOT_READ = "the Node was not read yet"


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


class VerdictReporter:
    """Reports the verdict of one Node."""

    def __init__(self, log: Log, metrics: Metrics, state: Status, node: str) -> None:
        self._log, self._metrics, self._state, self._node = log, metrics, state, node
        self._conditions = ConditionLog(log)

    def none(self, verdict: Verdict, reason: str, gone: tuple[Finding, ...] = ()) -> None:
        """Report that there is no verdict, and no longer these findings."""
        self.current(Current(verdict, {"reason": reason}, gone=gone))

    def current(self, now: Current) -> None:
        """Report the verdict: a comparison was made, or failed."""
        document = {"verdict": now.verdict, "node": self._node, **now.facts}
        self._state.set_verdict(STATUS[now.verdict], json.dumps(document).encode() + b"\n")
        findings = tuple((finding.code, finding.interface or "") for finding in now.findings)
        self._metrics.update(findings=findings, plan_rows=now.rows, verified_at=now.compared_at)
        self._metrics.update(plan_contradiction=now.is_contradictory)
        fields = {"node": self._node, "reason": now.fault}
        fault = Condition("cables not verified", "cables verified again", fields)
        self._conditions.update("verdict", [fault] if now.fault else [])
        for finding in now.came:
            told = {
                "code": finding.code,
                "interface": finding.interface,
                "text": finding.text,
                "id": finding.id,
            }
            self._log.warning("finding", finding.id, **told)
        for finding in now.gone:
            told = {"code": finding.code, "interface": finding.interface, "id": finding.id}
            self._log.info("finding gone", finding.id, **told)
