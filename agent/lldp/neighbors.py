"""Keep the LLDP neighbors of each netdev over time: frames and the clock in, ordered neighbors out.

Invariants: the module does no I/O, the caller passes the time. A sender is known by its Chassis ID
and Port ID on a netdev, its MSAP identifier (IEEE Std 802.1AB-2016), whatever its source
address: a switch that changes its MAC address or its name stays one sender, and two switches behind
one address are two. A shutdown frame ends the MSAP that it names, and no other.

Lifetime. A sender ends with its TTL, or with its shutdown frame (TTL 0); while a link is down its
netdev has no neighbor. After a time in which the agent did not run no TTL ends for AWAITED
(`woke`). A sender that has ended is kept for `grace` seconds: if it returns it is confirmed as
before, and while the selected one may return no other takes its place. (How long a label outlives
its neighbor is a matter of agent/memory.py.) Example, with a TTL of 120 s and a grace of 30 s: a
frame at 100 s makes its sender a neighbor until 220 s; another is selected from 250 s on.

Identity. The first frame of a sender takes effect at once. An identity that contradicts it takes
effect in the `confirm`-th frame in a row that has it.

Start. A netdev may start with the neighbor that it had before (`seed`). A frame with that identity
takes effect at once. Other senders are no neighbors until they are confirmed, and replace it after
AWAITED, counted from the start of the agent or the return of the netdev. Example: an agent
restarts, and receives two frames of a BMC or of another switch before that of the leaf; the label
keeps the leaf.

Another port of one chassis, from one source address, is another station, or the same one under a
new Port ID. It is no neighbor until it is confirmed, though the former port ends meanwhile. After
REPLACING_FRAMES of its frames in a row, without one of the former port between, it replaces that.
Example, with `confirm` 2: a SONiC switch that restarts sends its MAC address as Port ID in one
frame and its alias in the next ones; the label keeps the alias. Two ports of a switch behind a hub
send by turns, and are two neighbors.

Order. The first neighbor is the selected one. Criteria, in this order: a destination address with
a smaller scope (nearest bridge first); it says that it is a bridge or router, before one that does
not say what it is, before one that is neither; a confirmed identity; a frame since the link last
came up; selected before; the latest frame. A sender that is not confirmed is never newly selected
before one that is, so that neither a single frame nor the first frame after a flap changes the
selection. After a flap the selected one is awaited for AWAITED: of two that sent before it, the
first to send again proves no moved cable.

Limits. A netdev has at most MAX_NEIGHBORS senders; the last in the order makes room for a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.lldp import frame as lldp
from agent.lldp.frame import Frame
from agent.model import LldpNeighbor
from agent.reasons import NeighborReason

MAX_NEIGHBORS = 32  # senders kept for a netdev
REPLACING_FRAMES = 2  # in a row, of another port of the same chassis and source address
REFUSED_TIMEOUT = 120.0  # seconds after a refused frame: the usual TTL (9.2.5.6)
AWAITED = 65.0  # seconds: two transmit intervals and a margin (9.2.5.7, msgTxInterval)
KINDS = (True, None, False)  # LldpNeighbor.is_switch, the best first
SCOPES = ("01:80:c2:00:00:0e", "01:80:c2:00:00:03", "01:80:c2:00:00:00")  # Table 7-1, nearest first


Msap = tuple[bytes, bytes]  # Chassis ID and Port ID, as lldp.msap returns them


class Former(NamedTuple):
    """The neighbor that the port of a netdev had before."""

    is_same: Callable[[LldpNeighbor], bool]  # of a shutdown frame: its sender alone
    until: float  # it is awaited; no other neighbor replaces it before


@dataclass(slots=True)
class Sender:
    """An MSAP on a netdev."""

    frame: bytes  # the last frame with a TTL other than 0, as received
    latest: LldpNeighbor  # the content of that frame
    effective: LldpNeighbor  # the last content with a confirmed identity, or with the first
    received_at: float  # seconds, by the clock of `Frame.time`: the last frame
    link_ups: int  # how often the link had come up by then
    first_link_ups: int  # the same by its first frame
    repetitions: int = 0  # the last frames in a row with the same identity
    confirmed: bool = False  # an identity was confirmed
    is_second: bool = False  # another station of its chassis was there before
    uninterrupted: int = 0  # the last frames in a row, without a frame of another station between
    shut_down: bool = False  # the last frame was a shutdown frame
    kept_until: float = -math.inf  # no earlier expiry by the TTL

    @property
    def expires_at(self) -> float:
        """The arrival of the shutdown frame, or of the last frame plus its TTL."""
        if self.shut_down:
            return self.received_at
        return max(self.received_at + self.latest.ttl, self.kept_until)

    def has_ended(self, now: float) -> bool:
        """Return True after its shutdown frame, and after the last second of its TTL."""
        return self.shut_down or now > self.expires_at

    def update(self, frame: Frame, facts: LldpNeighbor, confirm: int) -> None:
        """Take in a frame with a TTL other than 0; a new identity takes effect once confirmed."""
        same = facts is self.latest or identity(facts) == identity(self.latest)
        self.repetitions = self.repetitions + 1 if same else 1
        self.frame, self.latest, self.received_at = frame.data, facts, frame.time
        self.shut_down = False
        confirmed = self.repetitions >= confirm
        self.confirmed |= confirmed
        if confirmed or identity(facts) == identity(self.effective):
            self.effective = facts


@dataclass(slots=True)
class _Netdev:
    senders: dict[Msap, Sender] = field(default_factory=dict)  # in the order of their first frames
    order: tuple[Msap, ...] = ()  # the neighbors, the selected one first
    link_ups: int = 0  # how often the link has come up
    link_up_at: float = -math.inf  # the last time
    link_down_at: float | None = None  # None: the link is up
    carrier_changes: int | None = None
    expired_at: float = -math.inf  # the last `expire`
    shutdown_at: float | None = None  # a shutdown frame while no sender was known
    missing: NeighborReason = NeighborReason.SILENT
    former: Former | None = None  # until it, or another neighbor in its place, is known
    refused: str = ""  # why the last frame that counts for nothing does so
    refused_at: float = -math.inf

    def rank(self, msap: Msap) -> tuple[float, ...]:
        """Return the sort key of a sender; the module's docstring has the criteria."""
        sender = self.senders[msap]
        address, is_switch = sender.effective.destination_mac, sender.effective.is_switch
        is_selected = self.order[:1] == (msap,)
        is_heard = sender.link_ups == self.link_ups
        is_waiting = self.expired_at < self.link_up_at + AWAITED
        is_awaited = is_waiting and is_selected and not is_heard
        is_rival = is_waiting and not is_selected and sender.first_link_ups < self.link_ups
        return (
            not sender.confirmed and not is_selected,
            SCOPES.index(address) if address in SCOPES else len(SCOPES),
            KINDS.index(is_switch),
            not sender.confirmed,
            not (is_heard or is_awaited),
            is_awaited or is_rival,
            not is_selected,
            -sender.link_ups,
            -sender.received_at,
        )

    def neighbors(self) -> tuple[Sender, ...]:
        """Return the neighbors, the selected one first; none while that may return.

        A neighbor that has confirmed its identity since the link came up excludes those of before.
        """
        senders = [self.senders[msap] for msap in self.order if msap in self.senders]
        present = [sender for sender in senders if not sender.has_ended(self.expired_at)]
        if self.link_down_at is not None or senders[:1] != present[:1]:
            return ()
        link_ups = max((sender.link_ups for sender in present if sender.confirmed), default=0)
        return tuple(
            sender for sender in present if sender is senders[0] or sender.link_ups >= link_ups
        )

    def find(self, frame: bytes) -> tuple[Msap, Sender] | None:
        """Return the sender whose last frame is equal; nothing is decoded for it."""
        return next((item for item in self.senders.items() if item[1].frame == frame), None)

    def stations(self, msap: Msap) -> list[Msap]:
        """Return the ports of its chassis with its source address, itself too, oldest first."""
        source = self.senders[msap].frame[6:12]
        return [
            station
            for station, sender in self.senders.items()
            if station[0] == msap[0] and sender.frame[6:12] == source
        ]

    def settle(self, msap: Msap) -> None:
        """Count a frame of a sender among those of its other stations; it may replace them."""
        sender = self.senders[msap]
        sender.uninterrupted += 1
        for other in self.stations(msap):
            if other == msap:
                continue
            self.senders[other].uninterrupted = 0
            if sender.confirmed and sender.uninterrupted >= REPLACING_FRAMES:
                del self.senders[other]
                self.order = tuple(msap if station == other else station for station in self.order)

    def recognize(self, msap: Msap) -> None:
        """Confirm a sender that was the neighbor before the start: oldest, and selected before."""
        sender = self.senders[msap]
        if self.former and self.former.is_same(sender.latest):
            self.former, sender.confirmed, sender.effective = None, True, sender.latest
            self.senders = {msap: sender, **self.senders}
            self.order = (msap, *(other for other in self.order if other != msap))
            for other in self.stations(msap)[1:]:
                self.senders[other].is_second = True


