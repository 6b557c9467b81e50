"""Ports that are not host data ports: for each rule a machine that would be labeled wrongly without
it.
"""

from __future__ import annotations

from typing import Any

import pytest

from agent.model import RdmaDevice
from agent.sources.cards import nvswitch_pattern, with_hidden
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


def smi(name: str, parent: RdmaDevice) -> RdmaDevice:
    """The sub-device that shares the parent's function, port GUID and system image GUID."""
    return parent._replace(name=name, ports=tuple(p._replace(has_smi=True) for p in parent.ports))


CX8 = plain(ib("ibp0", 1), has_smi=False)
FIRST, SECOND = ib("sd0", 1), plain(ib("sd1", 2, sys_image_guid=f"{1:016x}"), has_smi=False)

VIRTUAL = "SR-IOV virtual function: its physical function counts"
NVSWITCH = "NVSwitch management function (SW_MNG in its VPD)"
IWARP, OMNI_PATH = "iWARP (node type RNIC)", "Omni-Path (PCI class 0x0208)"
HFI = "0000:f1:00.0"
FABRIC = Bus({HFI: Function(HFI, 0x0208, "8086:24f0")})

# (the reason, the devices dropped). Without its rule each row would be the backend in
# place of the one Ethernet NIC beside it, as InfiniBand or by number.
DROPPED = [
    (VIRTUAL, [ib("vf0", 1, virtual_function=True)]),
    (VIRTUAL, [eth(f"vf{n}", n, board_id="vf", virtual_function=True) for n in (1, 2, 3)]),
    (NVSWITCH, [ib("ib0", 1, nvswitch_management=True)]),
    (IWARP, [ib("iw0", 1, node_type="RNIC")]),
    (IWARP, [eth(f"iw{n}", n, board_id=None, node_type="RNIC") for n in (1, 2, 3)]),
    (OMNI_PATH, [ib("hfi2_0", 1, driver="hfi2", pci=HFI)]),
    (
        "node type usNIC UDP: no channel adapter",
        [eth(f"usnic_{n}", n, board_id="us", node_type="usNIC UDP") for n in (1, 2)],
    ),
    (
        "a software device: no PCI function, beside GPUs or devices that have one",
        [eth(f"rxe{n}", n, pci=None, driver=None, pci_ids=None) for n in (1, 2)],
    ),
    # the PCI class could not be read
    ("Omni-Path (by its driver hfi1)", [ib("x0", 1, driver="hfi1", pci="0000:f2:00.0")]),
    # of a copied tree without `device` links
    ("Omni-Path (by its name hfi1_0)", [ib("hfi1_0", 1, driver=None, pci=None, pci_ids=None)]),
    (
        "link layer Unknown: neither InfiniBand nor Ethernet",
        [plain(eth(f"efa{n}", n, board_id="efa"), link_layer="Unknown") for n in (1, 2)],
    ),
    (
        "link layer unknown: neither InfiniBand nor Ethernet",
        [plain(eth(f"sick{n}", n, board_id="sick"), link_layer=None) for n in (1, 2)],
    ),
]


@pytest.mark.parametrize(("reason", "dropped"), DROPPED)
def test_what_is_no_data_port_is_dropped_first(reason: str, dropped: list[RdmaDevice]) -> None:
    """It neither makes an InfiniBand node nor wins by number, and the reason names the rule."""
    roles = assign([*dropped, eth("roce0", 9, board_id="other")], bus=FABRIC)
    assert backend(roles) == ["roce0"]
    assert reasons(roles) == {device.name: reason for device in dropped}
    assert all(role.counted_gbps == 0 for role in roles if not role.backend)


def test_the_first_reason_is_given() -> None:
    everything = ib(
        "x0", 1, virtual_function=True, nvswitch_management=True, node_type="RNIC", driver="hfi1"
    )
    assert "virtual function" in reasons(assign([everything]))["x0"]
    assert "SW_MNG" in reasons(assign([everything._replace(virtual_function=False)]))["x0"]


