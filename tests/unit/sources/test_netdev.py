"""The netdev of each port, its bond and its default route."""

from __future__ import annotations

from errno import EINVAL, EIO, EOPNOTSUPP

import pytest

from agent.model import Netdev, RdmaPort, Seen
from agent.sources import rdma
from agent.sources.observe import Memories
from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    NET,
    Entries,
    Kernel,
    hca,
    host,
    netdev,
    routes,
)
from tests.support.sources import read_rdma

A, B = "0000:18:00.0", "0000:19:00.0"
SECOND = "0000:18:00.1"  # of the card of A


def ports(root: Kernel, device: str = "x0") -> dict[int, RdmaPort]:
    outcome = read_rdma(host(root)).outcome
    assert isinstance(outcome, Seen)
    (found,) = [one for one in outcome.value if one.name == device]
    return {port.number: port for port in found.ports}


def netdev_of(*parts: Entries, layer: str = "Ethernet") -> Netdev:
    """The netdev of a device with one port, over these trees."""
    found = ports(Kernel(hca("x0", A, layer), *parts))[1].netdev
    assert found
    return found


def chosen(root: Kernel) -> dict[int, str | None]:
    return {
        number: port.netdev.name if port.netdev else None for number, port in ports(root).items()
    }


def net(*names: str, **attributes: str) -> Entries:
    parts = [
        netdev(name, A, dev_port=str(number), **attributes) for number, name in enumerate(names)
    ]
    return {path: entry for part in parts for path, entry in part.items()}


def without(entries: Entries, name: str) -> Entries:
    return {path: entry for path, entry in entries.items() if not path.endswith(f"/{name}")}


IDS = net("e0", dev_id="0x0") | net("e1", dev_id="0x1")
CHOICES: dict[str, tuple[list[Entries], dict[int, str | None]]] = {
    "one port, one netdev": ([hca("x0", A, "Ethernet"), net("e0")], {1: "e0"}),
    "even of another dev_port": (
        [hca("x0", A, "Ethernet"), netdev("e0", A, dev_port="5")],
        {1: "e0"},
    ),
    "InfiniBand's is the one of IPoIB": ([hca("x0", A), net("ib0")], {1: "ib0"}),
    "none": ([hca("x0", A, "Ethernet")], {1: None}),
    "by GID": ([hca("x0", A, "Ethernet", {1: "e1", 2: "e0"}), net("e0", "e1")], {1: "e1", 2: "e0"}),
    "by dev_port": (
        [hca("x0", A, "Ethernet", {1: None, 2: None}), net("e0", "e1")],
        {1: "e0", 2: "e1"},
    ),
    "by dev_id": (
        [hca("x0", A, "Ethernet", {1: None, 2: None}), without(IDS, "dev_port")],
        {1: "e0", 2: "e1"},
    ),
    "one by GID, the other by what is left": (
        [hca("x0", A, "Ethernet", {1: None, 2: "e1"}), net("e0", "e1")],
        {1: "e0", 2: "e1"},
    ),
    "first of two with one dev_port": ([hca("x0", A, "Ethernet"), net("e0"), net("e9")], {1: "e0"}),
    "two InfiniBand ports by dev_port": (
        [hca("x0", A, ports={1: None, 2: None}), net("ib0", "ib1")],
        {1: "ib0", 2: "ib1"},
    ),
    "the GID beats dev_port": (
        [hca("x0", A, "Ethernet", {1: "e9"}), net("e9"), net("e0")],
        {1: "e9"},
    ),
    "another namespace holds it": (
        [hca("x0", A, "Ethernet", {1: None, 2: None}), net("e0")],
        {1: "e0", 2: None},
    ),
    "planes": (
        [hca("x0", A, "Ethernet", {1: None, 2: None, 3: "e0", 4: None, 6: "e1"}), net("e0", "e1")],
        {1: None, 2: None, 3: "e0", 4: None, 6: "e1"},
    ),
    "soft-RoCE on a netdev of no function": (
        [hca("x0", "virtual", "Ethernet", {1: "v0"})],
        {1: "v0"},
    ),
    "which names its parent": (
        [hca("x0", "virtual", "Ethernet"), {f"{HOME}/virtual/infiniband/x0/parent": b"v0\n"}],
        {1: "v0"},
    ),
    "a name that is no name": ([hca("x0", A, "Ethernet", {1: "../../etc"})], {1: None}),
}


