"""The devices that an InfiniBand neighbor may be labeled by; the oracle's model of lost names.

    while its name is not given    the name that the agent must know for its node GUID; its GUID as
                                   well, once factory text has lasted for HOLD
    a name that cannot be known    the node GUID; none yet, if the interface had no far end before
    a name that may be known       either
    after it is given again        the same, until the query that must follow; then the name
    another name, same node GUID   the names before as well, until two queries must have followed

Shares no code with the agent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.names import Values, encode
from tests.simulation.node import Hca

HOLD = 600.0  # seconds
AGAIN = 1.2 * 1200.0  # seconds after which a switch was queried again without any event
RETRIED = 40.0  # and at most this long after a failed query, plus the duration of the failure
CONFIRMED = 20.0  # seconds from a query that has another name to the one that confirms it


class Asked(NamedTuple):
    """The times by which an answer must have been read."""

    first: float  # after the port came up
    trouble: float  # after a failure to query it


class FarEnd(NamedTuple):
    """The far end of a port, apart from its name."""

    answers: bool  # queries
    visible: bool  # to the agent, since nothing hides the port


@dataclass(slots=True)
class _Port:
    """One InfiniBand port; `known`, `given` and `earlier` are what the agent has of it."""

    guid: str = ""
    interface: str = ""
    gives: bool = False  # its name, since the last change
    known: str | None = None  # the node GUID whose name the agent must know
    given: str | None = None  # the node GUID whose name it may know
    earlier: bool = False  # it must know another far end of the interface
    since: float | None = None  # when the name was first not given
    until: float = 0.0  # when the name must have been read again
    factory: float = math.inf  # since when it gives factory text
    by_guid: bool = False  # the node GUID may have been published
    name: str = ""
    before: frozenset[str] = frozenset()  # the names before it was renamed
    renamed: float = -math.inf  # when it was
    confirmed: float = math.inf  # when the present name must have been read twice

    def note(self, hca: Hca, now: float, asked: Asked, far: FarEnd) -> None:
        """Take over a change; `asked` is that of the time before."""
        self._know(now, asked)
        nameless = bool(hca.nameless or hca.factory)
        if hca.peer.guid != self.guid or hca.name != self.interface:
            self.earlier = bool(self.known) and hca.name == self.interface
            self.by_guid |= nameless
        self._note_rename(hca, now)
        self.guid, self.interface = hca.peer.guid, hca.name
        self.gives = far.answers and far.visible and not nameless
        self.given = self.guid if far.answers and not nameless else self.given
        self._note_loss(now, nameless=nameless)
        self.factory = min(self.factory, now) if hca.factory else math.inf

    def _know(self, now: float, asked: Asked) -> None:
        """Record that the name must have been read, if it was given for long enough."""
        if self.gives and now >= max(asked.first, asked.trouble, self.until):
            self.known, self.since, self.by_guid = self.guid, None, False

        if self.gives and now >= self._confirmed_by(asked):
            self.before = frozenset()

    def _confirmed_by(self, asked: Asked) -> float:
        """Return the time by which two answers must have had the present name."""
        read = max(asked.first, asked.trouble, self.until)
        return max(read + CONFIRMED, self.renamed + AGAIN)

    def _note_rename(self, hca: Hca, now: float) -> None:
        if hca.peer.guid != self.guid:
            self.before = frozenset()
        elif hca.peer.device != self.name:
            self.before, self.renamed = self.before | {self.name}, now
        self.name = hca.peer.device

    def _note_loss(self, now: float, *, nameless: bool) -> None:
        if nameless:
            self.since = now if self.since is None else self.since
            self.until = math.inf
        elif self.until == math.inf:
            lasted = now - (self.since or 0.0)
            # Factory text that lasted is taken for no name, which is no failure to repeat.
            self.until = now + (AGAIN if lasted >= HOLD else min(lasted + RETRIED, AGAIN))

    def devices(self, hca: Hca, now: float, asked: Asked) -> tuple[set[str], bool]:
        """Return the devices that are right now, and whether the neighbor may be unknown yet."""
        names, guid = {hca.peer.device}, self.guid
        self.confirmed = self._confirmed_by(asked)
        if now < self.confirmed:
            names |= self.before
        if now >= max(self.until, asked.trouble):
            return names, False
        if self.known == guid:
            self.by_guid |= now >= self.factory + HOLD
            return names | {guid} if self.by_guid else names, False
        self.by_guid = True
        return (names | {guid} if self.given == guid else {guid}), not self.earlier


class Descriptions:
    """The ports of a node, by PCI address."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}

    def note(self, hca: Hca, now: float, asked: Asked, far: FarEnd) -> None:
        """Take over a change of a port or of its far end."""
        self._port(hca).note(hca, now, asked, far)

    def devices(self, hca: Hca, now: float, asked: Asked) -> tuple[set[str], bool]:
        """Return the devices that are right now, and whether the neighbor may be unknown yet."""
        return self._port(hca).devices(hca, now, asked)

    def next_changes(self) -> list[float]:
        """Return the times at which the devices change without an event."""
        ports = self._ports.values()
        moments = ((port.until, port.factory + HOLD, port.confirmed) for port in ports)
        return [*itertools.chain.from_iterable(moments)]

    def born(self) -> None:
        """Forget what the agent knew."""
        for port in self._ports.values():
            port.known = port.given = None
            port.earlier = False

    def begin(self, rows: Mapping[str, Any], on_node: Mapping[str, Values]) -> None:
        """Start a new agent, which read these rows of the annotation, by PCI address."""
        for pci, port in self._ports.items():
            row = rows.get(pci, {})
            neighbor = row.get("neighbor", {})
            if _agrees(neighbor, on_node.get(f"neighbor {row.get('interface')}", frozenset())):
                port.earlier = row["interface"] == port.interface
                port.known = port.given = neighbor["id"] if neighbor.get("name") else None

    def _port(self, hca: Hca) -> _Port:
        return self._ports.setdefault(hca.pci, _Port())


def _agrees(neighbor: Mapping[str, str], labels: Values) -> bool:
    """Return True if a neighbor of the annotation is the one of the labels, where there are any."""
    raw = neighbor.get("name") or neighbor.get("id")
    if not raw:
        return False
    device = encode(raw.removeprefix("MF0;").partition(":")[0])
    return all(value is None or value[0] in {None, device} for value in labels)
