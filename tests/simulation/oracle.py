"""The oracle: the values that each label may have at each moment.

It keeps the timeline of every label's outcomes (contract.py) and returns sets of values. A value
may be *written* if it was right at some moment that the agent may still have been observing; it may
*stand* on the Node if it could be written a short while ago. This distinguishes two errors: a label
that was never true, and one that is outdated.

Observation is late by at most PROMPT after an event, BLIND without one (periodic observations), and
ASKED_ABOUT for the GPUs. A label outlives its source's failure by HOLD, from the first observation
that may have failed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.contract import NO_GBPS, Truth
from tests.simulation.descriptions import HOLD
from tests.simulation.names import Told, totals
from tests.simulation.neighbors import Hearing
from tests.simulation.outcome import FAILED, NONE, NOTHING, SUM, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.names import Value, Values
    from tests.simulation.node import Node

PROMPT, BLIND, ASKED_ABOUT = 6.0, 310.0, 105.0  # seconds
LONGEST = 1000.0  # seconds that events may stay away
UNEASY = 33.0  # seconds; a source that was readable this long between two failures was observed
TOLD = 16.0  # seconds from an observation to the Node: min-interval, and a request


@dataclass(slots=True)
class Entry:
    """An outcome from `since` on; an observation at `since + slack` or later has it."""

    since: float
    outcome: Outcome
    slack: float
    carried: Values  # what may have been published before


@dataclass(slots=True)
class Timeline:
    """The outcomes of one label; `life` is the start of the agent, with the Node's values."""

    entries: list[Entry] = field(default_factory=list)
    life: float = -math.inf

    def add(self, since: float, outcome: Outcome, slack: float) -> None:
        """Add an outcome that is right from `since` on."""
        if not self.entries or self.entries[-1].outcome != outcome:
            slack = max(
                [slack, *(entry.since + entry.slack - since for entry in self.entries[-3:])]
            )
            self.entries.append(Entry(since, outcome, slack, self.may_write(since)))

    def begin(self, now: float, values: Values) -> None:
        """Start a new agent, which found one of these values on the Node."""
        outcome = self.entries[-1].outcome if self.entries else FAILED
        self.life = now
        self.entries = [Entry(now, FAILED, 0.0, values)]
        self.add(now, outcome, PROMPT)

    def may_write(self, now: float) -> Values:
        """Return the values that an agent may publish at this moment."""
        found: set[Value] = set() if self.entries else {None}
        for index in range(
            bisect_right(self.entries, now, key=lambda entry: entry.since) - 1, -1, -1
        ):
            entry = self.entries[index]
            found |= entry.outcome.now
            if entry.outcome.held:
                found |= self._held(index, now)
            if now >= entry.since + entry.slack:
                break
        return frozenset(found)

    def may_stand(self, now: float, told: float = TOLD) -> Values:
        """Return the values that may be on the Node: those written a short while ago."""
        changes = [since for since in self.changes() if now - told < since <= now]
        moments = [now - told, now, *changes]
        return frozenset(value for moment in moments for value in self.may_write(moment))

    def changes(self) -> set[float]:
        """When the outcome became another."""
        return {entry.since for entry in self.entries}

    def _held(self, index: int, now: float) -> set[Value]:
        entry = self.entries[index]
        found: set[Value] = set()
        if entry.outcome.endless or now <= self._latest_start(index, now) + HOLD + PROMPT:
            found |= entry.carried
        if now >= self._earliest_start(index) + HOLD or None in entry.carried:
            found |= entry.outcome.later
        return found

    def _latest_start(self, index: int, now: float) -> float:
        """Return the latest possible start of the current hold."""
        entry = self.entries[index]
        if entry.outcome.now or entry.outcome.endless:
            return now
        while index > 0 and self.entries[index - 1].outcome.held:
            before = self.entries[index - 1].outcome
            if before.now or before.endless:
                break
            index -= 1
        first = self.entries[index]
        return max(first.since + max(first.slack, PROMPT), self.life)

    def _earliest_start(self, index: int) -> float:
        """Return its earliest possible start: the end of the last period in which an observation
        must have seen the label.
        """
        end = self.entries[index].since
        for at in range(index, -1, -1):
            entry = self.entries[at]
            if entry.outcome.endless or (not entry.outcome.held and end - entry.since >= UNEASY):
                return max(end, self.life)
            end = entry.since
        return self.life

    def prune(self, before: float) -> None:
        """Drop entries that no later query needs."""
        keep = max(bisect_right(self.entries, before, key=lambda entry: entry.since) - 1, 0)
        while keep > 0 and self.entries[keep].outcome.held:
            keep -= 1
        del self.entries[:keep]


