"""Steady roles: a role that was decided stays while anything is missing.

The rules (agent/sources/roles.py) judge each observation by itself: with a GPU off the bus, an HCA
in recovery or a lease without its route they would give other answers. Missing is a NIC or GPU that
was on the bus and is not, a device that cannot be read, the default route where a NIC carried it,
and a link that was up; never a device without PCI function; for at most AWAY seconds of wall clock,
over restarts. Rule 1 judges by facts of the port itself, and takes effect at once. Of each other
port, a role having lasted after CONFIRM seconds:

    remembered role      verdict        then
    none                 backend        it does not join while, beside a role that has lasted,
                                        anything is missing or other roles are about to change
    none, or not lasted  any other      the verdict is its role
    the same as it                      it stays, since when it was decided
    lasted               undecided      it stays
    lasted               the other      it stays while anything is missing, and for CONFIRM seconds
                                        from when that was first the verdict

All labels are made of one set of roles. The role of another link layer than before is none. A card
that is at another address than before, by the GUIDs of its ports, is not missing: its roles go
along. A new agent begins with what the annotation has (`seed`): a port that it does not have is
judged anew; so is each one if the ports have other addresses than before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from agent.ids import moves
from agent.model import RoleChange
from agent.sources.interfaces import (
    DevicePort,
    PortKey,
    PortPlace,
    RoleEvidence,
    RoleVerdict,
    Verdicts,
)
from agent.sources.roles import DATA_PORT, UNDECIDED, UNKNOWN_FRONT_END

VERSION = 3  # of the rule set: another one if what the rules mean changes
CONFIRM = 60.0  # seconds
AWAY = 7 * 86400.0  # seconds; a dead GPU is not replaced in a day
MAX_PORTS = 1024  # remembered
# The rules whose verdicts are remembered of a port that they take out.
REMEMBERED = frozenset(
    {"front-end", "spare-port", "gpu-affinity", "link-layer", "kind", UNKNOWN_FRONT_END}
)
UNKNOWN = frozenset({UNKNOWN_FRONT_END, UNDECIDED})  # verdicts that are no roles
ROLES = REMEMBERED | {DATA_PORT, UNDECIDED}
FUNCTION, DEVICE = 0, -1  # in place of the number of a port
ROUTE: PortPlace = "the default route", -2


class Role(NamedTuple):
    """What a port was decided to be, and since when."""

    verdict: RoleVerdict
    since: float
    layer: str | None = None  # link layer; None: unknown
    port_guid: str | None = None


class Inventory(NamedTuple):
    """What a new agent has to know beside the ports that are there."""

    gpus: tuple[str, ...] = ()  # addresses of those that are there, or missing
    away: tuple[str, ...] = ()  # addresses of NICs that are missing
    missed: float | None = None  # seconds since the epoch: the first part was missed


NOTHING = Inventory()


class Pin(NamedTuple):
    """A port of the annotation; it had the role of `rule`."""

    identity: PortPlace
    rule: str
    backend: bool
    port_guid: str | None = None
    has_link: bool = False  # when it was written
    is_lost: bool = False  # it had left the bus
    layer: str | None = None  # link layer


class RoleMemory:
    """The roles of the ports of one node; it belongs to one Host.

    `clock` has seconds that do not jump, `wall` seconds since the epoch; an unlabeled node is
    undecided for `hold` seconds.
    """

    def __init__(
        self, clock: Callable[[], float], wall: Callable[[], float], hold: float = 600.0
    ) -> None:
        self.clock, self.wall, self.hold = clock, wall, hold
        self.changed: tuple[RoleChange, ...] = ()  # by the last observation
        self.known = NOTHING  # after the last observation
        self._roles: dict[PortPlace, Role] = {}
        self._there: frozenset[PortPlace] = frozenset()  # all that roles were decided by
        self._contradicted: dict[PortPlace, float] = {}  # since when
        self._pins: tuple[Pin, ...] = ()  # for the next observation
        self._undecided_since: float | None = None

    def seed(self, pins: Iterable[Pin], known: Inventory = NOTHING) -> None:
        """Start from what the annotation has, with the next observation."""
        self._pins = tuple(pin for pin in pins if pin.rule in ROLES)
        self.known = known

    def awaits_unread(self) -> bool:
        """Return True until a node without labels has been undecided for the hold."""
        if self._undecided_since is None:
            self._undecided_since = self.clock()
        return self.clock() < self._undecided_since + self.hold

    def keep(self, evidence: RoleEvidence, verdicts: Verdicts) -> dict[PortKey, RoleVerdict]:
        """Return the verdicts with the roles that stay as they were."""
        now, ports = self.clock(), evidence.ports
        judged = [port for port in ports if verdicts[port.key].rule in ROLES]
        self._undecided_since = None
        self._begin(evidence)
        self._follow(evidence)
        # The link of a port that rule 1 takes out, such as the second function of a cable, may end.
        self._there -= {port.place for port in ports} - {port.place for port in judged}
        missing = self._missing(evidence, there_of(evidence, judged))
        before = {
            port.key: role
            for port in judged
            if (role := self._roles.get(port.place)) and role.layer in {None, port.port.link_layer}
        }
        stays = self._stays(judged, before, verdicts, missing)
        why = f"{missing} is missing" if missing else "other roles change"
        is_settled = any(now >= role.since + CONFIRM for role in self._roles.values())
        if is_settled and (missing or self._contradicted):
            for port in judged:
                given = verdicts[port.key]
                if given.backend and port.key not in before:
                    stays[port.key] = RoleVerdict(UNDECIDED, f"it came while {why}: {given.text}")
        decided: dict[PortPlace, Role] = {}
        for port in judged:
            given, role = verdicts[port.key], before.get(port.key)
            if port.key not in stays and (given.backend or given.rule not in UNKNOWN):
                since = role.since if role and role.verdict.backend is given.backend else now
                decided[port.place] = Role(given, since, port.port.link_layer, port.port.port_guid)
        self._roles = dict([*self._roles.items(), *decided.items()][-MAX_PORTS:])
        return {**verdicts, **stays}

    def _stays(
        self,
        judged: Iterable[DevicePort],
        before: Mapping[PortKey, Role],
        verdicts: Verdicts,
        missing: str | None,
    ) -> dict[PortKey, RoleVerdict]:
        """Return the roles that stay though the verdict is the other; note what changes."""
        now, stays, changed = self.clock(), dict[PortKey, RoleVerdict](), list[RoleChange]()
        since, self._contradicted = self._contradicted, {}
        why = f"while {missing} is missing" if missing else "as before"
        for port in judged:
            role, given = before.get(port.key), verdicts[port.key]
            if role and now >= role.since + CONFIRM and role.verdict.backend is not given.backend:
                if not missing and given.rule != UNDECIDED:
                    first = since.get(port.place, now)
                    if now >= first + CONFIRM:
                        changed.append(RoleChange(*port.key, str(role.verdict), str(given)))
                        continue
                    self._contradicted[port.place] = first
                stays[port.key] = role.verdict._replace(text=f"{role.verdict.text}, {why}")
        self.changed = tuple(changed)
        return stays

    def next_end(self) -> float:
        """Return the time at which a contradiction may count; infinity if there is none."""
        return min(self._contradicted.values(), default=math.inf) + CONFIRM

    def _begin(self, evidence: RoleEvidence) -> None:
        """Take over the roles of the annotation, and what it says was there.

        Not so if its addresses are not those of the same ports any more, as in a VM that was
        created anew, or after a card was added: buses have other numbers.
        """
        pins, self._pins = self._pins, ()
        if not pins:
            return
        before = [(pin.port_guid, pin.identity[0]) for pin in pins]
        functions = evidence.bus.functions
        has_none = bool(functions) and functions.keys().isdisjoint(pci for _, pci in before)
        if has_none or any(at != was for was, at in moves(_guids(evidence), before).items()):
            self.known = NOTHING
            return
        there = {(address, FUNCTION) for address in (*self.known.gpus, *self.known.away)}
        there |= {(address, DEVICE) for address in self.known.away}
        self._roles = {}  # of observations before the annotation was read
        for pin in pins:
            verdict = RoleVerdict(pin.rule, "before the start", pin.backend)
            self._roles[pin.identity] = Role(verdict, -math.inf, pin.layer, pin.port_guid)
            if not pin.is_lost:
                there |= {(pin.identity[0], FUNCTION), (pin.identity[0], DEVICE)}
            if pin.has_link or (pin.backend and self.known.missed is not None):
                there.add(pin.identity)
            if pin.rule in {"front-end", "spare-port"}:
                there.add(ROUTE)
        self._there, self._contradicted = frozenset(there), {}

    def _follow(self, evidence: RoleEvidence) -> None:
        """Let cards that are at other addresses than before keep their roles."""
        functions = evidence.bus.functions
        before = [(role.port_guid, pci) for (pci, _), role in self._roles.items() if ":" in pci]
        for was, at in moves(_guids(evidence), before).items() if functions else ():
            if was not in functions:
                for identity in [known for known in self._roles if known[0] == was]:
                    self._roles.setdefault((at, identity[1]), self._roles.pop(identity))
                self._there = frozenset(known for known in self._there if known[0] != was)

    def _missing(self, evidence: RoleEvidence, there: frozenset[PortPlace]) -> str | None:
        """Return in words what was there and is missing; what was missed for long is forgotten."""
        gone, missed = self._there - there, self.known.missed
        if not gone:
            missed = None
        elif missed is None or missed > self.wall():
            missed = self.wall()
        elif self.wall() >= missed + AWAY:
            gone, missed, self._there = frozenset(), None, there
        self._there |= there
        gpus = {gpu.address for gpu in evidence.bus.gpus}
        gpus |= {name for name in self.known.gpus if (name, FUNCTION) in self._there}
        away = {name for name, number in gone if number in {FUNCTION, DEVICE}} - gpus
        self.known = Inventory(tuple(sorted(gpus)), tuple(sorted(away)), missed)
        by_weight = sorted(gone, key=lambda part: (part[1] > 0, part == ROUTE, part[0]))
        return next((f"the link of {at}" if port > 0 else at for at, port in by_weight), None)


def there_of(evidence: RoleEvidence, judged: Iterable[DevicePort]) -> frozenset[PortPlace]:
    """Return what may be missing another time, and is there.

    Of the links those of the ports that rules 2 to 5 `judged`: those of VFs come and go.
    """
    nics = [*evidence.bus.gpus, *(nic for nic in evidence.bus.nics if not nic.is_virtual)]
    there = {(function.address, FUNCTION) for function in nics}
    there |= {
        (device.pci, DEVICE)
        for device in evidence.devices
        if device.pci and device.ports and not (device.virtual_function or device.sub_function)
    }
    active = (port for port in judged if port.port.state == "ACTIVE")
    there |= {port.place for port in active if (port.device.pci, DEVICE) in there}
    if evidence.front_end.nics or any(map(evidence.carries_route, evidence.devices)):
        there.add(ROUTE)
    return frozenset(there)


def _guids(evidence: RoleEvidence) -> list[tuple[str | None, str | None]]:
    """Return the GUID of each port of a card, with the address of its function; of no VF."""
    cards = (port for port in evidence.ports if not port.device.virtual_function)
    return [(port.port_guid, device.pci) for device, port in cards]
