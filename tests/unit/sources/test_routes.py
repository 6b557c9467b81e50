"""The best default route, the uplink of Open vSwitch, and the namespace of the routing tables."""

from __future__ import annotations

from errno import EINVAL, EIO, ENODEV, ETIMEDOUT

import pytest

from agent.encode import Naming
from agent.labels.render import render
from agent.memory import known_of
from agent.model import Failed, Observation, Seen
from agent.reasons import HoldReason
from agent.sources.observe import observe
from tests.support.kernel_tree import BUS, CLASS, HOME, NET, Entries, Kernel, hca, host, netdev
from tests.support.remembering import completed

A, B, C = "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0"
ZERO = "0" * 32
P = "backend.coreweave.cloud"
BEFORE = {
    f"{P}/flavor": "roce",
    f"{P}/speed.current": "800G",
    f"{P}/neighbors.current.mlx5_0.device": "leaf",
}
IPV4, IPV6, OWN = "proc/net/route", "proc/net/ipv6_route", "proc/net/dev"


def nic(number: int, bdf: str, **attributes: str) -> Entries:
    """An Ethernet device `mlx5_{number}` with the netdev `e{number}`."""
    name = f"e{number}"
    return hca(f"mlx5_{number}", bdf, "Ethernet", {1: name}) | netdev(name, bdf, **attributes)


NICS = nic(0, A) | nic(1, B) | nic(2, C)


def ipv4(**metrics: int) -> Entries:
    """The IPv4 table with a default route through each of these, of this metric."""
    rows = [
        f"{name}\t00000000\t0101A8C0\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0\n"
        for name, metric in metrics.items()
    ]
    return {IPV4: "".join(["Iface\tDestination\n", *rows]).encode()}


def ipv6(**metrics: int) -> Entries:
    rows = [
        f"{ZERO} 00 {ZERO} 00 {ZERO} {metric:08x} 00000001 00000000 00450003 {name}\n"
        for name, metric in metrics.items()
    ]
    return {IPV6: "".join(rows).encode()}


def own(*netdevs: str) -> Entries:
    head = "Inter-|   Receive\n face |bytes\n"
    return {OWN: (head + "".join(f"{name:>6}:       0       0\n" for name in netdevs)).encode()}


def front(*parts: Entries) -> list[str]:
    ports = observe(host(Kernel(*parts))).ports
    return [role.device.name for role in ports if role.reason.startswith("front end")]


BEST = {
    "one route": ([ipv4(e0=100)], ["mlx5_0"]),
    "the lower metric": ([ipv4(e1=200, e0=100, e2=101)], ["mlx5_0"]),
    "all of the lowest": ([ipv4(e0=100, e1=100, e2=600)], ["mlx5_0", "mlx5_1"]),
    "a metric beyond 31 bits": ([ipv4(e1=4278198272, e0=4278198271)], ["mlx5_0"]),
    "a router advertisement on a rail": ([ipv4(e0=100), ipv6(e1=1024)], ["mlx5_0"]),
    "IPv6 alone": ([ipv4(), ipv6(e1=1024)], ["mlx5_1"]),
    "IPv6 without an IPv4 table": ([ipv6(e1=1024)], ["mlx5_1"]),
    "the lower metric of IPv6": ([ipv6(e1=1024, e0=512)], ["mlx5_0"]),
    "a loopback is none": ([ipv4(lo=0), ipv6(e1=1024)], ["mlx5_1"]),
    "none": ([], []),
}


@pytest.mark.parametrize(("tables", "devices"), BEST.values(), ids=BEST)
def test_the_best_default_route_marks_the_front_end(
    tables: list[Entries], devices: list[str]
) -> None:
    """The lowest IPv4 metric; IPv6 only where no IPv4 default route exists."""
    assert front(NICS, *tables) == devices


def test_a_long_table_has_its_default_routes_first() -> None:
    """Ten thousand routes of Pods, more than is read, do not hide the front end."""
    rest = b"e1\t%08X\t0101A8C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0".ljust(127) + b"\n"
    table = ipv4(e0=100)[IPV4]
    assert isinstance(table, bytes)
    long = table + b"".join(rest % number for number in range(1, 10_000))
    assert len(long) > 1 << 20
    assert front(NICS, {IPV4: long}) == ["mlx5_0"]


