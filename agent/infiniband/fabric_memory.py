"""The tiers as an agent remembers them: nothing that is down changes those of an agent that knew.

An answer (agent/infiniband/tiers.py) is what is up at that moment. `merge` adds it to what earlier
ones told:

- What was seen stays. A switch goes WEEK after the first answer whose tables of switches lacked it,
  unless one lists it meanwhile. Where a subnet does not answer, none is lacking; where its
  switches were asked by SMPs, none that merely shares a name.
- An answer that misses a switch of a tier adds nothing to the tiers. One that misses none adds what
  it has more, if the answer before was the same.
- Another switch at a known port of a leaf takes effect when two answers have it. The former one
  leaves tier 1 with its last port; so do those of leaves that the node is not on any more.
- A switch of tier 2 is above a certain tier 1: where that grows, and the answer says that the
  switch is not above it, it goes.
- An uplink that is down stays, with the time when an answer, or a look at the leaves, had it last.

The label of a tier is that of its lowest switch, listed or not. A name that two switches have is
none, as long as the memory has both.

The text of the annotation `P/fabric`:

    {"schema": 1, "time": "2026-11-20T13:34:49Z", "due": "2026-11-27T13:34:49Z",
     "looked": "2026-11-22T13:34:51Z", "reason": "top", "answer": "x1f2e3d4c5b6a7988", "agreed": 2,
     "switches": [
        {"guid": "b0cf0e0300d4ee40", "name": "spine01", "tier": 1},
        {"guid": "b0cf0e0300d4ee80", "name": "spine02", "tier": 1,
         "seen": "2026-11-20T11:02:03Z", "end": "2026-11-27T13:34:49Z"}, ...],
     "leaves": [{"guid": "b0cf0e0300aabb00", "uplinks": {"b0cf0e0300d4ee40": [33, 34], ...},
                 "seen": {"2026-11-20T11:02:03Z": [34]}}, ...],
     "pending": [{"leaf": "b0cf0e0300aabb00", "port": 33, "guid": "b0cf0e0300d4eec0"}],
     "paths": [[{"guid": "b0cf0e0300aabb00", "port": 33, "far_guid": "b0cf0e0300d4ee40",
                 "far_port": 1}, ...], ...],
     "by_smps": ["b0cf0e0300aabb00", ...], "left_out": 12}

`time` is that of the last answer, `looked` that of a look at the links of the leaves after it;
`seen` is left out where a switch is as old as the answer, or an uplink as the last of both, and
`name` where there is none. Anyone with access to the Node can edit the text, so what is malformed
is refused as a whole: one line says why, and the agent starts anew. Pure; times are seconds since
the epoch.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agent import encode
from agent.errors import Malformed
from agent.facts import COUNT, TEXT, TIME, WORD, Kind, Schema, array, matching, record, written
from agent.facts import read as read_facts
from agent.grouped import grouped
from agent.ids import GUID
from agent.infiniband.tiers import Tiers, TreeLink, by_label, own_names
from agent.reasons import TierReason
from agent.text import Json, visible

if TYPE_CHECKING:  # a memory without an answer does not load it
    from agent.infiniband.exploration import Exploration

SCHEMA = 1
HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
PACE = HOUR, DAY, WEEK  # until the next answer, by how many in a row said the same before this one
MAX_BYTES = 32 * 1024  # of a text that is written
MAX_LENGTH = 64 * 1024  # characters of a text that is read
MAX_ROWS = 1_024  # of each list that is read
MAX_PORT = 255  # of a switch that lies: NumPorts is an octet
MAX_PROBLEM = 200  # characters

LeafPort = tuple[str, int]  # a leaf's GUID, and the number of its port


class TreeSwitch(NamedTuple):
    """A switch: of a tier, at a port, or with the name of such a one."""

    guid: str
    name: str | None
    seen: int  # the last table of switches that had it
    end: int | None = None  # when it goes; None: the last table had it


@dataclass(frozen=True, slots=True)
class FabricMemory:
    """What an agent knows of the switches above its leaves."""

    uplinks: Mapping[str, Mapping[int, str]] = field(default_factory=dict)  # by leaf and port
    tier_1: frozenset[str] = frozenset()
    tier_2: frozenset[str] = frozenset()
    switches: Mapping[str, TreeSwitch] = field(default_factory=dict)
    pending: Mapping[LeafPort, str] = field(default_factory=dict)  # another switch, seen once
    reason: TierReason | None = None  # why a tier is missing
    paths: tuple[tuple[TreeLink, ...], ...] = ()  # when the values of the tiers were seen last
    by_smps: frozenset[str] = frozenset()  # switches on these that told their links by SMPs
    time: int = 0  # of the last answer
    due: int = 0  # when to ask for the next one
    answer: str = ""  # the last one, hashed
    agreed: int = 0  # how many before it, in a row, were the same
    left_out: int = 0  # switches that the text had no room for
    looked: int = 0  # when the leaves were looked at since; 0: not yet
    seen: Mapping[LeafPort, int] = field(
        default_factory=dict
    )  # when an uplink was up; else `heard`

    @property
    def heard(self) -> int:
        """The time of the last answer, or look at the leaves."""
        return max(self.time, self.looked)

    @property
    def next_question(self) -> int:
        """When to ask for an answer, or to look at the leaves: a day after the last of both."""
        return min(self.due, self.heard + DAY)

    def switch(self, tier: int) -> str | None:
        """Return the GUID of the switch that is the value of tier 1 or 2."""
        members = (self.tier_1, self.tier_2)[tier - 1] if tier in {1, 2} else frozenset[str]()
        return min(members, key=by_label(self._names), default=None)

    def label(self, tier: int) -> str | None:
        """Return the value of tier 1 or 2: the name of a switch, else its GUID."""
        guid = self.switch(tier)
        return guid and self._names.get(guid, guid)

    def last_seen(self, leaf: str) -> tuple[int, dict[int, str]]:
        """Return when a leaf was answered about last, and the uplinks that it had then."""
        ports = self.uplinks[leaf]
        times = {port: self.seen.get((leaf, port), self.heard) for port in ports}
        last = max(times.values(), default=0)
        return last, {port: guid for port, guid in ports.items() if times[port] == last}

    @property
    def _names(self) -> dict[str, str]:
        return own_names({known.guid: known.name for known in self.switches.values()})


NOTHING = FabricMemory()


def is_due(memory: FabricMemory, now: int) -> bool:
    """Return True if the next answer is due, a week after the last one at the latest."""
    return not memory.time <= now < min(memory.due, memory.time + WEEK)


def after_look(
    memory: FabricMemory, now: int, up: Mapping[str, Collection[int]], *, agrees: bool
) -> FabricMemory:
    """Return the memory after a look at the leaves: one that contradicts makes an answer due.

    `up` are the known uplinks, by leaf, that are up.
    """
    due = memory.due if agrees else now
    return replace(memory, looked=now, due=due, seen=_seen(memory, memory.uplinks, up, now))


def merge(
    memory: FabricMemory,
    told: Exploration,
    leaves: Collection[str],
    now: int,
    *,
    is_whole: bool = True,
) -> FabricMemory:
    """Return the memory after an answer; `leaves` are those of the leaf group, down or not.

    `is_whole` is False if a subnet of the node did not answer, so no switch is missing. SMPs met
    the switches near by only.
    """
    answer = told.tiers
    if not memory.uplinks.keys() & set(leaves):
        memory = NOTHING
    known = _known(memory, told, now, is_whole=is_whole)
    gone = memory.switches.keys() - known.keys()
    uplinks, pending, moved = _ports(memory, leaves, answer.uplinks, gone)
    # what two answers have in common that say the same of the tiers
    word = encode.hashed(repr([answer.reason, sorted(answer.tier_1), answer.tier_2]))
    agreed = memory.agreed + 1 if word == memory.answer else 0
    kept = memory.tier_1 - gone - moved, memory.tier_2 - gone
    tiers = _tiers(*kept, answer, has_agreed=agreed > 0)
    tier_1, tier_2 = tiers or kept
    reason = answer.reason if tiers else memory.reason
    after = FabricMemory(
        uplinks,
        tier_1,
        tier_2 - tier_1,
        _rows(_near(tier_1, tier_2, uplinks), known, told.switches, now),
        pending,
        None if tier_2 else reason,
        memory.paths,
        memory.by_smps,
        time=now,
        due=now + (HOUR if pending else PACE[min(agreed, len(PACE) - 1)]),
        answer=word,
        agreed=min(agreed, len(PACE)),
        seen=_seen(memory, uplinks, answer.uplinks, now),
    )
    if all(answer.label(tier) == after.label(tier) for tier in (1, 2)):
        on_paths = {link.guid for path in answer.paths for link in path}
        return replace(after, paths=answer.paths, by_smps=frozenset(told.by_smps) & on_paths)
    return after


def _tiers(
    tier_1: frozenset[str], tier_2: frozenset[str], answer: Tiers, *, has_agreed: bool
) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return both tiers if the answer changes or confirms those that are known, else None.

    Known tiers only grow, by an answer that has them all and `has_agreed` with the one before.
    """
    if not tier_1:
        return frozenset(answer.tier_1), _second(answer)
    if not (has_agreed and tier_1 <= {*answer.tier_1} and tier_2 <= answer.above):
        return None
    if not tier_1 >= {*answer.tier_1}:
        tier_2 -= answer.refused
    return tier_1 | {*answer.tier_1}, tier_2 | _second(answer)