def test_the_vpd_decides_only_where_the_pattern_holds() -> None:
    """A function that looks like an NVSwitch management function is one unless its VPD says no."""
    verdicts = {True: [], None: [], False: ["ib0"]}
    for management, chosen in verdicts.items():
        device = ib("ib0", 1, nvswitch_pattern=True, nvswitch_management=management)
        assert backend(assign([device])) == chosen
    assert backend(assign([ib("ib0", 1, nvswitch_management=None)])) == ["ib0"]


@pytest.mark.parametrize("parent", [ib("ibp0", 1), CX8, plain(ib("ibp0", 1), has_smi=None)])
def test_an_smi_sub_device_is_dropped(parent: RdmaDevice) -> None:
    """By its name or by its SMI, whatever has_smi of the parent is; the parent counts."""
    roles = assign([parent, smi("smi0", parent)])
    assert (backend(roles), reasons(roles)) == (["ibp0"], {"smi0": "SMI sub-device of ibp0"})


def test_an_smi_device_under_another_name() -> None:
    """Renamed by udev, it is known by a parent without SMI, of its function and port GUID."""
    assert backend(assign([CX8, smi("rdma1", CX8)])) == ["ibp0"]
    assert backend(assign([CX8, smi("rdma1", CX8)._replace(pci="0000:02:00.0")])) == [
        "rdma1"
    ]  # Socket Direct
    assert backend(assign([CX8, plain(smi("rdma1", CX8), port_guid="f" * 16)])) == ["ibp0", "rdma1"]
    nameless = plain(CX8, port_guid=None)
    assert backend(assign([nameless, smi("smi0", nameless)])) == ["ibp0", "smi0"]


def test_an_smi_device_alone_counts() -> None:
    """A name is not enough: without a parent, or a known PCI function, nothing is dropped."""
    assert backend(assign([ib("smi0", 1)])) == ["smi0"]
    assert backend(assign([smi("smi0", CX8), smi("smi1", CX8)])) == ["smi0", "smi1"]
    assert backend(assign([CX8._replace(pci=None), smi("smi0", CX8)._replace(pci=None)])) == [
        "ibp0",
        "smi0",
    ]


def test_a_sub_device_that_cannot_be_read_fails_no_parent() -> None:
    """It has the function of the parent, which is none of it: by its name, or without SMI."""
    for parent in (ib("ibp0", 1), CX8):
        unread = smi("smi0", parent)._replace(failure="blocks", ports=())
        assert [one.name for one in with_hidden([parent, unread]) if one.failure] == ["smi0"]
    unread = RdmaDevice("mlx5_8", failure="blocks", pci="0000:01:00.0", sub_function=True)
    assert not with_hidden([eth("mlx5_0", 1), unread])[0].failure


def test_socket_direct_is_one_cable() -> None:
    """The second PCI function has no SMI and the same system image GUID."""
    roles = assign([FIRST, SECOND])
    assert backend(roles) == ["sd0"]
    assert "Socket-Direct card of sd0 (0000:01:00.0)" in reasons(roles)["sd1"]
    assert sum(role.counted_gbps or 0 for role in roles) == 400


NO_TWINS = {
    "both have an SMI: a dual-port card": [FIRST, plain(SECOND, has_smi=True)],
    "neither has one: two VFs in a guest": [plain(FIRST, has_smi=False), SECOND],
    "an old kernel does not say": [FIRST, plain(SECOND, has_smi=None)],
    "zero GUIDs are no group": [
        FIRST._replace(sys_image_guid=None),
        SECOND._replace(sys_image_guid=None),
    ],
    "other GUIDs are other cards": [FIRST, SECOND._replace(sys_image_guid="2" * 16)],
    "no second function": [FIRST, SECOND._replace(pci=FIRST.pci)],
    "functions not known": [FIRST._replace(pci=None), SECOND._replace(pci=None)],
}


@pytest.mark.parametrize("devices", NO_TWINS.values(), ids=NO_TWINS)
def test_no_socket_direct(devices: list[RdmaDevice]) -> None:
    assert backend(assign(devices)) == ["sd0", "sd1"]


