"""Steady roles: a role that was decided stays while evidence for it is missing.

The rules (agent/sources/roles.py) judge each observation by itself. A GPU that fell off the bus, an
HCA in recovery, a NIC lent to a VM, a lease without its route, or links that have not come up since
a reboot would give other answers. So a port keeps its role

    while something is missing that the rule needs which took the port out, then or now
    until another verdict, with nothing missing, was found twice, CONFIRM seconds apart

A GPU or NIC that was off the bus for AWAY seconds is gone for good, and not missing any more.

A role is remembered once it has lasted for CONFIRM seconds: while drivers load and leases come,
each observation counts. What a rule needs is in NEEDS. A rule that is not there judges by facts of
the port itself, and takes effect at once: an SMI sub-device for instance, whose function and port
number are those of its parent.

A new agent begins with the ports and the GPUs of the annotation (`seed`). A rule that took one of
the ports out, and abstains now, lacks its evidence until it takes out a port again. A port that the
annotation does not have is judged anew; so is each one if the ports have other addresses than
before.

Times are seconds of a clock that does not jump.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.ids import PCI
from agent.model import RdmaDevice, RoleChange
from agent.sources.drops import PortKey, device_ports
from agent.sysfs.bus import Bus

VERSION = 2  # of the rule set: another one if what the rules mean changes
CONFIRM = 60.0  # seconds
AWAY = 7 * 86400.0  # seconds; a dead GPU is not replaced in a day
MAX_PORTS = 1024  # remembered
UNDECIDED = "undecided"
GPUS, NICS, DEVICES, LINKS, ROUTE = "gpus", "nics", "devices", "links", "route"
NEEDS: Mapping[str, frozenset[str]] = {
    "front-end": frozenset({ROUTE}),
    "spare-port": frozenset({ROUTE, LINKS}),
    "gpu-affinity": frozenset({GPUS, NICS, DEVICES}),
    "link-layer": frozenset({GPUS, NICS, DEVICES}),
    "kind": frozenset({GPUS, NICS, DEVICES, LINKS}),
    "socket-direct": frozenset({DEVICES}),
}
DATA_PORT = "data-port"  # no rule took a port out
REMEMBERED = {*NEEDS, UNDECIDED}

# Of a port: address of its PCI function, else its device; number. Of what has no number: 0
Identity = tuple[str, int]


class Verdict(NamedTuple):
    """The rule that decided, and the evidence in words."""

    rule: str
    text: str


Verdicts = Mapping[PortKey, Verdict]


class Role(NamedTuple):
    """What a port was decided to be."""

    backend: bool
    verdict: Verdict

    def __str__(self) -> str:
        word = "backend" if self.backend else "no backend"
        return f"{word} ({self.verdict.text})"


class Known(NamedTuple):
    """Addresses of what the roles were decided by, beside the ports that are there."""

    gpus: tuple[str, ...] = ()  # those that are there, or missing
    away: tuple[str, ...] = ()  # devices that are missing


NOTHING = Known()


class Pin(NamedTuple):
    """A port of the annotation; it had the role of `rule`."""

    identity: Identity
    rule: str
    backend: bool
    port_guid: str | None = None
    has_link: bool = False  # when it was written
    is_lost: bool = False  # it had left the bus


@dataclass(slots=True)
class RoleMemory:
    """The roles of the ports of one node; it belongs to one Host."""

    clock: Callable[[], float]
    changed: tuple[RoleChange, ...] = ()  # by the last observation
    _roles: dict[Identity, Role] = field(default_factory=dict)
    # All that was ever there, and when it was there last
    _evidence: dict[str, dict[Identity, float]] = field(default_factory=dict)
    _since: dict[Identity, float] = field(default_factory=dict)  # of each role
    _contradicted: dict[Identity, float] = field(default_factory=dict)  # since when
    _pins: tuple[Pin, ...] = ()  # for the next observation
    _known: Known = NOTHING  # for it, and of the last one
    # Rules that took out a port of the annotation, and none since the start
    _unseen: dict[Identity, str] = field(default_factory=dict)

    def seed(self, pins: Iterable[Pin], known: Known = NOTHING) -> None:
        """Start from what the annotation has, with the next observation."""
        self._pins = tuple(one for one in pins if one.rule in (NEEDS.keys() | {DATA_PORT}))
        self._known = known

    @property
    def known(self) -> Known:
        """What a new agent has to know beside the ports."""
        return self._known

    def _begin(self, devices: Collection[RdmaDevice], bus: Bus) -> None:
        pins, self._pins = self._pins, ()
        if _have_moved(pins, devices, bus):
            return
        text = "before the start"
        for one in pins:
            self._roles[one.identity] = Role(one.backend, Verdict(one.rule, text))
            self._since[one.identity] = -math.inf
        self._contradicted = {}
        self._unseen = {one.identity: one.rule for one in pins if not one.backend}
        known = [one for one in pins if one.backend and not one.is_lost]
        self._learn(
            {
                GPUS: frozenset((address, 0) for address in self._known.gpus),
                DEVICES: frozenset(
                    (address, 0)
                    for address in (*self._known.away, *(one.identity[0] for one in known))
                ),
                LINKS: frozenset(one.identity for one in known if one.has_link),
            }
        )

    def keep(
        self, devices: Collection[RdmaDevice], bus: Bus, ignored: Verdicts, backend: Verdicts
    ) -> tuple[Verdicts, Verdicts]:
        """Return the verdicts with the roles that stay as they were."""
        now, evidence = self.clock(), evidence_of(devices, bus)
        if self._pins:
            self._begin(devices, bus)
        self._forget_gone(bus)
        missing = {
            name
            for name, known in self._evidence.items()
            if not known.keys() <= evidence.get(name, known.keys())
        }
        rules = {verdict.rule for verdict in ignored.values()}
        addresses = {device.name: device.pci or device.name for device in devices}
        self._unseen = {key: rule for key, rule in self._unseen.items() if rule not in rules}
        for name, number in [*ignored, *backend]:
            missing |= NEEDS.get(self._unseen.get((addresses[name], number), ""), frozenset())
        out, kept, changed = dict(ignored), dict(backend), []
        contradicted = {}
        for key in [*ignored, *backend]:
            if key in ignored and ignored[key].rule not in REMEMBERED:
                continue
            identity = addresses[key[0]], key[1]
            found = Role(key not in ignored, ignored.get(key) or backend[key])
            before, since = self._roles.get(identity), self._since.get(identity, now)
            is_other = before is None or before.backend is not found.backend
            if before and is_other and now >= since + CONFIRM:
                if not (_needs(before, found) & missing or found.verdict.rule == UNDECIDED):
                    contradicted[identity] = self._contradicted.get(identity, now)
                if now < contradicted.get(identity, math.inf) + CONFIRM:
                    text = f"as before: {before.verdict.text}"
                    out.pop(key, None)
                    kept.pop(key, None)
                    (kept if before.backend else out)[key] = before.verdict._replace(text=text)
                    continue
                contradicted.pop(identity)
                changed.append(RoleChange(*key, str(before), str(found)))
            self._roles[identity] = found
            self._since[identity] = now if is_other else since
        self._contradicted, self.changed = contradicted, tuple(changed)
        if changed:
            self._unseen = {}
        self._learn(evidence)
        gpus, away = self._evidence[GPUS].keys(), self._evidence[DEVICES].keys() - evidence[DEVICES]
        away = {one for one in away if PCI.fullmatch(one[0])}  # soft-RoCE has no function
        self._known = Known(*(tuple(sorted(name for name, _ in one)) for one in (gpus, away)))
        return out, kept

    def next_end(self) -> float:
        """Return the time at which a contradiction may count; infinity if there is none."""
        return min(self._contradicted.values(), default=math.inf) + CONFIRM

    def _learn(self, evidence: Mapping[str, frozenset[Identity]]) -> None:
        """Remember what is there. A decision that was changed has its own evidence from then on."""
        now = self.clock()
        for name, found in evidence.items():
            before = {} if self.changed else self._evidence.get(name, {})
            self._evidence[name] = before | dict.fromkeys(found, now)
        for identity in list(self._roles)[:-MAX_PORTS]:
            del self._roles[identity], self._since[identity]

    def _forget_gone(self, bus: Bus) -> None:
        """Forget what is gone for good. A route is no function, and may come back."""
        oldest = self.clock() - AWAY
        for name, known in self._evidence.items():
            for one in list(known) if name != ROUTE else ():
                if one[0] not in bus.functions and known[one] <= oldest:
                    del known[one]


def evidence_of(devices: Collection[RdmaDevice], bus: Bus) -> dict[str, frozenset[Identity]]:
    """Return what the rules judge by, as far as it may be gone for the moment."""
    own = [one for one in devices if not (one.virtual_function or one.sub_function)]
    ports = device_ports(own)
    active = {
        (one.device.pci or one.device.name, one.port.number)
        for one in ports
        if one.port.state == "ACTIVE"
    }
    routed = any(one.carries_default_route for one in device_ports(tuple(devices)))
    return {
        GPUS: frozenset((one.address, 0) for one in bus.gpus),
        NICS: frozenset((one.address, 0) for one in bus.nics if not one.is_virtual),
        DEVICES: frozenset((one.pci or one.name, 0) for one in own if one.ports),
        LINKS: frozenset(active),
        ROUTE: frozenset({(ROUTE, 0)} if routed else ()),
    }


def _needs(before: Role, found: Role) -> frozenset[str]:
    """Return the evidence that a change needs: that of the rule which takes the port out."""
    if found.verdict.rule == "front-end" and before.backend:
        return frozenset()  # the route is there
    rule = before.verdict.rule if found.backend else found.verdict.rule
    return NEEDS.get(rule, frozenset())


def _have_moved(pins: Collection[Pin], devices: Collection[RdmaDevice], bus: Bus) -> bool:
    """Return True if the addresses of the pins are not those of the same ports any more.

    So it is in a VM that was created anew, or after a card was added: buses have other numbers.
    """
    guids = {
        (device.pci or device.name, port.number): port.port_guid
        for device in devices
        for port in device.ports
        if port.port_guid
    }
    # One that several functions have is nobody's.
    numbers = Counter(guid for guid, _ in {(guid, key[0]) for key, guid in guids.items()})
    is_elsewhere = any(
        numbers[one.port_guid or ""] == 1 and guids.get(one.identity) != one.port_guid
        for one in pins
    )
    has_none = bus.functions.keys().isdisjoint(one.identity[0] for one in pins)
    return is_elsewhere or (bool(bus.functions) and has_none)
