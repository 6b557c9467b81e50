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
from agent.sources.drops import Evidence, PortKey, pci_numbers
from agent.sources.models import MODELS, rate_of_port
from agent.sysfs.bus import Beside, Bus
from agent.text import many


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
        return self.device.name, self.port.number if self.port else -1

    @property
    def bandwidth(self) -> float:
        """The sum of the nominal rates; what the kernel prints stands in for an unknown one."""
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
    types = Counter(device.hca_type for device in evidence.devices)
    ids = {candidate.key: ids_of(candidate.device, evidence.bus) for candidate in candidates}
    unread = Counter(card_of(address) for address in evidence.bus.unread)

    def more(candidate: Candidate) -> int:
        return unread[card_of(candidate.device.pci)]

    for candidate in candidates:
        device = candidate.device
        # Without PCI ids the driver, and a text of hca_type that devices share.
        text = device.hca_type if types[device.hca_type] > 1 else None
        model: Hashable = ids[candidate.key] or (device.driver, text)
        candidate.kind = Kind(model, _functions_of_card(device, evidence))
    certain = {candidate.kind for candidate in candidates if not more(candidate)}
    for candidate in candidates:
        number = candidate.kind.functions
        for functions in range(number, number + more(candidate) + 1):
            if (kind := candidate.kind._replace(functions=functions)) in certain:
                candidate.kind = kind
                break
    # The ports of a multi-plane device share the rate of its model.
    ports = Counter(candidate.device.name for candidate in candidates)
    fastest: dict[tuple[Kind, str], float] = {}
    for candidate in candidates:
        key = candidate.kind, candidate.layer
        rates = [cable.gbps for cable in candidate.cables if cable.is_active and cable.gbps]
        fastest[key] = max([fastest.get(key, 0.0), *rates])
    for candidate in candidates:
        of_model = rate_of_port(ids[candidate.key], candidate.kind.functions) or 0.0
        of_port = of_model / ports[candidate.device.name]
        candidate.gbps = max(of_port, fastest[candidate.kind, candidate.layer]) or None


def _functions_of_card(device: RdmaDevice, evidence: Evidence) -> int:
    """Return the number of network functions of the card, without virtual ones."""
    card, nics = card_of(device.pci), evidence.bus.nics
    # A device that cannot be read does not say that it is virtual; the bus does.
    virtual = {nic.address for nic in nics if nic.is_virtual}
    virtual |= {other.pci for other in evidence.devices if other.virtual_function and other.pci}
    functions = {nic.address for nic in nics} | {o.pci for o in evidence.devices if o.pci}
    return max(sum(card_of(one) == card for one in functions - virtual), 1) if card else 1


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
    if not gpus or is_even(number, gpus) or any(near[one.key] for one in whole):
        return [whole]
    parts: defaultdict[Hashable, list[Candidate]] = defaultdict(list)
    for candidate in whole:
        if candidate.port:
            parts[candidate.device.board_id, candidate.device.subsystem].append(candidate)
    compute = max(parts.values(), key=number_of_devices, default=[])
    if len(parts) < 2 or number_of_devices(compute) * 4 < gpus * 3:
        return [whole]
    rest = [one for one in whole if one.port and one not in compute]
    return [[one for one in whole if one not in rest], rest]


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