def _near(
    tier_1: Collection[str], tier_2: Collection[str], uplinks: Mapping[str, Mapping[int, str]]
) -> set[str]:
    """Return the switches of the tiers and at the ports of the leaves."""
    return {*tier_1, *tier_2, *(guid for ports in uplinks.values() for guid in ports.values())}


def _known(
    memory: FabricMemory, told: Exploration, now: int, *, is_whole: bool
) -> dict[str, TreeSwitch]:
    """Return the switches as a table of switches has them, or with the time when they go.

    Those whose time is over are left out.
    """
    met = _near(memory.tier_1, memory.tier_2, memory.uplinks)
    known = {}
    for guid, row in memory.switches.items():
        end, seen, name = row.end, row.seen, row.name
        if guid in told.switches:
            end, seen, name = None, now, told.switches[guid] or name
        elif (is_whole or end is not None) and (not told.by_smps or guid in met):
            end, seen = min(end or now + WEEK, now + WEEK), min(seen, now)
        if end is None or end > now:
            known[guid] = TreeSwitch(guid, name, seen, end)
    return known


def _ports(
    memory: FabricMemory,
    leaves: Collection[str],
    seen: Mapping[str, Mapping[int, str]],
    gone: Collection[str],
) -> tuple[dict[str, dict[int, str]], dict[LeafPort, str], set[str]]:
    """Return the switches at the ports of the leaves, those seen once, those with no port left."""
    uplinks: dict[str, dict[int, str]] = {}
    pending: dict[LeafPort, str] = {}
    for leaf in sorted(leaves):
        known = {p: guid for p, guid in memory.uplinks.get(leaf, {}).items() if guid not in gone}
        for port, guid in {**known, **seen.get(leaf, {})}.items():
            if known.setdefault(port, guid) != guid:
                if memory.pending.get((leaf, port)) == guid:
                    known[port] = guid
                else:
                    pending[leaf, port] = guid
        uplinks[leaf] = known
    pending |= {
        (leaf, port): guid
        for (leaf, port), guid in memory.pending.items()
        if leaf in uplinks and port not in seen.get(leaf, {})  # down now
    }
    before = {guid for ports in memory.uplinks.values() for guid in ports.values()}
    return uplinks, pending, before - {guid for p in uplinks.values() for guid in p.values()}