def twin(
    name: str, pci: str, guid: str | None = "5" * 16, port_name: str = "p0", **facts: Any
) -> RdmaDevice:
    """A mlx5 function on Ethernet with this sys_image_guid and phys_port_name."""
    uplink = port(netdev=netdev(f"{name}n{port_name}", phys_port_name=port_name))
    return eth(name, 1, uplink, pci=pci, sys_image_guid=guid, **facts)


# As DGX Spark shows its two cages: each by two functions in two PCI domains.
SPARK = [
    twin("rocep1s0f0", "0000:01:00.0"),
    twin("rocep1s0f1", "0000:01:00.1", port_name="p1"),
    twin("roceP2p1s0f0", "0002:01:00.0"),
    twin("roceP2p1s0f1", "0002:01:00.1", port_name="p1"),
]


def test_socket_direct_on_ethernet_is_one_cable_for_each_function_number() -> None:
    """The function at the lower address counts, in whatever order they are."""
    for devices in (SPARK, SPARK[::-1]):
        roles = assign(devices)
        assert sorted(backend(roles)) == ["rocep1s0f0", "rocep1s0f1"]
        assert "Socket-Direct card of rocep1s0f0 (0000:01:00.0)" in reasons(roles)["roceP2p1s0f0"]


@pytest.mark.parametrize(
    ("unread", "failed"), [(1, {"rocep1s0f1", "roceP2p1s0f1"}), (3, {"roceP2p1s0f1"})]
)
def test_the_first_function_of_a_cage_is_judged_without_the_second(
    unread: int, failed: set[str]
) -> None:
    """It counts whatever the second one is; the second one waits for the first."""
    devices = list(SPARK)
    devices[unread] = devices[unread]._replace(failure="board_id cannot be read", ports=())
    assert {one.name for one in with_hidden(devices) if one.failure} == failed


def test_an_old_guest_does_not_tell_socket_direct() -> None:
    """Both ports of a card are p0 there; so nothing is dropped, and a hint says so."""
    pair = [SPARK[0], SPARK[2]]
    decision = decide(pair, ambiguous={"Ethernet"})
    assert backend(decision.roles) == ["rocep1s0f0", "roceP2p1s0f0"]
    (hint,) = [one for one in decision.hints if "5.16" in one.text]
    assert set(hint.interfaces) == {"rocep1s0f0", "roceP2p1s0f0"}
    assert backend(decide(pair).roles) == ["rocep1s0f0"]


def test_two_ports_of_a_socket_direct_card_manage_no_switches() -> None:
    """Four functions of one image, each port by two of them; three ports of one image do."""
    card = [
        ib(f"m{bus}{n}", bus, PORT._replace(has_smi=bus == 1), pci=f"0000:0{bus}:00.{n}",
           sys_image_guid="7" * 16)
        for bus in (1, 2) for n in (0, 1)
    ]  # fmt: skip
    assert nvswitch_pattern(card) == frozenset()
    assert backend(assign(card)) == ["m10", "m11"]
    board = [device._replace(ports=(PORT,)) for device in card]
    assert nvswitch_pattern(board) == {device.name for device in board}


def test_socket_direct_without_has_smi() -> None:
    """One cable, by image and function number; in a guest it may be two ports of a card."""
    image = {"sys_image_guid": "7" * 16}
    bare = PORT._replace(has_smi=None)
    first, second = (ib(f"ibp{bus}", bus, bare, **image) for bus in (1, 2))
    other = ib("ibp9", 2, bare, pci="0000:02:00.1", **image)
    assert backend(assign([first, second])) == ["ibp1"]
    assert backend(assign([first, other])) == ["ibp1", "ibp9"]
    decision = decide([first, second], ambiguous={"InfiniBand"})
    assert backend(decision.roles) == ["ibp1", "ibp2"]
    assert {"ibp1", "ibp2"} in [set(hint.interfaces) for hint in decision.hints]


def test_the_partner_of_a_socket_direct_function_has_its_number() -> None:
    """The other port of the card has its own two functions; one of this port is off the bus."""
    card = [
        ib(f"m{bus}{n}", bus, PORT._replace(has_smi=bus == 1), pci=f"0000:0{bus}:00.{n}",
           sys_image_guid="7" * 16)
        for bus, n in ((1, 1), (2, 0), (2, 1))
    ]  # fmt: skip
    assert backend(assign(card)) == ["m11", "m20"]


