"""Candidates for the backend, their bandwidth, and the kinds among them (rule 5).

A kind is vendor and device of the PCI function, and the number of network functions of its card:
never a text. Drivers print the node description as hca_type (ionic, bnxt_re), which differs for
each device, and a replaced card has another PSID (board_id) and is the same rail.

The bandwidth of a candidate is the sum of the nominal rates of its cables, up, down or unread, so
that no link that is down changes a role. The nominal rate is that of the model, or of the fastest
ACTIVE link of the kind where that is more.

MODELS has the rate of a port where the data sheet tells it. The rate depends on the number of
network functions of the card: a ConnectX-7 has one port of 400 Gb/s or two of 200. A model that is
sold with several rates has that of the usual card. A model that is not here has no known rate. PCI
ids of several models have rows with the PCI subsystem.

Names: https://pci-ids.ucw.cz. Rates: the data sheets and user manuals that each row names.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.grouped import grouped
from agent.ids import card_of
from agent.model import RdmaDevice, RdmaPort
from agent.sources.cards import joined_slots, pci_numbers
from agent.sources.interfaces import (
    DevicePort,
    PortKey,
    RoleEvidence,
    gbps_in_use,
    kernel_gbps,
    legs_of,
)
from agent.sysfs.bus import Beside, Bus
from agent.text import many


class Model(NamedTuple):
    """A model of a NIC."""

    name: str
    gbps: float | None = None  # of the port of a card with one network function
    shared_gbps: float | None = None  # of each port of a card with several
    source: str = ""  # of the rates


MODELS = {
    "15b3:1007": Model("ConnectX-3 Pro", 40, 40, "MCX313A/MCX314A: 1 or 2 x 40GbE, QSFP"),
    "15b3:1013": Model("ConnectX-4", 100, 100, "MCX455A/MCX456A: 1 or 2 x EDR or 100GbE"),
    "15b3:1015": Model("ConnectX-4 Lx", 50, 25, "MCX4131A: 1 x 50GbE; MCX4121A: 2 x 25GbE"),
    "15b3:1017": Model("ConnectX-5", 100, 100, "MCX555A/MCX556A: 1 or 2 x EDR or 100GbE"),
    "15b3:1019": Model("ConnectX-5 Ex", 100, 100, "MCX555A-E/MCX556A-E: 1 or 2 x EDR or 100GbE"),
    "15b3:101b": Model("ConnectX-6", 200, 200, "MCX653105A/MCX653106A: 1 or 2 x HDR or 200GbE"),
    "15b3:101d": Model("ConnectX-6 Dx", 100, 100, "MCX623105A/MCX623106A-CDAT: 1 or 2 x 100GbE"),
    "15b3:101e": Model("ConnectX VF"),
    "15b3:101f": Model("ConnectX-6 Lx", 50, 25, "MCX631105A: 1 x 50GbE; MCX631102A: 2 x 25GbE"),
    "15b3:1021": Model("ConnectX-7", 400, 200, "MCX75310AAS-NEAT: 1 x NDR; MCX755106A: 2 x NDR200"),
    "15b3:1023": Model("ConnectX-8", 800, 400, "C8180: 1 x XDR; C8240: 2 x 400GbE or NDR"),
    "15b3:1025": Model("ConnectX-9"),
    "15b3:a2d6": Model("BlueField-2", 200, 100, "MBF2M345A: 1 x 200GbE; MBF2H516A: 2 x 100GbE"),
    "15b3:a2dc": Model("BlueField-3", 400, 200, "B3140H: 1 x NDR or 400GbE; B3220: 2 x 200GbE"),
    "14e4:1750": Model("BCM57508", 200, 100, "P1200G: 1 x 200GbE; P2100G: 2 x 100GbE"),
    "14e4:1760": Model("BCM57608", 400, 200, "P1400GD: 1 x 400GbE; P2200G: 2 x 200GbE"),
    "1dd8:1002": Model("Pensando"),  # each card of theirs; the PCI subsystem tells the rate
    "1dd8:1002 1dd8:500a": Model("DSC2-200", 200, 200, "pci.ids: 50/100/200G 2-port"),
    "1dd8:1002 1dd8:500b": Model("DSC2-200", 200, 200, "pci.ids: 50/100/200G 2-port"),
    "1dd8:1002 1dd8:5200": Model("DSC3-2Q400", 400, 400, "pci.ids: 100/200/400G 2-port"),
    "1dd8:1002 1dd8:5201": Model("Pollara 400", 400, 400, "pci.ids: POLLARA-1Q400, 1-port"),
    "8086:1592": Model("E810-C", 100, 100, "E810-CQDA1/CQDA2: 1 or 2 x 100GbE, QSFP28"),
    "8086:1593": Model("E810-C SFP", 25, 25, "E810-XXVDA4: 4 x 25GbE, SFP28"),
    "8086:159b": Model("E810-XXV", 25, 25, "E810-XXVDA2: 2 x 25GbE, SFP28"),
}  # fmt: skip


def rate_of_port(pci_ids: str | None, functions: int, subsystem: str | None = None) -> float | None:
    """Return the Gb/s of a port of a card with so many network functions; None if unknown."""
    model = MODELS.get(f"{pci_ids} {subsystem}") or MODELS.get(pci_ids or "")
    if model is None:
        return None
    return model.gbps if functions == 1 else model.shared_gbps


class NicKind(NamedTuple):
    """What the NICs of a kind have in common."""

    model: Hashable = None  # vendor and device, or what stands for them
    functions: int = 1  # network functions of the card


class Candidate:
    """A device with one of its data ports, or a device or function that is unread."""

    def __init__(  # noqa: PLR0913, PLR0917 - the facts of one port
        self,
        device: RdmaDevice,
        port: RdmaPort | None,  # None: unread
        layer: str,
        beside: Beside,
        cables: int = 1,  # of a bond its legs
        printed: float = 0.0,  # Gb/s that the kernel prints for a cable, of a link that is down too
        active: float = 0.0,  # Gb/s of the fastest cable that is in use
    ) -> None:
        self.device, self.port, self.layer, self.beside = device, port, layer, beside
        self.cables, self.printed, self.active = cables, printed, active
        self.kind = NicKind()
        self.gbps: float | None = None  # nominal rate of a cable; None: unknown

    @property
    def key(self) -> PortKey:
        """The key of the port; -1 if that is unread."""
        return self.device.name, self.port.number if self.port else -1

    @property
    def never_had_link(self) -> bool:
        """True if none of its netdevs ever had a link; False if that is unknown."""
        netdevs = self.port.netdevs if self.port else []
        return bool(netdevs) and all(netdev.carrier_up_count == 0 for netdev in netdevs)

    @property
    def bandwidth(self) -> float:
        """The sum of the nominal rates; what the kernel prints stands in for an unknown rate."""
        return (self.printed if self.gbps is None else self.gbps) * self.cables


Candidates = Sequence[Candidate]


def bandwidth(candidates: Iterable[Candidate]) -> float:
    """Return the sum of the nominal rates of their cables, in Gb/s."""
    return sum(nic.bandwidth for nic in candidates)


def number_of_devices(candidates: Iterable[Candidate]) -> int:
    """Return the number of devices."""
    return len({nic.device.name for nic in candidates})


def ids_of(device: RdmaDevice, bus: Bus) -> str | None:
    """Return the PCI ids of a device: its own, else those that the bus has of its function."""
    function = bus.functions.get(device.pci or "")
    return device.pci_ids or (function.ids if function else None)


def candidate(device_port: DevicePort, evidence: RoleEvidence) -> Candidate:
    """Return the candidate of a port that was read."""
    device, port = device_port
    legs = legs_of(device_port, evidence.devices)
    printed = max(kernel_gbps(leg or port.netdev, port) or 0.0 for leg in legs)
    active = max(gbps_in_use(port, leg) or 0.0 for leg in legs)
    beside = evidence.bus.beside(device.pci, device.numa_node)
    return Candidate(device, port, port.link_layer or "", beside, len(legs), printed, active)


def assign(candidates: Candidates, evidence: RoleEvidence) -> None:
    """Set the kind and the nominal rate of each candidate."""
    _assign_kinds(candidates, evidence)
    # The ports of a multi-plane device share the rate of its model.
    ports = Counter(nic.device.name for nic in candidates)
    for alike in grouped(candidates, lambda nic: (nic.kind, nic.layer)).values():
        fastest = max(nic.active for nic in alike)
        for nic in alike:
            ids = ids_of(nic.device, evidence.bus)
            of_model = rate_of_port(ids, nic.kind.functions, nic.device.subsystem) or 0.0
            nic.gbps = max(of_model / ports[nic.device.name], fastest) or None


def _assign_kinds(candidates: Candidates, evidence: RoleEvidence) -> None:
    """Set the kind of each candidate.

    A card has as many functions as the highest of their numbers tells, since a card that lacks one
    has lost it; the slots of a Socket-Direct card are one card. A function that is unread may be a
    network function: the card has the number of those that another of the model has, if it may.
    """
    bus, devices = evidence.bus, evidence.devices
    slots = joined_slots(devices)

    def card(pci: str | None) -> str:
        return slots.get(card_of(pci), card_of(pci))

    def highest(addresses: Iterable[str]) -> dict[str, int]:
        numbers = grouped(addresses, card).items()
        return {name: max(int(pci[-1]) for pci in of_card) for name, of_card in numbers}

    # A device that cannot be read does not say that it is virtual; the bus does.
    virtual = {nic.address for nic in bus.nics if nic.is_virtual}
    virtual |= {device.pci for device in devices if device.pci and device.virtual_function}
    addresses = {nic.address for nic in bus.nics} | {device.pci for device in devices if device.pci}
    least = highest(addresses - virtual - bus.unread)
    most = highest(addresses - virtual | bus.unread)
    types = Counter(device.hca_type for device in devices)
    possible: dict[PortKey, list[NicKind]] = {}
    for nic in candidates:
        # Without PCI ids the driver, and a text of hca_type that devices share.
        text = nic.device.hca_type if types[nic.device.hca_type] > 1 else None
        model = ids_of(nic.device, bus) or (nic.device.driver, text)
        at = card(nic.device.pci)
        numbers = range(least.get(at, 0) + 1, most.get(at, 0) + 2)
        possible[nic.key] = [NicKind(model, number) for number in numbers]
    certain = {kinds[0] for kinds in possible.values() if len(kinds) == 1}
    for nic in candidates:
        likely = (kind for kind in possible[nic.key] if kind in certain)
        nic.kind = next(likely, possible[nic.key][0])


def by_kind(candidates: Candidates) -> dict[NicKind, list[Candidate]]:
    """Return the candidates by kind, in their order."""
    return grouped(candidates, lambda nic: nic.kind)


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
    read = [nic for nic in whole if nic.port]
    parts = grouped(read, lambda nic: (nic.device.board_id, nic.device.subsystem))
    compute = max(parts.values(), key=number_of_devices, default=[])
    if len(parts) < 2 or number_of_devices(compute) * 4 < gpus * 3:
        return [whole]
    rest = [nic for nic in read if nic not in compute]
    return [[nic for nic in whole if nic not in rest], rest]


def is_even(devices: int, gpus: int) -> bool:
    """Return True if GPUs and devices can be shared out evenly."""
    return devices % gpus == 0 or gpus % devices == 0


def rank(candidates: Candidates) -> tuple[float, list[int]]:
    """Return the sort key of a kind: its bandwidth, and its lowest PCI address negated."""
    lowest = min(pci_numbers(nic.device.pci) for nic in candidates)
    return bandwidth(candidates), [-number for number in lowest]


def text_of(device: RdmaDevice) -> str:
    """Return the kind in words: `ConnectX-7 15b3:1021`."""
    if device.pci_ids is None:
        return " ".join(filter(None, (device.driver, device.hca_type))) or "unnamed kind"
    name = MODELS[device.pci_ids].name if device.pci_ids in MODELS else None
    return " ".join(filter(None, (name, device.pci_ids)))


def difference(other: NicKind, backend: NicKind) -> str:
    """Return in words what tells a kind from that of the backend; "" where `text_of` does."""
    if other.model != backend.model:
        return ""
    if other.functions != backend.functions:
        its = many(other.functions, "network function")
        return f": its card has {its}, those of the backend have {backend.functions}"
    return ": another PSID or PCI subsystem"
