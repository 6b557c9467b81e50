"""The LLDP source over simulated I/O: each port has its neighbors or its reason."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.lldp.frame import Frame, decode
from agent.lldp.neighbors import NeighborTable
from agent.lldp.reception import LldpNeighbors
from agent.model import Absent, Link, Netdev, PortRole, Problem, Seen
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources import lldp
from tests.support.devices import UP, decide
from tests.support.lldp_frames import CASES, END, MAC, ethernet, identity, switch, tlv
from tests.support.observations import PORT
from tests.support.observations import role as role_of
from tests.support.sources import read_lldp

NOW = 1000.0
NIC = "02:00:00:00:00:01"


def netdev(name: str, operstate: str | None = "up", addresses: tuple[str, ...] = ()) -> Netdev:
    return UP._replace(name=name, operstate=operstate, addresses=addresses)


def role(  # noqa: PLR0913 - the properties of a port
    device: str = "mlx5_0",
    of: Netdev | None = None,
    *,
    legs: tuple[Netdev, ...] = (),
    leg: Netdev | None = None,
    link_layer: str = "Ethernet",
    backend: bool = True,
) -> PortRole:
    """A port of a node; of a bonded one, one leg of it."""
    port = PORT._replace(link_layer=link_layer, netdev=of, legs=legs)
    name = f"{device}-{leg.name}" if leg else device
    return role_of(name, port, leg, device=device, backend=backend)


class Node:
    """A node whose host does what a test sets; the test advances its time."""

    def __init__(
        self, tree: Mapping[str, Any] = MappingProxyType({}), table: NeighborTable | None = None
    ) -> None:
        self.now = NOW
        self.tree, self.errors = tree, dict[str, int]()
        self.frames: list[Frame] = []
        self.refused: dict[str, str] = {}
        self.fault: Exception | None = None
        self.all_ethertypes = False
        self.flags: dict[str, dict[str, bool]] = {}
        self.listened: list[Mapping[str, bool]] = []
        self.table = table or NeighborTable()

    def host(self) -> Host:
        return Host(
            root=Tree(MemoryStore(self.tree), self.errors),
            clock=lambda: self.now,
            lldp_neighbors=LldpNeighbors(self._frames, self.table),
            all_ethertypes=self.all_ethertypes,
            private_flags=lambda name: self.flags.get(name, {}),
        )

    def send(self, name: str, data: bytes, when: float | None = None) -> None:
        self.frames.append(Frame(name, self.now if when is None else when, data))

    def _frames(self, netdevs: Mapping[str, bool]) -> tuple[list[Frame], dict[str, str]]:
        self.listened.append(dict(netdevs))
        if self.fault:
            raise self.fault
        found, self.frames = self.frames, []
        return found, self.refused

    def look(self, *roles: PortRole) -> tuple[dict[str, Link], list[Problem]]:
        reading = read_lldp(self.host(), roles)
        assert isinstance(reading.outcome, Seen)
        return {link.interface: link for link in reading.outcome.value}, list(reading.problems)

    def link(self, of: PortRole) -> Link:
        links, _ = self.look(of)
        return links[of.interface]


ETH0 = role(of=netdev("eth0"))


@pytest.mark.parametrize(
    "roles", [(), (ETH0._replace(backend=False),), (role(link_layer="InfiniBand"),)]
)
def test_without_ethernet_backend_ports_nothing_is_received(roles: tuple[PortRole, ...]) -> None:
    """Other nodes have no LLDP neighbors, and that is no fault."""
    node = Node()
    assert read_lldp(node.host(), roles).outcome == Absent("no Ethernet backend port")
    assert node.listened == []


def test_a_neighbor_under_the_names_of_the_label_contract() -> None:
    """System Name, Port ID, and the age of the last frame."""
    node = Node()
    node.send("eth0", switch(), NOW - 3.14)
    link = node.link(ETH0)
    assert (link.netdev, link.missing, link.hold) == ("eth0", None, False)
    (neighbor,) = link.neighbors
    assert (neighbor.device, neighbor.port_id, neighbor.port_name) == ("leaf-1", "swp1", "swp1")
    assert neighbor.age == 3.1


PORT_NAMES = {
    "cumulus": ("swp1s0", "swp1s0"),  # interfaceName
    "arista-eos": ("Ethernet1/1", "Ethernet1/1"),
    "cisco-ios": ("Gi1/0/4", "Gi1/0/4"),
    "juniper": ("513", "et-0/0/4"),  # locally assigned: the description names it
    "sonic": ("etp1a", "Ethernet0"),
    "sonic-before-its-alias": ("00:1c:73:aa:bb:cc", "Ethernet0"),
    "onyx": ("Eth1/4", "Eth1/4"),
    "huawei-alias": ("to-gpu-node-12 rail 3", "to-gpu-node-12 rail 3"),
    "nic-firmware": ("00:1c:73:aa:bb:cc", None),
}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in PORT_NAMES], ids=lambda case: case.name
)
def test_port_names_of_the_vendors(case: Any) -> None:
    """The Port ID where it is a name or an alias, else the Port Description, else none."""
    node = Node()
    node.send("eth0", case.data)
    (neighbor,) = node.link(ETH0).neighbors
    assert (neighbor.port_id, neighbor.port_name) == PORT_NAMES[case.name]


def test_a_switch_without_a_name_is_its_chassis() -> None:
    node = Node()
    node.send("eth0", ethernet(identity(b"\x07box 7", b"\x05swp1") + END))
    assert node.link(ETH0).neighbors[0].device == "box 7"


def test_several_neighbors_are_kept_in_order() -> None:
    node = Node()
    node.send("eth0", switch())
    node.send("eth0", ethernet(identity(b"\x04" + MAC, b"\x05bmc") + END, source="020000000009"))
    assert [one.port_id for one in node.link(ETH0).neighbors] == ["swp1", "bmc"]


def spark(*netdevs: Netdev) -> tuple[PortRole, ...]:
    """The roles of two functions with one system image, in two PCI domains."""
    functions = zip(("0000:01:00.0", "0002:01:00.0"), netdevs, strict=True)
    return decide(
        [
            role(f"roce{pci[3]}", of=one).device._replace(
                pci=pci,
                driver="mlx5_core",
                sys_image_guid="a088c20300abcdef",
                ports=(role(of=one).port,),
            )
            for pci, one in functions
        ]
    ).roles


OTHER_PORT = ethernet(identity(b"\x04" + MAC, b"\x05swp9") + END)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ((switch(), switch()), ""),
        ((switch(), None), ""),
        ((None, switch()), ""),
        ((None, None), ""),
        ((switch(), OTHER_PORT), "that is linked to leaf-1 swp1, and this one to"),
    ],
)
def test_two_far_ends_of_a_socket_direct_card_are_a_hint(
    frames: tuple[bytes | None, bytes | None], text: str
) -> None:
    """No role changes by LLDP, and the port that does not count has no link."""
    node = Node()
    for name, frame in zip(("eth0", "eth1"), frames, strict=True):
        if frame:
            node.send(name, frame)
    links, problems = node.look(*spark(netdev("eth0"), netdev("eth1")))
    assert list(links) == ["roce0"]
    assert [(one.subject, text in one.text) for one in problems] == (
        [("roce2", True)] if text else []
    )


# Every reason, and whether the labels published before stay.


BOUND = {"pci": "0000:18:00.0", "driver": "mlx5_core"}
LISTED = {"sys/class/net/lo": None}


def bare(**facts: Any) -> PortRole:
    """A port without netdev, of a device with these facts."""
    without = role(of=None)
    return without._replace(device=without.device._replace(**facts))


def sent(*frames: bytes, when: float = NOW) -> Node:
    """A node whose eth0 has received these frames."""
    node = Node()
    for data in frames:
        node.send("eth0", data, when)
    return node


def unreceiving(cause: OSError | None) -> Node:
    """A node on which no frame can be received, because of this."""
    node = Node()
    node.fault = Unavailable("no packet sockets here")
    node.fault.__cause__ = cause
    return node


def blocked() -> Node:
    """A node whose list of netdevs blocks."""
    node = Node()
    node.errors = {"sys/class/net": errno.ETIMEDOUT}
    return node


FORBIDDEN = PermissionError(errno.EPERM, "Operation not permitted")
REASONS: dict[str, tuple[Node, PortRole, str, bool]] = {
    "no frame so far is no proof": (Node(), ETH0, "silent", True),
    "the TTL expired": (sent(switch(ttl=20), when=NOW - 21), ETH0, "expired", False),
    "the neighbor sent a shutdown frame": (sent(switch(), switch(ttl=0)), ETH0, "shutdown", False),
    **{
        f"the link is {state}": (sent(switch()), role(of=netdev("eth0", state)), "link-down", False)
        for state in ("down", "lowerlayerdown", "notpresent")
    },
    **{
        f"{state} may carry frames": (Node(), role(of=netdev("eth0", state)), "silent", True)
        for state in ("up", "unknown", "dormant", "testing", None)
    },
    "the netdev was lent to a Pod": (Node(LISTED), bare(**BOUND), "no-netdev", True),
    "no list of netdevs": (Node(), bare(**BOUND), "netdev-not-recorded", True),
    "an empty list": (Node({"sys/class/net": None}), bare(**BOUND), "netdev-not-recorded", True),
    "a list that blocks": (blocked(), bare(**BOUND), "netdev-not-recorded", True),
    "no function": (Node(LISTED), bare(), "netdev-not-recorded", True),
    "no driver": (Node(LISTED), bare(pci=BOUND["pci"]), "netdev-not-recorded", True),
    "the function has a netdev": (
        *(Node(LISTED), bare(**BOUND, netdevs=("eth0",))),
        *("netdev-not-recorded", True),
    ),
    "no reception": (unreceiving(None), ETH0, "unavailable", True),
    "too many files": (unreceiving(OSError(errno.EMFILE, "")), ETH0, "unavailable", True),
    "no permission": (unreceiving(FORBIDDEN), ETH0, "not-permitted", True),
    "no permission, and a link that is down: sysfs needs none": (
        *(unreceiving(FORBIDDEN), role(of=netdev("eth0", "down")), "link-down", False),
    ),
}


@pytest.mark.parametrize(("node", "port", "reason", "hold"), REASONS.values(), ids=REASONS)
def test_a_missing_neighbor_has_its_reason(
    node: Node, port: PortRole, reason: str, hold: bool
) -> None:
    link = node.link(port)
    assert (link.neighbors, link.missing, link.hold) == ((), reason, hold)


def test_a_flap_in_the_daemon() -> None:
    """A link that is down has no neighbor; one that came back has that of before."""
    node = Node(table=NeighborTable(grace=30, confirm=2))
    node.send("eth0", switch())
    node.link(ETH0)
    down = role(of=netdev("eth0", "down"))
    assert node.link(down).missing == "link-down"
    node.now += 29
    assert node.link(ETH0).neighbors
    assert node.listened == [{"eth0": True}, {"eth0": False}, {"eth0": True}]


def test_not_permitted() -> None:
    """Without CAP_NET_RAW nothing is known of any port, and one problem has the reason."""
    links, problems = unreceiving(FORBIDDEN).look(ETH0, role("mlx5_1", of=netdev("eth1")))
    assert {link.missing for link in links.values()} == {"not-permitted"}
    assert [problem.text for problem in problems] == ["no packet sockets here"]


def test_not_listened() -> None:
    """A snapshot without reception proves nothing; a link that is down is down."""
    node = Node()
    unread = node.host()._replace(lldp_neighbors=None)
    outcome = read_lldp(unread, (ETH0, role("mlx5_1", of=netdev("eth1", "down")))).outcome
    assert isinstance(outcome, Seen)
    assert [(link.missing, link.hold) for link in outcome.value] == [
        ("not-listened", True),
        ("link-down", False),
    ]


def test_a_netdev_without_a_socket() -> None:
    """It alone is unavailable, with the reason; the others receive."""
    node = Node()
    node.refused = {"eth0": "EADDRNOTAVAIL"}
    node.send("eth1", switch())
    links, problems = node.look(ETH0, role("mlx5_1", of=netdev("eth1")))
    assert (links["mlx5_0"].missing, links["mlx5_0"].hold) == ("unavailable", True)
    assert links["mlx5_1"].neighbors
    assert [(problem.subject, problem.text) for problem in problems] == [
        ("eth0", "no packet socket for LLDP: EADDRNOTAVAIL")
    ]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"disable-fw-lldp": False}, "blocked-by-firmware"),  # i40e
        ({"disable-fw-lldp": True}, "silent"),
        ({"fw-lldp-agent": True}, "blocked-by-firmware"),  # ice
        ({"fw-lldp-agent": False}, "silent"),
        ({"rx_cqe_compress": True}, "silent"),
        ({}, "silent"),
        (
            {"disable-fw-lldp": None, "fw-lldp-agent": "on"},
            "silent",
        ),  # a snapshot with nonsense in it
    ],
)
def test_blocked_by_firmware(flags: dict[str, Any], reason: str) -> None:
    """That consumes the frames, by the driver's private flags; the switch may be there."""
    node = Node()
    node.flags["eth0"] = flags
    link = node.link(ETH0)
    assert (link.missing, link.hold) == (reason, True)


