"""Roles of random machines are those of the label contract, read a second time.

`expected` is written after the rules in words (docs/labels.md, "Backend ports"), and not after
agent/sources: plain lists, one rule behind the other. The machines have GPUs and NICs behind
switches or alone, rails, storage, front ends and NICs without RDMA, with every port read.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model import RdmaDevice
from agent.sources.roles import decide
from agent.sysfs.bus import Bus, Function
from tests.support.devices import eth, ib, netdev, port

COMPUTE, OTHERS = "15b3:1021", ("15b3:1021", "15b3:101d", "15b3:a2dc")
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


def card(pci: str | None) -> str:
    return (pci or "").partition(".")[0]


def expected(machine: Machine) -> set[str]:
    functions, candidates = machine.functions, machine.devices
    gpus = [one for one in functions.values() if one.code == 0x0302]

    def at(device: RdmaDevice) -> Function:
        return functions[device.pci or ""]

    def is_near(one: Function, gpu: Function) -> bool:
        return not set(one.bridges or ()).isdisjoint(gpu.bridges or ())

    # 2: the devices of the default route, and spare ports of their cards that never had a link
    front = [one for one in candidates if is_routed(one)]
    cards = {card(one.pci) for one in front}
    spare = [
        one
        for one in candidates
        if card(one.pci) in cards and one not in front and is_ethernet(one) and not ups(one)
    ]
    left = [one for one in candidates if one not in front and one not in spare]
    if front and not left:
        # one network for everything, where a GPU is on the bus
        left = [one for one in front if gpus]
    candidates = left
    # 3: decisive is: two GPUs or more, three quarters have a NIC near (not one of the front end),
    # and some candidate is not near; then those stay that are near, or of the same PCI ids at the
    # same place
    taken = {card(one.pci) for one in machine.devices if one not in candidates}
    taken -= {card(one.pci) for one in candidates}
    nics = [one for one in functions.values() if one.code != 0x0302]
    counted = [one for one in nics if card(one.address) not in taken]
    served = [gpu for gpu in gpus if any(is_near(one, gpu) for one in counted)]
    near = {one.name for one in candidates if any(is_near(at(one), gpu) for gpu in gpus)}
    was = len(candidates)
    if len(gpus) >= 2 and len(served) >= len(gpus) * 0.75:
        places = {(at(one).ids, at(one).bridge_ids) for one in candidates if one.name in near}
        candidates = [one for one in candidates if (at(one).ids, at(one).bridge_ids) in places]
    is_decisive = len(candidates) < was
    # 4: the layer of most candidates where affinity was decisive, else InfiniBand if there is any
    infiniband = [one for one in candidates if not is_ethernet(one)]
    if infiniband and (len(infiniband) * 2 >= len(candidates) or not is_decisive):
        parts = kinds(infiniband, nics, near, len(gpus))
        return {one.name for one in infiniband_backend(parts, len(gpus))}
    parts = kinds([one for one in candidates if is_ethernet(one)], nics, near, len(gpus))
    return {one.name for one in max(parts, key=ethernet_rank, default=[])}


def is_ethernet(device: RdmaDevice) -> bool:
    return device.ports[0].link_layer == "Ethernet"


def is_routed(device: RdmaDevice) -> bool:
    netdev = device.ports[0].netdev
    return is_ethernet(device) and bool(netdev and netdev.default_route)


def ups(device: RdmaDevice) -> int | None:
    netdev = device.ports[0].netdev
    return netdev.carrier_up_count if netdev else None


def active(devices: Iterable[RdmaDevice]) -> float:
    """Return the highest rate of an ACTIVE port; 0 without one."""
    ports = [one.ports[0] for one in devices]
    return max((one.rate_gbps or 0.0 for one in ports if one.state == "ACTIVE"), default=0.0)


def ethernet_rank(kind: Group) -> tuple[int, float, float, str]:
    """Return the number, the rate of ACTIVE ports, the nominal one, the address, inverted."""
    nominal = max(one.ports[0].rate_gbps or 0.0 for one in kind)
    lowest = min(one.pci or "" for one in kind)
    inverted = "".join(chr(0x7F - ord(one)) for one in lowest)
    return len(kind), active(kind), nominal, inverted


def infiniband_backend(parts: list[Group], gpus: int) -> Group:
    """Return all, but of 8 compute and 2 storage HCAs beside 8 GPUs the eight."""
    every = [one for part in parts for one in part]
    whole = [one for part in parts if gpus and len(part) % gpus == 0 for one in part]
    return whole if gpus and len(every) % gpus and whole else every


def kinds(devices: Group, nics: Sequence[Function], near: set[str], gpus: int) -> list[Group]:
    """5: PCI ids and the functions of the card; PSIDs only where a second signal tells them."""
    found: defaultdict[tuple[str | None, int], Group] = defaultdict(list)
    for one in devices:
        size = sum(card(nic.address) == card(one.pci) for nic in nics)
        found[one.pci_ids, size].append(one)
    parts = []
    for whole in found.values():
        by_psid = grouped([[one] for one in whole], lambda group: group[0].board_id)
        for same_rate in grouped_sets(by_psid, lambda group: active(group) or None):
            for alike in grouped_sets(same_rate, lambda group: any(d.name in near for d in group)):
                number = sum(map(len, alike))
                multiple = [alike]
                if gpus and number % gpus:
                    multiple = grouped_sets(alike, lambda group: len(group) % gpus == 0)
                parts += [[one for group in part for one in group] for part in multiple]
    return parts


def grouped(groups: list[Group], signal: Callable[[Group], Any]) -> list[Group]:
    return [[one for group in part for one in group] for part in grouped_sets(groups, signal)]


def grouped_sets(groups: list[Group], signal: Callable[[Group], Any]) -> list[list[Group]]:
    """Return the groups by signal; those without one (None) go with the most devices."""
    found: defaultdict[Any, list[Group]] = defaultdict(list)
    for group in groups:
        found[signal(group)].append(group)
    unknown = found.pop(None, [])
    if not found:
        return [unknown]
    max(found.values(), key=lambda part: sum(map(len, part))).extend(unknown)
    return list(found.values())


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=200)
def test_the_roles_of_a_random_machine(seed: int) -> None:
    machine = Machine(seed)
    roles = decide(machine.devices, bus=machine.bus).roles
    assert {role.device.name for role in roles if role.backend} == expected(machine)
