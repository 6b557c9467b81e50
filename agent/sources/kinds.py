"""Candidates for the backend, their bandwidth, and the kinds among them (rule 5).

A kind is vendor and device of the PCI function, and the number of network functions of its card:
never a text. Drivers print the node description as hca_type (ionic, bnxt_re), which differs for
each device, and a replaced card has another PSID (board_id) and is the same rail.

The bandwidth of a candidate is the sum of the nominal rates of its cables, up, down or unread, so
that no link that is down changes a role. The nominal rate is that of the model, or of the fastest
ACTIVE link of the kind where that is more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.ids import card_of
from agent.model import RdmaDevice, RdmaPort
from agent.sources.cards import pci_numbers
from agent.sources.drops import Evidence, PortKey
from agent.sources.models import MODELS, rate_of_port
from agent.sysfs.bus import Beside, Bus
from agent.text import many

UNREAD = -1  # in place of the number of a port


class Cable(NamedTuple):
    """A port, or a leg of a bond."""

    gbps: float | None  # as the kernel prints it, of a link that is down too
    is_active: bool


class Kind(NamedTuple):
    """What the NICs of a kind have in common."""

    model: Hashable = None  # vendor and device, or what stands for them
    functions: int = 1  # network functions of the card


UNKNOWN = Kind()


@dataclass(slots=True)
class Candidate:
    """A device with one of its data ports, or a device or function that is unread."""

    device: RdmaDevice
    port: RdmaPort | None  # None: unread
    layer: str
    beside: Beside
    cables: Sequence[Cable] = ()  # of a port; an unread device has one
    kind: Kind = UNKNOWN
    gbps: float | None = None  # nominal rate of a cable; None: unknown

    @property
    def key(self) -> PortKey:
        """The key of the port."""
        return self.device.name, self.port.number if self.port else UNREAD

    @property
    def bandwidth(self) -> float:
        """The sum of the nominal rates; what the kernel prints stands in for an unknown rate."""
        printed = max((cable.gbps or 0.0 for cable in self.cables), default=0.0)
        return (printed if self.gbps is None else self.gbps) * max(len(self.cables), 1)


Candidates = Sequence[Candidate]


def bandwidth(candidates: Iterable[Candidate]) -> float:
    """Return the sum of the nominal rates of their cables, in Gb/s."""
    return sum(candidate.bandwidth for candidate in candidates)


def number_of_devices(candidates: Iterable[Candidate]) -> int:
    """Return the number of devices."""
    return len({candidate.device.name for candidate in candidates})


def ids_of(device: RdmaDevice, bus: Bus) -> str | None:
    """Return the PCI ids of a device: its own, else those that the bus has of its function."""
    function = bus.functions.get(device.pci or "")
    return device.pci_ids or (function.ids if function else None)


def assign_kinds(candidates: Candidates, evidence: Evidence) -> None:
    """Set the kind and the nominal rate of each candidate.

    A function of a card that is unread may be a network function: the card has the number of those
    that another card of the model has, if it may.
    """
    bus, devices = evidence.bus, evidence.devices
    types = Counter(device.hca_type for device in devices)
    # A device that cannot be read does not say that it is virtual; the bus does.
    virtual = {nic.address for nic in bus.nics if nic.is_virtual}
    virtual |= {device.pci or "" for device in devices if device.virtual_function}
    nics = {nic.address for nic in bus.nics} | {device.pci or "" for device in devices}
    of_card = Counter(map(card_of, nics - virtual))
    unread = Counter(map(card_of, bus.unread))
    for candidate in candidates:
        device = candidate.device
        # Without PCI ids the driver, and a text of hca_type that devices share.
        text = device.hca_type if types[device.hca_type] > 1 else None
        model: Hashable = ids_of(device, bus) or (device.driver, text)
        functions = of_card[card_of(device.pci)] if device.pci else 1
        candidate.kind = Kind(model, max(functions, 1))
    certain = {nic.kind for nic in candidates if not unread[card_of(nic.device.pci)]}
    for candidate in candidates:
        model, number = candidate.kind
        most = number + unread[card_of(candidate.device.pci)]
        kinds = [Kind(model, functions) for functions in range(number, most + 1)]
        candidate.kind = next((kind for kind in kinds if kind in certain), candidate.kind)
    # The ports of a multi-plane device share the rate of its model.
    ports = Counter(candidate.device.name for candidate in candidates)
    fastest: defaultdict[tuple[Kind, str], float] = defaultdict(float)
    for candidate in candidates:
        key = candidate.kind, candidate.layer
        rates = [cable.gbps for cable in candidate.cables if cable.is_active and cable.gbps]
        fastest[key] = max([fastest[key], *rates])
    for candidate in candidates:
        ids = ids_of(candidate.device, bus)
        of_model = rate_of_port(ids, candidate.kind.functions) or 0.0
        of_port = of_model / ports[candidate.device.name]
        candidate.gbps = max(of_port, fastest[candidate.kind, candidate.layer]) or None


def by_kind(candidates: Candidates) -> dict[Kind, list[Candidate]]:
    """Return the candidates by kind, in their order."""
    kinds: defaultdict[Kind, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        kinds[candidate.kind].append(candidate)
    return kinds


def parts_of(
    whole: list[Candidate], gpus: int, near: Mapping[PortKey, bool]
) -> list[list[Candidate]]:
    """Split a kind by PSID and PCI subsystem where these tell compute from storage.

    So where none of it is near a GPU, its number of devices is neither a multiple nor a divisor of
    the number of GPUs, and one part has at least three quarters of that number: beside eight GPUs
    8+1 and 8+2 split, 7+1 and 4+4 do not. What is unread belongs to that part.
    """
    number = number_of_devices(whole)
    if not gpus or is_even(number, gpus) or any(near[nic.key] for nic in whole):
        return [whole]
    parts: defaultdict[Hashable, list[Candidate]] = defaultdict(list)
    for candidate in whole:
        if candidate.port:
            parts[candidate.device.board_id, candidate.device.subsystem].append(candidate)
    compute = max(parts.values(), key=number_of_devices, default=[])
    if len(parts) < 2 or number_of_devices(compute) * 4 < gpus * 3:
        return [whole]
    rest = [nic for nic in whole if nic.port and nic not in compute]
    return [[nic for nic in whole if nic not in rest], rest]


def is_even(devices: int, gpus: int) -> bool:
    """Return True if GPUs and devices can be shared out evenly."""
    return devices % gpus == 0 or gpus % devices == 0


def rank(candidates: Candidates) -> tuple[float, list[int]]:
    """Return the sort key of a kind: its bandwidth, and its lowest PCI address negated."""
    lowest = min(pci_numbers(candidate.device.pci) for candidate in candidates)
    return bandwidth(candidates), [-number for number in lowest]


def text_of(device: RdmaDevice) -> str:
    """Return the kind in words: `ConnectX-7 15b3:1021`."""
    if device.pci_ids is None:
        return " ".join(filter(None, (device.driver, device.hca_type))) or "unnamed kind"
    name = MODELS[device.pci_ids].name if device.pci_ids in MODELS else None
    return " ".join(filter(None, (name, device.pci_ids)))


def difference(other: Kind, backend: Kind) -> str:
    """Return in words what tells a kind from that of the backend; "" where `text_of` does."""
    if other.model != backend.model:
        return ""
    if other.functions != backend.functions:
        its = many(other.functions, "network function")
        return f": its card has {its}, those of the backend have {backend.functions}"
    return ": another PSID or PCI subsystem"
