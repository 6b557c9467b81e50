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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.contract import NO_GBPS, Truth
from tests.simulation.descriptions import HOLD
from tests.simulation.flapping import WINDOW, Flaps
from tests.simulation.last_leaves import leaf
from tests.simulation.names import Told, Value, Values, encode, gigabits, natural, totals
from tests.simulation.neighbors import Hearing
from tests.simulation.node import Node
from tests.simulation.outcome import FAILED, JOINED, LAST, NONE, NOTHING, SUM, Outcome, joins

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
    """The outcomes of one label; `life` is the start of the agent, with the Node's values.

    A hold that the annotation has may have begun before: `kept` are its earliest and latest start.
    """

    entries: list[Entry] = field(default_factory=list)
    life: float = -math.inf
    kept: tuple[float, float] | None = None

    def add(self, since: float, outcome: Outcome, slack: float) -> None:
        """Add an outcome that is right from `since` on."""
        if not self.entries or self.entries[-1].outcome != outcome:
            slack = max(
                [slack, *(entry.since + entry.slack - since for entry in self.entries[-3:])]
            )
            self.entries.append(Entry(since, outcome, slack, self.may_write(since)))

    def begin(
        self,
        now: float,
        values: Values,
        kept: tuple[float, float] | None = None,
        born: float = math.inf,
    ) -> None:
        """Start a new agent, which found one of these values on the Node.

        It may have observed since it was `born`, and what was right then.
        """
        self.kept = kept
        last = self.entries[-1] if self.entries else Entry(now, FAILED, 0.0, NONE)
        late = last.since + last.slack - now
        if last.since <= born or late <= PROMPT:
            late = PROMPT
        else:
            values |= self.may_write(now)
        self.life = now
        self.entries = [Entry(now, FAILED, 0.0, values)]
        self.add(now, last.outcome, late)

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
        if index == 0 and self.kept:
            return self.kept[1]
        first = self.entries[index]
        return max(first.since + max(first.slack, PROMPT), self.life)

    def _earliest_start(self, index: int) -> float:
        """Return its earliest possible start: the end of the last period in which an observation
        must have seen the label.
        """
        end = self.entries[index].since
        for at in range(index, -1, -1):
            entry = self.entries[at]
            one = entry.outcome
            is_seen = not one.held or (one.endless and None not in one.later)
            if is_seen and end - entry.since >= UNEASY:
                return max(end, self.life)
            end = entry.since
        return self.kept[0] if self.kept else self.life

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
        if LAST in found:
            sums |= NONE if gigabits(0) in sums else NOTHING
        return (found - {SUM, LAST}) | sums if {SUM, LAST} & found else found

    def changes(self) -> set[float]:
        """When that of a port became another, too."""
        return Timeline.changes(self).union(*(port.changes() for port in self.ports.values()))


@dataclass(slots=True)
class Joint(Timeline):
    """That of the leaves and of the port IDs: JOINED is any text that the far ends may make up."""

    ends: dict[str, Timeline] = field(default_factory=dict)  # by PCI function
    orders: list[tuple[float, list[str]]] = field(default_factory=list)  # since when; by name
    part: int = 0  # of the value of a neighbor
    distinct: bool = True

    def may_write(self, now: float) -> Values:
        """What an agent may publish at this moment."""
        found = Timeline.may_write(self, now)
        return (found - {JOINED}) | self.joined(now) if JOINED in found else found

    def joined(self, now: float) -> Values:
        """Return the texts that the far ends may make up, in the order of the interfaces."""
        order = [known for since, known in self.orders if since <= now][-1]
        ports = [self.ends[pci].may_write(now) for pci in order]
        return joins(ports, self.part, distinct=self.distinct)

    def changes(self) -> set[float]:
        """When that of a port became another, too."""
        return Timeline.changes(self).union(*(end.changes() for end in self.ends.values()))


