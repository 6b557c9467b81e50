"""Labeled interfaces that left the bus: an HCA that failed, or that a reboot did not find.

A backend port of the Node's annotation is lost when an observation finds neither its port GUID nor
its PCI function. Its labels go as those of any absent port; the annotation keeps its row in `lost`,
across restarts and reboots.

Rules:
- Identity is the port GUID, then the PCI address: a port whose name or address changed is the same.
  A GUID that several functions have identifies none. An address whose function has the GUID of
  another known port is that port's.
- Nothing is lost while the RDMA devices cannot be read, nor while the function is on the bus or
  given to a virtual machine.
- A backend port is new if the annotation's `interfaces` lack it, while they have any row or an
  observation was made before. At a start with no row, all ports may have been there before.
- At most MAX_LOST are kept, those first that are lost now.
- A lost port is forgotten when it is read again, when --exclude-device names it or --backend-device
  does not, when its function is given to a virtual machine, when a new backend port takes its
  place (one for each), and when another program removes it from the annotation,
  as `bwagent cleanup --lost` does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from agent.kube.annotation import MAX_LOST, Annotation
from agent.labels.values import failed_devices
from agent.model import Failed, LostPort, Problem, natural
from agent.sources.pci import SOURCE, Place, place
from agent.sources.roles import is_of_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.host import Host
    from agent.model import Observation, PortRole


NO_GUID = "0" * 16


class _Known(NamedTuple):
    """A port of the annotation."""

    interface: str
    pci: str
    port_guid: str | None
    since: int | None = None  # unknown, or not lost
    is_lost: bool = False  # already


class Losses:
    """Finds the lost ports of one node in each observation."""

    def __init__(self) -> None:
        # Functions without backend port in the observation before; None: there was none.
        self._ignored: frozenset[str] | None = None

    def apply(
        self, host: Host, observation: Observation, annotation: Annotation | None
    ) -> Observation:
        """Return the observation with the lost ports, given the Node's annotation."""
        annotation = annotation or Annotation(None, None)
        if isinstance(observation.rdma, Failed):
            lost = _before(annotation)
        else:
            lost = self._lost(host, observation, annotation)
            self._ignored = _ignored(observation.ports)
        problems = [Problem(SOURCE, one.interface, None, _text(one)) for one in lost]
        return replace(observation, lost=lost, problems=(*observation.problems, *problems))

    def _lost(
        self, host: Host, observation: Observation, annotation: Annotation
    ) -> tuple[LostPort, ...]:
        known = _known(annotation)
        found = _Found(known, observation.ports)
        gone = [
            one for one in known if found.lacks(one) and _is_lost(one, host, observation, found)
        ]
        gone = _without_replaced(gone, self._new(found, annotation))[:MAX_LOST]
        now = int(observation.time)
        lost = [LostPort(*one[:3], one.since if one.is_lost else now) for one in gone]
        return tuple(sorted(lost, key=lambda one: (natural(one.interface), one.pci)))

    def _new(self, found: _Found, annotation: Annotation) -> list[str]:
        """Return the backend ports that were not there before."""
        if self._ignored is None and not annotation.interfaces:
            return []
        ignored = self._ignored or frozenset()
        return [role.interface for role in found.new if role.device.pci not in ignored]


def _text(lost: LostPort) -> str:
    return f"{lost} is gone from the bus"


def _before(annotation: Annotation) -> tuple[LostPort, ...]:
    """Return the lost ports of the annotation."""
    rows = annotation.lost
    return tuple(LostPort(row.interface, row.pci, row.port_guid, row.since) for row in rows)


def _known(annotation: Annotation) -> list[_Known]:
    """Return the ports of the annotation, those that are lost last."""
    present = [_Known(row.interface, row.pci, row.port_guid) for row in annotation.interfaces]
    return [*present, *(_Known(*one, is_lost=True) for one in _before(annotation))]


def _ignored(ports: Iterable[PortRole]) -> frozenset[str]:
    """Return the PCI functions of devices that have ports, but none of the backend."""
    backend = {role.device.pci for role in ports if role.backend}
    return frozenset(role.device.pci for role in ports if role.device.pci) - backend


class _Found:
    """The ports of an observation, matched with the known ones."""

    def __init__(self, known: Sequence[_Known], ports: Sequence[PortRole]) -> None:
        here = _unique((role.port.port_guid, role.device.pci) for role in ports)
        before = _unique((one.port_guid, one.pci) for one in known)
        self._guids = here.keys() & before.keys()
        # Functions that have another address now, by that address.
        self._moved = {here[guid] for guid in self._guids if here[guid] != before[guid]}
        others = [role for role in ports if role.port.port_guid not in self._guids]
        self._functions = {role.device.pci for role in others}
        addresses = {one.pci for one in known if one.port_guid not in self._guids}
        self.new = [role for role in others if role.backend and role.device.pci not in addresses]

    def lacks(self, one: _Known) -> bool:
        """Return True if no port has the GUID or, unless it is another known one's, the address."""
        return one.port_guid not in self._guids and one.pci not in self._functions

    def is_taken(self, pci: str) -> bool:
        """Return True if the function at this address is another one, which was elsewhere."""
        return pci in self._moved


def _unique(pairs: Iterable[tuple[str | None, str | None]]) -> dict[str, str | None]:
    """Return the GUIDs that one PCI function has, with its address."""
    functions: dict[str, set[str | None]] = defaultdict(set)
    for guid, pci in pairs:
        if guid and guid != NO_GUID:
            functions[guid].add(pci)
    return {guid: pcis.pop() for guid, pcis in functions.items() if len(pcis) == 1}


def _is_lost(one: _Known, host: Host, observation: Observation, found: _Found) -> bool:
    """Return True if a port that was not found is lost, or stays so."""
    if not _is_wanted(one.interface, host):
        return False
    if not one.is_lost and _may_be_unread(one.interface, observation):
        return False
    where = Place.GONE if found.is_taken(one.pci) else place(host, one.pci)
    return where is Place.GONE or (one.is_lost and where is Place.BUS)


def _may_be_unread(interface: str, observation: Observation) -> bool:
    """Return True for an interface of a device that cannot be read."""
    return any(is_of_device(interface, device) for device in failed_devices(observation))


def _is_wanted(interface: str, host: Host) -> bool:
    """Return True unless the flags leave the device out.

    A device's name is its interface, or what precedes a dash in it.
    """
    parts = interface.split("-")
    names = ["-".join(parts[:length]) for length in range(1, len(parts) + 1)]
    if _matches(names, host.excluded):
        return False
    return not host.backend or _matches(names, host.backend)


def _matches(names: Iterable[str], globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def _without_replaced(gone: Sequence[_Known], new: Iterable[str]) -> list[_Known]:
    """Return the ports that no new one replaces: one of the same name, else the first."""
    left = list(gone)
    for name in new:
        same = [one for one in left if one.interface == name]
        for one in (same or left)[:1]:
            left.remove(one)
    return left
