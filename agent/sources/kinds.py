"""Rule 5: the kinds of NICs among the candidates for the backend.

A kind is vendor and device of the PCI function, and the number of network functions of its card:
never a text. Drivers print the node description as hca_type (ionic, bnxt_re), which differs for
each device, and a replaced card has another PSID (board_id) and is the same rail.

PSID and PCI subsystem split a kind only with a second signal (`_parts`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from agent.model import RdmaDevice, RdmaPort
from agent.sources.affinity import Beside
from agent.sources.drops import pci_numbers
from agent.sysfs.bus import Bus

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


Nics = Sequence[Nic]
Kind = tuple[Hashable, ...]
Cards = list[list[Nic]]  # those of one PSID and subsystem


def kinds(nics: Nics, devices: Iterable[RdmaDevice], bus: Bus) -> dict[Kind, list[Nic]]:
    """Return the candidates by kind, in the order of the candidates."""
    devices = list(devices)
    types = Counter(one.hca_type for one in devices)
    found: dict[Kind, list[Nic]] = defaultdict(list)
    for nic in nics:
        one = nic.device
        # Without PCI ids: the driver, and the text of hca_type if it is no device's own.
        model: Kind = (one.pci_ids,)
        if one.pci_ids is None:
            model = (one.driver, one.hca_type if types[one.hca_type] > 1 else None)
        found[*model, _functions_of_card(one, devices, bus)].append(nic)
    gpus = len(bus.gpus)
    return {
        (*kind, part): members
        for kind, whole in found.items()
        for part, members in enumerate(_parts(whole, gpus))
    }


def _functions_of_card(device: RdmaDevice, devices: Iterable[RdmaDevice], bus: Bus) -> int:
    """Return the number of network functions of the card, without virtual ones."""
    slot = (device.pci or "").rpartition(".")[0]
    found = {one.address for one in bus.nics if one.slot == slot and not one.is_virtual}
    others = (one for one in devices if one.pci and not one.virtual_function)
    found |= {one.pci or "" for one in others if (one.pci or "").rpartition(".")[0] == slot}
    return max(len(found), 1) if slot else 1


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


def _parts(whole: list[Nic], gpus: int) -> list[list[Nic]]:
    """Split a kind by PSID and PCI subsystem, where a second signal says so.

    - Rates of ACTIVE ports differ.
    - One of the parts is not near a GPU where others are.
    - One part is a multiple of the number of GPUs, and the whole is not: 8+1 and 8+2 are split,
      7+1 and 4+4 are not.

    What is unread belongs to the largest part.
    """
    cards: dict[Kind, list[Nic]] = defaultdict(list)
    for nic in whole:
        if nic.port:
            cards[nic.device.board_id, nic.device.subsystem].append(nic)
    if len(cards) < 2:
        return [whole]
    max(cards.values(), key=number_of_devices).extend(nic for nic in whole if not nic.port)
    groups = [list(cards.values())]
    for signal in (_by_rate, _by_nearness, partial(_by_gpus, gpus)):
        groups = [part for group in groups for part in signal(group)]
    return [[nic for card in group for nic in card] for group in groups]


def _by_rate(cards: Cards) -> list[Cards]:
    return _grouped(cards, lambda card: max(nic.active_gbps or 0.0 for nic in card) or None)


def _by_nearness(cards: Cards) -> list[Cards]:
    return _grouped(cards, lambda card: any(nic.beside.is_near for nic in card))


def _by_gpus(gpus: int, cards: Cards) -> list[Cards]:
    numbers = [number_of_devices(card) for card in cards]
    if not gpus or sum(numbers) % gpus == 0:
        return [cards]
    return _grouped(cards, lambda card: number_of_devices(card) % gpus == 0)


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