class NeighborTable:
    """The senders of all netdevs; `grace` is in seconds, `confirm` counts frames."""

    def __init__(self, grace: float = 0, confirm: int = 1) -> None:
        self._grace = grace
        self._confirm = confirm
        self._netdevs: dict[str, _Netdev] = {}
        self._woke_at = -math.inf

    def seed(self, name: str, former: Former) -> None:
        """Start a netdev with the neighbor that it had before; it may have senders already."""
        netdev = self._netdev(name)
        netdev.former = former
        for msap in tuple(netdev.senders):
            netdev.recognize(msap)

    def receive(self, frame: Frame, own: Collection[str] = ()) -> None:
        """Take in a frame; raise Malformed if it is no LLDP frame.

        A frame equal to the last frame of its sender is not decoded again. A frame about this host,
        whose MAC addresses are `own`, is ignored.
        """
        netdev = self._netdev(frame.netdev)
        if known := netdev.find(frame.data):
            msap, facts = known[0], known[1].latest
        else:
            if frame.data[6:12].hex(":") in own:
                return
            facts = lldp.decode(frame.data)
            if facts.chassis_id in own:
                return
            msap = lldp.msap(frame.data)
        sender = netdev.senders.get(msap)
        if not facts.ttl:  # a shutdown frame; its repetitions do not postpone the expiry
            if sender and not sender.shut_down:
                sender.shut_down, sender.received_at = True, frame.time
            elif netdev.shutdown_at is None and (
                netdev.former.is_same(facts) if netdev.former else not netdev.senders
            ):
                netdev.shutdown_at = frame.time
            return
        if sender is None:
            if len(netdev.senders) == MAX_NEIGHBORS:
                del netdev.senders[max(netdev.senders, key=netdev.rank)]
            before = netdev.link_ups - (frame.time < netdev.link_up_at)
            sender = Sender(frame.data, facts, facts, frame.time, netdev.link_ups - 1, before)
            netdev.senders[msap] = sender
            sender.is_second = netdev.stations(msap)[0] != msap
            netdev.shutdown_at = None
        sender.update(frame, facts, self._confirm)
        netdev.recognize(msap)
        netdev.settle(msap)
        if frame.time >= netdev.link_up_at:  # an earlier, queued frame may be of another cable
            sender.link_ups = netdev.link_ups

    def refresh(self, frame: Frame) -> bool:
        """Restart the TTL if the frame changes nothing else; otherwise return False, unchanged.

        Example: of three equal frames with `confirm` 2 the third is a refresh. The first is new,
        the second confirms its identity.
        """
        netdev = self._netdevs.get(frame.netdev)
        known = netdev.find(frame.data) if netdev else None
        if not netdev or not known:
            return False
        msap, sender = known
        if sender.has_ended(netdev.expired_at) or sender.link_ups != netdev.link_ups:
            return False
        if not sender.confirmed or sender.effective is not sender.latest:
            return False
        if sender.uninterrupted + 1 >= REPLACING_FRAMES and len(netdev.stations(msap)) > 1:
            return False
        netdev.settle(msap)
        sender.received_at = frame.time
        return True

    def set_link(self, name: str, now: float, *, up: bool, changes: int | None = None) -> None:
        """Record the link state of a netdev and its `carrier_changes`.

        The counter shows a cable that was moved between two calls: a link that is up, and has
        changed since the last call, has come up again.
        """
        netdev = self._netdev(name)
        before, was_down = netdev.carrier_changes, netdev.link_down_at is not None
        changed = changes is not None and before not in {None, changes}
        netdev.carrier_changes = before if changes is None else changes
        if up and (changed or was_down):
            netdev.link_ups += 1
            netdev.link_up_at = now
            netdev.link_down_at = netdev.shutdown_at = None
        elif not up and not was_down:
            netdev.link_down_at = now

    def expire(self, name: str, now: float) -> None:
        """Drop the senders of a netdev whose time is over, record the reason, order the others."""
        netdev = self._netdev(name)
        netdev.expired_at = now
        if netdev.missing is NeighborReason.LINK_DOWN:
            netdev.missing = NeighborReason.SILENT
        if netdev.shutdown_at is not None:
            netdev.former, netdev.missing = None, NeighborReason.SHUTDOWN
        for msap, sender in list(netdev.senders.items()):
            if sender.has_ended(now):
                ended = NeighborReason.SHUTDOWN if sender.shut_down else NeighborReason.EXPIRED
                netdev.missing = ended
                if now - sender.expires_at >= self._grace:
                    del netdev.senders[msap]
        awaits = netdev.former is not None and now < netdev.former.until
        if awaits:  # another sender that has ended proves nothing
            netdev.missing = NeighborReason.SILENT
        if netdev.link_down_at is not None:
            netdev.missing = NeighborReason.LINK_DOWN
            if now - netdev.link_down_at >= self._grace:
                netdev.senders.clear()
                netdev.former = None
        # a port that is not confirmed is none yet beside the neighbor of before the start, or if it
        # came beside a station
        neighbors = [
            msap
            for msap, sender in netdev.senders.items()
            if sender.confirmed or (netdev.former is None and not sender.is_second)
        ]
        netdev.order = () if awaits else tuple(sorted(neighbors, key=netdev.rank))
        if netdev.order:
            netdev.former = None

    def neighbors(self, name: str) -> tuple[Sender, ...]:
        """Return the neighbors of a netdev as of the last `expire`, the selected one first."""
        return self._netdevs.get(name, _Netdev()).neighbors()

    def woke(self, at: float) -> None:
        """Keep all neighbors for two transmit intervals: nothing was received for a time.

        It may be called again for the same time.
        """
        if at <= self._woke_at:
            return
        self._woke_at = at
        for netdev in self._netdevs.values():
            for sender in netdev.senders.values():
                sender.kept_until = at + AWAITED

    def refuse(self, frame: Frame, fault: str) -> None:
        """Record a frame that is no valid LLDP frame."""
        netdev = self._netdev(frame.netdev)
        netdev.refused, netdev.refused_at = fault, frame.time

    def refused(self, name: str, now: float) -> str:
        """Return the fault of the last refused frame of a netdev; "" after REFUSED_TIMEOUT."""
        netdev = self._netdevs.get(name, _Netdev())
        return netdev.refused if now < netdev.refused_at + REFUSED_TIMEOUT else ""

    def missing(self, name: str) -> NeighborReason:
        """Return the reason for a netdev without neighbors, as of the last `expire`."""
        return self._netdevs.get(name, _Netdev()).missing

    def unheard(self, name: str) -> None:
        """Record that no frame could be received: that a TTL has ended proves nothing."""
        netdev = self._netdev(name)
        for msap, sender in list(netdev.senders.items()):
            if sender.has_ended(netdev.expired_at) and not sender.shut_down:
                del netdev.senders[msap]
        if netdev.missing is NeighborReason.EXPIRED:
            netdev.missing = NeighborReason.SILENT

    def next_expiry(self, names: Iterable[str]) -> float:
        """Return the time of the next change on these netdevs without further frames.

        Infinity if there is none.
        """
        times: list[float] = []
        for netdev in filter(None, map(self._netdevs.get, names)):
            for sender in netdev.senders.values():
                kept = self._grace if sender.has_ended(netdev.expired_at) else 0.0
                times.append(sender.expires_at + kept)
            if netdev.link_down_at is not None and netdev.senders:
                times.append(netdev.link_down_at + self._grace)
            is_waiting = netdev.expired_at < netdev.link_up_at + AWAITED
            if is_waiting and len(netdev.senders) > 1:
                times.append(netdev.link_up_at + AWAITED)
            if netdev.refused and not netdev.neighbors():
                times.append(netdev.refused_at + REFUSED_TIMEOUT)
            if netdev.former and any(sender.confirmed for sender in netdev.senders.values()):
                times.append(netdev.former.until)
        return min(times, default=math.inf)

    def forget(self, names: Iterable[str]) -> None:
        """Drop all state of these netdevs."""
        for name in names:
            self._netdevs.pop(name, None)

    def _netdev(self, name: str) -> _Netdev:
        return self._netdevs.setdefault(name, _Netdev())


def identity(neighbor: LldpNeighbor) -> tuple[object, ...]:
    """Return the parts of an LLDPDU that become labels, which no single frame may change."""
    return neighbor.system_name or neighbor.chassis_id, neighbor.port_id, neighbor.port_description