def _seen(
    memory: FabricMemory,
    uplinks: Mapping[str, Mapping[int, str]],
    up: Mapping[str, Collection[int]],
    now: int,
) -> dict[LeafPort, int]:
    """Return when each of the uplinks was up last."""
    return {
        (leaf, port): now
        if port in up.get(leaf, ())
        else min(memory.seen.get((leaf, port), memory.heard), now)
        for leaf, ports in uplinks.items()
        for port in ports
    }


def _second(answer: Tiers) -> frozenset[str]:
    return frozenset(filter(None, [answer.tier_2]))


def _rows(
    of_use: Collection[str],
    known: dict[str, TreeSwitch],
    switches: Mapping[str, str | None],
    now: int,
) -> dict[str, TreeSwitch]:
    """Return the rows of these switches, and of one other with the name of each."""
    for guid in of_use:
        known.setdefault(guid, TreeSwitch(guid, switches.get(guid), now))
    names = {known[guid].name for guid in of_use} - {None}
    for guid in sorted(switches.keys() - known.keys()):
        if switches[guid] in names:
            known[guid] = TreeSwitch(guid, switches[guid], now)
    named = defaultdict[str | None, list[str]](list)
    for guid in sorted(known.keys() - set(of_use)):
        named[known[guid].name].append(guid)
    namesakes = {guid for name in names for guid in named[name][:1]}
    return {guid: known[guid] for guid in sorted({*of_use, *namesakes})}


