"""The verdict of a node over time: which findings count, by comparisons and a delay.

    found     for `delay` seconds without a break   reported
    reported  away for `delay` seconds              gone

Invariants:
- A cable that flaps faster than `delay` moves nothing.
- A finding of severity ERROR is away only if its cable was compared: one that cannot be compared
  any more (its switch is silent, its device cannot be read) stays as it is.
- The first verdict of an agent comes with the comparison that is `delay` seconds after the first;
  it reports what that comparison finds. Until then, and so while nothing can be compared, the
  verdict is that of the agent before, else there is none.
- The findings of an agent before are not known, only their number. A comparison that finds as many,
  and makes the same verdict, is taken for theirs: it is the first verdict at once, and no news.
  A verdict of `fail` stays while a cable cannot be compared and none is found to be wrong.
- Remarks (severity INFO) are no part of a verdict.

Pure: times are seconds of a clock that never jumps (agent/daemon/loop.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from agent.cabling import cables
from agent.cabling.finding import ERROR, INFO, NOT_VERIFIED, UNKNOWN, Finding, order
from agent.cabling.interfaces import NUMBERING, UNREAD
from agent.cabling.interfaces import UNKNOWN as NO_SUCH_NAME
from agent.cabling.judge import VerifyResult
from agent.reasons import Remembered, Verdict

MAX_FINDINGS = 256  # of one comparison, the most severe first


class FindingChanges(NamedTuple):
    """The findings that a comparison reports for the first time, and those that are gone."""

    came: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()


class ReportedFindings:
    """The findings that count; `before` is the verdict of an agent before, None without one."""

    def __init__(self, delay: float, before: Remembered | None = None) -> None:
        self._delay = delay
        self.before = before  # None: this agent has made its first verdict, or there was none
        self._is_first = True  # this agent has made no verdict
        self._reported: dict[str, Finding] = {}
        self._first_at: float | None = None  # of the first comparison
        # since when a finding that is not reported is there, or a reported one is away
        self._since: Mapping[str, float] = {}
        self._texts: Mapping[str, str] = {}  # by interface: as the plan names it

    @property
    def has_verdict(self) -> bool:
        """True if there is a verdict of this agent, or of the one before."""
        return self.before is not None or not self._is_first

    @property
    def number(self) -> int:
        """The number of findings of the verdict."""
        return self.before.findings if self.before else len(self._reported)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reported findings, the most severe first."""
        return tuple(sorted(self._reported.values(), key=order))

    def compared(self, result: VerifyResult, now: float) -> FindingChanges:
        """Take in a comparison; return what it changes."""
        counted = (finding for finding in result.findings if finding.severity != INFO)
        current = {finding.id: finding for finding in islice(counted, MAX_FINDINGS)}
        self._reported |= {name: current[name] for name in current.keys() & self._reported.keys()}
        reported = {name for finding in self._reported.values() for name in finding.interfaces}
        texts = {name: text for name, text in self._texts.items() if name in reported}
        self._texts = texts | {cable.ref.interface: cable.row.text for cable in result.cables}
        if self._is_first:
            return self._begin(current, result, now)
        away = self._reported.keys() - current.keys()
        away -= _unknown((self._reported[name] for name in away), result, self._texts)
        differing = (current.keys() - self._reported.keys()) | away
        self._since = {name: self._since.get(name, now) for name in differing}
        # what was there, or away, long enough
        ripe = {name for name, at in self._since.items() if now >= at + self._delay}
        self._since = {name: at for name, at in self._since.items() if name not in ripe}
        came = [finding for name, finding in current.items() if name in ripe]
        gone = sorted((self._reported.pop(name) for name in ripe & away), key=order)
        self._reported |= {finding.id: finding for finding in came}
        return FindingChanges(tuple(came), tuple(gone))

    def _begin(
        self, current: dict[str, Finding], result: VerifyResult, now: float
    ) -> FindingChanges:
        """Make the first verdict of this agent, if it is time; return what is news."""
        before, verdict = self.before, _verdict(current.values())
        news = verdict, len(current)
        is_same = before is not None and (before.verdict, before.findings) == news
        # rows whose device is not read, or away
        unread = {UNREAD, NUMBERING, NO_SUCH_NAME} & {why for _, why in result.unresolved}
        unverified = any(cable.status == cables.UNVERIFIABLE for cable in result.cables)
        if before and before.verdict == Verdict.FAIL != verdict and (unverified or unread):
            self._first_at = None
            return FindingChanges()
        self._first_at = now if self._first_at is None else self._first_at
        if not is_same and now < self._first_at + self._delay:
            return FindingChanges()
        self._is_first, self.before, self._reported = False, None, current
        return FindingChanges() if is_same else FindingChanges(came=self.findings)

    def failed(self) -> None:
        """Record that nothing could be compared: everything stays as it is."""
        self._since = {}

    def verdict(self, *, in_doubt: bool = False) -> Verdict:
        """Return the verdict; `in_doubt` if what is expected now was not compared."""
        if self._is_first:
            verdict = self.before.verdict if self.before else Verdict.PENDING
        else:
            verdict = _verdict(self._reported.values())
        return Verdict.UNVERIFIED if in_doubt and verdict == Verdict.PASS else verdict

    def next_due(self, now: float) -> float:
        """Return the time after `now` at which the verdict may change, or infinity."""
        starts = [*self._since.values()]
        if self._is_first:
            starts = [] if self._first_at is None else [self._first_at]
        ends = (at + self._delay for at in starts)
        return min((end for end in ends if end > now), default=math.inf)


def _verdict(findings: Iterable[Finding]) -> Verdict:
    severities = {finding.severity for finding in findings}
    if ERROR in severities:
        return Verdict.FAIL
    return Verdict.UNVERIFIED if UNKNOWN in severities else Verdict.PASS


def _unknown(
    reported: Iterable[Finding], result: VerifyResult, texts: Mapping[str, str]
) -> set[str]:
    """Return the IDs of findings of severity ERROR that a result neither confirms nor refutes."""
    facts = (fact for finding in result.findings for fact in finding.facts)
    codes = {value for name, value in facts if name == NOT_VERIFIED}
    compared = {cable.ref.interface for cable in result.cables}
    unverified = {
        cable.ref.interface for cable in result.cables if cable.status == cables.UNVERIFIABLE
    }
    has_unread = any(why in {UNREAD, NUMBERING} for _, why in result.unresolved)
    # The name of a netdev is away with the netdev, which a pod may have borrowed.
    away = {row.text for row, why in result.unresolved if why == NO_SUCH_NAME}
    unverified |= {name for name, text in texts.items() if text in away}
    unknown = set[str]()
    for finding in reported:
        names = {*finding.interfaces}
        if finding.code == "speed" or not names:
            is_unknown = finding.code in codes
        else:
            is_unknown = (has_unread and not names <= compared) or bool(names & unverified)
        if is_unknown and finding.severity == ERROR:
            unknown.add(finding.id)
    return unknown
