"""The backend among the data ports, the names of interfaces and the rates that count."""

from __future__ import annotations

from typing import Any

import pytest

from agent.model import RdmaDevice, RdmaPort
from agent.sources.interfaces import RoleEvidence, is_unread
from agent.sources.roles import ethernet_data_ports
from agent.sources.steady import RoleMemory
from agent.sysfs.bus import Bus, Function
from agent.sysfs.front_end import FrontEnd
from tests.support.devices import (
    GPUS,
    PORT,
    UP,
    assign,
    backend,
    decide,
    eth,
    ib,
    netdev,
    plain,
    port,
    reasons,
)

KIND = {"pci_ids": "15b3:101d", "hca_type": "MT4125", "board_id": "other"}
THIRD = {"pci_ids": "15b3:101f"}
SLOW = port(rate_gbps=100.0, netdev=netdev("slow0", speed_mbps=100_000))


def front(name: str, bus: int, **facts: Any) -> RdmaDevice:
    return eth(name, bus, port(netdev=netdev(f"eth{bus}", default_route=True)), **facts)


def bonded(*legs: str) -> RdmaPort:
    return port(legs=tuple(map(netdev, legs)))


def dark(*names: str) -> list[RdmaDevice]:
    """Devices of another kind, at higher PCI addresses, without a link."""
    return [
        eth(name, number, port(state="DOWN", netdev=netdev(name, speed_mbps=None)), **KIND)
        for number, name in enumerate(names, 0x80)
    ]