# The text of the annotation


def _from_1_to(most: int) -> Kind:
    """Return the fact that is a whole number of this range."""

    def parse(value: object) -> int:
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(value)
        return value

    return Kind(parse)


class _SwitchRow(NamedTuple):
    """A switch in the text; None is no tier, and the time of the text."""

    guid: str
    name: str | None
    tier: int | None
    seen: int | None
    end: int | None


class _LeafRow(NamedTuple):
    guid: str
    uplinks: Mapping[str, tuple[int, ...]]  # ports by switch
    seen: Mapping[int, tuple[int, ...]] | None  # ports by time, but that of the text


class _Pending(NamedTuple):
    leaf: str
    port: int
    guid: str


def _ports_by(key: Kind) -> Kind:
    """Return the fact that is an object of lists of ports by this fact."""

    def parse(value: object) -> dict[Any, tuple[int, ...]]:
        if not isinstance(value, dict) or len(value) > MAX_ROWS:
            raise ValueError(value)
        return {key.parse(name): _PORTS.parse(ports) for name, ports in value.items()}

    return Kind(parse, lambda rows: {key.document(name): ports for name, ports in rows.items()})


_GUID, _PORT = matching(GUID), _from_1_to(MAX_PORT)
_PORTS = array(_PORT, MAX_PORT)
_LINK: Schema = {"guid": _GUID, "port": _PORT, "far_guid": _GUID, "far_port": _PORT}
_SWITCH: Schema = {"guid": _GUID, "name": TEXT, "tier": _from_1_to(2), "seen": TIME, "end": TIME}
_LEAF: Schema = {"guid": _GUID, "uplinks": _ports_by(_GUID), "seen": _ports_by(TIME)}
_PENDING: Schema = {"leaf": _GUID, "port": _PORT, "guid": _GUID}
_DOCUMENT: Schema = {
    "time": TIME,
    "due": TIME,
    "looked": TIME,
    "reason": Kind(TierReason.of, str),
    "answer": WORD,
    "agreed": COUNT,
    "switches": array(record(_SwitchRow, _SWITCH, ["guid"]), MAX_ROWS),
    "leaves": array(record(_LeafRow, _LEAF, ["guid", "uplinks"]), MAX_ROWS),
    "pending": array(record(_Pending, _PENDING, _PENDING), MAX_ROWS),
    "paths": array(array(record(TreeLink, _LINK, _LINK), 2), MAX_ROWS),
    "by_smps": array(_GUID, MAX_ROWS),
    "left_out": COUNT,
}


