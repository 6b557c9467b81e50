"""The comparison of both halves of the node in the daemon: findings, and their reports.

Imported when there is an expected half, since all of agent.verify comes with it. While the halves
cannot be compared, the reported findings stay, and the verdict is not "pass".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.daemon.observer import Cycle
from agent.errors import Unavailable
from agent.findings.finding import NODE_CODES, Finding, PortRef, finding_document
from agent.host import Host
from agent.kube.annotation import (
    MAX_FINDINGS,
    Remembered,
    RememberedFinding,
    first,
    interface_of,
)
from agent.kube.facts import is_word
from agent.labels.table import Naming
from agent.model import Failed, Observation
from agent.reasons import Verdict
from agent.sources.pci import PciePath, functions_on_bus, read_paths
from agent.telemetry.verdict import Current
from agent.text import utc
from agent.verify.expected import Expected, FarPort, from_labels, merged
from agent.verify.judge import Options, Result, verify
from agent.verify.seen import seen_node
from agent.verify.verdict import Changes, ReportedFindings

if TYPE_CHECKING:  # imports this module, when there is an expected half
    from agent.daemon.verification import Halves

BUS_INTERVAL = 60.0  # seconds between two reads of the PCI bus
NOT_READ = "the files of --plan were not read yet"


class Comparison:
    """Compares each observation with the expected half."""

    def __init__(
        self,
        host: Host,
        node: str,
        naming: Naming,
        delay: float,  # seconds
        remembered: Remembered | None,  # the verdict of an agent before
    ) -> None:
        self._node, self._naming, self._delay = node, naming, delay
        self._bus = _Bus(host)
        known = None
        if remembered:
            known = []
            for one in remembered.findings:
                if row := NODE_CODES.get(one.code):  # without its facts
                    name, meaning = one.interface, row.meaning
                    ports = (PortRef(node, name),) if name else ()
                    text = f"{name}: {meaning}." if name else f"{meaning}."
                    bare = Finding(one.code, row.severity, (node,), ports, text, id=one.id)
                    known.append(bare)
        self._findings = ReportedFindings(delay, known)
        self._halves: Halves | None = None  # those merged in `_expected`
        self._expected = Expected()
        self._result: Result | None = None  # the last one, of `_inputs`
        self._inputs: tuple[object, ...] = ()
        self._fault: Exception | None = None
        self._compared_at = remembered.time if remembered else None  # seconds since the epoch
        self.next_due = math.inf  # time at which another comparison may change the verdict

    @property
    def is_empty(self) -> bool:
        """True if nothing is expected."""
        return self._fault is None and self._expected.is_empty

    @property
    def far_ports(self) -> frozenset[FarPort]:
        """The far ends of all rows."""
        return self._expected.far_ports

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reported findings."""
        return self._findings.findings

    def compare(self, halves: Halves, cycle: Cycle, now: float, *, refresh: bool) -> Current:
        """Compare a cycle; return the verdict and its report."""
        try:
            result = self._compared(halves, cycle, now, refresh=refresh)
        except Exception as error:  # noqa: BLE001 - the labels do not depend on it
            self._fault, changes = error, Changes()
            self._findings.failed(now)
        else:
            self._fault = None
            self._compared_at = int(cycle.observation.time)
            changes = self._findings.compared(result, now)
        self.next_due = self._findings.next_due(now)
        return self._current(changes, now)

    def remembered(self, boot_id: str | None) -> Remembered | None:
        """Return what is to be remembered of the verdict; None without one."""
        if not self._findings.has_verdict or boot_id is None or not is_word(boot_id):
            return None
        rows = tuple(
            RememberedFinding(one.code, interface_of(one.interface), one.id)
            for one in self._findings.findings
        )
        return first(Remembered(boot_id, self._compared_at, rows), MAX_FINDINGS)

    def _compared(self, halves: Halves, cycle: Cycle, now: float, *, refresh: bool) -> Result:
        """Merge the parts of the expected half and compare, each only if something has changed."""
        if not halves.is_complete:
            raise Unavailable(NOT_READ)
        if halves != self._halves:
            self._halves, self._expected = None, Expected()  # if they contradict each other
            of_node = from_labels(halves.labels, self._naming, f"Node {self._node}")
            self._expected = merged([halves.plan, of_node] if halves.plan else [of_node])
            self._halves = halves
        observation = cycle.observation
        if isinstance(observation.rdma, Failed):
            raise Unavailable(f"nothing observed: {observation.rdma.reason}")
        if refresh:
            self._bus.read(observation, now)
        # The last PCI address of each interface, of lost ones, too.
        lost = {one.interface: one.function for one in cycle.annotation.lost if one.function}
        addresses = lost | cycle.annotation.addresses
        options = Options(addresses=addresses, on_bus=self._bus.functions)
        seen = seen_node(observation, self._node)
        inputs = self._halves, seen, options, self._bus.paths
        if self._result is None or inputs != self._inputs:
            self._result = verify(self._expected, seen, options, self._bus.paths)
            self._inputs = inputs
        return self._result

    def _current(self, changes: Changes, now: float) -> Current:
        verdict = self._findings.verdict(now, failed=self._fault is not None)
        fault = (str(self._fault) or repr(self._fault)) if self._fault else None
        at, result = self._compared_at, self._result
        facts: dict[str, Any]
        if verdict == Verdict.PENDING:
            reason = fault or "compared for the first time"
            facts = {"reason": f"{reason}; the first verdict takes {self._delay:g} s"}
        else:
            facts = {
                "time": None if at is None else utc(at),
                "planned": result.planned if result else None,
                "as_planned": result.as_planned if result else None,
                "findings": [finding_document(one) for one in self._findings.findings],
                **({"reason": fault} if fault else {}),
            }
        return Current(
            verdict,
            facts,
            self.findings,
            changes.came,
            changes.gone,
            len(self._expected.rows),
            at,
            fault if fault != NOT_READ else None,  # the files of a plan have a line of their own
        )


class _Bus:
    """The part of the PCI bus that `verify` needs, as last read."""

    def __init__(self, host: Host) -> None:
        self._host, self._readers = host, host.readers.fresh()
        self._due = -math.inf
        self.functions: frozenset[str] = frozenset()
        self.paths: Mapping[str, PciePath] | None = None  # None: never read

    def read(self, observation: Observation, now: float) -> None:
        """Read the paths of the NICs and the functions on the bus, each BUS_INTERVAL."""
        if now >= self._due:
            self._due = now + BUS_INTERVAL
            self.functions = functions_on_bus(self._host)
            self.paths = read_paths(self._host, observation.ports, self._readers)