# (why, devices, backend): the rules behind the first one, in their order.
CHOSEN: dict[str, tuple[list[RdmaDevice], list[str]]] = {
    "InfiniBand beats more Ethernet": ([eth("a", 1), eth("b", 2), ib("ib0", 3)], ["ib0"]),
    "even while it is down": ([eth("a", 1), plain(ib("ib0", 3), state="DOWN")], ["ib0"]),
    "all kinds of InfiniBand": (
        [ib("ib0", 1), ib("ib1", 2, **KIND), ib("ib2", 3)],
        ["ib0", "ib1", "ib2"],
    ),
    "a default route over IPoIB is no front end": (
        [ib("ib0", 1, PORT._replace(netdev=UP))],
        ["ib0"],
    ),
    "link layers are the ports'": ([ib("x0", 1, PORT, port(2))], ["x0"]),
    "the front end goes, though it is more": (
        [front("a", 1), front("b", 2), eth("c", 3, **KIND)],
        ["c"],
    ),
    "the front end goes from its kind, too": (
        [front("a", 1), eth("b", 2), eth("c", 3)],
        ["b", "c"],
    ),
    "and nothing is left of a node without GPU": ([front("a", 1), front("b", 2)], []),
    "one port makes a front end of the device": (
        [eth("a", 1, port(1), port(2, netdev=netdev("d", default_route=True))), eth("b", 2)],
        ["b"],
    ),
    "a route through a leg": (
        [eth("a", 1, port(legs=(netdev("l0"), netdev("l1", default_route=True)))), eth("b", 2)],
        ["b"],
    ),
    "the kind of the greatest bandwidth": (
        [eth("a", 1, **KIND), eth("b", 2), eth("c", 3)],
        ["b", "c"],
    ),
    "one fast NIC beats two slow ones": (
        [eth("a", 1), *(eth(name, 2, SLOW, **KIND) for name in "bc")],
        ["a"],
    ),
    "a kind is the PCI ids, whatever text and board say": (
        [eth("a", 1, board_id="x"), eth("b", 2, hca_type="host b"), eth("c", 3, **THIRD)],
        ["a", "b"],
    ),
    "and the functions of the card": (
        [
            eth("a", 1),
            eth("b", 2),
            eth("c", 3, pci="0000:03:00.0"),
            eth("d", 3, pci="0000:03:00.1"),
            eth("e", 4),
        ],
        ["a", "b", "e"],
    ),
    "each port is a cable": (
        [eth("a", 1, port(1), port(2), port(3), **KIND), eth("b", 2), eth("c", 3)],
        ["a-1", "a-2", "a-3"],
    ),
    "a bond counts as its legs": (
        [eth("a", 1, bonded("l0", "l1")), eth("b", 2, SLOW, **KIND)],
        ["a-l0", "a-l1"],
    ),
    "two dark NICs do not outvote a bond": (
        [eth("a", 1, bonded("l0", "l1")), *dark("b", "c")],
        ["a-l0", "a-l1"],
    ),
    "a bond over devices of their own is not counted twice": (
        [
            eth("a", 1, bonded("l0", "l1"), netdevs=("l0",)),
            eth("b", 2, port(), netdevs=("l1",), **KIND),
            eth("c", 3, **KIND),
        ],
        ["b", "c"],
    ),
    "the faster kind": ([eth("a", 1, SLOW, **KIND), eth("b", 2)], ["b"]),
    "the speed of the netdev decides": (
        [
            eth("a", 1, port(rate_gbps=400.0, netdev=netdev("a", speed_mbps=100_000)), **KIND),
            eth("b", 2, port(rate_gbps=200.0, netdev=netdev("b", speed_mbps=200_000))),
        ],
        ["b"],
    ),
    "faster by nature, though down": (
        [
            eth("a", 1, plain(eth("x", 1, SLOW), state="DOWN").ports[0], **KIND),
            eth("b", 2, port(state="DOWN")),
        ],
        ["b"],
    ),
    "a link that is down makes its kind no slower": (
        [eth("a", 1, SLOW, **KIND), eth("b", 2, port(state="DOWN", rate_gbps=40.0, netdev=UP))],
        ["b"],
    ),
    "an ACTIVE link that is faster than its model": (
        [eth("a", 1, port(netdev=netdev("a", speed_mbps=200_000)), **KIND), eth("b", 2, **THIRD)],
        ["b"],
    ),
    "a rate that is not known is what the kernel prints": (
        [
            eth(
                "a",
                1,
                port(state="DOWN", rate_gbps=40.0, netdev=netdev("a", speed_mbps=None)),
                pci_ids="1234:5678",
            ),
            eth("b", 2, port(state="DOWN", netdev=netdev("b", speed_mbps=None)), **THIRD),
        ],
        ["b"],
    ),
    "a tie: the lower address": (
        [eth("a", 0x1B, **KIND), eth("b", 0x0C), eth("c", 0xA0, **THIRD)],
        ["b"],
    ),
    "an unknown address is no low one": ([eth("a", 1, pci=None, **KIND), eth("b", 0xFF)], ["b"]),
    "without PCI ids the driver and the text that two devices share": (
        [
            eth("a", 1, pci_ids=None, hca_type="host a"),
            eth("b", 2, pci_ids=None, hca_type="host b"),
            eth("c", 3, pci_ids=None),
            eth("d", 4, pci_ids=None),
            eth("e", 5, pci_ids=None),
        ],
        ["c", "d", "e"],
    ),
    "nothing": ([], []),
    "nothing that could be read": (
        [RdmaDevice("a", failure="blocks"), RdmaDevice("b", excluded=True)],
        [],
    ),
}


@pytest.mark.parametrize(("devices", "chosen"), CHOSEN.values(), ids=CHOSEN)
def test_the_backend_is_chosen(devices: list[RdmaDevice], chosen: list[str]) -> None:
    """InfiniBand; else, without the front end, the kind of most bandwidth, or the lowest one."""
    roles = assign(devices)
    assert backend(roles) == chosen
    assert all(role.reason for role in roles)


IB, ETH = "InfiniBand data port, ConnectX-7 15b3:1021", "Ethernet data port, ConnectX-7 15b3:1021"
FRONT = "front end: carries the default route"
REASONS = [
    ([ib("a", 1)], [], {"a": IB}),
    ([eth("a", 1)], [], {"a": ETH}),
    ([eth("a", 1)], ["a"], {"a": "named by --backend-device"}),
    ([ib("a", 1), eth("b", 2)], [], {"a": IB, "b": "Ethernet, and the backend is InfiniBand"}),
    ([eth("a", 1), front("b", 2)], [], {"a": ETH, "b": FRONT}),
    (
        [eth("a", 1, pci_ids=None, driver=None, hca_type=None), eth("b", 2, SLOW)],
        [],
        {
            "a": "Ethernet data port, 400G of unnamed kind against 400G",
            "b": "Ethernet NIC of another kind than the backend's unnamed kind"
            " (tie: lower PCI address)",
        },
    ),
    ([front("a", 1)], [], {"a": FRONT}),
]


