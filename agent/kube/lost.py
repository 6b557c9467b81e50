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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.ids import is_named, is_pci_glob
from agent.kube.annotation import MAX_LOST, Annotation, LabeledInterface
from agent.labels.values import failed_devices
from agent.model import Failed, LostPort, Observation, PortRole, Problem, natural
from agent.sources.pci import SOURCE, Place, place
from agent.sources.roles import is_of_device

if TYPE_CHECKING:
    from agent.host import Host

NO_GUID = "0" * 16


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
        rows: Sequence[LabeledInterface] = annotation.lost
        if not isinstance(observation.rdma, Failed):
            rows = self._lost(host, observation, annotation)
            functions = {role.device.pci for role in observation.ports if role.device.pci}
            self._ignored = frozenset(functions - {one.device.pci for one in observation.backend})
        lost = tuple(LostPort(one.interface, one.pci, one.port_guid, one.since) for one in rows)
        problems = [
            Problem(SOURCE, one.interface, None, f"{one} is gone from the bus") for one in lost
        ]
        return replace(observation, lost=lost, problems=(*observation.problems, *problems))

    def _lost(
        self, host: Host, observation: Observation, annotation: Annotation
    ) -> list[LabeledInterface]:
        """Return the rows of the ports that are lost now, or were already."""
        present, before = annotation.interfaces, annotation.lost
        found = _Found((*present, *before), observation.ports)
        now, unread = int(observation.time), failed_devices(observation)
        gone = []
        for row in present:
            is_read = not any(is_of_device(row.interface, device) for device in unread)
            if is_read and found.place_of(row, host) is Place.GONE:
                gone.append(row._replace(since=now))
        gone += [row for row in before if found.place_of(row, host) in (Place.GONE, Place.BUS)]
        # A backend port that was not there before replaces one of the same name, else the first.
        ignored = self._ignored or frozenset()
        is_known = self._ignored is not None or bool(present)
        for role in found.new if is_known else ():
            if role.device.pci not in ignored:
                same = [row for row in gone if row.interface == role.interface]
                for row in (same or gone)[:1]:
                    gone.remove(row)
        return sorted(gone[:MAX_LOST], key=lambda row: (natural(row.interface), row.pci))


class _Found:
    """The ports of an observation, matched with the known ones."""

    def __init__(self, known: Sequence[LabeledInterface], ports: Sequence[PortRole]) -> None:
        here = _unique((role.port.port_guid, role.device.pci) for role in ports)
        before = _unique((one.port_guid, one.pci) for one in known)
        self._guids = here.keys() & before.keys()
        # Functions that have another address now, by that address.
        self._moved = {here[guid] for guid in self._guids if here[guid] != before[guid]}
        others = [role for role in ports if role.port.port_guid not in self._guids]
        self._functions = {role.device.pci for role in others}
        addresses = {one.pci for one in known if one.port_guid not in self._guids}
        self.new = [role for role in others if role.backend and role.device.pci not in addresses]

    def place_of(self, row: LabeledInterface, host: Host) -> Place | None:
        """Return where the function of a known port is; None if that has a port, or is left out.

        A port has the GUID or, unless it is another known one's, the address. The function at this
        address may be another one, which was elsewhere.
        """
        if row.port_guid in self._guids or row.pci in self._functions:
            return None
        if not _is_wanted(row, host):
            return None
        return Place.GONE if row.pci in self._moved else place(host, row.pci)


def _unique(pairs: Iterable[tuple[str | None, str | None]]) -> dict[str, str | None]:
    """Return the GUIDs that one PCI function has, with its address."""
    functions: dict[str, set[str | None]] = defaultdict(set)
    for guid, pci in pairs:
        if guid and guid != NO_GUID:
            functions[guid].add(pci)
    return {guid: pcis.pop() for guid, pcis in functions.items() if len(pcis) == 1}


def _is_wanted(row: LabeledInterface, host: Host) -> bool:
    """Return True unless the flags leave the device out.

    A device's name is its interface, or what precedes a dash in it. Its PCI ids are not known any
    more, so a flag that names some may name it.
    """
    parts = row.interface.split("-")
    names = ["-".join(parts[:length]) for length in range(1, len(parts) + 1)]

    def is_meant(globs: Iterable[str]) -> bool:
        return any(is_named(globs, name, row.pci) for name in names)

    has_ids = any(is_pci_glob(glob) and not glob.startswith("pci:") for glob in host.backend)
    return not is_meant(host.excluded) and (not host.backend or has_ids or is_meant(host.backend))
