"""The memory of facts: one row for each backend port, and how long each part of it stays.

An observation reads the node once, and any part of it may fail. The memory merges it with the rows
of the observation before into `Known`, of which labels and annotation are functions: the memory has
facts of ports, and no labels.

Identity of a row: the PCI function, the number of the port and the leg of a bond; names move, rows
do not. A row whose function has another address now, or that was lost,
is known by its port GUID, unless several functions have that; a port without PCI function (rxe) by
its name.

Rules:
- M1: what is read is the fact. A part that is not read is the remembered part as long as STAYS has
  it for the cause; then the port counts 0, or has no far end. A port whose state was never read
  counts nothing that could be published.
- M2: a port whose link layer changed has no remembered far end. `last_far` outlives all this.
- M3: of a device that is not read, or whose driver is gone, all parts are unread; of all devices if
  the class is not read. They stay rows.
- M4: a row whose function left the bus is lost if it was a backend port for LONG seconds.
- M5: a port that is read, and is no backend port any more, is forgotten. So is a port whose netdev
  is a leg of a bond now: the bond's port has a row for each leg.
- A part is unread since the first observation that lacked it, at the earliest since the start of
  the agent that first missed it; only a read of that part resets it.
- A restart renews no hold, however short each life is. The annotation keeps the time once it is
  KEPT ago; of a part that an agent lacks from its start on, after ROUND seconds, in which it has
  read all files once. Not so that of a far end or an NVLink domain whose first frame or answer is
  still awaited: it stays for `hold` from the start of each agent, and at most for `hold` and
  `resync` from the last report that awaited none.
- The node was moved if the first far end of a port in this boot is not that of an earlier boot.
  All last far ends of earlier boots are forgotten then. In one boot a port that is down keeps its
  own, whatever the others do.
- The last bad link of a port stays for BAD_LINK_KEPT seconds of wall clock after the reading that
  told it, unless the port has another far end or link layer, or is lost.

Invariants: absence removes and failure holds, for each port on its own; no part but `last_far`
outlives its last read by more than M2 says; merge is idempotent.

Times are seconds of CLOCK_BOOTTIME; nothing here reads a clock or a file.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agent.facts import past
from agent.ids import GUID, is_of_device, moves
from agent.infiniband.devices import SA_SPREAD
from agent.model import (
    Failed,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    PortRole,
    Problem,
    RdmaDevice,
    RdmaPort,
    Seen,
)
from agent.node_description import switch_name
from agent.reasons import BadLink, HoldReason, NeighborReason
from agent.sources.interfaces import is_unread
from agent.sources.observe import NEIGHBOR_SOURCES
from agent.sources.pci import SOURCE, Place, bonded_functions
from agent.text import natural

if TYPE_CHECKING:  # an agent without --tiers does not load it
    from agent.infiniband.fabric_memory import FabricMemory

GRACE = 30.0  # seconds that a far end outlives its link, its TTL or its shutdown frame
KEPT = 60.0  # seconds after which the annotation has since when a part is unread
ROUND = 2.0  # seconds in which an agent has read, or failed to read, each file once
LONG = 60.0  # seconds as a backend port after which a port that left the bus is lost
SETTLE = 65.0  # seconds; a switch sends an LLDP frame every 30 s (IEEE Std 802.1AB)
BAD_LINK_KEPT = 24 * 3600.0  # seconds
MAX_LOST = 64  # no node has more ports
# Reasons of a far end that is not seen, and may be there
HEARD_OF = frozenset(HoldReason) - {HoldReason.LINK_DOWN}
Why = HoldReason | NeighborReason  # a far end is remembered

# What a label value can be made of (agent/encode.py): a letter or digit, or a long text
_LABELED = re.compile(r"[^\W_]|.{64}", re.DOTALL)

Key = tuple[str | None, int | str | None, str | None]  # of a row: function, port, leg
Identity = tuple[str, str | None, str | None]  # interface, function, port GUID
Where = Callable[[str], Place]  # where the PCI function of an address is


class Stay(NamedTuple):
    """How long a value stays that is not read: so many times `hold`, and so many seconds."""

    holds: int = 0
    seconds: float = 0.0

    def seconds_of(self, hold: float) -> float:
        """Return it in seconds."""
        return (hold if self.holds else 0.0) + self.seconds

    def __str__(self) -> str:
        """Return it as docs/labels.md has it."""
        return STAYS_IN_WORDS[self]


NOW, HOLD, EVER = Stay(), Stay(1), Stay(0, math.inf)
SHORT, UNASKED = Stay(0, GRACE), Stay(1, SA_SPREAD)
STAYS_IN_WORDS = {
    NOW: "0 s",
    HOLD: "hold",
    EVER: "no limit",
    SHORT: f"{GRACE:g} s",
    UNASKED: "hold and an hour",
}


class Hold(NamedTuple):
    """Why parts of a port are not read, and how long each stays."""

    text: str
    reasons: tuple[Why, ...]  # (): the part is absent
    state: Stay  # state and rate: the port's part of the speed
    far: Stay  # the far end: its neighbor labels, leaves and ports
    last_far: Stay  # its part of the leaf group


HOLDS = (
    Hold(
        "the state or rate of a port cannot be read",
        (HoldReason.INCOMPLETE,),
        *(HOLD, NOW, NOW),
    ),
    Hold("a device cannot be read", (HoldReason.DEVICE_FAILED,), HOLD, HOLD, EVER),
    Hold(
        "a driver is unloaded, the function is on the bus",
        (HoldReason.DEVICE_GONE,),
        *(HOLD, HOLD, EVER),
    ),
    Hold(
        "the RDMA class cannot be read",
        (HoldReason.SOURCE_FAILED, HoldReason.FRONT_END_UNKNOWN),
        *(HOLD, HOLD, EVER),
    ),
    Hold("a switch is silent, or its source fails", (HoldReason.NO_NEIGHBOR,), NOW, HOLD, EVER),
    Hold(
        "the TTL of the neighbor expired, or it sent a shutdown frame",
        (NeighborReason.EXPIRED, NeighborReason.SHUTDOWN),
        *(NOW, SHORT, EVER),
    ),
    Hold(
        "the subnet administrator, by which it was read, has not been asked since the start",
        (HoldReason.NOT_ASKED,),
        *(NOW, UNASKED, EVER),
    ),
    Hold("the link is down", (HoldReason.LINK_DOWN,), NOW, SHORT, EVER),
    Hold("the link is down, and the source fails", (HoldReason.LINK_DOWN,), NOW, SHORT, EVER),
    Hold(
        "the network device is lent to a Pod, the port ACTIVE",
        (HoldReason.LENT, HoldReason.SOURCE_OFF),
        *(NOW, EVER, EVER),
    ),
    Hold("the port has another link layer", (), NOW, NOW, NOW),
    Hold("the function left the bus, or was given to a VM", (), NOW, NOW, NOW),
    Hold("the device is left out by a flag", (), NOW, NOW, NOW),
    Hold("the port is no backend port any more", (), NOW, NOW, NOW),
)
STAYS: Mapping[Why, Hold] = {why: cause for cause in HOLDS for why in cause.reasons}


class FarEnd(NamedTuple):
    """The far end of a port, its texts unaltered; None is unknown."""

    id: str | None = None  # the switch's node GUID, or the LLDP Chassis ID
    name: str | None = None  # the NodeDescription with its name, or the LLDP System Name
    port_id: str | None = None  # number of the switch's port, or the LLDP Port ID
    port_name: str | None = None
    is_station: bool = False  # it says that it is neither Bridge nor Router: no leaf

    @property
    def device(self) -> str:
        """The text that the far end is labeled by; "" if nothing is known of it."""
        guid, name = self.id or "", self.name or ""
        text = (switch_name(name) or guid) if GUID.fullmatch(guid) else name
        return text if _LABELED.search(text) else guid

    def is_same(self, other: "FarEnd") -> bool:
        """Return True if it is the same node: by identifier, or by name."""
        return (self.id is not None and self.id == other.id) or self.device == other.device


class Fact(NamedTuple):
    """One backend port, or one leg of a bonded one; None is unknown."""

    interface: str  # its name in label keys; "": another port has that name now
    function: str | None  # address of its PCI function; None: a software device
    port: int | None = None  # its number; None: known by a name without it
    leg: str | None = None  # the member netdev of a bonded port
    netdev: str | None = None
    port_guid: str | None = None
    node_guid: str | None = None
    layer: str | None = None  # link layer
    rule: str | None = None  # that made it a backend port (agent/sources/roles.py)
    gbps: float | None = None  # its part of the speed label
    far: FarEnd | None = None
    last_far: FarEnd | None = None
    is_earlier: bool = False  # `last_far` is of an earlier boot
    via: str | None = None  # "lldp" | "smp" | "sa": the way that `last_far` was read by
    # Unread since; None: read by the last observation
    state_since: float | None = None  # state and rate
    far_since: float | None = None  # the far end; None as well while it has no limit
    role_since: float | None = None
    state_why: HoldReason | None = None
    far_why: Why | None = None
    backend_since: float = -math.inf
    state_ended: bool = False  # the hold of state and rate
    has_ended: bool = False  # the hold of an unread device
    lost_since: int | None = None  # seconds since the epoch
    bad_link: BadLink | None = None

    def __str__(self) -> str:
        """Return `ibp3 (0000:5e:00.0)`."""
        return f"{self.interface} ({self.function})"

    @property
    def far_hold(self) -> HoldReason | None:
        """Why the far end is held; None if it is seen, or has ended."""
        return self.far_why if isinstance(self.far_why, HoldReason) else None

    @property
    def identity(self) -> Identity:
        """What tells a lost row from others: another port may have its name and address now."""
        return self.interface, self.function, self.port_guid


class Known(NamedTuple):
    """What is known of the node's backend after an observation."""

    facts: tuple[Fact, ...] = ()  # in natural order of their interfaces
    lost: tuple[Fact, ...] = ()
    is_read: bool = False  # the RDMA devices were read, now or before
    # why facts are missing that exist; None: nothing is
    unknown: HoldReason | None = None
    has_strangers: bool = False  # devices that may be backend ports, and were never read
    may_be_infiniband: bool = False  # one of them
    group_hold: HoldReason | None = None  # why last far ends may be missing or outdated
    domain: str | None = None  # the NVLink domain
    domain_why: HoldReason | None = None  # why it is remembered
    # The rows of the label table whose labels were last published of all facts (FREEZABLE there)
    whole: frozenset[str] = frozenset()
    unknown_since: float | None = None  # since when facts are missing; None: all are known
    domain_since: float | None = None
    group_since: float | None = None  # since when the published group has more than the rows
    next_end: float = math.inf  # when the next hold or grace ends
    is_seeded: bool = False  # the Node was read
    off: frozenset[str] = frozenset()  # sources whose labels stay as published
    disabled: frozenset[str] = frozenset()  # sources that are absent
    domain_was: str | None = None  # the last one, if this observation found another
    # Far ends before this observation, by interface, of ports that have another far end now
    was: Mapping[str, FarEnd] = MappingProxyType({})
    now: float = 0.0  # the time of this observation
    started: float = -math.inf  # the start of the agent
    fabric: "FabricMemory | None" = None  # the switches above the leaves; None: --tiers is off

    @property
    def unbound(self) -> list[Fact]:
        """The ports whose PCI function is on the bus, without an RDMA device."""
        return [fact for fact in self.facts if fact.state_why is HoldReason.DEVICE_GONE]