UNREAD: list[tuple[Entries, dict[str, int]]] = [
    (ipv4(e0=100), {IPV4: EIO}),
    (ipv4(e0=100), {IPV6: ENODEV, IPV4: EIO}),
    (ipv6(e0=100), {IPV6: EIO}),
    ({IPV4: b"Iface\ne0\t00000000\t0\t0003\t0\t0\tmany\t00000000\t0\t0\t0\n"}, {}),
    ({IPV4: b"Iface\n../x\t00000000\t0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"}, {}),
    (ipv4(e0=100) | own("e0", "e1", "e2"), {OWN: EIO}),
]


@pytest.mark.parametrize(("tables", "errors"), UNREAD)
def test_an_unread_table_is_not_a_table_without_routes(
    tables: Entries, errors: dict[str, int]
) -> None:
    """The front end is not known then, and what was published is held."""
    assert_unknown(observe(host(Kernel(NICS, tables, errors=errors))))


def assert_unknown(seen: Observation) -> None:
    """Nothing is published anew, and published labels stay, with the reason."""
    assert isinstance(seen.rdma, Failed)
    assert seen.rdma.reason.startswith("front-end-unknown: ")
    assert any(problem.text == seen.rdma.reason for problem in seen.problems)
    assert render(known_of(seen), Naming()).labels == {}
    held = render(completed(seen, BEFORE)[1], Naming()).over(BEFORE)
    assert held.labels == BEFORE | {f"{P}/leaves.current": "leaf"}
    assert set(held.held.values()) == {HoldReason.FRONT_END_UNKNOWN}


GPU: Entries = {
    f"{HOME}/0000:f0:00.0/class": b"0x030200\n",
    f"{BUS}/0000:f0:00.0": "../../../devices/pci0000:00/0000:f0:00.0",
}


def bridge(*members: Entries, address: str = "0c:42:a1:00:00:00") -> Entries:
    """Open vSwitch with these members, and its internal port br-ex."""
    entries = netdev("ovs-system", address="ce:4b:3f:11:5e:09", operstate="down")
    entries |= netdev("br-ex", address=address)
    for member in members:
        (home,) = (path.rpartition("/")[0] for path in member if path.endswith("/operstate"))
        name = home.rpartition("/")[2]
        entries |= member | {f"{home}/master": "../../../virtual/net/ovs-system"}
        entries |= {f"{HOME}/virtual/net/ovs-system/lower_{name}": f"../{name}"}
    return entries


def member(number: int, bdf: str, address: str) -> Entries:
    return netdev(f"e{number}", bdf, address=address)


UPLINK = member(0, A, "0c:42:a1:00:00:00")
POD = netdev("0f3ac2d1b7e94a3", address="0a:58:0a:81:00:05")
RAIL = member(1, B, "0c:42:a1:00:00:01")


def test_the_uplink_of_open_vswitch_is_the_front_end() -> None:
    """With GPUs the member with the MAC address of the internal port, else every NIC among them."""
    parts = (NICS, bridge(UPLINK, POD, RAIL), ipv4(**{"br-ex": 48}, e2=100))
    assert front(*parts, GPU) == ["mlx5_0"]
    (hint,) = [one.text for one in observe(host(Kernel(*parts, GPU))).hints if "br-ex" in one.text]
    assert "e1: members of Open vSwitch beside the default route's br-ex" in hint
    assert front(*parts) == ["mlx5_0", "mlx5_1"]


def test_a_bond_is_an_uplink() -> None:
    """Both of its legs are below it."""
    bond = netdev("bond0", address="0c:42:a1:00:00:00") | {
        f"{HOME}/virtual/net/bond0/bonding/slaves": b"e0\n"
    }
    leg: Entries = {f"{HOME}/{A}/net/e0/master": "../../../virtual/net/bond0"}
    assert front(NICS, bridge(bond, POD), leg, ipv4(**{"br-ex": 48})) == ["mlx5_0"]