@pytest.mark.parametrize(("devices", "globs", "given"), REASONS)
def test_the_reason_of_each_role(
    devices: list[RdmaDevice], globs: list[str], given: dict[str, str]
) -> None:
    assert {role.interface: role.reason for role in assign(devices, globs)} == given


def test_no_ethernet_port_takes_the_place_of_infiniband_that_is_unbound() -> None:
    """Its driver may be reloading."""
    pci = "0000:02:00.0"
    bus = Bus({pci: Function(pci, 0x0207, "15b3:1021")})
    roles = assign([eth("a", 1)], bus=bus, unbound={pci})
    assert reasons(roles) == {"a": "Ethernet, and the backend is InfiniBand"}


TIES = [
    ([eth("a", 1, **KIND), eth("b", 2), eth("c", 3)], ["a"], " (400G against 800G)"),
    ([eth("a", 1, SLOW, **KIND), eth("b", 2)], ["a"], " (100G against 400G)"),
    ([eth("a", 1), eth("b", 2, **KIND)], ["b"], " (tie: lower PCI address)"),
    ([eth("a", 1), eth("b", 2, **KIND), eth("c", 3, **THIRD)], ["b", "c"],
     " (tie: lower PCI address)"),
]  # fmt: skip


@pytest.mark.parametrize(("devices", "ignored", "tie"), TIES)
def test_a_tie_is_in_the_reason(devices: list[RdmaDevice], ignored: list[str], tie: str) -> None:
    """The words for a choice that no bandwidth made."""
    kind = "ConnectX-7 15b3:1021"
    text = f"Ethernet NIC of another kind than the backend's {kind}{tie}"
    assert reasons(assign(devices)) == dict.fromkeys(ignored, text)


TWO_FUNCTIONS = [eth("c", 3, pci="0000:03:00.0"), eth("d", 3, pci="0000:03:00.1")]
FOUR = Bus({f"0000:f{n}:00.0": Function(f"0000:f{n}:00.0", 0x0302, "10de:2330") for n in range(4)})
SAME_IDS = [
    (
        TWO_FUNCTIONS,
        "its card has 2 network functions, those of the backend have 1 (800G against 1600G)",
    ),
    (
        [eth(name, bus, board_id="other") for name, bus in (("c", 3), ("d", 4))],
        "another PSID or PCI subsystem (800G against 1600G)",
    ),
]


@pytest.mark.parametrize(("others", "difference"), SAME_IDS)
def test_the_reason_says_what_differs(others: list[RdmaDevice], difference: str) -> None:
    """The PCI ids are equal, so they explain nothing."""
    rails = [eth(name, bus) for name, bus in (("a", 1), ("b", 2), ("e", 5), ("f", 6))]
    text = f"Ethernet NIC of another kind than the backend's ConnectX-7 15b3:1021: {difference}"
    assert reasons(assign([*rails, *others], bus=FOUR)) == dict.fromkeys("cd", text)


def hints(devices: list[RdmaDevice], bus: Bus = Bus()) -> list[tuple[str, ...]]:  # noqa: B008
    """The interfaces that the hints name."""
    return [hint.interfaces for hint in decide(devices, bus=bus, front_end=KNOWN).hints]


KNOWN = FrontEnd(frozenset({"other"}), frozenset({"other"}))
DARK = [plain(eth("x", bus), state="DOWN") for bus in (0x80, 0x81)]


def test_a_dark_backend_is_a_hint() -> None:
    """Two NICs without a link outweigh the only one with one: the label says 0G, and why."""
    others = [eth("a", 1, SLOW, **KIND), eth("c", 2, SLOW, **THIRD)]
    dark_rails = [device._replace(name=f"x{n}") for n, device in enumerate(DARK)]
    assert backend(assign([*others, *dark_rails])) == ["x0", "x1"]
    found = decide([*others, *dark_rails], front_end=KNOWN).hints
    text = "no port of ConnectX-7 15b3:1021 is ACTIVE, but a, c:"
    assert f"{text} name the backend with --backend-device" in [hint.text for hint in found]
    assert not hints([eth("a", 1), *dark("b")])
    assert not hints([ib("ib0", 1), *dark("b", "c")])
    assert not hints([])


