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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from agent.daemon.observer import Cycle
from agent.encode import Naming
from agent.host import Host
from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Node, labels_of, state_of
from agent.reasons import Remembered, Verdict
from agent.telemetry.verdict import NO_PLAN, NO_ROWS, NOT_READ, VerdictReporter

if TYPE_CHECKING:  # all of agent.verify comes with these
    from agent.cabling.expected import Expected
    from agent.daemon.comparison import Comparison

EXPECTED = "expected"  # in the name of every label of the expected half


class PlanRows(NamedTuple):
    """This node's rows of the files of --plan."""

    expected: Expected | None  # as last read; None: never since the start
    problem: str | None = None  # why the files, as they are now, are not in use


class Halves(NamedTuple):
    """The parts of the expected half."""

    labels: Mapping[str, str]  # of the Node
    plan: PlanRows | None = None  # None: without --plan

    @property
    def are_empty(self) -> bool:
        """True if nothing is expected."""
        rows = self.plan.expected if self.plan else None
        return not self.labels and (self.plan is None or (rows is not None and rows.is_empty))


@dataclass(slots=True)
class Verification:
    """Compares the cycles of one agent with the expected half, and reports the verdict."""

    host: Host
    node: str
    naming: Naming
    reporter: VerdictReporter
    delay: float  # seconds
    plan: Callable[[], PlanRows] | None = None  # of the files of --plan; None without files
    _labels: Mapping[str, str] | None = None  # the expected ones of the Node; None: not read yet
    _remembered: Remembered | None = None
    _comparison: Comparison | None = None

    def __post_init__(self) -> None:
        self.reporter.none(Verdict.PENDING, NOT_READ)

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

    def observed(self, cycle: Cycle, now: float, *, refresh: bool) -> Cycle:
        """Compare a cycle; return it with the verdict in its annotation."""
        remembered = self._verdict(cycle, now, refresh=refresh)
        return cycle._replace(annotation=replace(cycle.annotation, verdict=remembered))

    def next_due(self) -> float:
        """Return the time at which another comparison may change the verdict."""
        return self._comparison.next_due if self._comparison else math.inf

    def _verdict(self, cycle: Cycle, now: float, *, refresh: bool) -> Remembered | None:
        """Compare, report, and return what is to be remembered."""
        if self._labels is None:
            return None
        boot_id, plan = cycle.observation.boot_id, self.plan() if self.plan else None
        halves = Halves(self._labels, plan)
        if not halves.are_empty:
            if self._comparison is None:
                from agent.daemon.comparison import Comparison

                before, self._remembered = self._remembered, None
                if before and before.boot_id != boot_id:
                    before = None
                args = self.host, self.node, self.naming, self.delay
                self._comparison = Comparison(*args, before)
            comparison = self._comparison
            current = comparison.compare(halves, cycle, now, refresh=refresh)
            if not comparison.is_empty:
                self.reporter.current(current)
                return comparison.remembered(boot_id)
        # Nothing is expected any more.
        gone = self._comparison.findings if self._comparison else ()
        self._comparison = self._remembered = None
        reasons = (NO_ROWS, plan.problem) if plan else (NO_PLAN,)
        self.reporter.none(Verdict.NO_PLAN, "; ".join(filter(None, reasons)), gone)
        return None