@dataclass(slots=True)
class Sum(Timeline):
    """That of the speed: SUM among its outcomes is any sum of what the ports may count."""

    ports: dict[str, Timeline] = field(default_factory=dict)

    def may_write(self, now: float) -> Values:
        """What an agent may publish at this moment."""
        found = Timeline.may_write(self, now)
        sums = totals(port.may_write(now) for port in self.ports.values())
        return (found - {SUM}) | sums if SUM in found else found

    def changes(self) -> set[float]:
        """When that of a port became another, too."""
        return Timeline.changes(self).union(*(port.changes() for port in self.ports.values()))


class Oracle:
    """The permitted values of a node's labels over time."""

    def __init__(self, node: Node) -> None:
        self.hearing = Hearing()
        self.ports: dict[str, Timeline] = {}  # what each counts, by PCI function
        self.timelines: dict[str, Timeline] = {"speed": Sum(ports=self.ports)}
        self._truth, self._node = Truth(node, self.hearing), node
        self._known_until = 0.0
        self._late = 0.0  # until then an observation may not contain the last change
        self.changed = 0.0  # time of the last change of an outcome

    @property
    def boot(self) -> int:
        """The number of the node's boot."""
        return self._node.boot

    @property
    def left(self) -> set[str]:
        """The PCI functions that were off the bus once."""
        return {hca.pci for hca in self._node.hcas if hca.has_left}

    def note(self, now: float, slack: float) -> None:
        """Record a change of the node that the agent notices within `slack` seconds."""
        self.advance(now)
        if slack <= LONGEST:
            self._late = max(self._late, now + slack)
        self._take(now, slack)

    def blur(self, until: float) -> None:
        """Record that no events arrive until then."""
        self._truth.blur(until)

    def advance(self, now: float) -> None:
        """Let time pass, including changes that need no event."""
        while (moment := self._truth.next_change(self._known_until)) <= now:
            self._take(moment, max(PROMPT, self._late - moment))
        self._known_until = now

    def begin(self, now: float, on_node: Mapping[str, Values], told: Told) -> None:
        """Start a new agent that has read the Node.

        `on_node` has its labels found there, by unit (two values if half of it was there).
        """
        self.advance(now)
        self._truth.begin(told, on_node)
        self._take(now, PROMPT)
        for unit, timeline in self.timelines.items():
            timeline.begin(now, on_node.get(unit, NONE))
        is_bare = None in on_node.get("speed", NONE)
        for pci, timeline in self.ports.items():
            timeline.begin(now, timeline.may_write(now) | _last_count(told, pci, is_bare=is_bare))

    def born(self, now: float) -> None:
        """Drop what the previous agent observed: LLDP frames, and times of links that went down."""
        self.hearing.ears.clear()
        self._truth.born()
        self.note(now, PROMPT)

    def settled(self) -> dict[str, Values]:
        """Return the final values of all labels."""
        units = self.timelines.items()
        found = {unit: timeline.entries[-1].outcome.now for unit, timeline in units}
        if SUM in found["speed"]:
            found["speed"] = totals(port.entries[-1].outcome.now for port in self.ports.values())
        return found

    def _take(self, now: float, slack: float) -> None:
        self._known_until = now
        for unit, outcome in self._truth.outcomes(now, max(now + slack, self._late)).items():
            late = max(slack, ASKED_ABOUT) if unit == "accelerator" else slack
            self._add(self.timelines.setdefault(unit, Timeline()), now, outcome, late)
        for pci, outcome in self._truth.counts().items():
            self._add(self.ports.setdefault(pci, Timeline()), now, outcome, slack)

    def _add(self, timeline: Timeline, now: float, outcome: Outcome, slack: float) -> None:
        if not timeline.entries:
            timeline.entries = [Entry(now, FAILED, 0.0, NONE)]
        if timeline.entries[-1].outcome != outcome:
            self.changed = now
        timeline.add(now, outcome, slack)
        if len(timeline.entries) > 200:
            timeline.prune(now - 3 * HOLD)


def _last_count(told: Told, pci: str, *, is_bare: bool) -> Values:
    """Return what a port may count for a new agent that cannot read it.

    A count that may not be used is 0 if the Node has no speed of the agent's own to be held.
    """
    if not told.is_certain:
        return NO_GBPS if is_bare else NOTHING
    last = told.counts.get(pci)
    return NOTHING if last is None else frozenset({str(last)})