def test_a_dark_backend_beside_a_front_end_of_its_model_is_a_hint() -> None:
    """A front end of another model is none: the route tells it from the backend."""
    rail = plain(eth("b", 2), state="DOWN")
    assert ("a",) in hints([front("a", 1), rail])
    assert not hints([front("a", 1, **KIND), rail])


@pytest.mark.parametrize(
    ("nics", "gpus", "why"),
    [
        (7, 8, "a NIC may be missing, or storage NICs may be among them"),
        (15, 8, "a NIC may be missing, or storage NICs may be among them"),
        (8, 7, "a GPU may be missing, or storage NICs may be among them"),
        (9, 8, "storage NICs may be among them"),
        (6, 8, "storage NICs may be among them"),
        (4, 8, None),
    ],
)
def test_nics_and_gpus_that_are_uneven_are_a_hint(nics: int, gpus: int, why: str | None) -> None:
    """It names what may be missing: a fresh agent does not know the whole machine."""
    functions = [Function(f"0000:{0xC0 + n:02x}:00.0", 0x0302, "10de:2330") for n in range(gpus)]
    bus = Bus({gpu.address: gpu for gpu in functions})
    texts = [hint.text for hint in decide([ib(f"a{n}", n) for n in range(nics)], bus=bus).hints]
    count = f"{nics} x ConnectX-7 15b3:1021 beside {gpus} GPUs count"
    assert texts == ([f"{count}: {why}: --exclude-device settles that"] if why else [])


STUCK = [RdmaDevice(name, failure="blocks") for name in ("s", "t")]


def test_two_devices_of_one_function_are_a_hint() -> None:
    """No rule tells which of them has the cable; a device with several ports is one device."""
    assert backend(assign([ib("ib0", 1), ib("ib1", 1), ib("ib2", 2)])) == [*("ib0", "ib1", "ib2")]
    assert hints([ib("ib0", 1), ib("ib1", 1), ib("ib2", 2)]) == [("ib0", "ib1")]
    assert not hints([ib("ib0", 1, PORT, PORT._replace(number=2)), ib("ib2", 2)])


def test_no_software_device_takes_the_place_of_one_that_cannot_be_read() -> None:
    """Its function is not known, as theirs is not: it may be an HCA."""
    rxe = eth("rxe0", 1, pci=None, driver=None, pci_ids=None)
    assert decide([rxe, STUCK[0]]).undecided


def test_labels_decide_while_a_device_of_unknown_function_cannot_be_read() -> None:
    """A node with labels keeps its roles; one without is undecided."""
    devices = [eth("a", 1), *dark("b", "c"), STUCK[0]]
    assert backend(assign(devices)) == []
    text = "the backend is not known while s cannot be read"
    assert decide(devices).undecided == text
    labels = {"a": "0000:01:00.0", "s": None}
    assert decide(devices, labeled=labels).undecided is None
    assert backend(assign(devices, labeled=labels)) == ["a"]
    assert backend(assign(devices, labeled={"b": "0000:80:00.0"})) == ["b"]


def test_an_unlabeled_node_decides_by_what_it_read_at_the_end_of_the_hold() -> None:
    now = 0.0
    memory = RoleMemory(lambda: now, lambda: now, hold=600.0)
    devices = [eth("a", 1), STUCK[0]]
    assert decide(devices, memory=memory).undecided
    now = 599.0
    assert decide(devices, memory=memory).undecided
    now = 600.0
    assert backend(decide(devices, memory=memory).roles) == ["a"]