UPLINKS = {
    "none with its address": (bridge(POD, RAIL), ["mlx5_1"]),
    "no address": (bridge(UPLINK, address="none"), ["mlx5_0"]),
    "several": (bridge(UPLINK, member(1, B, "0c:42:a1:00:00:00")), ["mlx5_0", "mlx5_1"]),
}


@pytest.mark.parametrize(("entries", "devices"), UPLINKS.values(), ids=UPLINKS)
def test_without_one_uplink_all_members_are_the_front_end(
    entries: Entries, devices: list[str]
) -> None:
    assert front(NICS, entries, ipv4(**{"br-ex": 48})) == devices


def test_a_bridge_without_nics_leaves_the_front_end_unknown() -> None:
    """InfiniBand nodes need none."""
    parts = (NICS, bridge(POD), ipv4(**{"br-ex": 48}))
    assert_unknown(observe(host(Kernel(*parts))))
    assert isinstance(observe(host(Kernel(*parts, hca("ibp0", "0000:1b:00.0")))).rdma, Seen)


@pytest.mark.parametrize("path", ["ovs-system", "br-ex", "br-ex/address", "e0/address"])
def test_an_unread_bridge_is_not_a_bridge_without_uplink(path: str) -> None:
    """EIO hides it; a netdev that is being removed while it is read is only no uplink."""
    place = f"{NET}/{path}"
    parts = (NICS, bridge(UPLINK, POD), ipv4(**{"br-ex": 48}), GPU)
    assert_unknown(observe(host(Kernel(*parts, errors={place: EIO}))))
    if path.endswith("address"):
        seen = observe(host(Kernel(*parts, errors={place: EINVAL})))
        assert isinstance(seen.rdma, Seen)


def test_a_route_on_a_netdev_beside_open_vswitch_needs_no_uplink() -> None:
    """A NIC, a VLAN on one, a Linux bridge: each has hardware or lower netdevs."""
    vlan: Entries = {f"{NET}/v5/lower_e1": "../e1", f"{HOME}/{B}/net/e1/upper_v5": "../v5"}
    device: Entries = {f"{HOME}/{B}/net/e1/device": f"../../../{B}"}
    for part, name in ((vlan, "v5"), (device, "e1")):
        parts = (NICS, bridge(UPLINK, POD), part, ipv4(**{name: 48}))
        assert front(*parts) == ["mlx5_1"]
        assert name not in [one.subject for one in observe(host(Kernel(*parts))).problems]


POD_ROUTE = ipv4(eth0=0)
FOREIGN = {
    "another namespace's": [own("lo", "eth0"), POD_ROUTE],
    "even without a route": [own("lo", "eth0")],
    "one NIC of the same name": [own("lo", "e0"), ipv4(e0=0)],
}


@pytest.mark.parametrize("parts", FOREIGN.values(), ids=FOREIGN)
def test_the_routes_of_another_namespace_say_nothing(parts: list[Entries]) -> None:
    """A Pod without the host's network, and the host's /sys: the front end is not known."""
    assert_unknown(observe(host(Kernel(NICS, *parts))))


def test_the_sysfs_of_a_pod_shows_no_netdev_of_the_host() -> None:
    """RDMA devices are there without their netdevs, and a virtual netdev has the default route."""
    bare = hca("mlx5_0", A, "Ethernet") | hca("mlx5_1", B, "Ethernet")
    pod = netdev("lo") | netdev("eth0") | own("lo", "eth0") | POD_ROUTE
    assert_unknown(observe(host(Kernel(bare, pod))))


