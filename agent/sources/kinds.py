"""Rule 5: the kinds of NICs among the candidates for the backend.

A kind is vendor and device of the PCI function, and the number of network functions of its card:
never a text. Drivers print the node description as hca_type (ionic, bnxt_re), which differs for
each device, and a replaced card has another PSID (board_id) and is the same rail.

PSID and PCI subsystem split a kind only with a second signal (`_parts`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from agent.ids import card_of
from agent.model import RdmaDevice, RdmaPort
from agent.sources.drops import pci_numbers
from agent.sysfs.bus import Beside, Bus
from agent.text import many

# Products by PCI ids (https://pci-ids.ucw.cz), for words only.
PRODUCTS = {
    "15b3:1007": "ConnectX-3 Pro",
    "15b3:1013": "ConnectX-4",
    "15b3:1015": "ConnectX-4 Lx",
    "15b3:1017": "ConnectX-5",
    "15b3:1019": "ConnectX-5 Ex",
    "15b3:101b": "ConnectX-6",
    "15b3:101d": "ConnectX-6 Dx",
    "15b3:101e": "ConnectX VF",
    "15b3:101f": "ConnectX-6 Lx",
    "15b3:1021": "ConnectX-7",
    "15b3:1023": "ConnectX-8",
    "15b3:1025": "ConnectX-9",
    "15b3:a2d6": "BlueField-2",
    "15b3:a2dc": "BlueField-3",
    "14e4:1750": "BCM57508",
    "14e4:1760": "BCM57608",
    "1dd8:1002": "Pensando",
    "8086:1592": "E810-C",
    "8086:159b": "E810-XXV",
}


class Nic(NamedTuple):
    """A candidate: a device with one of its data ports, or a device or function that is unread."""

    device: RdmaDevice
    port: RdmaPort | None  # None: unread
    layer: str | None
    beside: Beside
    cables: int = 1  # legs of a bonded port, each with a cable
    active_gbps: float | None = None  # of an ACTIVE port
    nominal_gbps: float = 0.0


class Kind(NamedTuple):
    """What the NICs of a kind have in common."""

    model: Hashable  # vendor and device, or what stands for them
    functions: int  # network functions of the card
    part: int  # of those that PSID or PCI subsystem and a second signal tell apart


Nics = Sequence[Nic]
Cards = list[list[Nic]]  # those of one PSID and subsystem


def kinds(nics: Nics, devices: Iterable[RdmaDevice], bus: Bus) -> dict[Kind, list[Nic]]:
    """Return the candidates by kind, in the order of the candidates.

    A function of a card that is unread may be a network function: the card has the number of those
    that another card of the model has, if it may.
    """
    devices = list(devices)
    types = Counter(one.hca_type for one in devices)

    def model_of(device: RdmaDevice) -> Hashable:
        """Return vendor and device; without PCI ids the driver, and a shared text of hca_type."""
        if device.pci_ids is not None:
            return device.pci_ids
        return device.driver, device.hca_type if types[device.hca_type] > 1 else None

    unread = Counter(card_of(address) for address in bus.unread)
    models = [model_of(nic.device) for nic in nics]
    numbers = [_functions_of_card(nic.device, devices, bus) for nic in nics]
    more = [unread[card_of(nic.device.pci)] for nic in nics]
    certain = {
        (model, number)
        for model, number, extra in zip(models, numbers, more, strict=True)
        if not extra
    }
    found: dict[tuple[Hashable, int], list[Nic]] = defaultdict(list)
    for nic, model, number, extra in zip(nics, models, numbers, more, strict=True):
        possible = range(number, number + extra + 1)
        found[model, next((one for one in possible if (model, one) in certain), number)].append(nic)
    gpus = len(bus.gpus)
    return {
        Kind(model, functions, part): members
        for (model, functions), whole in found.items()
        for part, members in enumerate(_parts(whole, gpus))
    }


def _functions_of_card(device: RdmaDevice, devices: Iterable[RdmaDevice], bus: Bus) -> int:
    """Return the number of network functions of the card, without virtual ones."""
    card = card_of(device.pci)
    found = {one.address for one in bus.nics if one.card == card and not one.is_virtual}
    # A device that cannot be read does not say that it is virtual; the bus does.
    virtual = {one.address for one in bus.nics if one.is_virtual}
    virtual |= {one.pci for one in devices if one.virtual_function and one.pci}
    here = {one.pci for one in devices if one.pci and card_of(one.pci) == card}
    found |= here - virtual
    return max(len(found), 1) if card else 1


def size(nics: Nics) -> int:
    """Return the number of devices, and of the legs of bonded ones: each leg has a cable."""
    cables: dict[str, int] = {}
    for nic in nics:
        cables[nic.device.name] = max(cables.get(nic.device.name, 0), nic.cables)
    return sum(cables.values())


def number_of_devices(nics: Nics) -> int:
    """Return the number of devices."""
    return len({nic.device.name for nic in nics})


def rank(nics: Nics) -> tuple[int, float, float, list[int]]:
    """Return the sort key of an Ethernet kind, of which the highest is the backend.

    Its size, the rate of its ACTIVE ports, its nominal rate, its lowest address, negated.
    """
    lowest = min(pci_numbers(nic.device.pci) for nic in nics)
    return (
        size(nics),
        max(nic.active_gbps or 0.0 for nic in nics),
        max(nic.nominal_gbps for nic in nics),
        [-number for number in lowest],
    )


def text_of(device: RdmaDevice) -> str:
    """Return the kind in words: `ConnectX-7 15b3:1021`."""
    if device.pci_ids is None:
        return " ".join(filter(None, (device.driver, device.hca_type))) or "unnamed kind"
    return " ".join(filter(None, (PRODUCTS.get(device.pci_ids), device.pci_ids)))


def difference(one: Kind, backend: Kind) -> str:
    """Return in words what tells a kind from that of the backend; "" where `text_of` does."""
    if one.model != backend.model:
        return ""
    if one.functions != backend.functions:
        its = many(one.functions, "network function")
        return f": its card has {its}, those of the backend have {backend.functions}"
    return ": another PSID or PCI subsystem, and another rate, place or number"


def _parts(whole: list[Nic], gpus: int) -> list[list[Nic]]:
    """Split a kind by PSID and PCI subsystem, where a second signal says so.

    - Rates of ACTIVE ports differ.
    - One of the parts is not near a GPU where others are.
    - One part is a multiple of the number of GPUs, and the whole is not: 8+1 and 8+2 are split,
      7+1 and 4+4 are not.

    What is unread belongs to the largest part.
    """
    cards: dict[Hashable, list[Nic]] = defaultdict(list)
    for nic in whole:
        if nic.port:
            cards[nic.device.board_id, nic.device.subsystem].append(nic)
    if len(cards) < 2:
        return [whole]
    max(cards.values(), key=number_of_devices).extend(nic for nic in whole if not nic.port)
    groups = [list(cards.values())]

    def rate(card: list[Nic]) -> float | None:
        return max(nic.active_gbps or 0.0 for nic in card) or None

    def is_near(card: list[Nic]) -> bool:
        return any(nic.beside.is_near for nic in card)

    def is_multiple(card: list[Nic]) -> bool:
        return number_of_devices(card) % gpus == 0

    groups = [part for group in groups for part in _grouped(group, rate)]
    groups = [part for group in groups for part in _grouped(group, is_near)]
    parts = []
    for group in groups:
        is_whole = not gpus or sum(map(number_of_devices, group)) % gpus == 0
        parts += [group] if is_whole else _grouped(group, is_multiple)
    return [[nic for card in part for nic in card] for part in parts]


def _grouped(cards: Cards, signal: Callable[[list[Nic]], Hashable]) -> list[Cards]:
    """Group cards by a signal; those of which it is unknown (None) go with the largest group."""
    groups: dict[Hashable, Cards] = defaultdict(list)
    for card in cards:
        groups[signal(card)].append(card)
    unknown = groups.pop(None, [])
    if not groups:
        return [unknown]
    max(groups.values(), key=lambda group: sum(map(number_of_devices, group))).extend(unknown)
    return list(groups.values())
