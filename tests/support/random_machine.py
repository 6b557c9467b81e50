"""Random machines: GPUs and NICs behind switches or alone, rails, storage and front ends."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from agent.model import RdmaDevice
from agent.sysfs.bus import Bus, Function
from tests.support.devices import eth, ib, netdev, port

COMPUTE, OTHERS = "15b3:1021", ("15b3:1021", "15b3:101d", "15b3:a2dc")
# Gb/s of a port, of a card with one network function and with several: data sheets
RATES = {"15b3:1021": (400, 200), "15b3:101d": (100, 100), "15b3:a2dc": (400, 200)}
Group = list["RdmaDevice"]


class Machine:
    """A random machine: its bus and its RDMA devices."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a test
        self.functions: dict[str, Function] = {}
        self.devices: Group = []
        self.switches = self.random.randint(1, 8)
        one_of = self.random.choice
        gpus = one_of([0, 1, 2, 4, 8, 8])
        for number in range(gpus):
            self.card("10de:2330", one_of([number, number, number, None]), code=0x0302)
        layer, other = one_of(["InfiniBand", "Ethernet"]), ("InfiniBand", "Ethernet")
        for number in range(max(one_of([gpus, gpus, gpus // 2, 2]), 1)):
            at, psid = one_of([number] * 6 + [None]), one_of("AAAAAAAB")
            state = one_of(["ACTIVE"] * 6 + ["DOWN"])
            self.card(COMPUTE, at, layer, psid=psid, gbps=one_of([400] * 9 + [200]), state=state)
        for _ in range(one_of([0, 0, 1, 2])):
            facts: dict[str, Any] = {"psid": one_of("ABC"), "gbps": one_of([400, 200, 100])}
            self.card(one_of(OTHERS), one_of([None, 0]), one_of(other), one_of([1, 2]), **facts)
        for _ in range(one_of([0, 1, 1, 2])):
            facts = {"gbps": one_of([200, 100]), "routed": one_of([True, True, False])}
            self.card(one_of(OTHERS), one_of([None, 0]), "Ethernet", one_of([1, 2]), **facts)
        if one_of([False, False, True]):  # without an RDMA device
            self.card("8086:1563", one_of([None, 0]))
        self.bus = Bus(self.functions)

    def card(  # noqa: PLR0913 - its facts
        self,
        ids: str,
        switch: int | None,
        layer: str | None = None,
        functions: int = 1,
        *,
        code: int = 0x0200,
        psid: str = "A",
        gbps: int = 400,
        state: str = "ACTIVE",
        routed: bool = False,
    ) -> None:
        """Add a card; one that is at no switch has a root port of its own."""
        number = 0x10 + len(self.functions)
        root, above = "pci0000:a0", [f"0000:a0:{number % 32:02x}.0"]
        if switch is not None:
            place = switch % self.switches
            root = f"pci0000:{0xC0 + place:02x}"
            above = [f"0000:{0xC0 + place:02x}:01.0", f"0000:{0xD0 + place:02x}:00.0"]
            above.append(f"0000:{0xE0 + place:02x}:{number % 32:02x}.0")
        for function in range(functions):
            address = f"0000:{number:02x}:00.{function}"
            self.functions[address] = Function(
                address,
                0x0207 if layer == "InfiniBand" else code,
                ids,
                host_bridge=root,
                bridges=tuple(above),
                bridge_ids=("1000:c030",) * len(above),
            )
            if layer:
                name = f"d{len(self.devices)}"
                facts: dict[str, Any] = {"pci": address, "pci_ids": ids, "board_id": psid}
                facts["sys_image_guid"] = f"{number:014x}{function:02x}"
                link: dict[str, Any] = {
                    "state": self.random.choice([state, state, "DOWN"]) if function else state
                }
                if layer == "InfiniBand":
                    self.devices.append(ib(name, 1, port(link_layer=layer, **link), **facts))
                    continue
                of_netdev: dict[str, Any] = {"speed_mbps": gbps * 1000}
                of_netdev["default_route"] = routed and not function
                of_netdev["carrier_up_count"] = self.random.choice([0, 1]) if function else 1
                link["netdev"] = netdev(f"e{name}", **of_netdev)
                self.devices.append(eth(name, 1, port(rate_gbps=float(gbps), **link), **facts))

    @property
    def gpus(self) -> list[Function]:
        return [one for one in self.functions.values() if one.code == 0x0302]

    def kind(self, device: RdmaDevice) -> tuple[str | None, int]:
        """Return the PCI ids, and the number of network functions of the card."""
        nics = [one for one in self.functions.values() if one.code != 0x0302]
        return device.pci_ids, sum(card(nic.address) == card(device.pci) for nic in nics)

    def kinds(self, group: Group) -> list[Group]:
        kinds = {self.kind(one) for one in group}
        return [[one for one in group if self.kind(one) == kind] for kind in kinds]

    def total(self, group: Group) -> float:
        """Return the bandwidth: of each the rate of the model, or of the fastest ACTIVE link of the
        kind and link layer.
        """
        rates = []
        for device in group:
            alike = [
                other
                for other in self.devices
                if self.kind(other) == self.kind(device)
                and is_ethernet(other) == is_ethernet(device)
            ]
            single, several = RATES[device.pci_ids or ""]
            of_model = single if self.kind(device)[1] == 1 else several
            rates.append(max(of_model, active(alike)))
        return sum(rates)


def card(pci: str | None) -> str:
    return (pci or "").partition(".")[0]


def is_ethernet(device: RdmaDevice) -> bool:
    return device.ports[0].link_layer == "Ethernet"


def active(devices: Iterable[RdmaDevice]) -> float:
    """Return the highest rate of an ACTIVE port; 0 without one."""
    ports = [one.ports[0] for one in devices]
    return max((one.rate_gbps or 0.0 for one in ports if one.state == "ACTIVE"), default=0.0)
