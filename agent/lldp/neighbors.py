"""Keep the LLDP neighbors of each netdev over time: frames and the clock in, ordered neighbors out.

Invariants: the module does no I/O, the caller passes the time. A sender is known by its source
address on a netdev.

Lifetime. A sender expires with its TTL, or with its shutdown frame (TTL 0), and is kept for `grace`
seconds more, so that a flap does not rewrite a label. A link that is down ends all senders after
`grace` seconds. Example, with a TTL of 120 s and a grace of 30 s: a frame at 100 s keeps its sender
until 250 s; a shutdown frame at 110 s, until 140 s.

Identity. The first frame of a sender takes effect at once. An identity that contradicts it takes
effect in the `confirm`-th frame in a row that has it. Example, with `confirm` 2: a SONiC switch
that restarts sends its MAC address as Port ID in one frame and its alias in the next ones; the
label keeps the alias.

Order. The first neighbor is the selected one. Criteria, in this order: a destination address with
a smaller scope (nearest bridge first); the capability bridge or router; a confirmed identity; a
frame since the link last came up; selected before; the latest frame. A sender that is not confirmed
is never newly selected before one that is, so that neither a single frame nor the first frame after
a flap changes the selection.

Limits. A netdev has at most MAX_NEIGHBORS senders; the last in the order is dropped for a new one.

A shutdown frame ends the port that it names, by Chassis ID and Port ID (the MSAP identifier of
IEEE Std 802.1AB-2016), and no other port with the same source address.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from agent.lldp import frame as lldp
from agent.lldp.frame import Frame
from agent.model import LldpNeighbor
from agent.reasons import NeighborReason

MAX_NEIGHBORS = 32  # senders kept for a netdev
BRIDGE, ROUTER = 1 << 2, 1 << 4  # IEEE Std 802.1AB-2016, Table 8-4
SCOPES = ("01:80:c2:00:00:0e", "01:80:c2:00:00:03", "01:80:c2:00:00:00")  # Table 7-1, nearest first


@dataclass(slots=True)
class Sender:
    """A source address on a netdev."""

    frame: bytes  # the last frame with a TTL other than 0, as received
    latest: LldpNeighbor  # the content of that frame
    effective: LldpNeighbor  # the last content with a confirmed identity, or with the first one
    received_at: float  # seconds, by the clock of `Frame.time`: the last frame
    link_ups: int  # how often the link had come up by then
    repetitions: int = 0  # the last frames in a row with the same identity
    confirmed: bool = False  # an identity was confirmed
    shut_down: bool = False  # the last frame was a shutdown frame

    @property
    def expires_at(self) -> float:
        """The arrival of the shutdown frame, or of the last frame plus its TTL."""
        return self.received_at if self.shut_down else self.received_at + self.latest.ttl

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
    senders: dict[bytes, Sender] = field(default_factory=dict)  # by source address
    order: tuple[bytes, ...] = ()  # source addresses, the selected one first
    link_ups: int = 0  # how often the link has come up
    link_up_at: float = -math.inf  # the last time
    link_down_at: float | None = None  # None: the link is up
    carrier_changes: int | None = None
    shutdown_at: float | None = None  # a shutdown frame while no sender was known
    missing: NeighborReason = NeighborReason.SILENT

    def rank(self, source: bytes) -> tuple[float, ...]:
        """Return the sort key of a sender; the module's docstring has the criteria."""
        sender = self.senders[source]
        facts = sender.effective
        is_selected = self.order[:1] == (source,)
        known_scope = facts.destination_mac in SCOPES
        return (
            not sender.confirmed and not is_selected,
            SCOPES.index(facts.destination_mac) if known_scope else len(SCOPES),
            not (facts.capabilities or 0) & (BRIDGE | ROUTER),
            not sender.confirmed,
            -sender.link_ups,
            not is_selected,
            -sender.received_at,
        )