def test_a_function_that_manages_switches_is_in_no_doubt_while_it_cannot_be_read() -> None:
    """It is a function of the card whose others look like that; its PCI ids are unread, too."""
    board = [ib(f"m{n}", 9, pci=f"0000:09:00.{n}", nvswitch_pattern=True) for n in range(3)]
    stuck = RdmaDevice("m3", failure="blocks", pci="0000:09:00.3")
    decision = decide([eth("a", 1), *board, stuck])
    assert (decision.undecided, backend(decision.roles)) == (None, ["a"])


def test_a_device_that_cannot_be_read_is_of_the_kind_that_the_bus_tells() -> None:
    """Its PCI ids and class are known, so of two kinds of two NICs none is outvoted."""
    stuck = RdmaDevice("s", failure="blocks", pci="0000:02:00.0")
    bus = Bus({"0000:02:00.0": Function("0000:02:00.0", 0x0207, "15b3:1021")})
    devices = [*map(ib, ("a", "b", "c"), (3, 4, 5)), stuck, *dark("x", "y", "z", "v", "w")]
    assert backend(assign(devices, bus=bus)) == ["a", "b", "c"]
    # Of two Ethernet kinds it makes one the larger.
    bus = Bus({"0000:02:00.0": Function("0000:02:00.0", 0x0200, "15b3:1021")})
    devices = [eth("a", 3), eth("b", 4), *dark("x", "y"), stuck]
    assert backend(assign(devices, bus=bus)) == ["a", "b"]


def test_a_spare_port_beside_a_device_that_cannot_be_read_is_no_backend() -> None:
    """The unread function has the default route; a second one counts if it ever had a link."""
    stuck = RdmaDevice("a", failure="blocks", pci="0000:01:00.0")
    never = port(state="DOWN", netdev=netdev("b", speed_mbps=None, carrier_up_count=0))
    spare = eth("b", 1, never)._replace(pci="0000:01:00.1")
    functions = {
        one: Function(one, 0x0200, "15b3:1021") for one in ("0000:01:00.0", "0000:01:00.1")
    }
    bus, route = Bus(functions), FrontEnd(functions=frozenset({"0000:01:00.0"}))
    assert backend(assign([stuck, spare], bus=bus, front_end=route)) == []
    linked = spare._replace(ports=(port(netdev=netdev("b", carrier_up_count=1)),))
    assert backend(assign([stuck, linked], bus=bus, front_end=route)) == ["b"]
    labels = {"b": "0000:01:00.1"}
    assert backend(assign([stuck, spare], bus=bus, front_end=route, labeled=labels)) == ["b"]


def test_a_card_with_a_function_that_cannot_be_read_is_of_the_kind_of_the_others() -> None:
    """Two cards of two functions are not of two kinds because one function is unread."""
    addresses = [f"0000:{bus:02x}:00.{function}" for bus in (1, 2) for function in (0, 1)]
    functions = {one: Function(one, 0x0200, "15b3:1021") for one in addresses}
    devices = [eth("a", 1), eth("b", 2)]
    assert backend(assign(devices, bus=Bus(functions))) == ["a", "b"]
    for unread in addresses[1::2]:
        left = {one: function for one, function in functions.items() if one != unread}
        bus = Bus(left, unread=frozenset({unread}))
        assert backend(assign(devices, bus=bus)) == ["a", "b"]
    assert backend(assign(devices, bus=Bus(left))) == ["a"]


