"""A role stays while evidence is missing, and changes when it is contradicted twice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from agent.model import RdmaDevice
from agent.sources.steady import AWAY, CONFIRM, Pin, RoleMemory
from agent.sysfs.bus import Bus, Function
from agent.sysfs.front_end import FrontEnd
from tests.support.devices import backend, decide, eth, ib, netdev, plain, port

OTHER = {"pci_ids": "15b3:101d", "hca_type": "MT4125", "board_id": "other"}


@dataclass
class Node:
    """A node with a memory of its roles; the test advances its time."""

    now: float = 1000.0
    memory: RoleMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = RoleMemory(lambda: self.now, lambda: self.now)

    def look(self, devices: Iterable[RdmaDevice], bus: Bus | None = None) -> list[str]:
        """The backend of an observation, ten seconds after the one before."""
        self.now += 10
        found = list(devices)
        return backend(decide(found, bus=bus or of(found), memory=self.memory).roles)

    def settled(self, devices: Iterable[RdmaDevice], bus: Bus | None = None) -> list[str]:
        """The same, after the roles have lasted."""
        self.look(devices, bus)
        self.now += CONFIRM
        return self.look(devices, bus)

    def hours(self, devices: Iterable[RdmaDevice], bus: Bus | None = None) -> list[str]:
        """The backend after hours of such observations."""
        found = list(devices)
        for _ in range(10):
            self.now += 1000
            last = self.look(found, bus)
        return last


def of(devices: Iterable[RdmaDevice], *, gpus: int = 0) -> Bus:
    """A flat bus with these devices and GPUs."""
    nics = [Function(one.pci, 0x0200, one.pci_ids) for one in devices if one.pci]
    cards = [Function(f"0000:f{number}:00.0", 0x0302, "10de:2330") for number in range(gpus)]
    return Bus({one.address: one for one in [*nics, *cards]})


def beside(address: str, switch: int, ids: str | None, code: int) -> Function:
    """A function below a PCI switch, one for each number."""
    bridges = f"0000:{0xA0 + switch:02x}:01.0", f"0000:{0xB0 + switch:02x}:00.0"
    ids_of = ("8086:352a",) if switch == 9 else ("8086:352a", "1000:c030")
    host = f"pci0000:{0xA0 + switch:02x}"
    found = Function(address, code, ids, host_bridge=host, bridges=bridges[: len(ids_of)])
    return found._replace(bridge_ids=ids_of)


def front(name: str, bus: int, *, routed: bool = True) -> RdmaDevice:
    return eth(name, bus, port(netdev=netdev(f"eth{bus}", default_route=routed)))


RAILS = [eth(f"rail{number}", number) for number in range(1, 5)]
OTHERS = [eth(f"other{number}", 20 + number, **OTHER) for number in range(4)]
NAMES = [device.name for device in RAILS]


def test_a_route_that_is_gone_keeps_the_front_end() -> None:
    """DHCP lost its lease; a route through another NIC is evidence."""
    node = Node()
    assert node.settled([*RAILS, front("front", 9)]) == NAMES
    assert node.hours([*RAILS, front("front", 9, routed=False)]) == NAMES
    assert node.memory.next_end() == math.inf
    moved = [front("rail1", 1)._replace(), *RAILS[1:], front("front", 9, routed=False)]
    assert node.look(moved) == NAMES
    assert node.memory.next_end() == node.now + CONFIRM
    node.now += CONFIRM
    assert node.look(moved) == [*NAMES[1:], "front"]
    changed = {one.device: (one.before, one.after) for one in node.memory.changed}
    routed = "no backend (front end: carries the default route)"
    assert changed.keys() == {"front", "rail1"}
    assert (changed["front"][0], changed["rail1"][1]) == (routed, routed)
    assert node.look(moved) == [*NAMES[1:], "front"]
    assert node.memory.changed == ()


def test_a_contradiction_that_ends_changes_nothing() -> None:
    """Two observations a minute apart have it, and none in between without it."""
    node, moved = Node(), [front("rail1", 1), *RAILS[1:]]
    assert node.settled(RAILS) == NAMES
    for _ in range(5):
        node.look(moved)
        node.now += CONFIRM / 2
        assert node.look(moved) == NAMES
        assert node.look(RAILS) == NAMES


def test_a_role_is_remembered_after_a_minute() -> None:
    """While a node boots, each observation counts: the lease comes seconds after the driver."""
    node = Node()
    assert node.look([*RAILS, front("front", 9, routed=False)]) == [*NAMES, "front"]
    assert node.look([*RAILS, front("front", 9)]) == NAMES
    assert node.memory.changed == ()


@pytest.mark.parametrize("away", [1, 2, 3])
def test_devices_that_are_away_outvote_nobody(away: int) -> None:
    """HCAs in recovery, or lent to a VM: those of the other kind are more now."""
    node, devices = Node(), [*RAILS, *OTHERS[:3]]
    assert node.settled(devices) == NAMES
    assert node.hours(devices[away:], of(devices)) == NAMES[away:]
    assert node.hours(devices) == NAMES


def test_links_that_did_not_come_up_decide_nothing() -> None:
    """After a reboot of the leaves the storage NICs are the only ones with a link."""
    node, slow = Node(), netdev("slow", speed_mbps=100_000)
    others = [one._replace(ports=(port(rate_gbps=100.0, netdev=slow),)) for one in OTHERS]
    assert node.settled([*RAILS, *others]) == NAMES
    dark = [plain(device, state="DOWN") for device in RAILS]
    assert node.hours([*dark, *others]) == NAMES


def test_a_gpu_that_fell_off_the_bus_changes_no_role() -> None:
    """The NICs that were not near a GPU were taken out by GPUs that are gone now."""
    node = Node()
    devices = [*RAILS, eth("storage", 9)]
    nics = [beside(str(one.pci), int(str(one.pci)[5:7]), one.pci_ids, 0x0200) for one in devices]
    gpus = [beside(f"0000:f{number}:00.0", number, "10de:2330", 0x0302) for number in range(1, 5)]

    def bus(*there: Function) -> Bus:
        return Bus({one.address: one for one in [*nics, *there]})

    first = node.settled(devices, bus(*gpus))
    assert first == NAMES
    assert node.hours(devices, bus(*gpus[:1])) == first
    assert node.hours(devices, bus()) == first


def restarted(first: Iterable[RdmaDevice], rule: str, others: Iterable[RdmaDevice] = ()) -> Node:
    """A new agent that has read an annotation in which this rule took out all but RAILS."""
    node = Node()
    node.look(first)
    rails = [Pin((str(one.pci), 1), rule, backend=True, has_link=True) for one in RAILS]
    out = [Pin((str(one.pci), 1), rule, backend=False) for one in others]
    node.memory.seed([*rails, *out])
    return node


def test_a_vf_with_the_guid_of_a_rail_that_is_gone_has_not_moved_there() -> None:
    """The roles of the annotation stand: the rail counts once it is back, whatever else is gone."""
    node, guid = Node(), "a088c20300ab0011"
    node.memory.seed(
        Pin((str(rail.pci), 1), "kind", backend=True, port_guid=guid if rail is RAILS[0] else None)
        for rail in RAILS
    )
    virtual = eth("vf", 99, port()._replace(port_guid=guid), virtual_function=True)
    whole = of([*RAILS, virtual])
    node.hours([*RAILS[1:], virtual], whole)
    assert RAILS[0].name in node.look([*RAILS[:-1], virtual], whole)


def test_a_restart_without_the_route_changes_no_role() -> None:
    """The annotation says that the front end decided; it takes nothing out now."""
    devices = [*RAILS, front("front", 9, routed=False)]
    node = restarted(devices, "front-end", devices[4:])
    assert node.hours(devices) == NAMES
    moved = [front("rail1", 1), *RAILS[1:], front("front", 9, routed=False)]
    assert node.settled(moved) == [*NAMES[1:], "front"]


def test_a_restart_while_devices_are_away_or_dark_changes_no_role() -> None:
    """Those of the other kind are more, or faster."""
    left = [*RAILS[2:], *OTHERS[:3]]
    node = restarted(left, "kind", OTHERS[:3])
    assert node.hours(left, of([*RAILS, *OTHERS])) == NAMES[2:]
    slow = port(rate_gbps=100.0, netdev=netdev("slow", speed_mbps=100_000))
    dark = [plain(device, state="DOWN") for device in RAILS]
    dark += [one._replace(ports=(slow,)) for one in OTHERS]
    assert restarted(dark, "kind", OTHERS).hours(dark) == NAMES


def test_a_rail_that_was_added_while_the_node_was_off_counts() -> None:
    """What the annotation does not have joins when nothing is missing: here, the route."""
    devices = [*RAILS, eth("more", 9), front("front", 10, routed=False)]
    node = restarted(devices, "front-end", devices[5:])
    assert node.hours(devices) == NAMES
    assert node.look([*devices[:5], front("front", 10)]) == [*NAMES, "more"]


def test_ports_at_other_addresses_are_judged_anew() -> None:
    """A VM that was created anew: the old addresses are gone, or are those of other ports."""
    node = Node()
    node.memory.seed(Pin((str(one.pci), 1), "kind", backend=False) for one in RAILS)
    moved = [one._replace(pci=f"0001:{number:02x}:00.0") for number, one in enumerate(RAILS)]
    assert node.look([*moved, *OTHERS[:3]]) == NAMES


def test_ports_whose_guid_is_elsewhere_are_judged_anew() -> None:
    """A card was added: the rails have shifted, and the first one's address is a storage NIC's."""
    node = Node()
    guids = {one.name: f"a088c20300abcd{number:02x}" for number, one in enumerate(RAILS)}
    rails = [plain(one, port_guid=guids[one.name]) for one in RAILS]
    pins = [
        Pin((str(one.pci), 1), "kind", backend=True, port_guid=guids[one.name]) for one in rails
    ]
    node.memory.seed(pins)
    moved = [one._replace(pci=f"0000:{number:02x}:00.0") for number, one in enumerate(rails, 2)]
    storage = eth("storage", 21, **OTHER)._replace(pci=RAILS[0].pci)
    assert node.look([storage, *moved[:3], rails[3]._replace(pci="0000:77:00.0")]) == NAMES


@pytest.mark.parametrize("name", ["rail4", "renamed"])
def test_a_card_in_another_slot_is_not_missing(name: str) -> None:
    """It was taken out, and joins again at another address; one with another GUID does not."""
    node = Node()
    rails = [plain(one, port_guid=f"a088c20300abcd0{n}") for n, one in enumerate(RAILS)]
    assert node.settled(rails) == NAMES
    assert node.hours(rails[:3]) == NAMES[:3]
    elsewhere = rails[3]._replace(name=name, pci="0000:77:00.0")
    foreign = plain(elsewhere, port_guid="a088c20300abcd99")
    assert node.hours([*rails[:3], foreign]) == NAMES[:3]
    assert node.look([*rails[:3], elsewhere]) == [*NAMES[:3], name]
    assert not node.memory.known.away


def test_a_guid_of_several_functions_has_not_moved() -> None:
    """Virtual functions of a cloud have the GUID 0, or one for all."""
    node, devices = Node(), [*RAILS, *OTHERS[:3]]
    node.memory.seed(
        Pin((str(one.pci), 1), "kind", backend=one in RAILS, port_guid="0" * 16) for one in devices
    )
    left = [plain(one, port_guid="0" * 16) for one in [RAILS[0], *OTHERS[:3]]]
    assert node.hours(left, of(devices)) == NAMES[:1]


def test_a_device_without_a_function_is_no_address_that_is_missing() -> None:
    """Soft-RoCE on a bridge; the annotation has addresses alone."""
    node, soft = Node(), eth("rxe0", 30)._replace(pci=None)
    node.settled([*RAILS, soft])
    node.settled(RAILS[1:])
    assert node.memory.known.away == (str(RAILS[0].pci),)


@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_off_the_bus_for_a_week_is_gone_for_good(*, is_new: bool) -> None:
    """Of four rails one is left, beside three NICs of another kind; after a restart, too."""
    node, left = Node(), [RAILS[0], *OTHERS[:3]]
    assert node.settled([*RAILS, *OTHERS[:3]]) == NAMES
    assert node.hours(left) == NAMES[:1]
    if is_new:
        known = node.memory.known
        assert known.away == tuple(str(one.pci) for one in RAILS[1:])
        node.memory = RoleMemory(lambda: node.now, lambda: node.now)
        rows = [Pin((str(one.pci), 1), "kind", backend=one in RAILS) for one in left]
        rows += [Pin((one, 1), "kind", backend=True, is_lost=True) for one in known.away]
        node.memory.seed(rows, known)
        assert node.settled(left) == NAMES[:1]
    node.now += AWAY
    assert node.settled(left) == [one.name for one in OTHERS[:3]]
    assert node.memory.known.away == ()


def test_what_is_on_the_bus_has_no_limit() -> None:
    """HCAs in recovery, links that are down, and a route; its default route is no function."""
    node, devices = Node(), [*RAILS, *OTHERS[:3]]
    assert node.settled(devices) == NAMES
    node.now += 2 * AWAY
    assert node.settled([RAILS[0], *OTHERS[:3]], of(devices)) == NAMES[:1]
    node = Node()
    assert node.settled([*RAILS, front("front", 9)]) == NAMES
    node.now += 2 * AWAY
    assert node.settled([*RAILS, front("front", 9, routed=False)]) == NAMES


def test_a_sub_device_has_the_function_of_its_parent() -> None:
    """Its role is not that of the parent, whichever of them comes first."""
    node, parent = Node(), ib("ibp1", 1)
    smi = parent._replace(name="smi1", ports=(parent.ports[0]._replace(rate_gbps=None),))
    for devices in ([parent], [smi, parent], [parent, smi]):
        assert node.settled(devices) == backend(decide(devices).roles)


def test_a_front_end_that_is_not_known_for_long_is_no_role() -> None:
    """The table could not be read since the first minute: the rails count when it can be."""
    node, unknown = Node(), FrontEnd(unknown="the routing tables cannot be read")
    node.look(RAILS)
    for _ in range(20):
        node.now += 60
        decide(RAILS, bus=of(RAILS), front_end=unknown, memory=node.memory)
    assert node.look(RAILS) == NAMES
