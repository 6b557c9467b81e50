"""The verdict of the daemon on the cables of its node.

The expected half is in the labels of the Node, which every answer of the API server has, and in the
files of `run --plan`. Each observation is compared with it (agent/daemon/comparison.py).

Invariants:
- Without an expected half nothing is compared, and agent.verify is not imported.
- No label depends on it, and no error of it ends the loop.
- The verdict is in the annotation, from where the next agent of the same boot continues it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.daemon.observer import Cycle
from agent.encode import Naming
from agent.host import Host
from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Node, labels_of, state_of
from agent.reasons import Remembered, Verdict
from agent.telemetry.reporter import Current, Reporter

if TYPE_CHECKING:  # all of agent.verify comes with these
    from agent.daemon.comparison import Comparison
    from agent.daemon.plan_file import PlanFile

NO_PLAN = "no --plan and no expected labels on the Node"
NO_ROWS = "no expected labels on the Node, and no rows for it in --plan"
NOT_READ = "the Node was not read yet"
EXPECTED = "expected"  # in the name of every label of the expected half


@dataclass(slots=True)
class Verification:
    """Compares the cycles of one agent with the expected half, and reports the verdict."""

    host: Host
    node: str
    naming: Naming
    reporter: Reporter
    delay: float  # seconds
    plan: PlanFile | None = None  # None: without --plan
    _labels: Mapping[str, str] | None = None  # the expected ones of the Node; None: not read yet
    _remembered: Remembered | None = None
    _comparison: Comparison | None = None

    def __post_init__(self) -> None:
        self.reporter.judged(Current(Verdict.PENDING, {"reason": NOT_READ}))

    def seed(self, annotation: Annotation | None) -> None:
        """Take over the verdict that the Node has from an agent before."""
        self._remembered = annotation.verdict if annotation else None

    def answered(self, node: Node) -> bool:
        """Take over the expected labels of an answer; True if they are others than before."""
        prefixes = tuple(
            f"{prefix}/" for prefix in (self.naming.prefix, self.naming.ib_prefix) if prefix
        )
        before, labels = self._labels, labels_of(state_of(node).fields)
        self._labels = {
            key: value
            for key, value in labels.items()
            if key.startswith(prefixes) and EXPECTED in key
        }
        return before != self._labels

    def observed(self, cycle: Cycle, now: float, *, refresh: bool) -> Remembered | None:
        """Compare a cycle, report, and return what its annotation remembers of the verdict."""
        if self._labels is None:
            return None
        boot_id, plan = cycle.observation.boot_id, self.plan
        rows = plan.expected if plan else None
        if self._labels or (plan and (rows is None or not rows.is_empty)):
            if self._comparison is None:
                from agent.daemon.comparison import Comparison

                before, self._remembered = self._remembered, None
                if before and before.boot_id != boot_id:
                    before = None
                args = self.host, self.node, self.naming, self.delay, plan
                self._comparison = Comparison(*args, before)
            comparison = self._comparison
            current = comparison.compare(self._labels, cycle, now, refresh=refresh)
            if not comparison.is_empty:
                self.reporter.judged(current)
                return comparison.remembered(boot_id)
        # Nothing is expected any more.
        gone = self._comparison.findings if self._comparison else ()
        self._comparison = self._remembered = None
        reasons = (NO_ROWS, plan.problem) if plan else (NO_PLAN,)
        facts = {"reason": "; ".join(filter(None, reasons))}
        self.reporter.judged(Current(Verdict.NO_PLAN, facts, gone=gone))
        return None

    def next_due(self) -> float:
        """Return the time at which another comparison may change the verdict."""
        return self._comparison.next_due if self._comparison else math.inf