class Published(NamedTuple):
    """What annotation and labels of the Node have at the start of an agent."""

    rows: Sequence[Fact] = ()
    lost: Sequence[Fact] = ()
    excluded: Sequence[Fact] = ()  # rows of devices that the flags leave out
    whole: frozenset[str] = frozenset()  # of Known
    domain: str | None = None
    # Since when facts are unknown that the labels of the whole node have, the domain, and what the
    # leaf group has more than the rows; None: from now on
    unknown_since: float | None = None
    domain_since: float | None = None
    group_since: float | None = None
    gap: HoldReason | None = None  # why the leaf group is not that of the rows
    overdue: float = 0.0  # seconds that its last report is older than that of a running agent
    is_whole: bool = False  # the rows are all that the speed counts
    fault: str = ""  # why what the rows counted cannot be used
    subject: str = ""  # the annotation's key


class Memory:
    """The rows of one node's backend ports."""

    def __init__(self, hold: float, settle: float = SETTLE, started: float | None = None) -> None:
        self._hold, self._settle = hold, settle
        self._started = started  # None: when the Node is read
        self._facts: tuple[Fact, ...] = ()
        self._lost: tuple[Fact, ...] = ()
        self._is_read = False
        # Functions that were read without backend port; None: none was.
        self._ignored: frozenset[str] | None = None
        self._is_whole = False  # a device without row is known to count nothing
        # The names of switches that were renamed, by identifier and former name
        self._renamed: dict[tuple[str | None, str | None], str | None] = {}
        # Devices that may be backend ports, and of which nothing is known: unread since.
        self._strangers: dict[str, float] = {}
        self._may_be_infiniband = False  # one of them
        self._whole: frozenset[str] = frozenset()
        self._unknown_since: float | None = None
        self._domain: str | None = None
        self._domain_since: float | None = None
        self._last_domain: str | None = None  # that the Node had, or that was read
        self._settles_at = -math.inf
        # Why the published leaf group may have more than the rows; unread since
        self._gap: HoldReason | None = None
        self._gap_since: float | None = None  # None: no limit
        self._counts = "", ""  # why the published ones were rejected, and the annotation's key
        self._is_seeded = False
        # The first far ends of this agent, which it may see before it can read the Node
        self._first_far: dict[Key, FarEnd] = {}

    def seed(self, published: Published, now: float) -> None:
        """Start from what the Node has, which was read `now`.

        A part that has no time is unread from the start of the agent, which may have observed for
        long before it could read the Node: what it has read itself counts.
        """
        begun = self._started = now if self._started is None else self._started
        self._whole = published.whole
        self._unknown_since = _published_since(published.unknown_since, begun)
        self._ignored, self._strangers = None, {}
        awaited = min(begun, now - published.overdue)
        if not self._domain:  # it has not read one itself
            domain_since = _published_since(published.domain_since, begun, awaited)
            self._domain = published.domain
            self._domain_since = domain_since if published.domain else None
        self._last_domain = published.domain
        own = {_key(fact): fact for fact in self._facts}
        counted = published.rows
        if published.fault:
            counted = [row._replace(gbps=None) for row in counted]
        before = (*counted, *published.lost)
        now_at = moves(map(_located, self._facts), map(_located, before))
        rows, lost = [], []
        for row in before:
            at = now_at.get(row.function or "", row.function)
            fact = own.pop(_key(row._replace(function=at)), None)
            if row.lost_since is not None and fact is None:
                lost.append(row)
            else:
                first = self._first_far.get(_key(fact)) if fact else None
                rows.append(_joined(row, fact, first, begun, awaited))
        names = {row.interface for row in rows}
        rows += [fact for fact in own.values() if fact.interface not in names]
        self._facts, self._lost = tuple(rows), tuple(lost)
        # The first frames tell whose leaf it is, where no last far end does.
        knows_leaf = published.gap or any(row.last_far for row in published.rows)
        self._settles_at = -math.inf if knows_leaf else now + self._settle
        self._gap = published.gap
        is_limited = published.gap is not HoldReason.NOT_REMEMBERED
        self._gap_since = _published_since(published.group_since, now) if is_limited else None
        self._is_whole, self._is_seeded = published.is_whole, True
        self._counts = published.fault, published.subject

    def forget(self, lost: Collection[Identity]) -> None:
        """Forget rows that are lost: another program has removed them from the annotation."""
        self._lost = tuple(row for row in self._lost if row.identity not in lost)

    def complete(
        self, observation: Observation, where: Where, now: float
    ) -> tuple[Observation, Known]:
        """Return the observation with the ports that are lost, and what is known after it."""
        known = self.merge(observation, where, now)
        new_problems = [
            Problem(SOURCE, row.interface, None, f"{row} is gone from the bus")
            for row in known.lost
        ]
        text = "no RDMA device, though its PCI function {} is on the bus: is its driver loading?"
        new_problems += [
            Problem(SOURCE, row.interface, None, text.format(row.function)) for row in known.unbound
        ]
        fault, subject = self._counts
        unknown = [
            row.interface
            for row in known.facts
            if row.gbps is None and row.state_why and not row.state_ended
        ]
        if fault and unknown:
            text = f"what {', '.join(unknown)} counted last is ignored: {fault}"
            new_problems.append(Problem("node", subject, None, text))
        # A port whose state or rate is unread counts what it did last.
        counts = {row.interface: row.gbps for row in known.facts if row.state_why}
        ports = tuple(
            role._replace(counted_gbps=counts[role.interface])
            if role.backend and role.interface in counts
            else role
            for role in observation.ports
        )
        problems = (*observation.problems, *new_problems)
        return observation._replace(ports=ports, problems=problems), known

    def published(self, whole: frozenset[str]) -> None:
        """Take over which rows of the label table have labels of all facts now.

        Such a label stays as it is while facts are missing; another label follows what is read.
        """
        self._whole = whole

    def merge(self, observation: Observation, where: Where, now: float) -> Known:
        """Take over an observation at `now`; `where` tells the place of a function."""
        if isinstance(observation.rdma, Failed):
            why = observation.rdma.hold or HoldReason.SOURCE_FAILED
            facts = [_unread(row, why, now) for row in self._facts]
            is_known = self._is_whole and facts and all(row.gbps is not None for row in facts)
            unknown = None if is_known else why
        else:
            self._is_read = True
            facts = self._merge_ports(observation, where, now)
            unknown = self._stranger_hold(observation, facts, now)
        is_same = self._compare(facts)
        facts = [self._without_ended(fact, now) for fact in facts]
        was = self._was(facts)
        facts = _with_bad_links(facts, was, observation, now)
        self._facts = tuple(sorted(facts, key=lambda fact: natural(fact.interface)))
        self._unknown_since = None if unknown is None else _first(self._unknown_since, now)
        if _is_over(self._unknown_since, self._hold, now):
            unknown = None
        domain_why = self._merge_domain(observation, now)
        domain_was = self._last_domain if self._domain else None
        if self._is_seeded:
            self._last_domain = self._domain or self._last_domain
        return Known(
            self._facts,
            self._lost,
            self._is_read,
            unknown,
            bool(self._strangers),
            self._may_be_infiniband,
            self._group_hold(now, is_same=is_same),
            self._domain,
            domain_why,
            self._whole,
            self._unknown_since,
            self._domain_since,
            self._gap_since if self._gap else None,
            self._next_end(now),
            self._is_seeded,
            observation.off,
            observation.disabled,
            domain_was if domain_was != self._domain else None,
            was,
            now,
            -math.inf if self._started is None else self._started,
        )

    def _merge_domain(self, observation: Observation, now: float) -> HoldReason | None:
        """Take over the NVLink domain; return why it is remembered."""
        domain = observation.accelerator
        if domain.value or not domain.holds:
            self._domain, self._domain_since = domain.value, None
            return None
        if self._domain:
            self._domain_since = _first(self._domain_since, now)
        if _is_over(self._domain_since, self._hold, now):
            self._domain = self._domain_since = None
        if not self._domain:
            return None
        if "nvml" in observation.off:
            return HoldReason.SOURCE_OFF
        is_failed = isinstance(observation.nvml, Failed)
        return HoldReason.SOURCE_FAILED if is_failed else HoldReason.NO_DOMAIN

    def _group_hold(self, now: float, *, is_same: bool) -> HoldReason | None:
        """Return why the last far ends may be fewer than they were: a port has none so far.

        A new agent waits SETTLE for the first frames. Where the published group is not that of its
        rows, it stays for `hold` while a port has none; without limit if the annotation had no
        room for all. Another far end than before of any port ends that.
        """
        lacking = [
            fact
            for fact in self._facts
            if not fact.last_far and not fact.has_ended and not (fact.far and fact.far.is_station)
        ]
        if (not lacking and self._is_read) or _is_over(self._gap_since, self._hold, now):
            self._gap = None
        if now < self._settles_at and any(fact.far_why in HEARD_OF for fact in lacking):
            return HoldReason.NO_NEIGHBOR
        return self._gap if is_same else None

    # M1 to M5

    def _merge_ports(self, observation: Observation, where: Where, now: float) -> list[Fact]:
        """Take over the ports; return the facts of those that are read, or that may be there."""
        devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
        backend, before = observation.backend, (*self._facts, *self._lost)
        # The addresses of functions that are known by their port GUID, by those they had.
        here = [(role.port.port_guid, role.device.pci) for role in backend]
        now_at = moves(here, map(_located, before))
        matched = _matched(backend, before, now_at)
        failures = _failures(observation)
        links = {link.interface: link for link in observation.links}
        facts = []
        for role in backend:
            name, failure = role.interface, failures.get(role.port.link_layer)
            facts.append(self._fact_of(role, matched[name], links.get(name), failure, now))
        names = {role.interface for role in backend}
        used = {row: role.port.number for role in backend if (row := matched[role.interface])}
        lost = [row for row in self._lost if row not in used]
        bonded = bonded_functions(devices)
        moved = {at for was, at in now_at.items() if was != at}
        for row in self._facts:
            if row in used or row.function in bonded:
                continue
            fate = Place.GONE if row.function in moved else _fate(row, devices, where)
            if isinstance(fate, HoldReason):
                name = "" if row.interface in names else row.interface
                facts.append(_unread(row._replace(interface=name), fate, now))
            elif fate is Place.GONE and now >= row.backend_since + LONG:
                since = int(observation.time)
                lost.append(row._replace(lost_since=since, far=None, gbps=0.0, bad_link=None))
        new = [role for role in backend if matched[role.interface] is None]
        # The functions whose devices are read; one that is unregistered loses ports first.
        present = [device for device in devices if device.ports or device.excluded]
        read = {device.pci for device in present if device.pci and not is_unread(device)}
        self._lost = self._still_lost(lost, new, read - {*now_at.values()}, where)
        self._facts = tuple(row._replace(port=used.get(row, row.port)) for row in self._facts)
        self._ignored = frozenset(read - {role.device.pci for role in backend})
        return facts

    def _fact_of(
        self,
        role: PortRole,
        row: Fact | None,
        link: Link | None,
        failure: HoldReason | None,
        now: float,
    ) -> Fact:
        """Return the facts of a port that is read; what this read lacks is remembered."""
        port, old = role.port, row or Fact(role.interface, role.device.pci)
        netdev = role.netdev
        fact = Fact(
            interface=role.interface,
            function=role.device.pci,
            port=port.number,
            leg=role.leg.name if role.leg else None,
            netdev=netdev.name if netdev else old.netdev,
            port_guid=port.port_guid or old.port_guid,
            node_guid=role.device.node_guid or old.node_guid,
            layer=port.link_layer,
            rule=role.rule or None,
            gbps=role.counted_gbps,
            backend_since=old.backend_since if row and row.lost_since is None else now,
            bad_link=old.bad_link if old.layer in {None, port.link_layer} else None,
        )
        if role.counted_gbps is None:
            since = _first(old.state_since, now)
            fact = fact._replace(gbps=old.gbps, state_since=since, state_why=HoldReason.INCOMPLETE)
        if old.layer not in (None, port.link_layer):  # M2
            old = Fact(role.interface, role.device.pci)
        kept = fact._replace(last_far=old.last_far, is_earlier=old.is_earlier, via=old.via)
        if link and link.neighbors and port.state != "DOWN":
            neighbor = link.neighbors[0]
            far = far_end(neighbor)
            if far.device and not far.is_station:  # a station is no leaf
                return fact._replace(far=far, last_far=far, via=neighbor.via)
            if old.last_far is None or (far.is_station and old.last_far.is_same(far)):
                return fact._replace(far=far)
            return kept._replace(far=far)
        if link is None and failure is None:  # the source is disabled
            return kept
        why = _why(port, link, failure, old)
        far_since = None if STAYS[why].far is EVER else _first(old.far_since, now)
        return kept._replace(far=old.far, far_why=why, far_since=far_since)

    def _without_ended(self, fact: Fact, now: float) -> Fact:
        """Return the fact without the parts whose hold or grace has ended."""
        if now >= self._far_ends_at(fact):
            fact = fact._replace(far=None)
        if now >= self._state_ends_at(fact):
            gbps = None if fact.gbps is None else 0.0
            fact = fact._replace(gbps=gbps, state_ended=True)
        return fact._replace(has_ended=_is_over(fact.role_since, self._hold, now))

    def _state_ends_at(self, fact: Fact) -> float:
        """Return the time at which remembered state and rate end; infinity if they are read."""
        if fact.state_since is None or fact.state_why is None:
            return math.inf
        return fact.state_since + STAYS[fact.state_why].state.seconds_of(self._hold)

    def _far_ends_at(self, fact: Fact) -> float:
        """Return the time at which a remembered far end ends; infinity if it is seen."""
        if fact.far_since is None or fact.far_why is None:
            return math.inf
        return fact.far_since + STAYS[fact.far_why].far.seconds_of(self._hold)

    def _next_end(self, now: float) -> float:
        ends = [since + self._hold for since in self._strangers.values()]
        ends += [self._settles_at]
        since = [self._unknown_since, self._domain_since, self._gap_since if self._gap else None]
        for fact in self._facts:
            since += [fact.state_since, fact.far_since if fact.far else None, fact.role_since]
            ends += [self._state_ends_at(fact), self._far_ends_at(fact) if fact.far else math.inf]
        ends += [
            start + time for start in since if start is not None for time in (KEPT, self._hold)
        ]
        ends += [start + ROUND for start in since if start is not None and start == self._started]
        return min((end for end in ends if end > now), default=math.inf)

    def _still_lost(
        self,
        lost: list[Fact],
        new: Collection[PortRole],
        read: Collection[str],
        where: Where,
    ) -> tuple[Fact, ...]:
        """Return the rows that are lost still, MAX_LOST of them, those first that are lost now.

        A row is forgotten if its function is `read`, or was given to a virtual machine, and if a
        backend port that was not there before takes its place: a port of the same name, else the
        first.
        """
        kept = [
            row
            for row in lost
            if row.function and row.function not in read and where(row.function) is not Place.VM
        ]
        is_known = self._ignored is not None or bool(self._facts)
        for role in new if is_known else ():
            if role.device.pci not in (self._ignored or ()):
                same = [row for row in kept if row.interface == role.interface]
                for row in (same or kept)[:1]:
                    kept.remove(row)
        # A row of the annotation may be there twice: it is written once (agent/kube/annotation.py).
        kept = [*{row.identity: row for row in kept}.values()]
        kept.sort(key=lambda row: -(row.lost_since or 0))
        return tuple(sorted(kept[:MAX_LOST], key=lambda row: natural(row.interface)))

    def _stranger_hold(
        self, observation: Observation, facts: Collection[Fact], now: float
    ) -> HoldReason | None:
        """Return why a sum of the facts may lack some; None if it does not.

        A candidate that is not read, and of which there is no row, may be a backend port, unless
        all that count were known before.
        """
        devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
        strangers = [
            device.name
            for device in devices
            if device.name in observation.unread
            and not self._is_whole
            and not any(_is_row_of(fact, device) for fact in facts)
        ]
        if not strangers and not any(fact.gbps is None for fact in facts):
            self._is_whole = True
        self._strangers = {name: self._strangers.get(name, now) for name in strangers}
        layers = {observation.unread[name] for name in strangers}
        self._may_be_infiniband = "InfiniBand" in layers
        if any(not _is_over(since, self._hold, now) for since in self._strangers.values()):
            return HoldReason.DEVICE_FAILED
        uncounted = (fact.state_since for fact in facts if fact.gbps is None)
        if any(not _is_over(since, self._hold, now) for since in uncounted):
            return HoldReason.INCOMPLETE
        return None

    # The last far ends

    def _compare(self, facts: list[Fact]) -> bool:
        """Compare the far ends that are seen with the last ones; return True if all are the same.

        Forgets those of earlier boots if the node was moved. Changes `facts` in place.
        """
        seen = {
            _key(fact): fact.far
            for fact in facts
            if fact.far and not fact.far.is_station and fact.far_why is None
        }
        # Of each port that is seen: whether its last far end is of an earlier boot, that, and now.
        ends = [
            (row.is_earlier, row.last_far, seen[_key(row)])
            for row in self._facts
            if row.last_far and row.last_far.device and _key(row) in seen
        ]
        moved = [is_earlier for is_earlier, last, far in ends if not far.is_same(last)]
        if not self._is_seeded:
            self._first_far = {**seen, **self._first_far}
        if any(moved):
            self._lost = tuple(map(_of_this_boot, self._lost))
            facts[:] = [fact if _key(fact) in seen else _of_this_boot(fact) for fact in facts]
        self._rename(facts, seen, [(last, far) for _, last, far in ends])
        return not moved

    def _rename(
        self,
        facts: list[Fact],
        seen: Mapping[Key, FarEnd],
        ends: Iterable[tuple[FarEnd, FarEnd]],
    ) -> None:
        """Give the new name of a switch to its ports that are not seen.

        It was renamed if one of its ports has another name now; `ends` are the far ends of a port,
        last and now. A port that is not seen follows, unless another one has the former name still:
        that was not told yet, or two devices share the Chassis ID. Changes `facts` in place.
        """
        for last, far in ends:
            is_same_port = last.id and (last.id, last.port_id) == (far.id, far.port_id)
            if is_same_port and last.name != far.name:
                self._renamed[last[:2]] = far.name
                self._renamed.pop(far[:2], None)
        in_use = {far[:2] for far in seen.values()}
        for index, fact in enumerate(facts):
            last_far = fact.last_far
            if last_far and _key(fact) not in seen and last_far[:2] not in in_use:
                name = self._renamed.get(last_far[:2], last_far.name)
                facts[index] = fact._replace(last_far=last_far._replace(name=name))
        self._renamed = {end: name for end, name in self._renamed.items() if end in in_use}

    def _was(self, facts: Iterable[Fact]) -> dict[str, FarEnd]:
        """Return the former far ends of the ports whose cable leads elsewhere now."""
        before = {_key(row): row.last_far for row in (*self._lost, *self._facts)}
        former = {}
        for fact in facts:
            last, far = before.get(_key(fact)), fact.far
            if not (last and far and far.device) or far.is_station or fact.far_why:
                continue
            ports = last.port_id, far.port_id
            if not far.is_same(last) or (None not in ports and last.port_id != far.port_id):
                former[fact.interface] = last
        return former


