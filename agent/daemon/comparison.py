"""The comparison of both halves of the node in the daemon: findings, and their reports.

Imported when there is an expected half, since all of agent.verify comes with it.

Invariants:
- While the expected half of now cannot be read, or contradicts itself, the last good one is
  compared; the verdict is not "pass", and says since when.
- While the halves cannot be compared, the reported findings stay, and the verdict is not "pass".
- Without a comparison there is no verdict but a remembered one, and that of an agent whose plan
  files cannot be read is "fail" or none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

from agent.cabling.expected import Expected, from_labels, merged
from agent.cabling.finding import Finding, finding_document
from agent.cabling.judge import VerifyResult, verify
from agent.cabling.seen import SeenNode, seen_node
from agent.cabling.verdict import FindingChanges, ReportedFindings
from agent.daemon.observer import Cycle
from agent.encode import Naming
from agent.errors import Malformed, Unavailable
from agent.facts import is_word
from agent.host import Host
from agent.memory import Known
from agent.model import Failed, Link, Observation, Seen
from agent.output.document import Hardware, node_document
from agent.reasons import NeighborReason, Remembered, Verdict
from agent.sources.pci import functions_on_bus, read_paths
from agent.telemetry.reporter import Current
from agent.text import many, utc

if TYPE_CHECKING:  # imports this module, when there is an expected half
    from agent.daemon.plan_file import PlanFile

BUS_INTERVAL = 60.0  # seconds between two reads of the PCI bus
NOT_READ = "the files of --plan were not read yet"
ENDED = frozenset({NeighborReason.EXPIRED, NeighborReason.SHUTDOWN})


@dataclass(slots=True)
class Comparison:
    """Compares each observation with the expected half."""

    host: Host
    node: str
    naming: Naming
    delay: float  # seconds
    plan: PlanFile | None  # None: without --plan
    before: InitVar[Remembered | None]  # the verdict of an agent before
    next_due: float = math.inf  # time at which another comparison may change the verdict
    _bus: _Bus = field(init=False)
    _findings: ReportedFindings = field(init=False)
    _compared_at: int | None = field(init=False)  # seconds since the epoch
    _parts: tuple[object, ...] = ()  # those merged in `_expected`
    _expected: Expected = field(default_factory=Expected)
    _good: Expected | None = None  # the last half that did not contradict itself
    _result: VerifyResult | None = None  # the last result, of `_inputs`
    _inputs: tuple[object, ...] = ()
    _heard: dict[str, Link] = field(default_factory=dict)  # last neighbors of Ethernet ports
    _fault: str | None = None  # why nothing was compared
    _contradiction: str | None = None  # of the expected half of now
    _old_since: float | None = None  # since when `_good` is not that of now

    def __post_init__(self, before: Remembered | None) -> None:
        self._bus = _Bus(self.host)
        self._findings = ReportedFindings(self.delay, before)
        self._compared_at = before.time if before else None

    @property
    def is_empty(self) -> bool:
        """True if nothing is expected."""
        return self._fault is None and self._expected.is_empty

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reported findings."""
        return self._findings.findings

    def compare(
        self, labels: Mapping[str, str], cycle: Cycle, now: float, *, refresh: bool
    ) -> Current:
        """Compare a cycle with the plan and these labels; return the verdict and its report."""
        try:
            result = self._compared(labels, cycle, now, refresh=refresh)
        except Exception as error:  # noqa: BLE001 - the labels do not depend on it
            self._fault, changes = str(error) or repr(error), FindingChanges()
            self._findings.failed()
        else:
            self._fault = None
            self._compared_at = int(cycle.observation.time)
            changes = self._findings.compared(result, now)
        self.next_due = self._findings.next_due(now)
        problem = self.plan.problem if self.plan else None
        old = "; ".join(filter(None, (problem, self._contradiction)))
        if not old:
            self._old_since = None
        elif self._old_since is None:
            self._old_since = cycle.observation.time
        in_doubt = self._fault is not None or bool(old)
        verdict = self._findings.verdict(in_doubt=in_doubt)
        is_read = self.plan is None or self.plan.expected is not None
        if old and not is_read and verdict != Verdict.FAIL:
            verdict = Verdict.NO_PLAN  # what an agent before compared with is not known
        first = f"compared for the first time; the first verdict takes {self.delay:g} s"
        has_verdict = verdict not in {Verdict.PENDING, Verdict.NO_PLAN}
        return Current(
            verdict,
            self._page(old) if has_verdict else {"reason": self._fault or first},
            self.findings,
            changes.came,
            changes.gone,
            len(self._expected.rows) if is_read else None,
            self._compared_at,
            # the files of a plan have a line of their own
            self._contradiction or (self._fault if is_read else None),
            is_contradictory=bool(self._contradiction),
        )

    def remembered(self, boot_id: str | None) -> Remembered | None:
        """Return what is to be remembered of the verdict; None without a verdict."""
        if not self._findings.has_verdict or boot_id is None or not is_word(boot_id):
            return None
        findings = self._findings
        return Remembered(boot_id, self._compared_at, findings.verdict(), findings.number)

    def _compared(
        self, labels: Mapping[str, str], cycle: Cycle, now: float, *, refresh: bool
    ) -> VerifyResult:
        """Merge the parts of the expected half and compare, each only if something has changed.

        The last good expected half is compared in place of one that contradicts itself.
        """
        self._contradiction = None
        rows = self.plan.expected if self.plan else None
        if self.plan and rows is None:
            raise Unavailable(self.plan.problem or NOT_READ)
        try:
            if (labels, rows) != self._parts:
                self._parts, self._expected = (), self._good or Expected()
                of_node = from_labels(labels, self.naming, f"Node {self.node}")
                self._expected = merged([rows, of_node] if rows else [of_node])
                self._parts = labels, rows
            expected = self._expected
        except Malformed as error:
            expected = self._last_good(error)
        observation = cycle.observation
        if isinstance(observation.rdma, Failed):
            raise Unavailable(f"nothing observed: {observation.rdma.reason}")
        if refresh:
            self._bus.read(observation, now)
        observation = self._with_graces(observation, cycle.known)
        document = node_document(observation, cycle.known, self.node, self._bus.hardware)
        seen = seen_node(document)
        try:  # rows that are of one interface by the names that the node has now
            result = self._result_of(expected, seen)
        except Malformed as error:
            return self._result_of(self._last_good(error), seen)
        self._good = expected
        return result

    def _with_graces(self, observation: Observation, known: Known) -> Observation:
        """Return an observation with the last neighbors of ports whose labels still have them.

        Else the findings of a switch whose TTL is shorter than its interval would come and go.
        """
        if not isinstance(observation.lldp, Seen):
            return observation
        kept = {fact.interface for fact in known.facts if fact.far and fact.far_why in ENDED}
        links = tuple(
            self._heard.get(link.interface, link) if link.interface in kept else link
            for link in observation.lldp.value
        )
        self._heard = {link.interface: link for link in links if link.neighbors}
        return observation._replace(lldp=Seen(links))

    def _last_good(self, error: Malformed) -> Expected:
        """Return the expected half before a contradiction; raises that if there was none."""
        self._contradiction = str(error)
        if self._good is None:
            raise error
        return self._good

    def _result_of(self, expected: Expected, seen: SeenNode) -> VerifyResult:
        inputs = expected, seen
        if self._result is None or inputs != self._inputs:
            self._result, self._inputs = verify(*inputs), inputs
        return self._result

    def _page(self, old: str) -> dict[str, Any]:
        """Return what the page of a verdict has: the last comparison, and why it may be old.

        `old` is why the expected half of now is not in use, or empty.
        """
        at, result = self._compared_at, self._result
        reasons = [self._fault] if self._fault else []
        if result is None:
            reasons.append("nothing was compared since the start")
        elif old and self._old_since is not None:
            reasons += [old, f"compared with what was expected before {utc(int(self._old_since))}"]
        if self._findings.before:
            number = many(self._findings.number, "finding")
            reasons.append(f"the verdict is that of the agent before ({number})")
        return {
            "time": None if at is None else utc(at),
            "planned": result.planned if result else None,
            "as_planned": result.as_planned if result else None,
            "findings": [finding_document(finding) for finding in self._findings.findings],
            **({"reason": "; ".join(reasons)} if reasons else {}),
        }


class _Bus:
    """The part of the PCI bus that `verify` needs, as last read."""

    def __init__(self, host: Host) -> None:
        self._host, self._readers = host, host.device_readers()
        self._due = -math.inf
        self.hardware = Hardware()

    def read(self, observation: Observation, now: float) -> None:
        """Read the paths of the NICs and the functions on the bus, each BUS_INTERVAL."""
        if now >= self._due:
            self._due = now + BUS_INTERVAL
            paths = read_paths(self._host, observation.ports, self._readers)
            self.hardware = Hardware(paths, functions_on_bus(self._host))