LENT = hca("mlx5_0", A, "Ethernet")
OURS: dict[str, tuple[Entries, list[Entries]]] = {
    "all are ours, and more": (NICS, [own("lo", "e0", "e1", "e2", "cali1"), ipv4(e0=0)]),
    "nobody recorded the namespace": (NICS, [ipv4(e0=0)]),
    "a NIC that was lent while it was read": (
        {path: entry for path, entry in NICS.items() if path != f"{NET}/e2"},
        [own("lo", "e0", "e1"), ipv4(e0=0)],
    ),
    "all are lent, and the front end is hardware": (
        LENT | netdev("eno1", C) | {f"{HOME}/{C}/net/eno1/device": f"../../../{C}"},
        [own("lo", "eno1"), ipv4(eno1=0)],
    ),
    "all are lent, and there is no default route": (LENT, [netdev("lo"), own("lo")]),
    "a virtual function's netdev is not asked for": (
        NICS | nic(9, "0000:2b:00.0") | {f"{HOME}/0000:2b:00.0/physfn": f"../{A}"},
        [own("lo", "e0", "e1", "e2"), ipv4(e0=0)],
    ),
}


@pytest.mark.parametrize(("devices", "parts"), OURS.values(), ids=OURS)
def test_the_routes_of_this_namespace_count(devices: Entries, parts: list[Entries]) -> None:
    """The netdevs of the data ports are this namespace's, or nothing is known of it."""
    assert isinstance(observe(host(Kernel(devices, *parts))).rdma, Seen)


def test_who_needs_no_front_end_is_not_held() -> None:
    """A node with InfiniBand, one without data ports, and one with --backend-device."""
    pod = own("lo", "eth0") | POD_ROUTE
    iwarp = nic(0, A) | {f"{HOME}/{A}/infiniband/mlx5_0/node_type": b"4: RNIC\n"}
    for devices in (NICS | hca("ibp0", "0000:1b:00.0"), iwarp, hca("ibp0", A)):
        assert isinstance(observe(host(Kernel(devices, pod))).rdma, Seen)
    named = observe(host(Kernel(NICS, pod, errors={IPV4: EIO}))._replace(backend=("mlx5_1",)))
    assert [role.interface for role in named.ports if role.backend] == ["mlx5_1"]


def test_a_switch_management_function_makes_no_infiniband_node() -> None:
    """The front end of an HGX board on RoCE is asked for, though its NVSwitches look like HCAs."""
    management: Entries = {}
    for number in range(3):
        pci = f"0000:1b:00.{number}"
        management |= hca(f"sw{number}", pci) | {f"{HOME}/{pci}/vpd": b"SW_MNG"}
    assert_unknown(observe(host(Kernel(NICS, management, own("lo", "eth0")))))


@pytest.mark.parametrize("path", [IPV4, OWN, f"{NET}/e0", f"{CLASS}"])
def test_a_read_that_blocks_fails_the_source(path: str) -> None:
    """ETIMEDOUT of a table fails all devices, whose labels are held."""
    root = Kernel(NICS, ipv4(e0=1), own("e0", "e1", "e2"), errors={path: ETIMEDOUT})
    assert isinstance(observe(host(root)).rdma, Failed)


def test_a_tree_without_routes_says_nothing_of_the_front_end() -> None:
    """A copy of class/infiniband: its NICs count, and a hint says that one may be the front end."""
    seen = observe(host(Kernel(NICS)))
    assert [role.backend for role in seen.ports] == [True] * 3
    assert [hint.text for hint in seen.hints if "no routes were copied" in hint.text]


TUNNEL = netdev("wg0") | ipv4(wg0=0)
NO_NIC: dict[str, list[Entries]] = {
    "no route yet": [ipv4()],
    "a tunnel": [TUNNEL],
    "a blackhole": [ipv4(lo=0)],
}


@pytest.mark.parametrize("parts", NO_NIC.values(), ids=NO_NIC)
def test_the_front_end_is_unknown_where_no_nic_has_the_route(parts: list[Entries]) -> None:
    assert_unknown(observe(host(Kernel(NICS, *parts))))
    assert isinstance(observe(host(Kernel(NICS, *parts, hca("ibp0", "0000:1b:00.0")))).rdma, Seen)
    plain = netdev("eno1", "0000:2c:00.0") | ipv4(eno1=0)
    assert [role.backend for role in observe(host(Kernel(NICS, plain))).ports] == [True] * 3
