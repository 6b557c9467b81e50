"""Models of NICs by PCI ids: their names, and the rate of a port where the data sheet tells it.

The rate of a port depends on the number of network functions of the card: a ConnectX-7 has one
port of 400 Gb/s or two of 200. A model that is sold with several rates has that of the usual card;
an ACTIVE link that is faster counts instead (agent/sources/kinds.py). A model that is not here has
no known rate. PCI ids of several models have rows with the PCI subsystem.

Names: https://pci-ids.ucw.cz. Rates: the data sheets and user manuals that each row names.
"""

from __future__ import annotations

from typing import NamedTuple


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