def known_of(observation: Observation) -> Known:
    """Return what is known by an observation that stands alone."""
    known = Memory(math.inf).merge(observation, lambda _address: Place.GONE, 0.0)
    return known._replace(fabric=remembered(None, observation, known))


def remembered(
    fabric: "FabricMemory | None", observation: Observation, known: Known
) -> "FabricMemory | None":
    """Return what is known of the switches above after an observation that has explored them.

    `fabric` was known before. Returned is None if nothing is, or --tiers is off.
    """
    if not isinstance(observation.tiers, Seen):
        return fabric
    from agent.infiniband.fabric_memory import NOTHING, merge

    explored = observation.tiers.value
    rows = [row for row in known.facts if row.layer == "InfiniBand"]
    leaves = {
        *explored.tiers.leaves,
        *(row.last_far.id for row in rows if row.last_far and row.last_far.id),
    }
    # The switches of a subnet that did not answer are missing in the tables, but not gone.
    seen = {row.far.id for row in rows if row.far and row.far_why is None}
    is_whole = seen <= {*explored.tiers.leaves}
    now = int(observation.time)
    return merge(fabric or NOTHING, explored, leaves, now, is_whole=is_whole)


def _with_bad_links(
    facts: Iterable[Fact], moved: Collection[str], observation: Observation, now: float
) -> list[Fact]:
    """Return the facts with the last bad link of each port; those of `moved` have another link."""
    wall = observation.time
    told = {
        link.interface: BadLink(
            link.verdict.end, int(wall - max(now - (link.time or now), 0.0)), link.time
        )
        for link in observation.read_links
        if link.verdict and link.verdict.is_unstable
    }
    rows = []
    for fact in facts:
        last, new = fact.bad_link, told.get(fact.interface)
        if last and (fact.interface in moved or past(last.time, wall) is None):
            last = None
        bad = last if not new or (last and last.reading == new.reading) else new
        is_over = bad and wall >= bad.time + BAD_LINK_KEPT
        rows.append(fact._replace(bad_link=None if is_over else bad))
    return rows