BRIDGED: dict[str, Any] = {
    "sys/class/net/eth0/master": "../br0",
    "sys/class/net/eth0/brport/group_fwd_mask": b"0x0\n",
    "sys/class/net/br0/bridge/group_fwd_mask": b"0x4000\n",
}


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (BRIDGED, "taken-by-bridge"),
        (BRIDGED | {"sys/class/net/br0/bridge/group_fwd_mask": b"0x8\n"}, "silent"),
        (BRIDGED | {"sys/class/net/br0/bridge/group_fwd_mask": b"garbage\n"}, "silent"),
        (
            BRIDGED
            | {
                "sys/class/net/eth0/brport/group_fwd_mask": b"0x4000\n",
                "sys/class/net/br0/bridge/group_fwd_mask": b"0x0\n",
            },
            "taken-by-bridge",
        ),
        (
            {
                "sys/class/net/eth0/master": "../bond0",
                "sys/class/net/bond0/master": "../ovs-system",
            },
            "taken-by-bridge",
        ),
        ({"sys/class/net/eth0/master": "../eth0"}, "silent"),
        ({}, "silent"),
    ],
)
def test_a_bridge_that_takes_the_frames_is_named(tree: dict[str, Any], reason: str) -> None:
    """A bridge above the netdev or above its bond; --openvswitch receives before it."""
    node = Node(tree)
    assert node.link(ETH0).missing == reason
    node.all_ethertypes = True
    assert node.link(ETH0).missing == "silent"