def text(memory: FabricMemory) -> str:
    """Return the memory as JSON text in ASCII of at most MAX_BYTES.

    What was seen once goes first, then switches from the last one on, in the order of labels; those
    that the values of the tiers are from stay.
    """
    if len(content := _text(memory, ())) <= MAX_BYTES:
        return content
    memory = replace(memory, pending={})
    names = own_names({row.guid: row.name for row in memory.switches.values()})
    values = {memory.switch(1), memory.switch(2)}
    others = sorted(memory.switches.keys() - values, key=by_label(names))
    kept = len(others)
    while len(content := _text(memory, others[kept:])) > MAX_BYTES and kept:
        kept = min(kept - 1, kept * MAX_BYTES // len(content))
    return content


def _text(memory: FabricMemory, left_out: Collection[str]) -> str:
    tiers = dict.fromkeys(memory.tier_1, 1) | dict.fromkeys(memory.tier_2, 2)
    kept = [row for row in memory.switches.values() if row.guid not in left_out]
    # A name that a switch shares with one that is left out would be its own.
    names, own = ({row.guid: row.name for row in rows} for rows in (memory.switches.values(), kept))
    shared = own_names(own).keys() - own_names(names).keys()
    rows = [
        _SwitchRow(
            row.guid,
            None if row.guid in shared else row.name,
            tiers.get(row.guid),
            None if row.seen == memory.time else row.seen,
            row.end,
        )
        for row in kept
    ]
    pending = [_Pending(*port, guid) for port, guid in memory.pending.items()]
    facts: Json = {
        "time": memory.time,
        "due": memory.due,
        "looked": memory.looked or None,
        "reason": memory.reason,
        "answer": memory.answer or None,
        "agreed": memory.agreed or None,
        "switches": rows,
        "leaves": [_leaf(memory, leaf, left_out) for leaf in memory.uplinks],
        "pending": pending or None,
        "paths": memory.paths or None,
        "by_smps": sorted(memory.by_smps) or None,
        "left_out": memory.left_out + len(left_out) or None,
    }
    return json.dumps({"schema": SCHEMA, **written(facts, _DOCUMENT)}, separators=(",", ":"))


def _leaf(memory: FabricMemory, leaf: str, left_out: Collection[str]) -> _LeafRow:
    ports, heard = memory.uplinks[leaf], memory.heard
    kept = sorted(port for port, guid in ports.items() if guid not in left_out)
    by_switch = grouped(kept, ports.__getitem__)
    by_time = grouped(kept, lambda port: memory.seen.get((leaf, port), heard))
    seen = {time: tuple(of_time) for time, of_time in by_time.items() if time != heard}
    return _LeafRow(leaf, {g: tuple(p) for g, p in by_switch.items()}, seen or None)


def read(content: str) -> FabricMemory:
    """Return the memory that a text has; raises Malformed with one line."""
    if len(content) > MAX_LENGTH:
        raise Malformed(f"{len(content)} characters, at most {MAX_LENGTH} are allowed")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(visible(f"not JSON: {error}", MAX_PROBLEM)) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise Malformed(f"not a JSON object of schema {SCHEMA}")
    facts, faults = read_facts(document, _DOCUMENT)
    missing = {"time", "due", "switches", "leaves"} - facts.keys()
    if faults or missing:
        raise Malformed(f"malformed or missing: {', '.join(sorted({*faults, *missing}))}")
    return _memory(facts)


def _memory(facts: Json) -> FabricMemory:
    """Return the memory of these facts; raises Malformed for a switch that has no row."""
    time = facts["time"]
    rows: tuple[_SwitchRow, ...] = facts["switches"]
    switches = {
        row.guid: TreeSwitch(row.guid, row.name, time if row.seen is None else row.seen, row.end)
        for row in rows
    }
    leaves: tuple[_LeafRow, ...] = facts["leaves"]
    uplinks, looked = _ends(leaves, switches), facts.get("looked", 0)
    times = {
        (leaf.guid, port): at
        for leaf in leaves
        for at, ports in (leaf.seen or {}).items()
        for port in ports
    }
    heard = max(time, looked)
    seen = {
        (leaf, port): times.get((leaf, port), heard)
        for leaf, ports in uplinks.items()
        for port in ports
    }
    return FabricMemory(
        uplinks,
        frozenset(row.guid for row in rows if row.tier == 1),
        frozenset(row.guid for row in rows if row.tier == 2),
        switches,
        {(row.leaf, row.port): row.guid for row in facts.get("pending", ())},
        facts.get("reason"),
        facts.get("paths", ()),
        frozenset(facts.get("by_smps", ())),
        time,
        facts["due"],
        facts.get("answer", ""),
        facts.get("agreed", 0),
        facts.get("left_out", 0),
        looked,
        seen,
    )


def _ends(leaves: Iterable[_LeafRow], known: Collection[str]) -> dict[str, dict[int, str]]:
    """Return the switches by leaf and port; raises Malformed for one that has no row."""
    unknown = {guid for leaf in leaves for guid in leaf.uplinks if guid not in known}
    if unknown:
        raise Malformed(f"no row of the switch {min(unknown)}")
    return {
        leaf.guid: {port: guid for guid, ports in leaf.uplinks.items() for port in ports}
        for leaf in leaves
    }
