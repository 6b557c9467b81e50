"""LLDP neighbors of a node as the label contract defines them; the oracle's model of reception.

    a sender counts until its TTL expires or it shuts down, and for GRACE seconds more; the same
    applies to a link that goes down
    a sender is a port of a switch; its first identity counts at once; one that contradicts it
    counts after two frames
    another port of the same switch is no neighbor before its second frame, and replaces the former
    one if that did not send in between
    the first sender is selected until it is gone, or until only another one has sent since the
    link came up; that one then stays selected when the first one sends again

Invariants: shares no code with the agent; where the contract permits either of two neighbors, both
are right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

GRACE = 30.0  # seconds
BLINK = 2.0  # seconds; a link that is up for less may seem to be down all the time
SURE = 2  # frames

Identity = tuple[str, str, str | None]  # device, port, the port's name
Msap = tuple[bytes, str]  # the switch's address, which is its Chassis ID here, and its port


class Said(NamedTuple):
    """One received frame; not `sure`: it may have been lost in a flood."""

    source: bytes
    identity: Identity
    ttl: int
    sure: bool = True

    @property
    def msap(self) -> Msap:
        return self.source, self.identity[1]


@dataclass(slots=True)
class Sender:
    """One port of a switch."""

    may_be: set[Identity]
    said: Identity
    last: float
    ttl: int
    era: int  # number of times that the link had come up
    alike: int = 1
    doubtful: bool = False  # a frame of the present `alike` may have been lost
    parted: float | None = None
    lost: bool = False  # the agent may have dropped it
    settled: bool = False  # it sent two frames with one identity in a row
    alone: int = 0  # its last frames without one of another port of the switch between
    may_lead: bool = False  # the agent may have dropped all others before its first frame

    def end(self) -> float:
        """Return the time at which the sender stops counting."""
        return (self.last + self.ttl if self.parted is None else self.parted) + GRACE

    def repeats(self, now: float, said: Said, era: int) -> bool:
        """Return True if a frame repeats a confirmed identity unchanged."""
        known = self.may_be == {said.identity} and self.alike >= SURE and self.parted is None
        same = said.identity == self.said and said.ttl == self.ttl and era == self.era
        return known and same and self.end() >= now

    def hear(self, said: Identity, *, sure: bool) -> None:
        """Record the identity of a further frame."""
        self.alike, self.doubtful = (
            (self.alike + 1, self.doubtful) if said == self.said else (1, False)
        )
        self.doubtful |= not sure
        self.said = said
        if self.doubtful:
            self.may_be |= {said}
        if self.alike >= SURE + self.doubtful and sure:
            self.may_be, self.doubtful = {said}, False
        self.settled |= self.alike >= SURE


@dataclass(slots=True)
class Ear:
    """One netdev."""

    senders: dict[Msap, Sender] = field(default_factory=dict)
    first: Msap | None = None
    era: int = 0
    down_since: float | None = None
    seems_down_since: float = math.inf  # `down_since`, or the one before a blink
    up_since: float = -math.inf  # the last time that the link came up
    forgotten: bool = False  # the agent may have dropped all neighbors
    ended: bool = False  # a neighbor was known, and is gone
    doubted: bool = False  # or may have been dropped before
    goodbye: float | None = None  # time of a shutdown frame of an unknown sender

    def others(self, msap: Msap) -> list[Msap]:
        """Return the other ports of its switch, oldest first."""
        return [one for one in self.senders if one[0] == msap[0] and one != msap]

    def neighbors(self) -> dict[Msap, Sender]:
        """Return the senders without those that another port of their switch must precede."""
        known = list(self.senders)
        return {
            msap: sender
            for msap, sender in self.senders.items()
            if sender.settled
            or sender.may_lead
            or all(known.index(one) > known.index(msap) for one in self.others(msap))
        }

    def settle(self, msap: Msap) -> None:
        """Record that a port sent; it may replace the others of its switch."""
        sender = self.senders[msap]
        sender.alone += 1
        for other in self.others(msap):
            self.senders[other].alone = 0
            if sender.settled and sender.alone >= SURE:
                if sender.doubtful:
                    self.senders[other].lost = True
                    continue
                del self.senders[other]
                self.first = msap if self.first == other else self.first

    def part(self, now: float) -> None:
        """Drop the senders of a link that is down for GRACE; only perhaps if that is just over.

        The agent looks at most once a second, so the link may seem to go down and come up later.
        """
        if self.down_since is None or now >= self.down_since + GRACE + BLINK:
            self.senders.clear()
        for sender in self.senders.values():
            sender.lost = True


class Hearing:
    """The neighbors of all netdevs."""

    def __init__(self) -> None:
        self.ears: dict[str, Ear] = {}

    def ear(self, netdev: str) -> Ear:
        return self.ears.setdefault(netdev, Ear())

    def link(self, netdev: str, now: float, *, up: bool) -> None:
        """Record that the link is up, or down."""
        ear = self.ear(netdev)
        if up and ear.down_since is not None:
            if now >= ear.down_since + GRACE and not ear.forgotten:
                ear.part(now)
            ear.ended &= now < ear.down_since + GRACE
            ear.era += 1
            ear.up_since = now
            ear.down_since, ear.doubted, ear.goodbye = None, False, None
        elif not up and ear.down_since is None:
            ear.down_since = now
            if now >= ear.up_since + BLINK:
                ear.seems_down_since = now

    def frame(self, netdev: str, now: float, said: Said) -> bool:
        """Record a delivered frame; return True if it changes anything."""
        ear = self.ear(netdev)
        sender = ear.senders.get(said.msap)
        is_alone = not ear.others(said.msap)
        is_sure = said.sure and not ear.forgotten and is_alone
        if sender and is_sure and sender.repeats(now, said, ear.era):
            sender.last = now
            return False
        if said.ttl:
            _speaks(ear, sender, now, said)
        elif sender and sender.parted is None:
            sender.parted = now
        elif not ear.senders and ear.goodbye is None:
            ear.goodbye = now
        return True

    def forget(self, netdev: str) -> None:
        """Record that the netdev was not observed for a while."""
        self.ear(netdev).forgotten = True

    def neighbors(self, netdev: str, now: float) -> tuple[set[Identity], bool]:
        """Return the neighbors that are right now, and whether it is permitted that none is
        known.
        """
        ear = self.ear(netdev)
        down = ear.down_since is not None and now >= ear.down_since + GRACE
        seems_down = ear.down_since is not None and now >= ear.seems_down_since + GRACE
        if seems_down and (ear.forgotten or not down):
            ear.doubted = True
            for sender in ear.senders.values():
                sender.lost = True
        if down and not ear.forgotten:
            ear.part(now)
            ear.first, ear.ended = None, True
            return set(), ear.doubted
        for msap in [msap for msap, sender in ear.senders.items() if sender.end() <= now]:
            del ear.senders[msap]
            ear.ended, ear.doubted = True, ear.forgotten
        ear.ended |= ear.goodbye is not None and now >= ear.goodbye + GRACE
        if not ear.senders:
            return set(), ear.doubted or not ear.ended
        ear.doubted |= all(sender.lost for sender in ear.senders.values())
        return self._rightly(ear), ear.forgotten or ear.doubted

    def _rightly(self, ear: Ear) -> set[Identity]:
        senders = ear.neighbors()
        first = senders.get(ear.first) if ear.first else None
        anybody = {said for sender in senders.values() for said in sender.may_be}
        if first is None or first.lost:
            ear.first = next(iter(senders)) if len(senders) == 1 else None
            return anybody
        if first.alike < SURE or first.doubtful:  # another, confirmed sender replaces it
            ear.first = (
                None
                if any(one.alike >= SURE for one in senders.values() if one is not first)
                else ear.first
            )
            return anybody
        newer = [
            one
            for one in senders.values()
            if one.era > first.era and one.alike + one.doubtful >= SURE
        ]
        ear.first = None if newer else ear.first
        return first.may_be | {said for one in newer for said in one.may_be}

    def next_change(self, now: float) -> float:
        """Return the time at which an entry next expires."""
        ends = [sender.end() for ear in self.ears.values() for sender in ear.senders.values()]
        down = [ear for ear in self.ears.values() if ear.down_since is not None]
        ends += [(ear.down_since or 0.0) + GRACE + more for ear in down for more in (0.0, BLINK)]
        ends += [ear.seems_down_since + GRACE for ear in down]
        ends += [ear.goodbye + GRACE for ear in self.ears.values() if ear.goodbye is not None]
        return min((end for end in ends if end > now), default=math.inf)


def _speaks(ear: Ear, sender: Sender | None, now: float, said: Said) -> None:
    if sender is None or sender.end() < now:
        fresh = Sender({said.identity}, said.identity, now, said.ttl, ear.era)
        fresh.doubtful, fresh.may_lead = not said.sure, ear.forgotten
        ear.senders.pop(said.msap, None)  # the youngest from now on
        sender = ear.senders[said.msap] = fresh
    else:
        sender.hear(said.identity, sure=said.sure and not ear.forgotten)
    if ear.forgotten:  # earlier neighbors may have been dropped, and this one be selected
        for other in ear.senders.values():
            other.lost = True
    sender.last, sender.ttl, sender.era, sender.parted, sender.lost = (
        now,
        said.ttl,
        ear.era,
        None,
        False,
    )
    ear.settle(said.msap)
    if said.sure:
        ear.forgotten = ear.ended = ear.doubted = False
        ear.goodbye = None