def test_firmware_blocks_only_the_silent() -> None:
    """A neighbor, and the proof that it is gone, are not hidden by the flag."""
    node = Node()
    node.flags["eth0"] = {"disable-fw-lldp": False}
    node.send("eth0", switch())
    assert node.link(ETH0).neighbors
    node.send("eth0", switch(ttl=0))
    assert node.link(ETH0).missing == "shutdown"
    assert node.link(role(of=netdev("eth0", "down"))).missing == "link-down"


DEAF: dict[str, Callable[[Node], object]] = {
    "taken-by-bridge": lambda node: setattr(node, "tree", BRIDGED),
    "blocked-by-firmware": lambda node: node.flags.update(eth0={"disable-fw-lldp": False}),
    "unavailable": lambda node: node.refused.update(eth0="ENOBUFS"),
}


@pytest.mark.parametrize("reason", DEAF)
def test_a_ttl_that_ends_where_nothing_can_be_received_proves_nothing(reason: str) -> None:
    """Nor after frames can be received again: the next TTL does."""
    node = Node()
    node.send("eth0", switch())
    assert node.link(ETH0).neighbors
    DEAF[reason](node)
    assert node.link(ETH0).neighbors
    node.now += 121
    assert (node.link(ETH0).missing, node.link(ETH0).hold) == (reason, True)
    node.tree, node.flags, node.refused = {}, {}, {}
    assert (node.link(ETH0).missing, node.link(ETH0).hold) == ("silent", True)
    node.send("eth0", switch())
    assert node.link(ETH0).neighbors
    node.now += 121
    assert (node.link(ETH0).missing, node.link(ETH0).hold) == ("expired", False)