@pytest.mark.parametrize(("parts", "names"), CHOICES.values(), ids=CHOICES)
def test_the_netdev_of_a_port(parts: list[Entries], names: dict[int, str | None]) -> None:
    """The GID table names it; else `dev_port`, else `dev_id` matches the function's netdevs."""
    assert chosen(Kernel(*parts)) == names


def test_facts_of_a_netdev() -> None:
    """A speed of -1, 0 or EINVAL is None."""
    known = netdev_of(net("e0", speed="100000", operstate="dormant"))
    assert (known.speed_mbps, known.operstate, known.bond_state) == (100_000, "dormant", None)
    assert known.carrier_changes is None
    assert netdev_of(net("e0", carrier_changes="4")).carrier_changes == 4
    for speed in ("-1", "0", "4294967295"):
        assert netdev_of(net("e0", speed=speed)).speed_mbps is None
    root = Kernel(hca("x0", A, "Ethernet"), net("e0"), errors={f"{NET}/e0/speed": EINVAL})
    assert read_rdma(host(root)).problems == ()


@pytest.mark.parametrize(("number", "reported"), [(EINVAL, 0), (EOPNOTSUPP, 0), (EIO, 1)])
def test_most_netdevs_have_no_physical_port_name(number: int, reported: int) -> None:
    """EOPNOTSUPP for most drivers, EINVAL for a netdev that is being removed; an uplink has one."""
    uplink = net("e0", phys_port_name="p0")
    assert netdev_of(uplink).phys_port_name == "p0"
    errors = {f"{NET}/e0/phys_port_name": number}
    reading = read_rdma(host(Kernel(hca("x0", A, "Ethernet"), uplink, errors=errors)))
    assert len(reading.problems) == reported


def test_an_uplink_is_matched_before_its_representors() -> None:
    """All have its port number, and their names may come before its own."""
    uplink = netdev("e9", A, phys_port_name="p0")
    representors = [netdev(f"e{n}", A, phys_port_name=f"pf0vf{n}") for n in (1, 2)]
    root = Kernel(hca("x0", A, "Ethernet", {1: None, 2: None}), uplink, *representors)
    assert chosen(root) == {1: "e9", 2: None}


def test_an_ipoib_netdev_is_no_nic() -> None:
    """Its speed is not the port's; without a default route, two files of it are read."""
    root = Kernel(hca("x0", A), netdev("ib0", A, flags="0x1003"), routes("eno1"))
    found = ports(root)[1].netdev
    assert found == Netdev("ib0", None, "up", None, default_route=False, is_up=True)
    assert {*root.asked_below(f"{NET}/ib0")} == {
        f"{NET}/ib0/{file}" for file in ("flags", "operstate")
    }
    down = Kernel(hca("x0", A), netdev("ib0", A, flags="0x1002"))
    assert not ports(down)[1].netdev.is_up  # type: ignore[union-attr]
    two = Kernel(hca("x0", A, ports={1: None, 2: None}), net("ib0", "ib1"))
    assert chosen(two) == {1: "ib0", 2: "ib1"}
    assert not [path for path in two.asked if "ndevs" in path]


def bond(*legs: str, name: str = "bond0", **attributes: str) -> Entries:
    link = {f"{NET}/{name}": f"../../devices/virtual/net/{name}"}
    home = f"sys/devices/virtual/net/{name}"
    texts = {"operstate": "up", "bonding/slaves": " ".join(legs), **attributes}
    return link | {f"{home}/{key}": f"{text}\n".encode() for key, text in texts.items()}


