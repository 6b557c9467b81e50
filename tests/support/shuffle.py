"""A machine under other names, bus numbers and orders, as each boot may give it."""

from __future__ import annotations

import random
import re

from agent.model import RdmaDevice
from agent.sysfs.bus import Bus
from agent.sysfs.front_end import FrontEnd


class Shuffle:
    """Other names of devices, other bus numbers, and another order of enumeration."""

    def __init__(self, seed: int, *, has_same_buses: bool = False) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a test
        self._has_same_buses = has_same_buses
        self._buses: dict[str, str] = {}
        self._free = [f"{number:02x}" for number in range(1, 256)]
        self.random.shuffle(self._free)

    def address(self, pci: str) -> str:
        """Return the address with another bus number, the same for all functions of the bus."""
        if self._has_same_buses:
            return pci
        domain, bus, rest = pci.split(":")
        key = f"{domain}:{bus}"
        if key not in self._buses:
            self._buses[key] = self._free[len(self._buses)]
        return f"{domain}:{self._buses[key]}:{rest}"

    def bus(self, bus: Bus) -> Bus:
        found = []
        for one in bus.functions.values():
            bridges = one.bridges and tuple(map(self.address, one.bridges))
            found.append(one._replace(address=self.address(one.address), bridges=bridges))
        self.random.shuffle(found)
        return Bus({one.address: one for one in found}, bus.unread, bus.failure)

    def front_end(self, front_end: FrontEnd) -> FrontEnd:
        return front_end._replace(functions=frozenset(map(self.address, front_end.functions)))

    def devices(self, devices: tuple[RdmaDevice, ...]) -> tuple[dict[str, str], list[RdmaDevice]]:
        """Return the new names by the old ones, and the devices; "smi" stays in a name."""
        numbers = list(range(len(devices)))
        self.random.shuffle(numbers)
        prefix = {one.name: re.sub(r"^(smi)?.*", r"\1", one.name) or "dev" for one in devices}
        names = {
            one.name: f"{prefix[one.name]}{number}"
            for one, number in zip(devices, numbers, strict=True)
        }
        found = [
            one._replace(name=names[one.name], pci=one.pci and self.address(one.pci))
            for one in devices
        ]
        self.random.shuffle(found)
        return names, found
