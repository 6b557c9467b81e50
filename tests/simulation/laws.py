"""The laws: what an agent may publish, held against a fresh agent that reads the true node.

    L1  at the quiet end the labels are those of the fresh agent
    L2  every part of every value was the fresh agent's, within the time that HOLDS grants
    L3  a restarted agent agrees at the quiet end,
    L4  and writes nothing
    L5  16 requests an hour on a quiet node, 10 a minute on any, and the minimum interval
    L6  nothing that is not the agent's is touched
    L7  no value is published that no reading supports
    L8  what the node has stays for its time in HOLDS, and what can be read appears within LAG

Nothing here is a model of the agent: a value is the fresh agent's (yardstick.py), and how long an
earlier one may stay is a row of HOLDS.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from tests.simulation.names import ACC, ANNOTATION, IB, TABLE, P, lost
from tests.simulation.node import GONE, HERE, LENT, UNBOUND, Hca, Node, Peer
from tests.simulation.yardstick import PARTS, Far, Place, Yardstick, of_api
from tests.support.server_side_apply import ApiServer, Key, Write

HOLD, GRACE, DAY = 600.0, 30.0, 86400.0  # seconds
COUNT, FAR, TEXT, DOMAIN = "count", "far", "text", "domain"  # the parts of a row
NO_FAR: Far = (None, None, None)
FLAVOR, SPEED, GROUP, LEAVES = (
    f"{P}/flavor",
    f"{P}/speed.current",
    f"{P}/leafgroup.current",
    f"{P}/leaves.current",
)

OTHER = "another card or link layer"
LENT_OUT = "the netdev is lent"
EXPIRES = "the frames of the switch end"
BRIDGED = "a bridge takes the frames"
SILENT = "the switch is silent"  # to SMPs
TELLS_LATE, RENAMED = "no event told", "the switch has another name"
ASKED = 1260.0  # seconds, in which each far end is asked by SMP
LATE = frozenset({TELLS_LATE, RENAMED})  # they hide nothing

# Why a value of before may stay -> the part -> the seconds it stays, as in the label contract. A
# part that a row does not have follows at once.
HOLDS: Mapping[str, Mapping[str, float]] = {
    "the class is unread": {COUNT: HOLD, FAR: HOLD, TEXT: HOLD, DOMAIN: HOLD},
    "a device is unread": {COUNT: HOLD, FAR: HOLD, TEXT: HOLD},
    "a part of a device is unread": {COUNT: HOLD, FAR: HOLD, TEXT: HOLD},
    "the driver is unloaded": {COUNT: HOLD, FAR: HOLD, TEXT: HOLD},
    LENT_OUT: {FAR: math.inf},
    "the function is gone": {COUNT: 0.0, FAR: 0.0, TEXT: 0.0},
    "the link is down": {FAR: GRACE},
    OTHER: {COUNT: 0.0, FAR: 0.0, TEXT: 0.0},
    SILENT: {FAR: HOLD},  # after it was asked
    BRIDGED: {FAR: HOLD},  # after the TTL, as the next
    EXPIRES: {FAR: GRACE},  # after its TTL, if it has sent no shutdown frame
    "the name is not answered": {FAR: math.inf},
    "the name is factory text": {FAR: math.inf},
    TELLS_LATE: {COUNT: 310.0, FAR: 310.0, TEXT: 310.0, DOMAIN: 310.0},
    RENAMED: {FAR: ASKED},
    "the GPUs are unread": {DOMAIN: HOLD},
    "the GPUs register": {DOMAIN: HOLD},
}
# A part is asked for again after as long as it could not be answered: the waits are doubled.
DOUBLED = frozenset({SILENT, "the name is not answered", "the name is factory text"})
UNREAD = frozenset({
    "the class is unread", "a device is unread", "a part of a device is unread"
})  # fmt: skip
# Seconds until what can be read is published
LAG = {COUNT: 45.0, FAR: 75.0, TEXT: 45.0, DOMAIN: 105.0}
FLAPPING, MANY, WINDOW = 120.0, 5, 720.0  # seconds later: so many changes within the window
CONFIRMED = 60.0  # seconds from a verdict to the other role, once nothing is missing
AWAITED = 3600.0  # seconds that a far end may await its first frame, over any number of restarts
PER_HOUR, PER_MINUTE = 16, 10  # requests
ROUNDED = 1.0  # seconds: the annotation has whole ones
MIN_INTERVAL = 10.0  # seconds between the starts of two attempts to write


class Span(NamedTuple):
    """The time of one cause."""

    begin: float
    end: float


class Timeline:
    """The values that the fresh agent gave a part."""

    def __init__(self, now: float, values: frozenset[object]) -> None:
        self.entries = [(now, values)]

    @property
    def now(self) -> frozenset[object]:
        """The values that it may have now."""
        return self.entries[-1][1]

    def note(self, now: float, values: frozenset[object]) -> None:
        """Record the values from now on."""
        if values != self.now:
            self.entries.append((now, values))

    def last(self, now: float) -> dict[object, float]:
        """Return each value with the last time at which it was right."""
        found = dict.fromkeys(self.now, now)
        for (_, values), (end, _) in reversed([*pairwise(self.entries)]):
            for value in values:
                found.setdefault(value, end)
        return found


class Question(NamedTuple):
    """What is judged: the labels on the Node, or those of a write whose attempt began earlier."""

    now: float
    start: float
    what: str  # "written" | "standing"


class Laws:
    """Judges the labels of one node; `fault` records a violation."""

    def __init__(self, node: Node, api: ApiServer, fault: Callable[[float, str], None]) -> None:
        self.yardstick = Yardstick(node)
        self.unheard_until = -math.inf  # no event tells of the changes until then
        self.spared: Callable[[str], bool] = lambda _key: False  # keys that others are at
        self.suspended: Callable[[], float] = lambda: 0.0
        self.wall_offset: Callable[[], float] = lambda: 0.0
        self._node, self._api, self._fault = node, api, fault
        self._parts: dict[tuple[str, object], Timeline] = {}
        self._places: dict[str, str] = {}  # PCI functions by interface, the last of each
        self._switch: dict[tuple[str, Far], str] = {}  # node GUID of a far end
        self._causes: dict[tuple[str | None, str], list[Span]] = defaultdict(list)
        self._known: set[Place] = set()  # ports whose count an agent has read in this boot
        self._away: list[Span] = []  # no agent runs, or it is frozen
        self._was_idle = False  # the Node said 0G while a port could be read, and says so since
        self._births = [0.0]
        self._stale_birth = -math.inf  # of an agent whose Node has a report that is too old
        self._attempt: float | None = None  # start of the last one that wrote
        self._cards: dict[str, tuple[bool, int, Peer]] = {}  # by PCI function
        self._boots: list[float] = []
        self._speed_before: str | None = None  # the last boot
        self._requests: deque[float] = deque()
        self._boot, self._uid = node.boot, api.uid
        self._said: set[str] = set()
        self._seen: object = None
        self._names: frozenset[str] = frozenset()  # the interfaces that there are
        self._missing_until = -math.inf  # evidence of roles

    # What happens.

    def note(self, now: float) -> None:
        """Take in the state of the node after an event."""
        seen = self.yardstick.look()
        if seen is not self._seen:
            self._seen = seen
            self._places |= seen.places
            self._names = frozenset(seen.places)
            found: dict[tuple[str, object], frozenset[object]] = {
                (COUNT, place): frozenset({count}) for place, count in seen.counts.items()
            }
            found |= {(FAR, name): frozenset[object](fars) for name, fars in seen.fars.items()}
            found[TEXT, FLAVOR] = frozenset({seen.labels.get(FLAVOR)})
            found[DOMAIN, ACC] = frozenset({seen.labels.get(ACC)})
            for part in self._parts.keys() | found.keys():
                values = found.get(part, _NONE[part[0]])
                before = values if now == 0.0 else _NONE[part[0]]
                self._parts.setdefault(part, Timeline(0.0, before)).note(now, values)
            self._note_switches()
        self._note_causes(now)
        hcas = self._node.hcas
        if self._node.unseen or any(h.where != HERE or h.sick or h.murky or not h.up for h in hcas):
            self._missing_until = now
        if self._boot != self._node.boot:
            self._boots.append(now)
            self._speed_before = of_api(self._api.fields).get(SPEED)
        if self._boot != self._node.boot or self._uid != self._api.uid:
            self._boot, self._uid = self._node.boot, self._api.uid
            self._known.clear()

    def _note_switches(self) -> None:
        by_pci = {hca.pci: hca for hca in self._node.all()}
        for (kind, name), timeline in self._parts.items():
            hca = by_pci.get(self._places.get(str(name), ""))
            if kind == FAR and hca:
                self._switch |= {(str(name), far): hca.peer.guid for far in timeline.now}  # type: ignore[misc]

    def _note_causes(self, now: float) -> None:
        active: set[tuple[str | None, str]] = {
            (hca.pci, name) for hca in self._node.all() for name in _causes(self._node, hca)
        }
        active.update((None, name) for name in _node_causes(self._node))
        if now < self.unheard_until:
            active.add((None, TELLS_LATE))
        for cause, spans in self._causes.items():
            if spans and spans[-1].end == math.inf and cause not in active:
                late = now - spans[-1].begin + 40.0 if cause[1] in DOUBLED else 0.0
                spans[-1] = Span(spans[-1].begin, now + late)
        for hca in self._node.hcas:
            before = self._cards.get(hca.pci, card := (hca.infiniband, hca.serial, hca.peer))
            self._cards[hca.pci] = card
            if before[:2] != card[:2]:
                self._causes[hca.pci, OTHER].append(Span(now, now + LAG[FAR]))
            if before[2].mac == hca.peer.mac and before[2].device != hca.peer.device:
                self._causes[hca.pci, RENAMED].append(Span(now, now + 1.0))
        for cause in active:
            spans = self._causes[cause]
            if not spans or spans[-1].end <= now:
                spans.append(Span(now, math.inf))
            elif spans[-1].end < math.inf:
                spans[-1] = Span(spans[-1].begin, math.inf)

    def died(self, now: float, until: float) -> None:
        """Record that no agent runs from now on, until then."""
        self._away.append(Span(now, until))
        self._births.append(until)
        if self.wall_offset() >= AWAITED:  # over a boot the age of the report is by that clock
            self._stale_birth = until
        self._requests.clear()
        self._attempt = None

    def froze(self, now: float, until: float) -> None:
        """Record that the agent does not run from now on, until then."""
        self._away.append(Span(now, until))

    def slept(self, now: float, seconds: float) -> None:
        """Record a suspension; if no agent runs, the last report ages by it."""
        if seconds >= AWAITED and self._away and now < self._away[-1].end:
            self._stale_birth = self._away[-1].end

    def attempted(self, start: float) -> None:
        """L5: judge the interval between two attempts to write."""
        if self._attempt is not None and 0 < start - self._attempt < MIN_INTERVAL - 1e-6:
            self._wrong(start, f"L5: two attempts within {start - self._attempt:.1f} s")
        self._attempt = start

    def requested(self, now: float) -> None:
        """L5: count a request."""
        self._requests.append(now)
        recent = sum(at > now - 60.0 for at in self._requests)
        if recent > PER_MINUTE:
            self._wrong(now, f"L5: {recent} requests within a minute")
            self._requests.clear()

    # The checks.

    def written(self, write: Write, start: float) -> None:
        """Judge an accepted write, whose attempt began at `start`."""
        self._touches(write)
        question = Question(write.time, start, "written")
        before, labels = of_api(write.before), of_api(write.after)
        self._judge(question, labels)
        for name in self._interfaces(before):
            was, far = _far(before, name), _far(labels, name)
            if was in (far, NO_FAR) or self._has_moved(name, was, labels):
                continue
            if self._lost_early(question, name, was, far):
                self._wrong(write.time, f"L8: neighbor {name} lost, written: {was} -> {far}")
        self._judge_group(question, before.get(GROUP), labels.get(GROUP))
        self._judge_text(question, before, labels)

    def standing(self, now: float, clear: float) -> None:
        """Judge the labels on the Node, while the agent can reach it, since `clear`."""
        if now - clear < LAG[FAR]:
            return
        labels = of_api(self._api.fields)
        self._judge(Question(now, now, "standing"), labels)
        for kind, place in self._parts:
            is_new = kind == COUNT and place not in self._known
            if is_new and not self._is_unread(place, now - LAG[COUNT], now):
                self._known.add(place)  # type: ignore[arg-type]

    def finish(self, now: float, quiet: float) -> None:
        """Judge the Node at the quiet end: L1, L3, L4, L5."""
        labels = {k: v for k, v in of_api(self._api.fields).items() if TABLE.fullmatch(k)}
        fresh = self.yardstick.labels()
        for key in sorted(labels.keys() | fresh.keys()):
            # What others changed before the agent had no value for it any more is theirs.
            is_left = key not in fresh and ("labels", key) not in self._api.ours()
            if labels.get(key) != fresh.get(key) and not (is_left or self._is_others(key)):
                text = f"{labels.get(key)}, a fresh agent says {fresh.get(key)}"
                self._wrong(now, f"L1: {key} is {text}, at the end")
        again = self.yardstick.restarted(self._api, now + self.suspended())
        for key in sorted(labels.keys() | again.keys()):
            if TABLE.fullmatch(key) and labels.get(key) != again.get(key):
                text = f"{labels.get(key)} -> {again.get(key)}"
                self._wrong(now, f"L3: a restarted agent changes {key}: {text}, at the end")
        if left := lost(self._api.fields.get(("annotations", ANNOTATION), "{}")):
            self._wrong(now, f"L1: a loss: {', '.join(sorted(left))}, at the end: all are there")
        recent = sum(at > now - quiet for at in self._requests)
        if recent > PER_HOUR * quiet / 3600 + 4:
            self._wrong(now, f"L5: {recent} requests without a change in {quiet:g} s")

    def _judge(self, question: Question, labels: Mapping[str, str]) -> None:
        if labels.get(SPEED) != self._speed_before or not self._is_frozen(question.now):
            self._judge_speed(question, labels.get(SPEED))
        names = self._interfaces(labels)
        for name in names:
            far = _far(labels, name)
            if not self._is_of_now(FAR, name, far):
                allowed = self._allowed_far(question, name)
                if far not in allowed:
                    self._tell(question, _keys(name), f"neighbor {name}", far, allowed)
        for kind, key in ((TEXT, FLAVOR), (DOMAIN, ACC)):
            if not self._is_of_now(kind, key, labels.get(key)):
                allowed = self._allowed(question, kind, key, None)
                if labels.get(key) not in allowed:
                    self._tell(question, [key], key, labels.get(key), allowed)
        self._judge_joined(question, labels, names)
        self._judge_twins(question, labels)

    def _is_of_now(self, kind: str, name: object, value: object) -> bool:
        """Return True if this is a value of the fresh agent now, which any law allows."""
        timeline = self._parts.get((kind, name))
        return timeline is not None and value in timeline.now

    def _allowed_far(self, question: Question, name: str) -> frozenset[object]:
        return self._allowed(question, FAR, name, self._places.get(name, ""))

    def _allowed(
        self, question: Question, kind: str, name: object, pci: str | None
    ) -> frozenset[object]:
        """Return the values that a part may have: the fresh agent's within its time (L2)."""
        timeline = self._parts.get((kind, name))
        if timeline is None:
            return _NONE[kind]
        now, none = question.now, next(iter(_NONE[kind]))
        lag = self._lag(question, kind, pci)
        untold = [
            span for name, spans in self._spans(pci, kind) if name == TELLS_LATE for span in spans
        ]
        is_kept = self._is_kept(question, kind, pci)
        found = set[object]()
        for value, last in self._last(question, kind, name, pci).items():
            granted, away = 0.0, self._away_in(last, now)
            is_late = any(span.end >= last - lag and span.begin <= now for span in untold)
            is_moved = kind == FAR and self._is_elsewhere(pci, name, value)
            late = (ASKED if is_moved else HOLDS[TELLS_LATE][kind]) if is_late else 0.0
            for name_of, spans in self._spans(pci, kind):
                # A cause that is over grants nothing, but for a change that no event told, and a
                # far end whose first frame is awaited since the device can be read again.
                is_unheard = kind == FAR and name_of in {*UNREAD, LENT_OUT} and self._ttl(pci) > 0
                since = last - lag if name_of in LATE else now - lag - away - HOLD * is_unheard
                if any(span.end >= since and span.begin <= now for span in spans):
                    known = ASKED if name_of == SILENT else 0.0  # until it is noticed
                    is_expiry = name_of in (EXPIRES, BRIDGED) or is_unheard
                    known = self._ttl(pci) if is_expiry else known
                    known += late if name_of != TELLS_LATE else 0.0
                    hold = late if name_of == TELLS_LATE else HOLDS[name_of][kind]
                    granted = max(granted, hold + known)
            if kind == FAR and any(last - lag <= birth for birth in self._births):
                awaits = now - self._births[-1] <= lag + HOLD
                granted = max(granted, HOLD + AWAITED if awaits else granted)
            if none in {value, *timeline.now}:  # another role, which was to be confirmed
                granted = math.inf if is_kept else max(granted, CONFIRMED)
            elif kind == TEXT:
                granted = max(granted, CONFIRMED)
            begin = self._since_boot(last) if granted else last
            if now - begin <= granted + lag + away:
                found.add(value)
        if self._hidden(question, kind, pci):
            found.add(none)
        return frozenset(found)

    def _is_elsewhere(self, pci: str | None, name: object, far: object) -> bool:
        """Return True if the cable of an InfiniBand port leads to another switch than this one.

        Where no event told of that, it is noticed when the port is asked again.
        """
        hcas = [hca for hca in self._node.all() if hca.pci == pci and hca.infiniband]
        switch = self._switch.get((str(name), far))  # type: ignore[arg-type]
        return any(hca.peer.guid != switch for hca in hcas)

    def _ttl(self, pci: str | None) -> float:
        """Return the seconds for which the frames of an Ethernet port's far end are valid."""
        hcas = (hca for hca in self._node.all() if hca.pci == pci and not hca.infiniband)
        return max((hca.peer.ttl for hca in hcas), default=0.0)

    def _last(
        self, question: Question, kind: str, name: object, pci: str | None
    ) -> dict[object, float]:
        """Return the values of a part and their last times; a port's under its former names too."""
        found = self._parts[kind, name].last(question.now)
        if kind == FAR and name in self._names:
            for other, place in self._places.items():
                if place == pci and other != name:
                    for value, last in self._parts[FAR, other].last(question.now).items():
                        found[value] = max(last, found.get(value, 0.0))
        return found

    def _is_kept(self, question: Question, kind: str, pci: str | None) -> bool:
        """Return True if the port may have another role than the fresh agent gives it.

        Both have been given by a fresh agent. One is kept while something is missing, and until
        the other was confirmed.
        """
        if kind in (TEXT, DOMAIN):
            return kind == TEXT and self._missing_until >= question.start - LAG[COUNT] - CONFIRMED
        roles = [
            {value is None for value in timeline.last(question.now)}
            for (part, place), timeline in self._parts.items()
            if part == COUNT and _pci(place) == pci
        ]
        is_there = any(hca.pci == pci and hca.shown for hca in self._node.all())
        lately = self._missing_until >= question.start - LAG[kind] - CONFIRMED
        return lately and is_there and any(len(both) == 2 for both in roles)

    def _since_boot(self, last: float) -> float:
        """Return the start of a hold: in another boot it begins with the agent."""
        if not self._boots or self._boots[-1] < last:
            return last
        return min((birth for birth in self._births if birth >= self._boots[-1]), default=last)

    def _lag(self, question: Question, kind: str, pci: str | None) -> float:
        wait = FLAPPING if self._flaps(pci, question.now) else 0.0
        return LAG[kind] + question.now - question.start + wait

    def _flaps(self, pci: str | None, now: float) -> bool:
        """Return True if a port changed MANY times within WINDOW, and was not quiet since."""
        parts = [*self._timelines(COUNT, pci), *self._timelines(FAR, pci)]
        times = sorted(at for timeline in parts for at, _ in timeline.entries[1:])
        flaps, last = False, -math.inf
        for number, at in enumerate(times):
            is_one_of_many = number + 1 >= MANY and at - times[number + 1 - MANY] <= WINDOW
            flaps = (flaps and at - last <= WINDOW) or is_one_of_many
            last = at
        return flaps and now - last <= WINDOW

    def _timelines(self, kind: str, pci: str | None) -> list[Timeline]:
        """Return what a part of a port was, under all its names."""
        return [
            timeline
            for (part, place), timeline in self._parts.items()
            if part == kind
            and pci == (place[0] if isinstance(place, tuple) else self._places.get(str(place)))
        ]

    def _away_in(self, since: float, now: float) -> float:
        spans = [(max(span.begin, since), min(span.end, now)) for span in self._away]
        return sum(max(end - begin, 0.0) for begin, end in spans)

    def _spans(self, pci: str | None, kind: str) -> Iterable[tuple[str, list[Span]]]:
        """Return the causes of a part of a port, or of any port, with their times."""
        for (subject, name), spans in self._causes.items():
            if kind in HOLDS[name] and (subject in (pci, None) or pci is None):
                yield name, spans

    def _causes_of(self, pci: str | None, kind: str, since: float, now: float) -> dict[str, float]:
        """Return the causes that were there since then, each with its begin."""
        return {
            name: max(span.begin for span in spans if span.begin <= now)
            for name, spans in self._spans(pci, kind)
            if name not in (TELLS_LATE, RENAMED)
            and any(one.end >= since and one.begin <= now for one in spans)
        }

    def _is_frozen(self, now: float) -> bool:
        """Return True if nobody knows what a port counts in this boot: the text of before stays."""
        begin = self._since_boot(self._boots[-1]) if self._boots else now
        return now <= begin + HOLD + LAG[COUNT] and any(
            kind == COUNT and place not in self._known and self._is_unread(place, begin, now)
            for kind, place in self._parts
        )

    def _is_unread(self, place: object, since: float, now: float) -> bool:
        """Return True if the count of a port may have been unread since then."""
        causes = {
            name
            for (subject, name), spans in self._causes.items()
            if subject == _pci(place) or (subject is None and name == "the class is unread")
            for span in spans
            if span.end >= since and span.begin <= now
        }
        return bool(causes & {*UNREAD, "the driver is unloaded"})

    def _hidden(self, question: Question, kind: str, pci: str | None) -> bool:
        """Return True if the part may be missing: a new agent could not read it."""
        since = question.start - LAG[kind] - self._away_in(question.start - LAG[kind], question.now)
        causes = {*self._causes_of(pci, kind, since, question.now)}
        if kind == FAR and self._ttl(pci) > 0:
            # No event tells that a device can be read again, and its frames are awaited since.
            causes |= UNREAD & self._causes_of(pci, kind, since - LAG[COUNT], question.now).keys()
        return bool(causes) or any(since <= birth for birth in self._births)

    def _may_be_over(self, question: Question, kind: str, pci: str | None) -> bool:
        """Return True if the time of a value that the node still has may be over."""
        causes = self._causes_of(pci, kind, question.start - LAG[kind], question.now)
        if not causes:
            return False
        least = min(HOLDS[name][kind] for name in causes)
        begin = self._chain(pci, kind, min(causes.values()))
        # A part is unread from the start of the agent that first missed it.
        born = (at for at in self._births if at <= begin)
        lately = (at for at in born if begin - self._away_in(at, begin) <= at + CONFIRMED)
        begin = min([begin, *lately])
        if question.now - begin + self.suspended() >= least - ROUNDED:
            return True
        # One of those that followed one another was over, and nothing could be read since.
        return any(
            span.begin >= begin and span.end - span.begin >= HOLDS[name][kind] - ROUNDED
            for name, spans in self._spans(pci, kind)
            for span in spans
            if span.end < question.now and name not in LATE
        )

    def _chain(self, pci: str | None, kind: str, begin: float) -> float:
        """Return the begin of all causes that followed one another until this one began."""
        spans = [span for _, all_of in self._spans(pci, kind) for span in all_of]
        for span in sorted(spans, reverse=True):
            # An agent that does not run reads nothing in between.
            lag = LAG[kind] + self._away_in(span.end, begin)
            if span.begin < begin <= span.end + lag:
                begin = span.begin
        return begin

    def _has_moved(self, name: str, was: Far, labels: Mapping[str, str]) -> bool:
        """Return True if the port has another name now, and this far end."""
        pci = self._places.get(name)
        return any(
            pci == other and _far(labels, new) == was
            for new, other in self._places.items()
            if new != name
        )

    def _lost_early(self, question: Question, name: str, was: Far, far: Far) -> bool:
        """L8: return True if a far end that the node has, or that is held, is gone."""
        timeline, pci = self._parts.get((FAR, name)), self._places.get(name, "")
        if timeline is None or any(map(self.spared, _keys(name))):
            return False
        if 0.0 <= question.now - self._stale_birth <= LAG[FAR]:  # the first frame is awaited
            return False
        last = timeline.last(question.now)
        if was not in last:
            return False
        if far != NO_FAR:  # another one, which L2 judges; a name for its GUID is a loss
            switch = self._switch.get((name, was))
            return switch == self._switch.get((name, far)) and far[0] == switch
        since = question.start - LAG[FAR]
        if not self._causes_of(pci, FAR, since, question.now):
            return timeline.now == {was} and last[was] == question.now and far == NO_FAR
        return not self._may_be_over(question, FAR, pci)

    def _judge_speed(self, question: Question, speed: str | None) -> None:
        """L2, L7, L8: the sum of what each port may count."""
        fresh = [
            value for (kind, _), one in self._parts.items() if kind == COUNT for value in one.now
        ]
        if speed != "0G" and speed == _gigabits(sum(float(str(count or 0.0)) for count in fresh)):
            self._was_idle = False
            # The whole sum: each port was read, whatever else of it is not.
            self._known |= {place for kind, place in self._parts if kind == COUNT}  # type: ignore[misc]
            return
        now, sums, hidden = question.now, {0.0}, list[bool]()
        for (kind, place), timeline in self._parts.items():
            if kind != COUNT:
                continue
            pci = _pci(place)
            options = self._allowed(question, COUNT, place, pci)
            counts = {float(str(count or 0.0)) for count in options - {None}}
            unread = self._causes_of(pci, COUNT, question.start - LAG[COUNT], now)
            is_sure = (
                unread and place in self._known and not self._may_be_over(question, COUNT, pci)
            )
            if (None in options or unread) and not (
                is_sure and len(timeline.now) == 1 and timeline.last(now).keys() == timeline.now
            ):
                counts.add(0.0)
            if timeline.now != {None}:
                hidden.append(
                    bool(unread.keys() & {"a device is unread", "the class is unread"})
                    and place not in self._known
                )
            sums = {total + count for total in sums for count in counts or {0.0}}
        is_hidden = bool(hidden) and all(hidden)
        if speed == "0G" and is_hidden and not (self._was_idle or self.spared(SPEED)):
            self._wrong(now, "L7: speed 0G, and no port was ever read")
        self._was_idle = speed == "0G" and (self._was_idle or not is_hidden)
        if speed is None:
            if not self._hidden(question, TEXT, None):
                self._tell(question, [SPEED], "speed", None, frozenset(map(_gigabits, sums)))
            return
        allowed = frozenset(map(_gigabits, sums))
        if speed not in allowed:
            self._tell(question, [SPEED], "speed", speed, allowed)

    def _judge_joined(
        self,
        question: Question,
        labels: Mapping[str, str],
        interfaces: Iterable[str],
    ) -> None:
        """L2: each name in a joined label is a far end's; L8: those that are certain are there."""
        leaves = {
            str(far[0])
            for (kind, _), timeline in self._parts.items()
            if kind == FAR
            for far in timeline.now
            if isinstance(far, tuple) and far[0]
        }
        keys = LEAVES, f"{IB}/leaves.current", GROUP
        if all(key not in labels or _names(labels[key]) in (leaves, None) for key in keys):
            return
        fars = {name: self._allowed_far(question, name) for name in interfaces}
        ever = {
            str(value[0])
            for (kind, _), timeline in self._parts.items()
            if kind == FAR
            for value in timeline.last(question.now)
            if isinstance(value, tuple) and value[0]
        }
        now = {
            str(far[0]) for allowed in fars.values() for far in allowed if isinstance(far, tuple)
        }
        certain = {
            str(far[0])
            for allowed in fars.values()
            if len(allowed) == 1
            for far in allowed
            if isinstance(far, tuple) and far[0]
        }
        for key, may in ((LEAVES, now), (f"{IB}/leaves.current", now), (GROUP, ever)):
            if key not in labels or (names := _names(labels[key])) is None:
                continue
            if strange := names - may:
                self._tell(
                    question, [key], key.rpartition("/")[2], ",".join(strange), frozenset(may)
                )
            elif missing := certain - names:
                self._tell(question, [key], key.rpartition("/")[2], labels[key], frozenset(missing))

    def _judge_group(self, question: Question, was: str | None, group: str | None) -> None:
        """L8: no leaf is lost while another port has the far end of before."""
        before, after = _names(was), _names(group)
        if not before or (group and after is None) or self.spared(GROUP):
            return
        ends = dict[str, tuple[Timeline, str]]()
        for (kind, name), timeline in self._parts.items():
            if kind == FAR:
                for value in timeline.last(question.now):
                    if isinstance(value, tuple) and value[0]:
                        ends[str(value[0])] = timeline, str(name)
        for leaf in sorted(before - (after or set())):
            if leaf not in ends:
                continue
            timeline, name = ends[leaf]
            last = max(
                at
                for value, at in timeline.last(question.now).items()
                if isinstance(value, tuple) and value[0] == leaf
            )
            hca = next((h for h in self._node.all() if h.pci == self._places.get(name)), None)
            # The port may have had another far end since.
            follows = any(
                end > last - LAG[FAR] and any(_is_other(value, leaf) for value in values)
                for one in self._timelines(FAR, self._places.get(name))
                for (_, values), (end, _) in pairwise([*one.entries, (math.inf, _NOTHING)])
            )
            steady = any(
                kind == FAR
                and one is not timeline
                and one.now != {NO_FAR}
                and len(one.last(question.now)) == 1
                for (kind, _), one in self._parts.items()
            )
            was_gone = "the function is gone" in self._causes_of(
                self._places.get(name), FAR, last - LAG[FAR], question.now
            )
            if (
                hca
                and hca.infiniband == self._node.infiniband
                and steady
                and not (follows or was_gone)
            ):
                self._wrong(question.now, f"L8: group lost {leaf} of {name}, written: {group}")

    def _judge_text(
        self, question: Question, before: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """L8: flavor, speed and domain are not lost before their time."""
        for kind, key in ((TEXT, FLAVOR), (DOMAIN, ACC), (TEXT, SPEED)):
            if key not in before or key in labels or self.spared(key):
                continue
            timeline = self._parts[TEXT, FLAVOR] if key == SPEED else self._parts[kind, key]
            if key == ACC and self._api.others(("labels", ACC)):
                continue
            if None not in timeline.now and not self._may_be_over(question, kind, None):
                self._wrong(question.now, f"L8: {key} lost, written: {before[key]} -> None")

    def _judge_twins(self, question: Question, labels: Mapping[str, str]) -> None:
        """L2: the second family has the values of the first, on InfiniBand alone."""
        for key, value in labels.items():
            if key.startswith(f"{IB}/") and TABLE.fullmatch(key) and not self.spared(key):
                twin = key.replace(IB, P, 1)
                if key.endswith("/ports.current") or self.spared(twin):
                    continue
                if labels.get(twin) != value:
                    self._tell(question, [key], key, value, frozenset({labels.get(twin)}))

    def _touches(self, write: Write) -> None:
        """L6: a changed key is in the table, and is no other manager's accelerator.

        L7: what the annotation has as lost was off the bus once.
        """
        left = {hca.pci for hca in self._node.hcas if hca.has_left}
        if never := lost(write.after.get(("annotations", ANNOTATION), "{}")) - left:
            self._wrong(write.time, f"L7: a loss: {', '.join(sorted(never))}: on the bus always")
        for key in write.before.keys() | write.after.keys():
            if write.before.get(key) == write.after.get(key):
                continue
            kind, name = key
            if not (TABLE.fullmatch(name) if kind == "labels" else name == ANNOTATION):
                self._wrong(write.time, f"L6: a foreign {kind[:-1]} was touched: {name}")
            elif name == ACC and key in write.foreign and key in write.before:
                text = f"{write.before[key]} -> {write.after.get(key)}"
                self._wrong(write.time, f"L6: another manager's accelerator was changed: {text}")

    def _interfaces(self, labels: Mapping[str, str]) -> set[str]:
        known = {str(name) for kind, name in self._parts if kind == FAR}
        return known | {found[1] for key in labels if (found := _INTERFACE.fullmatch(key))}

    def _is_others(self, key: str) -> bool:
        held: Key = ("labels", key)
        return bool(self._api.others(held)) and key == ACC

    def _tell(
        self,
        question: Question,
        keys: Iterable[str],
        name: str,
        found: object,
        allowed: frozenset[object],
    ) -> None:
        if any(self.spared(key) or self._is_others(key) for key in keys):
            return
        may = sorted(map(str, allowed))[:12]
        verb = "lost" if found in (None, NO_FAR) else "wrong"
        law = "L2" if verb == "wrong" else "L8"
        self._wrong(
            question.now,
            f"{law}: {name} {verb}, {question.what}: {found}, may be {may}",
            f"{law} {name} {verb} {question.what}",
        )

    def _wrong(self, now: float, text: str, once: str | None = None) -> None:
        if (once or text) not in self._said:
            self._said.add(once or text)
            self._fault(now, text)


_NOTHING = frozenset[object]()
_NONE: Mapping[str, frozenset[object]] = {
    COUNT: frozenset({None}),
    FAR: frozenset({NO_FAR}),
    TEXT: frozenset({None}),
    DOMAIN: frozenset({None}),
}
_INTERFACE = re.compile(rf"{re.escape(P)}/neighbors\.current\.(.+)\.(?:device|port-id|port-name)")


def _causes(node: Node, hca: Hca) -> Iterable[str]:
    """Return the causes that a port meets now."""
    is_unanswered = hca.infiniband and (hca.silent or node.smp_trouble)
    return [
        cause
        for cause, is_met in (
            ("a device is unread", hca.sick),
            ("a part of a device is unread", hca.murky or (hca.parent and hca.parent.murky)),
            ("the driver is unloaded", hca.where == UNBOUND),
            (LENT_OUT, hca.where == LENT),
            ("the function is gone", hca.where == GONE),
            ("the link is down", not hca.up),
            (EXPIRES, hca.silent and not hca.infiniband),
            (BRIDGED, hca.bridged),
            (SILENT, is_unanswered),
            ("the name is not answered", hca.nameless),
            ("the name is factory text", hca.factory),
        )
        if is_met
    ]


def _node_causes(node: Node) -> Iterable[str]:
    """Return the causes that all ports meet now."""
    if node.blind or node.classless or node.busless:
        yield "the class is unread"
    if node.clouded or node.bootless:
        yield "a part of a device is unread"
    if node.gpus.unreachable or node.gpus.unloaded or node.busless:
        yield "the GPUs are unread"
    if node.gpus.state != 3:
        yield "the GPUs register"


def _keys(name: str) -> list[str]:
    """Return the keys of the neighbor of an interface."""
    return [f"{P}/neighbors.current.{name}.{part}" for part in PARTS]


def _is_other(far: object, leaf: str) -> bool:
    """Return True for a far end at another leaf."""
    return isinstance(far, tuple) and far[0] not in (None, leaf)


def _far(labels: Mapping[str, str], name: str) -> Far:
    return tuple(map(labels.get, _keys(name)))


def _names(value: str | None) -> set[str] | None:
    """Return the names in a joined label; None if it is a hash, or has ranges."""
    if value is None:
        return set()
    if re.fullmatch("x[0-9a-f]{10,16}", value) or ".." in value:
        return None
    return set(value.split("_"))


def _gigabits(total: float) -> str:
    return f"{total:g}G" if total < 1e6 else f"{int(total)}G"


def _pci(place: object) -> str:
    assert isinstance(place, tuple)
    return str(place[0])