def leg(
    name: str, bdf: str, state: str, mii: str = "up", master: str = "bond0", **attributes: str
) -> Entries:
    facts = {
        "bonding_slave/state": state,
        "bonding_slave/mii_status": mii,
        "master": f"../../../../virtual/net/{master}",
    }
    return netdev(name, bdf, **facts, **attributes)


LEGS = [leg("e0", A, "active"), leg("e1", SECOND, "active")]
BONDED = {
    "by its GIDs, the bond": ({1: "bond0"}, [*LEGS, bond("e0", "e1")], "e0"),
    "by its function, the leg": ({1: None}, [*LEGS, bond("e0", "e1")], "e0"),
    "two functions' netdevs": ({1: "bond0"}, [*LEGS, bond("e0", "e1"), net("other")], "e0"),
}


@pytest.mark.parametrize(("gids", "parts", "name"), BONDED.values(), ids=BONDED)
def test_a_bond_is_read_as_its_legs(
    gids: dict[int, str | None], parts: list[Entries], name: str
) -> None:
    """All members are found from the bond, and from the member that the function has."""
    found = ports(Kernel(hca("x0", A, "Ethernet", gids), *parts))[1]
    assert found.netdev
    assert found.netdev.name == name
    assert [one.name for one in found.legs] == ["e0", "e1"]
    assert {one.speed_mbps for one in found.legs} == {400_000}


LEG_STATES = [
    ("active", "up", "up", "active"),
    ("backup", "up", "up", "backup"),
    ("active", "down", "up", "backup"),
    ("active", "up", "down", "backup"),
    ("active", "up", "unknown", "active"),
]


@pytest.mark.parametrize(("state", "mii", "operstate", "counts"), LEG_STATES)
def test_a_leg_without_a_link_is_on_standby(
    state: str, mii: str, operstate: str, counts: str
) -> None:
    """A bond may report a member without a link as active; it does not count."""
    part = leg("e0", A, state, mii, operstate=operstate)
    parts = part, leg("e1", SECOND, "active"), bond("e0", "e1")
    assert ports(Kernel(hca("x0", A, "Ethernet"), *parts))[1].legs[0].bond_state == counts


def test_a_netdev_has_its_mac_addresses() -> None:
    """A bond member has the bond's and its permanent one; an unknown or repeated one adds none."""
    shared, own = "a0:88:c2:00:00:01", "A0:88:C2:00:00:02"
    first = leg("e0", A, "active", address=shared, **{"bonding_slave/perm_hwaddr": shared})
    second = leg("e1", SECOND, "active", address=shared, **{"bonding_slave/perm_hwaddr": own})
    found = ports(Kernel(hca("x0", A, "Ethernet"), first, second, bond("e0", "e1")))[1].legs
    assert [one.addresses for one in found] == [(shared,), (shared, own.lower())]
    for attributes in ({}, {"address": "none"}):
        assert netdev_of(net("e0", **attributes)).addresses == ()
    assert netdev_of(net("ib0", address=shared), layer="InfiniBand").addresses == ()


def test_a_bond_over_two_devices_gives_none_of_them_legs() -> None:
    """A member whose function has another RDMA device is of that one, even if it is unread."""
    devices = [hca("x0", A, "Ethernet"), hca("x1", SECOND, "Ethernet")]
    root = Kernel(*devices, *LEGS, bond("e0", "e1"), errors={f"{CLASS}/x1/ports": EIO})
    assert ports(root)[1].legs == ()


GUEST: Entries = {"proc/cpuinfo": b"flags : fpu hypervisor\n"}


def model(bdf: str, device: bytes = b"0x1021\n") -> Entries:
    """The PCI ids of a function; as a rule those of the other devices here."""
    return {f"{HOME}/{bdf}/vendor": b"0x15b3\n", f"{HOME}/{bdf}/device": device}