NO_ETHERNET_TWINS = {
    "two ports of one card": SPARK[:2],
    "other GUIDs": [SPARK[0], twin("b", "0002:01:00.0", "6" * 16)],
    "zero GUIDs": [twin(f"a{bus}", f"000{bus}:01:00.0", None) for bus in (1, 2)],
    "three are no pair": [twin(f"a{bus}", f"000{bus}:01:00.0") for bus in (1, 2, 3)],
    "another driver": [twin(f"a{bus}", f"000{bus}:01:00.0", driver="irdma") for bus in (1, 2)],
    "VFs of one card in a guest": [
        twin(f"a{bus}", f"0000:0{bus}:00.0", pci_ids="15b3:101e") for bus in (1, 2)
    ],
    "two ports of one card, each assigned to a slot of a guest": [
        twin(f"a{bus}", f"0000:0{bus}:00.0", port_name=f"p{bus}") for bus in (0, 1)
    ],
}


@pytest.mark.parametrize("devices", NO_ETHERNET_TWINS.values(), ids=NO_ETHERNET_TWINS)
def test_no_socket_direct_on_ethernet(devices: list[RdmaDevice]) -> None:
    assert len(backend(assign(devices))) == len(devices)


def test_a_sub_function_is_dropped_beside_the_device_of_its_function() -> None:
    """Alone, as in a container that was given one, it counts."""
    parent, sub = eth("mlx5_0", 1), eth("mlx5_8", 1, sub_function=True)
    roles = assign([parent, sub])
    assert backend(roles) == ["mlx5_0"]
    assert reasons(roles) == {"mlx5_8": "sub-function of mlx5_0, which counts"}
    assert backend(assign([sub])) == ["mlx5_8"]


@pytest.mark.parametrize("driver", ["mana", "erdma"])
def test_the_virtual_nic_of_a_cloud_is_no_backend_if_it_is_routed(driver: str) -> None:
    """Beside GPUs, too: it is the cloud's front end."""
    routed = eth("m0", 1, port(netdev=netdev("eth0", default_route=True)), driver=driver)
    assert backend(assign([routed], bus=GPUS)) == []
    assert backend(assign([eth("m0", 1, driver=driver)], bus=GPUS)) == ["m0"]


def test_two_planes_cards_of_one_system_image_are_no_socket_direct() -> None:
    """The SMI of a sub-device does not make its parent's sibling a second function."""
    other = plain(CX8, port_guid="f" * 16)._replace(name="ibp1", pci="0000:02:00.0")
    assert backend(assign([CX8, other, smi("smi0", CX8), smi("smi1", other)])) == ["ibp0", "ibp1"]


def test_the_second_function_counts_when_the_first_could_not_be_read() -> None:
    """A sibling whose facts are unknown proves nothing."""
    assert backend(assign([FIRST._replace(failure="blocks", ports=()), SECOND], bus=HCA)) == ["sd1"]


ETH2 = frozenset({"eth2"})
HCA = Bus({"0000:01:00.0": Function("0000:01:00.0", 0x0207, "15b3:1021")})


def test_a_software_device_is_the_backend_of_a_node_that_has_no_other() -> None:
    """Rxe on a node without RDMA hardware and GPUs, as a laboratory has it."""
    rxe = eth("rxe0", 1, pci=None, driver=None, pci_ids=None)
    assert backend(assign([rxe])) == ["rxe0"]
    assert backend(assign([rxe], bus=GPUS)) == []
    assert backend(assign([rxe, RdmaDevice("mlx5_0", excluded=True, pci="0000:01:00.0")])) == []


