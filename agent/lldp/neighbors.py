"""Who LLDP frames say is at the far end of each netdev: frames and the clock in, neighbours in order out.

Pure: frames are fed in, the time is told. A neighbour is a sender on a netdev, known by its source address. It speaks
for itself until its TTL runs out or it says goodbye (TTL 0), and counts for `grace` seconds more, so that a flap does
not rewrite a label; a link that is down counts the same way. What it says of itself takes effect at once when nothing
was known, and in its `confirm`-th frame when it contradicts what was known: some switches send a MAC address as their
port first and its name a moment later.

Of several neighbours the first is the one that speaks to the nearest bridge only, then a bridge or router, then one
that is sure of its identity, then one that has spoken since the link came up, then the one that was first already, then
the one heard last. Nobody takes the first place by a frame that is not confirmed yet, nor by being the quicker one
after a flap. When there are too many, the last in this order goes.

A goodbye ends the port that it names (by Chassis ID and Port ID, IEEE Std 802.1AB's MSAP identifier), not another one
behind the same source address.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.lldp import frame as lldp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from agent.lldp.frame import Frame
    from agent.model import LldpNeighbor

MOST = 32  # neighbours of one netdev that are kept
BRIDGE, ROUTER = 1 << 2, 1 << 4  # IEEE Std 802.1AB-2016, Table 8-4
NEAREST_FIRST = ("01:80:c2:00:00:0e", "01:80:c2:00:00:03", "01:80:c2:00:00:00")  # Table 7-1


@dataclass(slots=True)
class Sender:
    """One sender on one netdev."""

    frame: bytes  # the last one that was no goodbye, as it came in
    told: LldpNeighbor  # what it said there
    known: LldpNeighbor  # what counts
    last: float  # seconds, by the clock that `Frame.time` and `now` are told in
    epoch: int  # how often the link had come up by then
    alike: int = 0  # frames in a row that said the same of its identity
    settled: bool = False  # it has confirmed its identity once
    parted: bool = False  # it has said goodbye since

    def gone_since(self) -> float:
        """When it stopped to count, were it not to speak again."""
        return self.last if self.parted else self.last + self.told.ttl

    def why_gone(self) -> str:
        return "shutdown" if self.parted else "expired"


@dataclass(slots=True)
class _Netdev:
    heard: dict[bytes, Sender] = field(default_factory=dict)  # by source address
    first: bytes | None = None  # the one selected last
    epoch: int = 0
    began: float = -math.inf  # when the link was found to have come up again
    down_since: float | None = None
    changes: int | None = None  # of its carrier, the last time
    goodbye: float | None = None  # when somebody left before anything was known of him
    missing: str = "silent"


class Table:
    """What was heard on every netdev."""

    def __init__(self, grace: float = 0, confirm: int = 1) -> None:
        self._grace = grace
        self._confirm = confirm
        self._netdevs: dict[str, _Netdev] = {}

    def hear(self, frame: Frame, own: Collection[str] = ()) -> None:
        """Take in a frame; Malformed when it is none. One that equals the sender's last costs a compare.

        A frame that is about this host itself (`own` are its MAC addresses) is passed over.
        """
        netdev = self._netdevs.setdefault(frame.netdev, _Netdev())
        heard = netdev.heard.get(frame.data[6:12])
        if heard and heard.frame == frame.data:
            told = heard.told
        else:
            told = lldp.decode(frame.data)
            if told.source_mac in own or told.chassis_id in own:
                return
        if told.ttl:
            self._take(netdev, frame, told)
        else:
            _part(netdev, frame, told)

    def repeats(self, frame: Frame) -> bool:
        """Take in a frame that tells nothing new; False where it does, and is left to `hear`."""
        netdev = self._netdevs.get(frame.netdev)
        heard = netdev.heard.get(frame.data[6:12]) if netdev else None
        if not netdev or not heard or heard.frame != frame.data or heard.parted:
            return False
        if not heard.settled or heard.known is not heard.told or heard.epoch != netdev.epoch:
            return False
        heard.last = frame.time
        return True

    def next_end(self, names: Iterable[str]) -> float:
        """When the first of what counts on these netdevs stops to, were nobody to speak again; infinity: nothing."""
        ends = [math.inf]
        for netdev in filter(None, map(self._netdevs.get, names)):
            ends += [heard.gone_since() + self._grace for heard in netdev.heard.values()]
            if netdev.down_since is not None and netdev.heard:
                ends.append(netdev.down_since + self._grace)
            if netdev.goodbye is not None and netdev.missing != "shutdown":
                ends.append(netdev.goodbye + self._grace)
        return min(ends)

    def link(self, name: str, now: float, *, up: bool, changes: int | None = None) -> None:
        """Note whether the netdev has a link, and how often that has changed: a cable is moved faster than we look."""
        netdev = self._netdevs.setdefault(name, _Netdev())
        unseen = None not in (changes, netdev.changes) and changes != netdev.changes
        netdev.changes = netdev.changes if changes is None else changes
        if up and (unseen or netdev.down_since is not None):
            netdev.epoch, netdev.began = netdev.epoch + 1, now
            netdev.down_since = netdev.goodbye = None
        elif not up and netdev.down_since is None:
            netdev.down_since = now

    def at(self, name: str, now: float) -> tuple[list[Sender], str]:
        """The neighbours of a netdev, the selected one first; where there is none, the word why."""
        netdev = self._netdevs.setdefault(name, _Netdev())
        if netdev.down_since is not None and now - netdev.down_since >= self._grace:
            netdev.heard.clear()
            netdev.missing = "link-down"
        elif netdev.missing == "link-down" and netdev.down_since is None:
            netdev.missing = "silent"
        elif netdev.goodbye is not None and now - netdev.goodbye >= self._grace:
            netdev.missing = "shutdown"
        for source, heard in list(netdev.heard.items()):
            if now - heard.gone_since() > self._grace or (heard.parted and not self._grace):
                netdev.missing = netdev.heard.pop(source).why_gone()
        order = sorted(netdev.heard, key=lambda source: _rank(netdev, source))
        netdev.first = order[0] if order else None
        return [netdev.heard[source] for source in order], netdev.missing

    def forget(self, names: Iterable[str]) -> None:
        """Keep nothing of these netdevs."""
        for name in names:
            self._netdevs.pop(name, None)

    def _take(self, netdev: _Netdev, frame: Frame, told: LldpNeighbor) -> None:
        heard = netdev.heard.get(frame.data[6:12]) or self._new(netdev, frame, told)
        same = told is heard.told or identity(told) == identity(heard.told)
        heard.alike = heard.alike + 1 if same else 1
        heard.frame, heard.told, heard.last = frame.data, told, frame.time
        if frame.time >= netdev.began:  # what waited since before may be of the cable before
            heard.epoch = netdev.epoch
        heard.parted = False
        heard.settled |= heard.alike >= self._confirm
        if heard.alike >= self._confirm or identity(told) == identity(heard.known):
            heard.known = told

    def _new(self, netdev: _Netdev, frame: Frame, told: LldpNeighbor) -> Sender:
        if len(netdev.heard) == MOST:
            del netdev.heard[max(netdev.heard, key=lambda source: _rank(netdev, source))]
        heard = netdev.heard[frame.data[6:12]] = Sender(
            frame.data, told, told, frame.time, netdev.epoch - 1
        )
        netdev.goodbye = None
        return heard


def _part(netdev: _Netdev, frame: Frame, told: LldpNeighbor) -> None:
    """Somebody says goodbye; saying it again does not put it off."""
    heard = netdev.heard.get(frame.data[6:12])
    if heard and not heard.parted and _port(told) == _port(heard.told):
        heard.parted, heard.last = True, frame.time
    elif not netdev.heard and netdev.goodbye is None:
        netdev.goodbye = frame.time


def identity(neighbor: LldpNeighbor) -> tuple[object, ...]:
    """What labels are made of, and what must not change by one odd frame."""
    return neighbor.system_name or neighbor.chassis_id, neighbor.port_id, neighbor.port_description


def _port(neighbor: LldpNeighbor) -> tuple[str, str]:
    """The MSAP identifier, which a goodbye repeats; it need not repeat the name."""
    return neighbor.chassis_id, neighbor.port_id


def _rank(netdev: _Netdev, source: bytes) -> tuple[float, ...]:
    heard = netdev.heard[source]
    destination = heard.known.destination_mac
    return (
        not heard.settled and source != netdev.first,
        NEAREST_FIRST.index(destination) if destination in NEAREST_FIRST else len(NEAREST_FIRST),
        not (heard.known.capabilities or 0) & (BRIDGE | ROUTER),
        not heard.settled,
        -heard.epoch,
        source != netdev.first,
        -heard.last,
    )