def test_a_nic_of_unknown_place_is_undecided() -> None:
    """Its GPU has fallen off the bus, so it counts by its place alone, that of the other NICs; and
    the ids of the switch above it cannot be read.
    """
    functions = {}
    for bus in range(1, 6):  # of the last ones, the GPU is missing; then a NIC of the storage
        switch = (f"0000:{bus:02x}:01.0",) if bus < 5 else ()
        nic = Function(f"0000:{bus:02x}:00.0", 0x0207, "15b3:1021", host_bridge=f"pci0000:{bus}")
        nic = nic._replace(bridges=switch or ("0000:05:02.0",))
        functions[nic.address] = nic._replace(bridge_ids=("1000:c030" if switch else "8086:352a",))
        if bus < 4:
            gpu = nic._replace(address=f"0000:{bus:02x}:00.1", code=0x0302, ids="10de:2330")
            functions[gpu.address] = gpu
    devices = [ib(f"ib{bus}", bus) for bus in range(1, 6)]
    assert backend(assign(devices, bus=Bus(functions))) == ["ib1", "ib2", "ib3", "ib4"]
    address = devices[3].pci or ""
    functions[address] = functions[address]._replace(bridge_ids=(None,))
    text = f"the backend is not known while PCI function {address} cannot be read"
    assert decide(devices, bus=Bus(functions)).undecided == text
    functions[address] = functions[address]._replace(bridges=None)
    assert decide(devices, bus=Bus(functions)).undecided == text
    labeled = {one.name: one.pci for one in devices[:4]}
    assert backend(assign(devices, (), labeled, Bus(functions))) == ["ib1", "ib2", "ib3", "ib4"]
    # A copied tree may lack the ids of bridges: it has no such place.
    functions[address] = functions[address]._replace(bridges=("0000:04:01.0",), bridge_ids=("",))
    assert assign(devices, bus=Bus(functions))[3].rule == "gpu-affinity"


def test_ethernet_data_ports() -> None:
    """Those of the front end are among them, and none of InfiniBand."""
    devices = [front("a", 1), eth("b", 2, port(2)), eth("vf", 3, virtual_function=True)]
    assert [one.key for one in ethernet_data_ports(RoleEvidence(devices))] == [("a", 1), ("b", 2)]
    assert len(ethernet_data_ports(RoleEvidence([*devices, ib("ib0", 4)]))) == 2


def test_a_device_is_unread_if_its_link_layer_is_unknown() -> None:
    """As a whole or of one port; other unread facts do not matter."""
    assert is_unread(RdmaDevice("a", failure="blocks"))
    assert is_unread(eth("a", 1, port(1), port(2, link_layer=None)))
    assert not is_unread(plain(eth("a", 1), state=None, rate_gbps=None))


def test_a_front_end_does_not_replace_a_device_that_cannot_be_read() -> None:
    """Beside another NIC of its kind, read or not, the one with the route is the front end."""
    stuck = eth("b", 2)._replace(failure="blocks", ports=())
    functions = {"0000:02:00.0": Function("0000:02:00.0", 0x0200, "15b3:1021")}
    bus = Bus({**GPUS.functions, **functions})
    assert backend(assign([front("a", 1), stuck], bus=bus)) == []
    assert backend(assign([front("a", 1)], bus=bus)) == ["a"]
    every = [front("a", 1), front("b", 2), front("c", 3, **KIND)]
    assert backend(assign(every, bus=GPUS)) == ["a", "b"]


def test_labels_are_those_of_functions() -> None:
    """Names change: a label of this name at another address is another device's."""
    stuck, bus = STUCK[0], Bus()
    devices = [eth("a", 1), *dark("b", "c"), stuck]
    assert backend(assign(devices, labeled={"x": "0000:01:00.0"}, bus=bus)) == ["a"]
    assert backend(assign(devices, labeled={"a-1": None}, bus=bus)) == ["a"]


def test_flags_beat_every_rule() -> None:
    """--backend-device names the backend, whatever the devices are; the others are ignored."""
    devices = [
        ib("ib0", 1),
        front("front0", 2, pci_ids="8086:1592"),
        ib("vf0", 3, virtual_function=True, pci_ids="15b3:101e"),
        ib("hfi1_0", 4, driver="hfi1", pci_ids="8086:24f0"),
    ]
    for device in devices:
        for glob in (device.name, f"pci:{device.pci}", f"pci:{(device.pci or '')[5:]}",
                     (device.pci_ids or "").upper()):  # fmt: skip
            roles = assign(devices, [glob])
            assert set(backend(roles)) == {device.name}
            assert set(reasons(roles).values()) == {"not named by --backend-device"}
    assert set(backend(assign(devices, ["ib?", "fr*"]))) == {"ib0", "front0"}
    assert backend(assign(devices, ["IB0"])) == []


def test_flags_name_devices_and_not_their_dataless_ports() -> None:
    """A plane without a netdev does not become a data port because its device is named."""
    assert backend(assign([eth("x0", 1, port(1), port(2, netdev=None), port(3))], ["x0"])) == [
        "x0-1",
        "x0-3",
    ]