def far_end(neighbor: Neighbor) -> FarEnd:
    """Return the far end that a neighbor is."""
    facts = neighbor.facts
    if not isinstance(facts, LldpNeighbor):
        name = neighbor.last_description or facts.node_description
        return FarEnd(facts.node_guid, name, str(facts.port), neighbor.port_name)
    chassis_id, name = facts.chassis_id, facts.system_name
    far = FarEnd(chassis_id, name, facts.port_id, neighbor.port_name, facts.is_switch is False)
    # A Chassis ID that looks like the node GUID of an InfiniBand switch is no identifier.
    return far._replace(id=None, name=name or chassis_id) if GUID.fullmatch(chassis_id) else far


def _key(fact: Fact) -> Key:
    """Return the key of a row: its function and part; its name without a function."""
    if fact.function is None:
        return None, fact.interface, None
    return fact.function, fact.port, fact.leg


def _joined(
    row: Fact, own: Fact | None, first: FarEnd | None, begun: float, awaited: float
) -> Fact:
    """Return a row of the Node with what the agent has read itself of the port since it `begun`.

    `first` is the first far end that it saw. One of the Node that has no time is unread since
    `awaited`.
    """
    row = row._replace(
        state_since=_published_since(row.state_since, begun),
        far_since=_published_since(row.far_since, begun, awaited),
        role_since=_published_since(row.role_since, begun),
        state_why=row.state_why or HoldReason.SOURCE_FAILED,
        far_why=row.far_why or HoldReason.NO_NEIGHBOR,
    )
    if own is None:
        return row
    state = row if own.gbps is None else own
    far = own if own.far or own.far_why is None else row
    return own._replace(
        gbps=state.gbps,
        state_since=state.state_since,
        far=far.far,
        far_since=far.far_since,
        # That of before, with which the next observation compares
        last_far=row.last_far or own.last_far,
        is_earlier=row.is_earlier and not (row.last_far and first and row.last_far.is_same(first)),
        via=row.via if row.last_far else own.via,
        bad_link=own.bad_link or row.bad_link,
    )