class Oracle:
    """The permitted values of a node's labels over time."""

    def __init__(self, node: Node) -> None:
        self.hearing = Hearing()
        self.ports: dict[str, Timeline] = {}  # what each counts, by PCI function
        self.ends: dict[str, Timeline] = {}  # its far end, by PCI function
        self._born = -math.inf  # when the agent was
        self._orders: list[tuple[float, list[str]]] = [(-math.inf, [])]  # of the functions
        self.timelines: dict[str, Timeline] = {
            "speed": Sum(ports=self.ports),
            "leaves": Joint(ends=self.ends, orders=self._orders),
        }
        if node.infiniband:
            ports = Joint(ends=self.ends, orders=self._orders, part=1, distinct=False)
            self.timelines["ports"] = ports
        self._truth, self._node = Truth(node, self.hearing), node
        self._flaps = Flaps(BLIND)
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
        on_node = dict(on_node) | {
            unit: on_node[unit] | _by_row(row, on_node[unit])
            for row in told.rows.values()
            if (unit := f"neighbor {row['interface']}") in on_node
        }
        # That of its rows, though others may have removed the label
        on_node["flavor"] = on_node.get("flavor", NONE) | _flavor(told.rows)
        names = self._names()
        for pci, row in told.rows.items():  # renamed since then
            before, unit = f"neighbor {row['interface']}", f"neighbor {names.get(pci)}"
            if before in on_node and unit != before:
                on_node[unit] = on_node.get(unit, NONE) | on_node[before] | NONE
        self._truth.begin(told, on_node)
        self._take(now, PROMPT)
        for unit, timeline in self.timelines.items():
            # Events tell of all but the GPUs.
            born = self._born if unit == "accelerator" else math.inf
            timeline.begin(now, on_node.get(unit, NONE), _kept(unit, told, now, names), born)
        is_bare = None in on_node.get("speed", NONE)
        for pci, timeline in self.ports.items():
            counts = timeline.may_write(now) | _last_count(told, pci, is_bare=is_bare)
            timeline.begin(now, counts, _span([_part(told, pci, 0)], now))
        for pci, timeline in self.ends.items():
            ends = _last_ends(told, pci, names.get(pci), on_node)
            timeline.begin(now, ends, _span([_part(told, pci, 1)], now))

    def born(self, now: float) -> None:
        """Drop what the previous agent observed: LLDP frames, and times of links that went down."""
        self.hearing.ears.clear()
        self._born = now
        self._truth.born()
        self.note(now, PROMPT)

    def may_stand(self, unit: str, now: float) -> Values:
        """Return the values of a label that may be on the Node.

        Those of a flapping port, and the labels that join those of all, may be old.
        """
        kind, _, name = unit.partition(" ")
        hcas = [hca for hca in self._node.hcas if kind != "neighbor" or hca.name == name]
        is_flapping = any(self._flaps.may_flap(hca.pci, now) for hca in hcas)
        return self.timelines[unit].may_stand(now, TOLD + (WINDOW if is_flapping else 0.0))

    def settled(self) -> dict[str, Values]:
        """Return the final values of all labels."""
        units = self.timelines.items()
        found = {unit: timeline.entries[-1].outcome.now for unit, timeline in units}
        if SUM in found["speed"]:
            found["speed"] = totals(port.entries[-1].outcome.now for port in self.ports.values())
        for unit, timeline in units:
            if isinstance(timeline, Joint) and JOINED in found[unit]:
                found[unit] = timeline.joined(self._known_until)
        return found

    def _names(self) -> dict[str, str]:
        """Return the name of each port, by its function."""
        hcas = [*self._node.hcas, *([self._node.front] if self._node.front else [])]
        return {hca.pci: hca.name for hca in hcas}

    def _take(self, now: float, slack: float) -> None:
        self._known_until = now
        for unit, outcome in self._truth.outcomes(now, max(now + slack, self._late)).items():
            late = max(slack, ASKED_ABOUT) if unit == "accelerator" else slack
            if unit not in self.timelines:
                self.timelines[unit] = self._first(unit, now)
            if self._add(self.timelines[unit], now, outcome, late):
                self._note_neighbor(unit, now)
        for pci, outcome in self._truth.counts().items():
            if self._add(self.ports.setdefault(pci, Timeline()), now, outcome, slack):
                self._flaps.note(pci, now)
        for pci, outcome in self._truth.ends().items():
            self._add(self.ends.setdefault(pci, Timeline()), now, outcome, slack)
        names = self._names()
        order = sorted(self.ends, key=lambda pci: natural(names.get(pci, "")))
        if order != self._orders[-1][1]:
            self._orders.append((now, order))

    def _first(self, unit: str, now: float) -> Timeline:
        """Return the timeline of a new label; a port that has another name keeps its neighbor."""
        timeline = Timeline()
        for hca in self._node.hcas:
            before = self.ends.get(hca.pci)
            if before and unit == f"neighbor {hca.name}":
                timeline.begin(now, before.may_write(now) | NONE, (before.life, now))
        return timeline

    def _note_neighbor(self, unit: str, now: float) -> None:
        for hca in self._node.hcas:
            if unit == f"neighbor {hca.name}":
                self._flaps.note(hca.pci, now)

    def _add(self, timeline: Timeline, now: float, outcome: Outcome, slack: float) -> bool:
        """Add an outcome; return True if it is another than the last."""
        if not timeline.entries:
            timeline.entries = [Entry(now, FAILED, 0.0, NONE)]
        is_other = timeline.entries[-1].outcome != outcome
        if is_other:
            self.changed = now
        timeline.add(now, outcome, slack)
        if len(timeline.entries) > 200:
            timeline.prune(now - 3 * HOLD)
        return is_other