def test_a_role_has_its_device_its_port_and_its_leg() -> None:
    """A bond beside devices that are none of its members has a role for each leg."""
    devices = [eth("b0", 1, bonded("l0", "l1"), netdevs=("l0",)), eth("e0", 2, netdevs=("x",))]
    roles = [
        (role.device.name, role.port.number, role.leg and role.leg.name) for role in assign(devices)
    ]
    assert roles == [("b0", 1, "l0"), ("b0", 1, "l1"), ("e0", 1, None)]


def test_legs_are_named_in_natural_order_unless_they_are_devices_themselves() -> None:
    """Each leg is an interface; members with RDMA devices of their own are no legs."""
    legs = (netdev("eth10"), netdev("eth9"))
    assert backend(assign([eth("b0", 1, port(legs=legs))])) == ["b0-eth9", "b0-eth10"]
    assert backend(assign([eth("b0", 1, port(1, legs=legs), port(2))])) == [
        "b0-1-eth9",
        "b0-1-eth10",
        "b0-2",
    ]
    for own in (("eth9",), ()):
        bond, member = eth("b0", 1, port(legs=legs), netdevs=own), eth("b1", 2, netdevs=("eth10",))
        assert backend(assign([bond, member])) == ["b0", "b1"]


COUNTED: list[tuple[RdmaPort, list[float | None]]] = [
    (PORT, [400]),
    (PORT._replace(netdev=UP, rate_gbps=200.0), [200]),  # an IPoIB netdev's speed is not asked
    (PORT._replace(rate_gbps=None), [None]),
    (PORT._replace(state=None), [None]),
    (PORT._replace(state="DOWN"), [0.0]),
    (PORT._replace(state="INIT"), [0.0]),
    (PORT._replace(state="ACTIVE_DEFER"), [0.0]),
    (port(netdev=netdev("eth0", speed_mbps=2500), rate_gbps=400.0), [2.5]),
    (port(netdev=netdev("eth0", speed_mbps=None), rate_gbps=100.0), [100]),
    (port(netdev=None, rate_gbps=100.0), [100]),
    (port(state="DOWN"), [0.0]),
    (port(legs=(netdev("a", bond_state="active"), netdev("b", bond_state="backup"))), [400, 0.0]),
    (port(legs=(netdev("a", operstate="down"), netdev("b", speed_mbps=100_000))), [0.0, 100]),
    (port(state="DOWN", legs=(netdev("a"), netdev("b"))), [0.0, 0.0]),
]


@pytest.mark.parametrize(("one", "counted"), COUNTED)
def test_what_counts(one: RdmaPort, counted: list[float | None]) -> None:
    """An ACTIVE port counts at its netdev's speed, if that is known; an unknown rate is None."""
    assert [role.counted_gbps for role in assign([ib("x0", 1, one)])] == counted


def test_a_front_end_does_not_replace_a_function_without_its_driver() -> None:
    """The backend NIC had labels; its driver reloads, so it has no RDMA device for a moment."""
    functions = {"0000:02:00.0": Function("0000:02:00.0", 0x0200, "15b3:1021")}
    bus = Bus({**GPUS.functions, **functions})
    assert backend(assign([front("a", 1)], unbound={"0000:02:00.0"}, bus=bus)) == []
    assert backend(assign([front("a", 1)], bus=bus)) == ["a"]


def test_a_virtual_function_that_cannot_be_read_splits_no_kind() -> None:
    """The bus knows that it is virtual: its card has one network function, as the others have."""
    rails = [eth(f"rail{number}", number) for number in range(1, 5)]
    stuck = RdmaDevice("rail1v0", pci="0000:01:00.1", failure="blocks")
    functions = [Function(str(one.pci), 0x0200, one.pci_ids) for one in rails]
    virtual = Function("0000:01:00.1", 0x0200, "15b3:101e", is_virtual=True)
    bus = Bus({one.address: one for one in [*functions, virtual]})
    dark = [plain(rails[0], state="DOWN"), *rails[1:]]
    assert backend(assign([*dark, stuck], bus=bus)) == [device.name for device in rails]