class NeighborTable:
    """The senders of all netdevs; `grace` is in seconds, `confirm` counts frames."""

    def __init__(self, grace: float = 0, confirm: int = 1) -> None:
        self._grace = grace
        self._confirm = confirm
        self._netdevs: dict[str, _Netdev] = {}

    def receive(self, frame: Frame, own: Collection[str] = ()) -> None:
        """Take in a frame; raise Malformed if it is no LLDP frame.

        A frame equal to the last one of its sender is not decoded again. A frame about this host,
        whose MAC addresses are `own`, is ignored.
        """
        netdev = self._netdev(frame.netdev)
        sender = netdev.senders.get(frame.data[6:12])
        if sender and sender.frame == frame.data:
            facts = sender.latest
        else:
            if frame.data[6:12].hex(":") in own:
                return
            facts = lldp.decode(frame.data)
            if facts.chassis_id in own:
                return
        if not facts.ttl:  # a shutdown frame; its repetitions do not postpone the expiry
            if sender and not sender.shut_down and _msap(facts) == _msap(sender.latest):
                sender.shut_down, sender.received_at = True, frame.time
            elif not netdev.senders and netdev.shutdown_at is None:
                netdev.shutdown_at = frame.time
            return
        sender = sender or _add(netdev, frame, facts)
        sender.update(frame, facts, self._confirm)
        if frame.time >= netdev.link_up_at:  # an earlier, queued frame may be of another cable
            sender.link_ups = netdev.link_ups

    def refresh(self, frame: Frame) -> bool:
        """Restart the TTL if the frame changes nothing else; otherwise return False, unchanged.

        Example: of three equal frames with `confirm` 2 the third is a refresh. The first is new,
        the second confirms its identity.
        """
        netdev = self._netdevs.get(frame.netdev)
        sender = netdev.senders.get(frame.data[6:12]) if netdev else None
        if not netdev or not sender or sender.frame != frame.data:
            return False
        is_in_effect = sender.confirmed and sender.effective is sender.latest
        if sender.shut_down or not is_in_effect or sender.link_ups != netdev.link_ups:
            return False
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
        if self._is_past(netdev.link_down_at, now):
            netdev.senders.clear()
            netdev.missing = NeighborReason.LINK_DOWN
        elif netdev.missing is NeighborReason.LINK_DOWN and netdev.link_down_at is None:
            netdev.missing = NeighborReason.SILENT
        elif self._is_past(netdev.shutdown_at, now):
            netdev.missing = NeighborReason.SHUTDOWN
        for source, sender in list(netdev.senders.items()):
            # The grace counts from the expiry. Without one a shutdown frame takes effect at once,
            # and a TTL after its last second.
            at_once = sender.shut_down and not self._grace
            if at_once or now - sender.expires_at > self._grace:
                del netdev.senders[source]
                ended = NeighborReason.SHUTDOWN if sender.shut_down else NeighborReason.EXPIRED
                netdev.missing = ended
        netdev.order = tuple(sorted(netdev.senders, key=netdev.rank))

    def neighbors(self, name: str) -> tuple[Sender, ...]:
        """Return the neighbors of a netdev as of the last `expire`, the selected one first."""
        netdev = self._netdevs.get(name, _Netdev())
        return tuple(netdev.senders[source] for source in netdev.order if source in netdev.senders)

    def missing(self, name: str) -> NeighborReason:
        """Return the reason for a netdev without neighbors, as of the last `expire`."""
        return self._netdevs.get(name, _Netdev()).missing

    def next_expiry(self, names: Iterable[str]) -> float:
        """Return the time of the next change on these netdevs without further frames.

        Infinity if there is none.
        """
        netdevs = filter(None, map(self._netdevs.get, names))
        times = (time for netdev in netdevs for time in _expiries(netdev))
        return min(times, default=math.inf) + self._grace

    def forget(self, names: Iterable[str]) -> None:
        """Drop all state of these netdevs."""
        for name in names:
            self._netdevs.pop(name, None)

    def _netdev(self, name: str) -> _Netdev:
        return self._netdevs.setdefault(name, _Netdev())

    def _is_past(self, event: float | None, now: float) -> bool:
        """Return True if the grace after an event is over."""
        return event is not None and now - event >= self._grace


def identity(neighbor: LldpNeighbor) -> tuple[object, ...]:
    """Return the parts of an LLDPDU that become labels, which no single frame may change."""
    return neighbor.system_name or neighbor.chassis_id, neighbor.port_id, neighbor.port_description


def _expiries(netdev: _Netdev) -> Iterator[float]:
    """The times, without the grace, of the changes that are to come without further frames."""
    for sender in netdev.senders.values():
        yield sender.expires_at
    if netdev.link_down_at is not None and netdev.senders:
        yield netdev.link_down_at
    if netdev.shutdown_at is not None and netdev.missing is not NeighborReason.SHUTDOWN:
        yield netdev.shutdown_at


def _add(netdev: _Netdev, frame: Frame, facts: LldpNeighbor) -> Sender:
    """Add the sender of a frame; with MAX_NEIGHBORS it replaces the last one in the order."""
    if len(netdev.senders) == MAX_NEIGHBORS:
        del netdev.senders[max(netdev.senders, key=netdev.rank)]
    sender = Sender(frame.data, facts, facts, frame.time, netdev.link_ups - 1)
    netdev.senders[frame.data[6:12]] = sender
    netdev.shutdown_at = None
    return sender


def _msap(neighbor: LldpNeighbor) -> tuple[str, str]:
    """Return the MSAP identifier, which a shutdown frame repeats; it need not repeat the name."""
    return neighbor.chassis_id, neighbor.port_id