# The netdevs that receive.


def test_each_leg_of_a_bond_receives() -> None:
    """Two legs, two switches; the bond itself has no socket."""
    legs = (netdev("eth2"), netdev("eth3", "down"))
    roles = [role("mlx5_bond_0", of=netdev("bond0"), legs=legs, leg=leg) for leg in legs]
    node = Node()
    node.send("eth2", switch("leaf-a"))
    node.send("bond0", switch("nobody"))
    links, _ = node.look(*roles)
    assert node.listened == [{"eth2": True, "eth3": False}]
    assert links["mlx5_bond_0-eth2"].neighbors[0].device == "leaf-a"
    assert links["mlx5_bond_0-eth3"].missing == "link-down"


def test_ignored_ports_do_not_receive() -> None:
    """The front end has a switch of its own."""
    node = Node()
    links, _ = node.look(ETH0, role("mlx5_9", of=netdev("front"), backend=False))
    assert node.listened == [{"eth0": True}]
    assert list(links) == ["mlx5_0"]


@pytest.mark.parametrize("addresses", [(NIC,), ("02:00:00:00:00:bb", NIC)])
@pytest.mark.parametrize("by", ["source", "chassis"])
def test_a_frame_about_the_nic_itself_is_ignored(addresses: tuple[str, ...], by: str) -> None:
    """Its firmware announces the host's port; of a bond's leg, by the address before."""
    node = Node()
    mac = bytes.fromhex(NIC.replace(":", ""))
    lldpdu = identity(b"\x04" + (mac if by == "chassis" else MAC), b"\x03" + mac) + END
    node.send("eth0", ethernet(lldpdu, source=mac.hex() if by == "source" else "020000000099"))
    assert node.link(role(of=netdev("eth0", addresses=addresses))).missing == "silent"