def test_a_virtual_nic_of_a_cloud_with_the_default_route_is_none() -> None:
    """With all its ports: mana_ib has one a vNIC. One below hv_netvsc is one, whatever it is."""
    mana = eth("mana_0", 1, *(port(n, netdev=netdev(f"e{n}")) for n in (1, 2)), driver="mana")
    vf = eth("mlx5_0", 2, pci_ids="15b3:1016")
    for device, front in (
        (mana, FrontEnd(frozenset({"e1"}), frozenset({"e1"}))),
        (vf, FrontEnd(ETH2, ETH2, accelerated=ETH2)),
    ):
        for bus in (GPUS, Bus()):
            assert backend(assign([device], bus=bus, front_end=front)) == []
    other = FrontEnd(frozenset({"other"}), frozenset({"other"}))
    assert backend(assign([mana, vf], bus=GPUS, front_end=other)) == ["mana_0-1", "mana_0-2"]


REPRESENTORS = ["pf0vf0", "pf1vf127", "pf0sf88", "c1pf0vf3", "c2pf0sf1", "pf0hpf", "pf0", "c1pf0"]
UPLINKS = [
    *("p0", "p1", "p0s1", "l1p2", "pf", "pf0vf", "vf0", "pf0vf0x", "xpf0vf0", "c1p0", "0", None),
]


def switchdev(*names: str | None, **facts: Any) -> RdmaDevice:
    """A device with an uplink, and a port for each of these names of representors."""
    uplink = port(1, netdev=netdev("p0", phys_port_name="p0"))
    others = [
        port(number, netdev=netdev(f"r{number}", phys_port_name=name))
        for number, name in enumerate(names, 2)
    ]
    return eth("mlx5_0", 1, uplink, *others, **facts)


@pytest.mark.parametrize("name", REPRESENTORS)
def test_a_representor_is_no_data_port(name: str) -> None:
    """It adds nothing, and the uplink keeps the name of its device; so it does if that is named."""
    for globs in ([], ["mlx5_0"]):
        roles = assign([switchdev(name, "pf0vf1")], globs)
        assert (backend(roles), sum(role.counted_gbps or 0 for role in roles)) == (["mlx5_0"], 400)
        assert name in reasons(roles)["mlx5_0-2"]


@pytest.mark.parametrize("name", UPLINKS)
def test_a_port_of_another_name_is_a_data_port(name: str | None) -> None:
    """A physical port, a part of one, and what only resembles a representor's name."""
    assert backend(assign([switchdev(name)])) == ["mlx5_0-1", "mlx5_0-2"]


def test_a_representor_of_its_own_device_does_not_count() -> None:
    """Old drivers show each representor as an RDMA device; three do not outvote the NICs."""
    uplinks = {bus: netdev(f"r{bus}", phys_port_name=f"pf0vf{bus}") for bus in (3, 4, 5)}
    others = [eth(f"rep{bus}", bus, port(netdev=one), board_id="x") for bus, one in uplinks.items()]
    assert backend(assign([eth("a", 1), eth("b", 2), *others])) == ["a", "b"]


def test_a_representor_does_not_make_its_siblings_planes() -> None:
    """An uplink whose netdev is lent has none; its representors' do not make it a dataless port."""
    lent = switchdev("pf0vf0")
    lent = lent._replace(ports=(lent.ports[0]._replace(netdev=None), lent.ports[1]))
    assert backend(assign([lent])) == ["mlx5_0"]


def test_a_plane_without_netdev_is_no_data_port() -> None:
    """If a sibling has a netdev; a device whose netdevs are all lent keeps its ports."""
    planes = [
        port(number, netdev=netdev(f"eth{number}") if number % 3 == 0 else None)
        for number in range(1, 13)
    ]
    roles = assign([eth("mlx5_0", 1, *planes)])
    assert backend(roles) == ["mlx5_0-3", "mlx5_0-6", "mlx5_0-9", "mlx5_0-12"]
    assert reasons(roles)["mlx5_0-1"].startswith("no netdev")
    lent = assign([eth("mlx5_0", 1, port(1, netdev=None), port(2, netdev=None))])
    assert backend(lent) == ["mlx5_0-1", "mlx5_0-2"]
    assert backend(assign([ib("ib0", 1, PORT._replace(netdev=UP), PORT._replace(number=2))])) == [
        "ib0-1",
        "ib0-2",
    ]
