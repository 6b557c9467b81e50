"""The verdict of a node over time: which findings count, by comparisons and a delay.

    found     for `delay` seconds without a break   reported
    reported  away for `delay` seconds              gone

Invariants:
- A cable that flaps faster than `delay` moves nothing.
- A finding of severity ERROR is away only if its cable was compared: one that cannot be compared
  any more (its switch is silent, its device cannot be read) stays as it is.
- Without a verdict from before, the first one comes with the comparison that is `delay` seconds
  after the first; it reports what that comparison finds.
- Remarks (severity INFO) are no part of a verdict.

Pure: times are seconds of a clock that never jumps (agent/daemon/schedule.py).
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import ERROR, INFO, NOT_VERIFIED, UNKNOWN, order
from agent.reasons import Verdict
from agent.verify import cables
from agent.verify.interfaces import NUMBERING, UNREAD
from agent.verify.interfaces import UNKNOWN as NO_SUCH_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.findings.finding import Finding
    from agent.verify.judge import Result

MAX_FINDINGS = 256  # of one comparison, the most severe first


class Changes(NamedTuple):
    """The findings that a comparison reports for the first time, and those that are gone."""

    came: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()


class ReportedFindings:
    """The findings that count; `remembered` are those of an agent before, None without one."""

    def __init__(self, delay: float, remembered: Iterable[Finding] | None = None) -> None:
        self._delay = delay
        self._reported = {one.id: one for one in remembered or ()}
        self._has_verdict = remembered is not None
        self._began_at: float | None = None  # of the first attempt to compare
        self._first_at: float | None = None  # of the first comparison
        # since when a finding that is not reported is there, or a reported one is away
        self._since: Mapping[str, float] = {}
        self._texts: Mapping[str, str] = {}  # by interface: as the plan names it

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reported findings, the most severe first."""
        return tuple(sorted(self._reported.values(), key=order))

    def compared(self, result: Result, now: float) -> Changes:
        """Take in a comparison; return what it changes."""
        self._began_at = now if self._began_at is None else self._began_at
        self._first_at = now if self._first_at is None else self._first_at
        counted = (one for one in result.findings if one.severity != INFO)
        found = {one.id: one for one in islice(counted, MAX_FINDINGS)}
        self._reported |= {name: found[name] for name in found.keys() & self._reported.keys()}
        self._texts = self._reported_texts() | {
            one.ref.interface: one.row.text for one in result.cables
        }
        if not self._has_verdict:
            return self._first(found, now)
        return self._later(found, _Unknown(result, self._texts), now)

    def failed(self, now: float) -> None:
        """Record that nothing could be compared: everything stays as it is."""
        self._began_at = now if self._began_at is None else self._began_at
        self._since = {}

    def verdict(self, now: float, *, failed: bool = False) -> Verdict:
        """Return the verdict; `failed` if the last attempt to compare was in vain."""
        if not self._has_verdict:
            is_late = self._began_at is not None and now >= self._began_at + self._delay
            return Verdict.UNVERIFIED if is_late else Verdict.PENDING
        severities = {one.severity for one in self._reported.values()}
        if ERROR in severities:
            return Verdict.FAIL
        return Verdict.UNVERIFIED if failed or UNKNOWN in severities else Verdict.PASS

    @property
    def has_verdict(self) -> bool:
        """True if there is one, of this agent or remembered."""
        return self._has_verdict

    def next_due(self, now: float) -> float:
        """Return the time after `now` at which the verdict may change, or infinity."""
        starts = [*self._since.values()]
        if not self._has_verdict:
            starts = [at for at in (self._began_at, self._first_at) if at is not None]
        ends = (at + self._delay for at in starts)
        return min((end for end in ends if end > now), default=math.inf)

    def _reported_texts(self) -> dict[str, str]:
        names = {name for one in self._reported.values() for name in one.interfaces}
        return {name: text for name, text in self._texts.items() if name in names}

    def _first(self, found: Mapping[str, Finding], now: float) -> Changes:
        if self._first_at is None or now < self._first_at + self._delay:
            return Changes()
        self._has_verdict, self._reported = True, dict(found)
        return Changes(came=self.findings)

    def _later(self, found: Mapping[str, Finding], unknown: _Unknown, now: float) -> Changes:
        """Report what was there long enough, and drop what was away long enough."""
        away = {
            name for name, one in self._reported.items() if name not in found and one not in unknown
        }
        differing = (found.keys() - self._reported.keys()) | away
        self._since = {name: self._since.get(name, now) for name in differing}
        ripe = {name for name, at in self._since.items() if now >= at + self._delay}
        self._since = {name: at for name, at in self._since.items() if name not in ripe}
        came = [found[name] for name in found if name in ripe]
        gone = sorted((self._reported.pop(name) for name in ripe & away), key=order)
        self._reported |= {one.id: one for one in came}
        return Changes(tuple(came), tuple(gone))


class _Unknown:
    """The findings of severity ERROR that a result neither confirms nor refutes."""

    def __init__(self, result: Result, texts: Mapping[str, str]) -> None:
        facts = (fact for one in result.findings for fact in one.facts)
        self._codes = {value for name, value in facts if name == NOT_VERIFIED}
        self._compared = {one.ref.interface for one in result.cables}
        self._unverified = {
            one.ref.interface for one in result.cables if one.status == cables.UNVERIFIABLE
        }
        self._has_unread = any(why in {UNREAD, NUMBERING} for _, why in result.unresolved)
        # The name of a netdev is away with the netdev, which a pod may have borrowed.
        away = {row.text for row, why in result.unresolved if why == NO_SUCH_NAME}
        self._unverified |= {name for name, text in texts.items() if text in away}

    def __contains__(self, one: Finding) -> bool:
        if one.severity != ERROR:
            return False
        if one.code == "speed" or not one.interfaces:
            return one.code in self._codes
        names = {*one.interfaces}
        is_unread = self._has_unread and not names <= self._compared
        return is_unread or bool(names & self._unverified)