def _first(since: float | None, now: float) -> float:
    return now if since is None else since


def _published_since(since: float | None, now: float, unknown: float | None = None) -> float:
    """Return a time that was published; now if it is of the future, or `unknown` if it is none."""
    return min(_first(since, _first(unknown, now)), now)


def _is_over(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now >= since + seconds


def _unread(row: Fact, why: HoldReason, now: float) -> Fact:
    """Return the row of a port of which nothing is read (M3)."""
    return row._replace(
        state_since=_first(row.state_since, now),
        far_since=_first(row.far_since, now),
        role_since=_first(row.role_since, now),
        state_why=why,
        far_why=why,
    )


def _why(port: RdmaPort, link: Link | None, failure: HoldReason | None, row: Fact) -> Why:
    """Return why the far end of a port is not read."""
    missing = link.missing if link else None
    if port.state == "DOWN" or missing == NeighborReason.LINK_DOWN:
        return HoldReason.LINK_DOWN
    for ended in (NeighborReason.EXPIRED, NeighborReason.SHUTDOWN):
        if missing == ended:
            return ended
    if missing == NeighborReason.NO_NETDEV and port.state == "ACTIVE":
        return HoldReason.LENT
    if link and link.is_unasked and row.via == "sa":
        return HoldReason.NOT_ASKED
    return failure or HoldReason.NO_NEIGHBOR


def _fate(row: Fact, devices: Collection[RdmaDevice], where: Where) -> HoldReason | Place | None:
    """Return why a row without backend port is unread, else the place of its function.

    None: the port was read, and is no backend port any more. A device that cannot be read may have
    no address: its name decides then.
    """
    for device in devices:
        if _is_row_of(row, device):
            if is_unread(device):
                return HoldReason.DEVICE_FAILED
            if device.ports or device.excluded:
                return None
    if row.function is None:
        return None
    place = where(row.function)
    return HoldReason.DEVICE_GONE if place is Place.BUS else place


def _of_this_boot(row: Fact) -> Fact:
    """Return a row without a last far end of an earlier boot."""
    return row._replace(last_far=None, is_earlier=False) if row.is_earlier else row


def _is_row_of(row: Fact, device: RdmaDevice) -> bool:
    if device.pci and row.function:
        return device.pci == row.function
    return is_of_device(row.interface, device.name)


def _matched(
    roles: Collection[PortRole], rows: Collection[Fact], now_at: Mapping[str, str]
) -> dict[str, Fact | None]:
    """Return the row of each role by interface; rows that are lost are second to the others."""
    taken = set(now_at.values())
    by_function: dict[str | None, list[Fact]] = defaultdict(list)
    for row in rows:
        at = now_at.get(row.function or "", "" if row.function in taken else row.function)
        by_function[at].append(row)
    matched: dict[str, Fact | None] = {}
    for role in roles:
        leg, name = role.leg, role.leg.name if role.leg else None
        same = by_function.get(role.device.pci, []) if role.device.pci else []
        same = [row for row in same if row.leg == name]
        alone = by_function.get(leg.function, []) if leg and leg.function else []
        candidates = (
            *(row for row in same if row.port == role.port.number),
            *(row for row in same if row.port is None),
            # Until it joined the bond, a leg was the port of its own function.
            *(row for row in alone if row.leg is None),
            # A software device, or a label without row
            *(row for row in by_function.get(None, []) if row.interface == role.interface),
        )
        matched[role.interface] = next(iter(candidates), None)
    return matched


def _located(row: Fact) -> tuple[str | None, str | None]:
    """Return the port GUID and the function, which may have another address now."""
    return row.port_guid, row.function


def _failures(observation: Observation) -> dict[str | None, HoldReason]:
    """Return, by link layer, why no neighbor was read; a disabled source is absent."""
    reasons: dict[str | None, HoldReason] = {}
    for source, layer in NEIGHBOR_SOURCES:
        outcome = getattr(observation, source)
        if source in observation.off:
            reasons[layer] = HoldReason.SOURCE_OFF
        elif isinstance(outcome, Failed):
            reasons[layer] = outcome.hold or HoldReason.SOURCE_FAILED
    return reasons
