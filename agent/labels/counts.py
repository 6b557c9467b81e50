"""Hold what backend ports counted while they cannot be read, each for a limited time.

The speed label is the sum over the backend ports of what is seen, else of what the port counted
last. A port that cannot be read is one whose state or rate is unknown, one of a device that failed,
or one of a device without driver.

Invariants:
- The hold of a port's count starts with the first failed observation; for a count that the Node's
  annotation had at the start of the agent, with the start. It ends `hold` seconds later, and the
  port counts 0 from then on. Only an observation that reads the port, or lacks it, resets it.
- A failed device that is known to have counted nothing counts 0, so one that is no part of the
  backend never holds the label.
- A count that nobody knows makes the sum incomplete; agent/labels/holds.py holds the label then. On
  a Node without the label the incomplete sum is published, and the unknown count is 0 from then on.
- While a count is held the set of devices is incomplete, and port roles depend on it. So a port of
  a device that was ignored before adds nothing, and one that is ignored only now counts what it
  did.
- A device whose hold has ended is given up: it makes no other label incomplete any more.

Times are seconds of a clock that does not jump; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from agent.labels.holds import next_end
from agent.labels.values import failed_devices, total_text
from agent.model import Failed, HeldCount, Problem
from agent.sources.roles import is_of_device

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from agent.model import Observation, PortRole

    Counts = Mapping[str, "LastCount"]  # by interface


class LastCount(NamedTuple):
    """The count of an interface when it was last read."""

    gbps: float
    pci: str | None  # address of its PCI function


class Published(NamedTuple):
    """The counts that the Node's annotation has at the start of the agent."""

    counts: Counts
    boot_id: str | None  # of the annotation
    speed: str | None  # the owned speed label
    subject: str  # the annotation's key

    def fault(self, boot_id: str) -> str | None:
        """Return the reason for which the counts cannot be used; None if they can."""
        if self.boot_id != boot_id:
            return "they are of another boot"
        found = total_text(count.gbps for count in self.counts.values())
        if self.speed != found:
            return f"their sum is {found}, and the speed label is {self.speed or 'not there'}"
        return None


class _Timers:
    """The time since which each of some names fails."""

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._since: dict[str, float] = {}

    def update(self, failing: Iterable[str], now: float) -> None:
        """Start the timers of these names unless they run; stop all others."""
        self._since = {name: self._since.get(name, now) for name in failing}

    def start(self, failing: Iterable[str], now: float) -> None:
        """Start the timers of these names unless they run; the others run on."""
        self.update([*self._since, *failing], now)

    def has_ended(self, name: str, now: float) -> bool:
        return name in self._since and now >= self._since[name] + self._hold

    def ended(self, now: float) -> frozenset[str]:
        return frozenset(name for name in self._since if self.has_ended(name, now))

    def next_end(self, now: float) -> float:
        return next_end(self._since, self._hold, now)