def test_a_port_of_this_host_is_no_neighbor() -> None:
    """Two ports of one host on one switch that floods LLDP receive each other's frames."""
    node = Node()
    eth0 = netdev("eth0", addresses=(NIC,))
    eth1 = netdev("eth1", addresses=("02:00:00:00:00:02",))
    node.send("eth0", switch(source="020000000002"))
    links, _ = node.look(role(of=eth0), role("mlx5_1", of=eth1))
    assert links["mlx5_0"].missing == "silent"


def test_an_unknown_address_costs_no_neighbor() -> None:
    """The addresses of eth0 could not be read; those of eth1 count."""
    node = Node()
    node.send("eth0", switch())
    node.send("eth1", switch(source="020000000001"))
    links, _ = node.look(ETH0, role("mlx5_1", of=netdev("eth1", addresses=(NIC,))))
    assert links["mlx5_0"].neighbors
    assert links["mlx5_1"].missing == "silent"


# Malformed and hostile frames.


def test_malformed_frames_are_one_problem_each() -> None:
    """The same error twice is one problem, another one is another, and the good frame counts."""
    node = Node()
    cut, wrong = switch()[:20], switch().replace(b"\x02\x07\x04", b"\x02\x07\x09")
    for data in (cut, cut, switch(), wrong, cut):
        node.send("eth0", data)
    node.send("eth1", cut)
    links, problems = node.look(ETH0, role("mlx5_1", of=netdev("eth1")))
    assert links["mlx5_0"].neighbors[0].device == "leaf-1"
    assert links["mlx5_1"].missing == "malformed"
    assert [problem.subject for problem in problems] == ["eth0", "eth0", "eth1"]
    assert all(problem.text.startswith("malformed LLDP frame: ") for problem in problems)