def on_bus(bdf: str) -> Entries:
    return {f"{BUS}/{bdf}": f"../../../devices/pci0000:00/{bdf}"}


@pytest.mark.parametrize("gids", [{1: None}, {1: "e0"}, {1: "bond0"}], ids=str)
@pytest.mark.parametrize("is_there", [True, False])
def test_the_netdev_of_another_card_is_no_leg(gids: dict[int, str | None], is_there: bool) -> None:
    """Nothing of it passes the port, whether it lost its RDMA device, never had one, or is gone."""
    members = [leg("e0", A, "active"), *([leg("e1", B, "active")] if is_there else [])]
    names = ["e0", "e1"] if is_there else ["e0"]
    found = ports(Kernel(hca("x0", A, "Ethernet", gids), *members, bond(*names)))[1]
    assert found.netdev
    assert (found.netdev.name, found.legs) == ("e0", ())


@pytest.mark.parametrize(("function", "is_leg"), [(SECOND, True), (B, False)])
def test_an_excluded_bond_excludes_its_legs(function: str, *, is_leg: bool) -> None:
    """The NIC of another card in the bond stays, although its RDMA device is gone."""
    members = [leg("e0", A, "active"), leg("e1", function, "active")]
    root, memories = Kernel(hca("x0", A, "Ethernet"), *members, bond("e0", "e1")), Memories()
    rdma.read(host(root, excluded=("x0",)), (), memories)
    assert memories.excluded == {A, *([function] if is_leg else [])}


def test_a_guest_has_the_functions_of_a_card_in_different_slots() -> None:
    """Those of the same model are legs there, and of no other model."""
    parts = [hca("x0", A, "Ethernet"), leg("e0", A, "active"), leg("e1", B, "active")]
    parts += [bond("e0", "e1"), GUEST, on_bus(B)]
    assert len(ports(Kernel(*parts, model(B)))[1].legs) == 2
    assert ports(Kernel(*parts))[1].legs == ()


def test_a_lone_member_is_a_leg_where_the_card_was_joined() -> None:
    """The second function has no RDMA device: its netdev was lent to a pod, say."""
    parts = [hca("x0", A, "Ethernet"), leg("e0", A, "active"), bond("e0")]
    engine = on_bus(SECOND) | model(SECOND, b"0xc2d5\n")  # of a BlueField
    assert ports(Kernel(*parts, engine))[1].legs == ()
    second = netdev("e1", SECOND) | on_bus(SECOND) | model(SECOND)
    assert [one.name for one in ports(Kernel(*parts, second))[1].legs] == ["e0"]
    own = hca("x1", SECOND, "Ethernet")
    assert ports(Kernel(*parts, second, own))[1].legs == ()


def test_a_netdev_lent_to_a_pod_is_not_found_under_its_name_here() -> None:
    """The GIDs name the one in the Pod; here another netdev has this name."""
    root = Kernel(hca("x0", A, "Ethernet", {1: "eth0"}), netdev("eth0", B))
    assert ports(root)[1].netdev is None


def test_a_bridge_is_no_bond() -> None:
    """A master without `bonding/slaves` has no legs, and its member no bond state."""
    member = netdev("e0", A, master="../../../../virtual/net/br0") | {f"{NET}/br0": None}
    assert netdev_of(member).bond_state is None
    assert ports(Kernel(hca("x0", A, "Ethernet"), member))[1].legs == ()


def upper(below: Entries, name: str, target: str) -> Entries:
    """Put `name` on top of the netdev of `below`, as a VLAN is."""
    (home,) = {path.rpartition("/")[0] for path in below if path.endswith("/operstate")}
    lower = home.rpartition("/")[2]
    return below | {
        f"{home}/upper_{name}": f"../{target}",
        f"sys/devices/virtual/net/{name}/lower_{lower}": f"../{lower}",
        f"{NET}/{name}": f"../../devices/virtual/net/{name}",
    }