class PortCounts:
    """The last counts of one node's backend ports."""

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._last: Counts = {}
        self._is_known = False  # an interface that `_last` lacks counted nothing
        # Devices without backend port, in the last observation without a held count. None: there
        # was none; those count that `_last` has when it becomes known.
        self._ignored: frozenset[str] | None = None
        self._published: Published | None = None  # not checked yet
        self._rejected: Published | None = None
        self._fault = ""  # the reason why these were rejected
        self._ports, self._devices = _Timers(hold), _Timers(hold)

    def seed(self, published: Published | None, now: float) -> None:
        """Start from the counts of the annotation, and those of its interfaces seen since.

        All holds are new. Without the annotation, an interface whose device has no driver was not
        known so far; a device that passed for a backend port meanwhile may be none.
        """
        if published:
            known = self._last.items()
            self._last = {name: last for name, last in known if name in published.counts}
        self._published, self._is_known = published, False
        self._ports, self._devices = _Timers(self._hold), _Timers(self._hold)
        self._ports.update([*self._last, *(published.counts if published else ())], now)

    def next_end(self, now: float) -> float:
        """Return the time at which the next hold ends; infinity if none is running."""
        return min(self._ports.next_end(now), self._devices.next_end(now))

    def publish_incomplete(self) -> None:
        """Record that a sum is published which lacks the unknown counts: they are 0 for it.

        So the label follows the ports that are seen.
        """
        self._is_known = True

    def apply(self, observation: Observation, now: float) -> Observation:
        """Return the observation with the counts that are held at `now`.

        While the whole RDMA class cannot be read, the speed label is held instead.
        """
        self._check_published(observation.boot_id)
        if isinstance(observation.rdma, Failed):
            self._ports.start(self._last, now)
            return observation
        self._devices.update([*failed_devices(observation), *observation.unbound], now)
        return self._applied(observation, now)

    def _check_published(self, boot_id: str | None) -> None:
        """Take over the published counts, or reject them, once the boot ID can be read."""
        published = self._published
        if published is None or boot_id is None:
            return
        self._published = None
        if fault := published.fault(boot_id):
            self._rejected, self._fault = published, fault
        else:
            self._last, self._is_known = {**published.counts, **self._last}, True

    def _applied(self, observation: Observation, now: float) -> Observation:
        failing, ports = self._failing(observation), observation.ports
        new: frozenset[str] = frozenset()
        if self._have_ended(failing, now):
            self._ignored = _ignored_devices(ports)
        elif self._is_known:
            if self._ignored is None:
                self._ignored = self._uncounted(ports)
            failing += self._ignored_now(ports)
            new = self._new(ports, self._ignored)
        self._ports.update(failing, now)
        held = {name: self._count(name, now) for name in failing}
        known = {name: gbps for name, gbps in held.items() if gbps is not None}
        self._remember([role for role in ports if role.interface not in new], failing)
        self._is_known = self._is_known or known == held
        return replace(
            observation,
            ports=tuple(_with_held(role, known | dict.fromkeys(new, 0.0)) for role in ports),
            problems=(*observation.problems, *self._problems(failing, now)),
            held_counts=tuple(self._held_count(name, known[name], now) for name in known),
            given_up=self._devices.ended(now),
        )

    def _failing(self, observation: Observation) -> list[str]:
        """Return the interfaces that cannot be read, or a device of which none is known."""
        read = {role.interface for role in observation.backend if role.counted_gbps is not None}
        unread = [role.interface for role in observation.backend if role.counted_gbps is None]
        for device in failed_devices(observation):
            lost = [name for name in self._last if is_of_device(name, device) and name not in read]
            unread += lost or [device]
        return list(dict.fromkeys([*unread, *observation.unbound]))

    def _have_ended(self, failing: Iterable[str], now: float) -> bool:
        return all(self._ports.has_ended(name, now) for name in failing)

    def _ignored_now(self, ports: Iterable[PortRole]) -> list[str]:
        """Return the interfaces that counted and are ignored now."""
        backend = {role.interface for role in ports if role.backend}
        ignored = {role.device.name for role in ports if not role.backend}
        lost = self._last.keys() - backend
        return [name for name in lost if any(is_of_device(name, device) for device in ignored)]

    def _new(self, ports: Iterable[PortRole], ignored: frozenset[str]) -> frozenset[str]:
        """Return the backend interfaces of devices that were ignored before."""
        functions = self._functions()
        found = (role for role in ports if role.backend and role.device.pci not in functions)
        return frozenset(role.interface for role in found if _identity(role) in ignored)

    def _uncounted(self, ports: Iterable[PortRole]) -> frozenset[str]:
        """Return the devices that `_last` lacks. One that is not there now is not among them."""
        functions = self._functions()
        found = (role for role in ports if role.interface not in self._last)
        return frozenset(_identity(role) for role in found if role.device.pci not in functions)

    def _functions(self) -> set[str]:
        return {last.pci for last in self._last.values() if last.pci}

    def _count(self, interface: str, now: float) -> float | None:
        """Return the count of an interface that cannot be read; None if nobody knows it."""
        if self._ports.has_ended(interface, now):
            return 0.0
        if last := self._last.get(interface):
            return last.gbps
        return 0.0 if self._is_known else None

    def _held_count(self, interface: str, gbps: float, now: float) -> HeldCount:
        return HeldCount(interface, gbps, has_ended=self._ports.has_ended(interface, now))

    def _remember(self, ports: Iterable[PortRole], failing: Iterable[str]) -> None:
        """Keep the counts that were seen now, and the last ones of those that fail."""
        kept = {name: self._last[name] for name in failing if name in self._last}
        seen = {
            role.interface: LastCount(role.counted_gbps, role.device.pci)
            for role in ports
            if role.backend and role.counted_gbps is not None
        }
        self._last = {**kept, **seen}

    def _problems(self, failing: Iterable[str], now: float) -> Iterable[Problem]:
        """Yield a problem if a count of the annotation was rejected and is missing now."""
        rejected = self._rejected
        if rejected is None:
            return
        missing = [
            name
            for name in failing
            if name in rejected.counts
            and name not in self._last
            and not self._ports.has_ended(name, now)
        ]
        if missing:
            text = f"what {', '.join(missing)} counted last is ignored: {self._fault}"
            yield Problem("node", rejected.subject, None, text)


def _ignored_devices(ports: Collection[PortRole]) -> frozenset[str]:
    """Return the devices without backend port."""
    backend = {_identity(role) for role in ports if role.backend}
    return frozenset(map(_identity, ports)) - backend


def _identity(role: PortRole) -> str:
    """Return the address of the device's PCI function; without one, its name."""
    return role.device.pci or role.device.name


def _with_held(role: PortRole, counts: Mapping[str, float]) -> PortRole:
    """Return the role with the count that replaces its own."""
    if not role.backend:
        return role
    return role._replace(counted_gbps=counts.get(role.interface, role.counted_gbps))