def test_frames_that_are_refused_are_no_silence() -> None:
    """For two minutes, and until a frame counts; it is no matter of firmware."""
    node = Node(table=NeighborTable(grace=30, confirm=2))
    node.flags["eth0"] = {"disable-fw-lldp": False}
    node.send("eth0", switch().ljust(9300, b"\0"))
    for _ in range(2):
        links, problems = node.look(ETH0)
        assert (links["mlx5_0"].missing, links["mlx5_0"].hold) == ("malformed", True)
        assert [one.text for one in problems] == [
            "malformed LLDP frame: LLDPDU of more than 9216 octets"
        ]
        node.now += 119.9
    links, problems = node.look(ETH0)
    assert (links["mlx5_0"].missing, problems) == ("blocked-by-firmware", [])
    node.send("eth0", switch()[:20])
    node.send("eth0", switch())
    links, problems = node.look(ETH0)
    assert links["mlx5_0"].missing is None
    node.now += 1
    assert node.look(ETH0)[1] == []


def test_a_neighbor_whose_frames_are_refused_now_has_not_expired() -> None:
    """What is published is held, since somebody is there."""
    node = Node(table=NeighborTable(grace=30, confirm=2))
    node.send("eth0", switch())
    node.look(ETH0)
    node.now += 150.5
    node.send("eth0", switch()[:20])
    link = node.link(ETH0)
    assert (link.missing, link.hold) == ("malformed", True)


OWN_NAMES = {
    "gpu-17": None, "GPU-17": None, "gpu-17.example.com": None, "gpu-17:enp26s0np0": None,
    "gpu-17-enp26s0np0": None, "to gpu-17 eth2": None, "gpu-17_eth2": None,
    "gpu-170": "gpu-170", "gpu-17-2": "gpu-17-2", "rack-gpu-17": "rack-gpu-17",
    "Ethernet1/1": "Ethernet1/1", "to gpu-18": "to gpu-18",
}  # fmt: skip


@pytest.mark.parametrize(("description", "name"), OWN_NAMES.items())
@pytest.mark.parametrize("own", ["gpu-17", "gpu-17.example.com"])
def test_a_description_that_names_this_host_is_no_name_of_the_switch_port(
    description: str, name: str | None, own: str
) -> None:
    """SONiC's Port ID is a local one, and its description what an operator typed."""
    described = tlv(4, description.encode()) + END
    facts = decode(ethernet(identity(b"\x04" + MAC, b"\x07etp1a") + described))
    assert lldp.named(facts, own)[1:3] == ("etp1a", name)
    assert lldp.named(facts, None).port_name == description
    named = decode(ethernet(identity(b"\x04" + MAC, b"\x05gpu-17") + described))
    assert lldp.named(named, own).port_name == "gpu-17"


def test_frames_from_the_future_are_no_negative_age() -> None:
    """A clock that was set back leaves the neighbor, with an age of 0."""
    node = Node()
    node.send("eth0", switch(), NOW + 50)
    assert node.link(ETH0).neighbors[0].age == 0.0


def test_another_exception_is_a_bug() -> None:
    """Other exceptions pass: the observation isolates them."""
    node = Node()
    node.fault = Malformed("not of this door")
    with pytest.raises(Malformed):
        node.link(ETH0)