def _by_row(row: Mapping[str, Any], values: Values) -> Values:
    """Return the neighbors of a row whose device is on the Node; its port ID may be another's."""
    far = row.get("neighbor", {})
    device, port = (encode(text or "") for text in (leaf(far), far.get("port_id")))
    ends = (one for one in values if isinstance(one, tuple) and device)
    return frozenset((device, port, one[2]) for one in ends if one[0] == device)


def _flavor(rows: Mapping[str, Any]) -> Values:
    """Return the flavor that the link layers of some rows make."""
    layers = {row.get("layer") for row in rows.values()}
    if "ib" in layers:
        return frozenset({"infiniband"})
    return frozenset({"roce"}) if layers == {"eth"} else NOTHING


def _kept(
    unit: str, told: Told, now: float, names: Mapping[str, str]
) -> tuple[float, float] | None:
    """Return when the hold of a unit may have begun, by the annotation; None: with the agent."""
    kind, _, name = unit.partition(" ")
    if kind == "accelerator":
        return _span([told.domain], now)
    if kind == "neighbor":
        rows = told.rows.items()
        pcis = [pci for pci, row in rows if name in (row["interface"], names.get(pci))]
        return _span([_part(told, pci, 1) for pci in pcis], now)
    if kind in ("flavor", "speed"):
        return _span([told.texts, *(_part(told, pci, 2) for pci in told.rows)], now)
    return None


def _part(told: Told, pci: str, part: int) -> float | None:
    return told.unread[pci][part] if pci in told.unread else None


def _span(times: list[float | None], now: float) -> tuple[float, float] | None:
    """Return the first and the last of these times, for each of which None is now."""
    known = [now if time is None else time for time in times]
    return None if set(times) <= {None} else (min(known), max(known))


def _last_count(told: Told, pci: str, *, is_bare: bool) -> Values:
    """Return what a port may count for a new agent that cannot read it.

    A count that may not be used is 0 if the Node has no speed of the agent's own to be held.
    """
    if not told.is_certain:
        return NO_GBPS if is_bare else NOTHING
    last = told.counts.get(pci)
    return NOTHING if last is None else frozenset({str(last)})


def _last_ends(told: Told, pci: str, name: str | None, on_node: Mapping[str, Values]) -> Values:
    """Return the far ends that a port may have for a new agent that cannot read it.

    The Node has them by interface: that of the port's row, or its own.
    """
    found = on_node.get(f"neighbor {name}", NONE)
    if pci in told.rows and told.rows[pci]["interface"] != name:
        found |= on_node.get(f"neighbor {told.rows[pci]['interface']}", NONE) | NONE
    return found
