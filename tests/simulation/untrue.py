"""What a cycle with a failed read publishes that is not so, by the words of the label contract.

Held against the clean observation of the same machine:

- A label that was published stays as it is.
- A node that has no labels yet may lack those of the devices whose facts the read is one of. The
  speed counts what could be read. Nothing else may be missing, and nothing may be there that the
  clean observation does not have: no label, and no port in another role.
- Such a node is undecided while no PCI function is known of a device that cannot be read, or the
  place of a NIC near GPUs: it publishes nothing of its RDMA devices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from agent.daemon.observer import Cycle
from agent.model import Failed, PortRole
from tests.simulation.failed_reads import Case, Machine
from tests.simulation.names import ACC, IB, P

_NEIGHBOR = re.compile(r"neighbors\.current\.(.+)\.(?:device|port-id|port-name)")
_JOINED = {
    *(f"{P}/{name}.current" for name in ("leaves", "leafgroup")),
    *(f"{IB}/{name}.current" for name in ("leaves", "ports")),
}
_SPEEDS = {f"{P}/speed.current", f"{IB}/speed.current"}
UNDECIDED = "the backend is not known while "
MAX_PARTS = 12  # interfaces of a device whose rates are summed in every combination


class Change(NamedTuple):
    """A label, or the role of a port, that is not as in the clean observation."""

    subject: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.subject}: {self.before} -> {self.after}"


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return the labels that differ."""
    keys = sorted(before.keys() | after.keys())
    pairs = ((key, before.get(key), after.get(key)) for key in keys)
    return [Change(*pair) for pair in pairs if pair[1] != pair[2]]


def untrue(machine: Machine, case: Case, cycle: Cycle) -> list[Change]:
    """Return what a node without labels must not publish, or lack, after this failed read."""
    may_lack = _Allowance(machine, machine.touched(case) or frozenset())
    labels = changed(machine.labels, cycle.rendered.labels)
    rdma = cycle.observation.rdma
    if isinstance(rdma, Failed) and rdma.reason.startswith(UNDECIDED):
        return [change for change in labels if change.after is not None or change.subject == ACC]
    found = [change for change in labels if not may_lack.allows(change)]
    return found + _roles(machine.roles, cycle.observation.ports)


class _Allowance:
    """The labels that may be missing while these devices cannot be read."""

    def __init__(self, machine: Machine, devices: Collection[str]) -> None:
        backend = [role for role in machine.roles if role.backend]
        unread = [role for role in backend if role.device.name in devices]
        self._interfaces = {role.interface for role in unread}
        self._is_all = bool(unread) and len(unread) == len(backend)
        self._rates = [role.counted_gbps or 0.0 for role in unread]

    def allows(self, change: Change) -> bool:
        name = change.subject.partition("/")[2]
        if change.before is None or change.subject == ACC:
            return False
        if change.subject in _SPEEDS and change.after is not None:
            return self._is_part(_gbps(change.before) - _gbps(change.after))
        if change.subject in _JOINED:
            return bool(self._interfaces)
        if found := _NEIGHBOR.fullmatch(name):
            return change.after is None and found[1] in self._interfaces
        return change.after is None and self._is_all

    def _is_part(self, missing: float) -> bool:
        """Return True if some of the unread interfaces have this rate together."""
        rates = [rate for rate in self._rates if rate]
        if len(rates) > MAX_PARTS:
            return 0 <= missing <= sum(rates)
        sums = (sum(some) for size in range(len(rates) + 1) for some in combinations(rates, size))
        return any(abs(one - missing) < 0.001 for one in sums)


def _gbps(label: str) -> float:
    return float(label.removesuffix("G"))


def _roles(clean: Iterable[PortRole], now: Iterable[PortRole]) -> list[Change]:
    """Return the ports in another role, and the backend interfaces that the machine has not."""
    before, after = _by_port(clean), _by_port(now)
    found = [
        Change(f"port {device}/{port}", before.get((device, port)), role)
        for (device, port), role in after.items()
        if before.get((device, port)) != role
    ]
    names = {role.interface for role in clean if role.backend}
    new = {role.interface for role in now if role.backend} - names
    return found + [Change(f"interface {name}", None, "backend") for name in sorted(new)]


def _by_port(roles: Iterable[PortRole]) -> dict[tuple[str, int], str]:
    return {
        (role.device.name, role.port.number): "backend" if role.backend else "ignored"
        for role in roles
    }
