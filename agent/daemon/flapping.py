"""Flapping ports: which they are, and how long changes of their labels wait.

    five changes of a port in ten minutes  it is flapping, until it was quiet for ten minutes
    a change of flapping ports alone       waits 20 s; the next one 40 s, doubled up to two minutes;
                                           then the latest state is applied, if it differs
    one by which a port counts less        waits for nothing, and begins a wait for the next
    any other change                       waits for nothing, and takes the latest state along

A port changes if it counts another rate, or has another than the last neighbor: a neighbor that
is gone, and back, is a consequence. So the restart of a leaf, with its four changes of labels, is
two changes.

A port that flaps for hours costs two applies in two minutes. Its labels never say more than it has
for longer than `min_interval`, and less for two minutes at most; those of other ports are not late.

Pure: times are seconds of a clock that never jumps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.kube.managed_fields import Keys
from agent.memory import Known
from agent.pace import doubled

MANY = 5  # changes of a port within WINDOW: flapping
WINDOW = 600.0  # seconds
MIN_WAIT, MAX_WAIT = 20.0, 120.0  # seconds


class PortFacts(NamedTuple):
    """What a port adds to the labels."""

    gbps: float | None = None  # that it counts
    labels: tuple[tuple[str, str], ...] = ()  # of its neighbor


NO_PORT = PortFacts()


class Facts(NamedTuple):
    """What the labels of a node are made of, as far as two states are compared."""

    ports: Mapping[str, PortFacts]  # by interface
    rest: Hashable  # what depends on no port


def facts_of(known: Known, labels: Mapping[str, str], keys: Keys) -> Facts:
    """Return what labels are made of: what each port counts, and its own labels."""
    gbps = {fact.interface: fact.gbps for fact in known.facts if fact.interface}
    own: dict[str, list[tuple[str, str]]] = {name: [] for name in gbps}
    for key, value in labels.items():
        if interface := keys.interface(key):
            own.setdefault(interface, []).append((key, value))
    ports = {name: PortFacts(gbps.get(name), tuple(pairs)) for name, pairs in own.items()}
    return Facts(ports, (labels.get(f"{keys.prefix}/flavor"), labels.get(keys.accelerator)))


@dataclass(slots=True)
class _Port:
    facts: PortFacts
    neighbor: tuple[tuple[str, str], ...] = ()  # labels of the last neighbor
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))  # the last times
    is_flapping: bool = False
    waits: int = 0  # of its changes, since it is flapping
    until: float | None = None  # the end of the present wait

    @property
    def quiet_at(self) -> float:
        """The time from which on it is not flapping, if nothing changes until then."""
        return self.changes[-1] + WINDOW if self.is_flapping else math.inf

    def take_in(self, now: float, facts: PortFacts) -> None:
        """Record an observation."""
        has_other = bool(self.neighbor and facts.labels) and facts.labels != self.neighbor
        if facts.gbps != self.facts.gbps or has_other:
            self.changes.append(now)
        self.facts, self.neighbor = facts, facts.labels or self.neighbor
        if len(self.changes) == MANY and self.changes[0] > now - WINDOW:
            self.is_flapping = True
        elif now >= self.quiet_at:
            self.is_flapping, self.waits, self.until = False, 0, None

    def wait(self, now: float) -> None:
        """Begin a wait, if none is under way."""
        if self.is_flapping and self.until is None:
            self.until = now + doubled(MIN_WAIT, MAX_WAIT, self.waits)

    def end_wait(self) -> None:
        """End the wait: the Node has the present state, or had it when the wait was over."""
        if self.until is not None:
            self.waits, self.until = self.waits + 1, None


class Flapping:
    """Counts the changes of each port, and delays those of flapping ports."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}  # by interface
        self._desired = self._applied = Facts({}, None)
        self._is_known = False  # the state of the Node

    @property
    def ports(self) -> tuple[str, ...]:
        """The interfaces that are flapping."""
        return tuple(name for name, port in self._ports.items() if port.is_flapping)

    def observed(self, now: float, desired: Facts) -> None:
        """Record what an observation found: the state that the Node should have."""
        before = self._differing()
        for name, port in self._ports.items():
            if port.until is not None and now >= port.until and name not in before:
                port.end_wait()  # with nothing to apply
        self._desired = desired
        for name in {**desired.ports, **self._ports}:
            facts = desired.ports.get(name, NO_PORT)
            self._ports.setdefault(name, _Port(facts)).take_in(now, facts)
        for name in self._ports.keys() - desired.ports.keys():
            if not self._ports[name].is_flapping:
                del self._ports[name]
        self._wait(now)

    def applied(self, now: float, state: Facts) -> None:
        """Record the state that the Node has now."""
        self._applied, before = state, self._applied
        for name in _differences(before, state):
            if name in self._ports:
                self._ports[name].end_wait()
        self._is_known = True
        self._wait(now)

    def resumes_at(self) -> float:
        """Return the time from which on the desired state may be applied; -inf: at once."""
        names = self._differing()
        ports = [self._ports.get(name) for name in names]
        is_other = self._desired.rest != self._applied.rest
        desired, on_node = self._desired.ports, self._applied.ports
        counts_less = any(
            (desired.get(name, NO_PORT).gbps or 0.0) < (on_node.get(name, NO_PORT).gbps or 0.0)
            for name in names
        )
        if not ports or is_other or counts_less:
            return -math.inf
        return min(-math.inf if not port or port.until is None else port.until for port in ports)

    def next_end(self) -> float:
        """Return the time at which a port stops flapping if it stays quiet; infinity: none."""
        return min((port.quiet_at for port in self._ports.values()), default=math.inf)

    def _wait(self, now: float) -> None:
        for name in self._differing():
            if port := self._ports.get(name):
                port.wait(now)

    def _differing(self) -> set[str]:
        """Return the interfaces whose state on the Node is not the desired state."""
        return _differences(self._applied, self._desired) if self._is_known else set()


def _differences(before: Facts, after: Facts) -> set[str]:
    names = before.ports.keys() | after.ports.keys()
    return {name for name in names if before.ports.get(name) != after.ports.get(name)}