PLAIN = netdev("e0", A)
BRIDGED = upper(netdev("e0", A, master="../../../../virtual/net/br0"), "br0", "br0")
ROUTES: dict[str, tuple[list[Entries], bool]] = {
    "its own": ([PLAIN, routes("e0")], True),
    "one of several": ([PLAIN, routes("eno1", "e0")], True),
    "somebody else's": ([PLAIN, routes("eno1")], False),
    "nobody's": ([PLAIN], False),
    "the loopback's": ([PLAIN | {f"{NET}/e0/upper_lo": None}, routes("lo")], False),
    "a VLAN's on top of it": ([upper(PLAIN, "e0.5", "e0.5"), routes("e0.5")], True),
    "a VLAN's on top of another": (
        [PLAIN, upper(netdev("e1", B), "e1.5", "e1.5"), routes("e1.5")],
        False,
    ),
    "its bridge's": ([BRIDGED, routes("br0")], True),
    "its bond's": ([leg("e0", A, "active"), bond("e0"), routes("bond0")], True),
    "a VLAN's on its bond": (
        [leg("e0", A, "active"), upper(bond("e0"), "bond0.7", "bond0.7"), routes("bond0.7")],
        True,
    ),
    "a bridge's on a VLAN on its bond": (
        [
            leg("e0", A, "active"),
            upper(bond("e0"), "v7", "v7"),
            {
                "sys/devices/virtual/net/br7/lower_v7": "../v7",
                f"{NET}/br7": "../../devices/virtual/net/br7",
            },
            routes("br7"),
        ],
        True,
    ),
}


ZERO = "0" * 32
IPV6_ROUTE = f"{ZERO} 00 {ZERO} 00 {ZERO} 00000400 00000001 00000000 00450003 e0\n"
OVER_IPV6: Entries = {"proc/net/ipv6_route": IPV6_ROUTE.encode()}
NO_TEXT = IPV6_ROUTE.encode().replace(b"e0", b"\xff\xfe0")
OVER_IPV6_BESIDE: Entries = {"proc/net/ipv6_route": NO_TEXT + IPV6_ROUTE.encode()}
ROUTES |= {
    "over IPv6": ([PLAIN, OVER_IPV6], True),
    "over IPv6, beside one over IPv4": ([PLAIN, routes("eno1"), OVER_IPV6], False),
    "beside a name that is no text": ([PLAIN, OVER_IPV6_BESIDE], True),
    "in a table longer than a page": ([PLAIN, routes(*["eno1"] * 200, "e0")], True),
}


@pytest.mark.parametrize(("parts", "carries"), ROUTES.values(), ids=ROUTES)
def test_the_netdevs_of_a_default_route(parts: list[Entries], carries: bool) -> None:
    """The netdev does, or a bond, bridge or VLAN on top of it, at any depth."""
    assert netdev_of(*parts).default_route is carries


def test_a_cycle_of_upper_netdevs_ends() -> None:
    """No kernel makes a cycle of upper devices, but a copied tree may have one."""
    parts = upper(netdev("e0", A), "v1", "v1")
    parts |= {"sys/devices/virtual/net/v1/lower_v1": "../v1"}
    found = ports(Kernel(hca("x0", A, "Ethernet"), parts, routes("v1")))[1].netdev
    assert found
    assert found.default_route


@pytest.mark.parametrize("target", ["../\x1b[2J", "../\udcff", "..", "../a\nb", "../" + "m" * 16])
def test_the_target_of_master_is_a_netdev_name(target: str) -> None:
    """One that is no such name is reported, and is no part of a path."""
    link: Entries = {f"{HOME}/{A}/net/e0/master": target}
    root = Kernel(hca("x0", A, "Ethernet"), net("e0"), link)
    problems = read_rdma(host(root)).problems
    assert problems
    assert all(problem.subject.isprintable() and problem.text.isprintable() for problem in problems)
    assert all(path.isprintable() and ".." not in path for path in root.asked)
