"""Neighbors in simulated time: their lifetime, their identity and their order."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.lldp.frame import Frame
from agent.lldp.neighbors import AWAITED, MAX_NEIGHBORS, Former, NeighborTable, Sender
from agent.model import LldpNeighbor
from tests.support.lldp_frames import END, MAC, capabilities, ethernet, identity, tlv

PORT = "eth0"
BRIDGE, STATION = 4, 0x80
NEAREST, NON_TPMR, CUSTOMER = "0180c200000e", "0180c2000003", "0180c2000000"
LEAF, OTHER, THIRD = "001c73000001", "001c73000002", "001c73000003"


def chassis_of(source: str) -> bytes:
    """The Chassis ID of the switch with this source address; LEAF has another one than that."""
    return b"\x04" + (MAC if source == LEAF else bytes.fromhex(source))


def leaf_frame(  # noqa: PLR0913 - each is a TLV
    name: str | None = "leaf-1",
    port: bytes = b"\x05swp1",
    *,
    ttl: int = 120,
    source: str = LEAF,
    destination: str = NEAREST,
    enabled: int | None = BRIDGE,
    chassis: bytes | None = None,
    description: str | None = None,
) -> bytes:
    text = tlv(4, description.encode()) if description else b""
    text += tlv(5, name.encode()) if name else b""
    return ethernet(
        identity(chassis or chassis_of(source), port, ttl)
        + text
        + (b"" if enabled is None else capabilities(enabled))
        + END,
        source=source,
        destination=destination,
    )


def shutdown_frame(
    port: bytes = b"\x05swp1", source: str = LEAF, chassis: bytes | None = None
) -> bytes:
    """A shutdown LLDPDU, which carries the mandatory TLVs and nothing else."""
    return ethernet(identity(chassis or chassis_of(source), port, 0) + END, source=source)


@dataclass
class Port:
    """One netdev whose frames and link follow a script."""

    table: NeighborTable = field(default_factory=NeighborTable)

    def receive(self, when: float, frame: bytes, own: tuple[str, ...] = ()) -> None:
        self.table.receive(Frame(PORT, when, frame), own)

    def refreshed(self, when: float, *frames: bytes) -> list[bool]:
        """Return True for each frame that is a refresh; the table receives the others."""
        found = []
        for frame in frames:
            found.append(self.table.refresh(Frame(PORT, when, frame)))
            if not found[-1]:
                self.receive(when, frame)
        return found

    def link(self, when: float, *, up: bool, changes: int | None = None) -> None:
        self.table.set_link(PORT, when, up=up, changes=changes)

    def senders(self, when: float) -> tuple[Sender, ...]:
        """The neighbors at a time, the selected one first."""
        self.table.expire(PORT, when)
        return self.table.neighbors(PORT)

    def names(self, when: float) -> list[str]:
        return [
            sender.effective.system_name or sender.effective.chassis_id
            for sender in self.senders(when)
        ]

    def ports(self, when: float) -> tuple[str, ...]:
        return tuple(sender.effective.port_id for sender in self.senders(when))

    def missing(self, when: float) -> str:
        assert self.names(when) == []
        return self.table.missing(PORT)

    def next_expiry(self, when: float) -> float:
        self.table.expire(PORT, when)
        return self.table.next_expiry([PORT])


def damped() -> Port:
    """A port as the daemon keeps it."""
    return Port(NeighborTable(grace=30, confirm=2))


def former() -> Former:
    """The neighbor of before, leaf-1 at its port swp1."""

    def is_same(facts: LldpNeighbor) -> bool:
        is_sender = facts.port_id == "swp1" and facts.chassis_id == MAC.hex(":")
        return is_sender and facts.system_name in {"leaf-1", None}

    return Former(is_same, AWAITED)


# A story of one port. At its time: a frame is received; the link is up (True, or the kernel's count
# of its changes) or down; the Node is read, which has the neighbor of before (None); or an
# observation finds these names, these Port IDs (a tuple), or no neighbor for this reason.
Story = list[tuple[float, bytes | bool | int | list[str] | tuple[str, ...] | str | None]]


def check(port: Port, story: Story) -> None:
    for when, what in story:
        match what:
            case bytes():
                port.receive(when, what)
            case None:
                port.table.seed(PORT, former())
            case bool():
                port.link(when, up=what)
            case int():
                port.link(when, up=True, changes=what)
            case list():
                assert port.names(when) == what, when
            case tuple():
                assert port.ports(when) == what, when
            case str():
                assert port.missing(when) == what, when


def observed(what: list[str] | tuple[str, ...], *frames: bytes) -> Story:
    """Each of these frames, one a second, and an observation after it."""
    return [one for when, frame in enumerate(frames) for one in ((when, frame), (when, what))]


FIRST, OLD, NEW = leaf_frame(), leaf_frame("old"), leaf_frame("new")
SECOND, BMC = leaf_frame("leaf-2", source=OTHER), leaf_frame("bmc", source=OTHER, enabled=STATION)
RECABLED = leaf_frame("new", source=OTHER)
ALIAS, BARE_MAC = leaf_frame(port=b"\x07etp1a"), leaf_frame(port=b"\x03" + MAC)
SHUTDOWN = shutdown_frame()
ON_A, ON_B = leaf_frame(port=b"\x07a"), leaf_frame(port=b"\x07odd")
X, Y = leaf_frame("x"), leaf_frame("y")
OF_A, OF_B = leaf_frame("a", chassis=b"\x07a"), leaf_frame("b", chassis=b"\x07b")
OLD_MAC, NEW_MAC = (
    leaf_frame(name, chassis=b"\x07chassis", source=source, ttl=ttl)
    for name, source, ttl in (("old", LEAF, 65535), ("new", OTHER, 120))
)
BY_TURNS: Story = [
    step
    for when in range(0, 300, 30)
    for step in (
        (when, leaf_frame("x", port=b"\x05swp1")),
        (when + 10, leaf_frame("x", port=b"\x05swp2")),
    )
] + [(300, ("swp2", "swp1")), (301, shutdown_frame(b"\x05swp2"))]
BOTH: Story = [(1, SECOND), (30, FIRST), (31, SECOND), (31, ["leaf-1", "leaf-2"])]
SETTLED: Story = [(0, OLD), (30, OLD), (40, ["old"])]
MOVED: Story = [(50, RECABLED), (80, RECABLED), (80, ["new"])]
WAITED: Story = [(50, RECABLED), (80, RECABLED), (80, ["old", "new"])]
CABLES = [leaf_frame(source, source=source, ttl=600) for source in (LEAF, OTHER, THIRD)]
# Whatever the grace is, and how many frames confirm.
ALWAYS: dict[str, Story] = {
    "a neighbor stays until its TTL is over": [
        *((100, FIRST), (220, ["leaf-1"]), (220.001, "expired"))
    ],
    "a frame after a shutdown frame revives its sender": [
        *((0, FIRST), (1, SHUTDOWN), (2, FIRST), (100, ["leaf-1"])),
        *((101, SHUTDOWN), (101, "shutdown")),
    ],
    "a shutdown frame of an unknown sender is a reason": [(100, SHUTDOWN), (100, "shutdown")],
    "two ports of a switch that send by turns are two neighbors": [*BY_TURNS, (332, ("swp1",))],
}
# As `probe` keeps a port: a grace of 0, and each frame is confirmed.
AT_ONCE: dict[str, Story] = ALWAYS | {
    "a netdev that the table does not know is silent, and so is one whose link is up": [
        *((0, "silent"), (1, True), (2, "silent"))
    ],
    "a shutdown frame of another port of the switch changes nothing": [
        *((0, FIRST), (1, shutdown_frame(b"\x05swp2")), (100, ["leaf-1"]))
    ],
    "the freshest of equals is first": [(0, FIRST), (1, SECOND), (1, ["leaf-2", "leaf-1"])],
}
# As the daemon keeps it: a grace of 30 s, and the second frame in a row confirms.
DAMPED: dict[str, Story] = ALWAYS | {
    "a shorter TTL takes effect at once": [(0, FIRST), (1, leaf_frame(ttl=10)), (11.5, "expired")],
    "a shutdown frame takes effect at once": [(0, FIRST), (5, SHUTDOWN), (5, "shutdown")],
    "no other takes the place of one that may return": [
        *((0, FIRST), (0, ["leaf-1"])),
        *BOTH,
        *((40, SHUTDOWN), (60, SECOND), (69.9, "shutdown"), (70, ["leaf-2"])),
    ],
    "one that returns is the selected one, and needs no second frame": [
        *((0, FIRST), (0, ["leaf-1"])),
        *BOTH,
        *((40, SHUTDOWN), (60, SECOND), (69, FIRST), (69, ["leaf-1", "leaf-2"])),
    ],
    "another that ends is gone at once": [
        *((0, FIRST), (0, ["leaf-1"])),
        *BOTH,
        *((40, shutdown_frame(source=OTHER)), (40, ["leaf-1"])),
    ],
    "a repeated shutdown frame postpones nothing": [
        *((0, FIRST), (0, ["leaf-1"])),
        *BOTH,
        *((when, SHUTDOWN) for when in range(40, 90)),
        *((90, SECOND), (90, ["leaf-2"])),
    ],
    "a frame after an unknown shutdown frame is a neighbor": [
        *((0, SHUTDOWN), (10, FIRST), (31, ["leaf-1"]), (131, "expired"))
    ],
    "an unknown shutdown frame is forgotten with the link: there may be another cable": [
        *((0, SHUTDOWN), (1, False), (2, True), (40, "silent"))
    ],
    "the alias of SONiC after its MAC address counts in its second frame": [
        *((0, BARE_MAC), (1, ALIAS), (1, ("00:1c:73:aa:bb:cc",)), (31, ALIAS), (31, ("etp1a",)))
    ],
    "a settled alias outlives one MAC address, as a restarting SONiC switch sends it": [
        *observed(("etp1a",), ALIAS, ALIAS, BARE_MAC, ALIAS, ALIAS)
    ],
    "an identity is confirmed by a frame with another TTL": [
        *((0, OLD), (1, OLD), (2, NEW), (3, leaf_frame("new", ttl=121)), (3, ["new"]))
    ],
    "an odd frame of the selected neighbor changes no selection": [
        *((0, FIRST), (0, ["leaf-1"]), (1, SECOND), (30, FIRST), (30, ["leaf-1", "leaf-2"])),
        *((31, SECOND), (60, leaf_frame("odd")), (60, ["leaf-1", "leaf-2"])),
    ],
    "of two names by turns the first stays, and a steady neighbor is selected before it": [
        *observed(["x"], *(X, Y) * 20),
        *((40, SECOND), (40, ["x", "leaf-2"]), (41, SECOND), (41, ["leaf-2", "x"])),
    ],
    "a shutdown frame confirms no name": [
        *enumerate([OLD, OLD, NEW, SHUTDOWN, SHUTDOWN, SHUTDOWN]),
        *((6, "shutdown"), (7, NEW), (7, ["new"])),
    ],
    "29 s without a link, twice, end nothing; 30 s in a row do": [
        (0, leaf_frame(ttl=600)),
        *((10, False), (11, False), (39, "link-down"), (39, True), (39, ["leaf-1"])),
        *((40, False), (41, False), (69, "link-down"), (69, True), (69, ["leaf-1"])),
        *((70, False), (71, False), (100, "link-down"), (101, True), (101, "silent")),
    ],
    "a link that came back waits for a frame": [
        *((0, FIRST), (1, False), (31, "link-down"), (40, True), (40, "silent")),
        *((41, SECOND), (41, ["leaf-2"])),
    ],
    "a link that is up for a moment between two observations is still down": [
        *((0, False), (30, "link-down"), (40, True), (41, False), (41, "link-down")),
    ],
    "a recabled port changes once it is confirmed, and never back": [
        *((0, OLD), (30, OLD), (40, False), (45, True), (50, RECABLED), (50, ["old", "new"])),
        *((80, RECABLED), (80, ["new"]), (180, ["new"])),
    ],
    "the kernel counted a change that nobody saw: the cable was moved": [
        *((0, 4), *SETTLED, (40, 6), *MOVED)
    ],
    "the kernel counted no change: the new leaf waits": [(0, 4), *SETTLED, (40, 4), *WAITED],
    "no first count: the new leaf waits": [(0, True), *SETTLED, (40, 6), *WAITED],
    "no second count: the new leaf waits": [(0, 4), *SETTLED, (40, True), *WAITED],
    "the neighbor behind the last cable excludes those of both cables before": [
        *((0, 0), (1, CABLES[0]), (31, CABLES[0]), (31, [LEAF])),
        *((100, 1), (101, CABLES[1]), (101, [LEAF, OTHER]), (131, CABLES[1]), (131, [OTHER])),
        *((200, 2), (201, CABLES[2]), (231, CABLES[2]), (231, [THIRD])),
    ],
    "a frame that was taken in after the link came up is of the cable before": [
        *((0, 4), (0, OLD), (0, ["old"]), (31, 6), (30, OLD)),
        *MOVED,
    ],
    "so is a sender whose frames were all taken in after that": [
        *((0, 4), (31, 6), (29, OLD), (30, OLD), (31, ["old"])),
        *MOVED,
    ],
    "a flap does not prefer the sender whose frame comes first after it": [
        *((0, FIRST), (1, BMC), (30, FIRST), (31, BMC), (60, FIRST), (61, BMC)),
        *((70, False), (71, True), (72, BMC), (73, ["leaf-1", "bmc"])),
    ],
    "nor one of two equals; the selected one is awaited": [
        *((0, FIRST), (0, ["leaf-1"]), (1, SECOND), (30, FIRST), (31, SECOND)),
        (31, ["leaf-1", "leaf-2"]),
        *((70, False), (71, True), (72, SECOND), (73, ["leaf-1", "leaf-2"])),
        *((80, FIRST), (81, ["leaf-1", "leaf-2"]), (136.5, ["leaf-1", "leaf-2"])),
    ],
    "the other one follows if the selected one stays silent": [
        *((0, FIRST), (0, ["leaf-1"]), (1, SECOND), (30, FIRST), (31, SECOND)),
        (31, ["leaf-1", "leaf-2"]),
        *(
            (70, False),
            (71, True),
            (72, SECOND),
            (102, SECOND),
            (135, ["leaf-1", "leaf-2"]),
            (136.5, ["leaf-2"]),
        ),
    ],
    "a switch that changes its MAC address stays one neighbor": [
        *((0, OLD_MAC), (30, OLD_MAC), (60, NEW_MAC), (60, ["old"]), (90, NEW_MAC), (90, ["new"])),
        (90 + 120.001, "expired"),
    ],
    "a shutdown frame from another MAC address ends the MSAP that it names": [
        (0, leaf_frame(chassis=b"\x07chassis", ttl=65535)),
        (5, shutdown_frame(chassis=b"\x07chassis", source=OTHER)),
        (5, "shutdown"),
    ],
    "two switches behind one MAC address are two neighbors": [
        *((0, OF_A), (1, OF_B), (30, OF_A), (31, OF_B), (31, ["b", "a"])),
        *((40, shutdown_frame(chassis=b"\x07a")), (71, ["b"])),
    ],
    "a second frame of the former port discards the odd one": [
        *observed(("a",), ON_A, ON_A, ON_B, ON_A, ON_A, ON_B)
    ],
    "a new Port ID keeps the selection": [
        *((0, ON_A), (0, ["leaf-1"]), (1, SECOND), (30, ON_A), (30, ["leaf-1", "leaf-2"])),
        *((31, SECOND), (60, ALIAS), (61, SECOND), (90, ALIAS), (91, SECOND)),
        *((91, ["leaf-1", "leaf-2"]), (91, ("etp1a", "swp1"))),
    ],
    "one odd frame of a switch that was silent since is no neighbor, two are": [
        *((0, ON_A), (1, ON_A), (1, ["leaf-1"]), (100, ALIAS), (100, ["leaf-1"])),
        *((122, "expired"), (152, "expired"), (160, ALIAS), (160, ["leaf-1"])),
    ],
    "the Node is read after the first frames": [
        *((1, BMC), (2, FIRST), (3, ["leaf-1", "bmc"]), (3, None)),
        *((4, ["leaf-1", "bmc"]), (31, BMC), (32, FIRST), (33, ["leaf-1", "bmc"])),
    ],
    "of two equals the one of before is selected when the Node is read": [
        *((1, SECOND), (1, ["leaf-2"]), (2, FIRST), (31, SECOND), (32, FIRST)),
        *((33, ["leaf-2", "leaf-1"]), (33, None)),
        *((34, ["leaf-1", "leaf-2"]), (61, SECOND), (62, ["leaf-1", "leaf-2"])),
    ],
    "the Node is read late: a neighbor of longer than one of before is awaited stays so": [
        *((90, SECOND), (91, SECOND), (120, ["leaf-2"]), (120, None)),
        *((121, ["leaf-2"]), (122, FIRST), (123, FIRST), (124, ["leaf-2", "leaf-1"])),
    ],
}


# As the daemon keeps it after a restart at 0 s: the neighbor was leaf-1 port swp1.
UNKNOWN = leaf_frame("leaf-1", enabled=None)
RESTARTED: dict[str, Story] = {
    "the neighbor of before counts at once": [(5, FIRST), (5, ["leaf-1"]), (125, ["leaf-1"])],
    "another needs two frames, however late": [
        *((300, SECOND), (300, "silent"), (330, SECOND), (330, ["leaf-2"]))
    ],
    "so does another name, or another port, once it was awaited": [
        *((5, NEW), (5, "silent"), (35, NEW), (35, "silent"), (65, ["new"])),
    ],
    "of two equals the one of before is awaited": [
        *((5, SECOND), (20, SECOND), (21, "silent"), (30, FIRST), (30, ["leaf-1", "leaf-2"])),
    ],
    "the MAC address that a restarting SONiC switch sends once changes nothing": [
        *((1, BARE_MAC), (1, "silent"), (31, FIRST), (31, ("swp1",)), (61, FIRST), (61, ("swp1",)))
    ],
    "a BMC that is confirmed before the leaf's first frame is no selection": [
        *((1, BMC), (6, BMC), (11, BMC), (12, "silent"), (20, UNKNOWN), (20, ["leaf-1", "bmc"])),
        *((50, UNKNOWN), (51, BMC), (52, ["leaf-1", "bmc"])),
    ],
    "a BMC takes the place of a leaf that is silent": [
        *((1, BMC), (31, BMC), (61, BMC), (64, "silent"), (65, ["bmc"])),
    ],
    "a shutdown frame of the BMC does not end the leaf": [
        *((1, shutdown_frame(source=OTHER)), (32, "silent"), (40, FIRST), (40, ["leaf-1"]))
    ],
    "a shutdown frame of the leaf does, and the next neighbor counts at once": [
        *((1, SHUTDOWN), (2, "shutdown"), (40, SECOND), (40, ["leaf-2"]))
    ],
    "a link that is down ends it as well": [
        *((0, False), (31, "link-down"), (40, True), (41, SECOND), (41, ["leaf-2"]))
    ],
    "it is awaited after a shutdown frame of another": [
        *((1, SECOND), (2, SECOND), (3, "silent")),
        *((4, shutdown_frame(source=OTHER)), (5, "silent"), (36, "silent")),
    ],
    "the link came up again: it is awaited all the same": [
        *(
            (0, False),
            (10, True),
            (11, SECOND),
            (11, "silent"),
            (12, FIRST),
            (12, ["leaf-1", "leaf-2"]),
        ),
    ],
}


@pytest.mark.parametrize("story", AT_ONCE)
def test_a_port_of_a_single_observation(story: str) -> None:
    check(Port(), AT_ONCE[story])


@pytest.mark.parametrize("story", DAMPED)
def test_a_port_of_the_daemon(story: str) -> None:
    check(damped(), DAMPED[story])


@pytest.mark.parametrize("story", RESTARTED)
def test_a_port_after_a_restart(story: str) -> None:
    check(damped(), [(0, None), *RESTARTED[story]])


def test_no_ttl_ends_soon_after_a_freeze() -> None:
    """The switch has sent all the time; a shutdown frame and a link that is down end it as ever."""
    port = damped()
    check(port, [(0, FIRST), (119, ["leaf-1"])])
    port.table.woke(119)
    assert port.next_expiry(119) == 119 + AWAITED
    check(port, [(119 + AWAITED, ["leaf-1"]), (119 + AWAITED + 0.1, "expired")])
    port.receive(300, FIRST)
    port.table.woke(301)
    check(port, [(302, SHUTDOWN), (302.1, "shutdown")])
    port.table.woke(340)
    check(port, [(341, FIRST), (460, ["leaf-1"]), (461.1, "expired")])


def test_a_lesser_neighbor_is_due_when_it_counts() -> None:
    """The observation that selects it needs no frame."""
    port = damped()
    check(port, [(0, None), (1, BMC), (2, "silent")])
    assert port.next_expiry(2) > AWAITED
    check(port, [(31, BMC), (32, "silent")])
    assert port.next_expiry(32) == AWAITED
    check(port, [(AWAITED, ["bmc"])])


def test_a_refresh_is_a_frame_that_changes_nothing_else() -> None:
    """Nor is the first one after a shutdown frame or a flap, or one of an unknown sender."""
    port = damped()
    assert port.refreshed(0, leaf_frame(), leaf_frame(), leaf_frame()) == [False, False, True]
    other = leaf_frame("leaf-2")
    assert port.refreshed(0, other, other, other) == [False, False, True]
    assert port.refreshed(0, shutdown_frame(), other, other) == [False, False, True]
    port.link(1, up=False)
    port.link(2, up=True)
    assert port.refreshed(3, other, other) == [False, True]
    assert port.table.refresh(Frame(PORT, 3, leaf_frame("leaf-2", source=OTHER))) is False
    assert port.table.refresh(Frame("eth1", 3, other)) is False


def test_a_refresh_restarts_the_ttl() -> None:
    """And an unconfirmed identity is no refresh."""
    port = Port()
    assert port.refreshed(0, leaf_frame(), leaf_frame("new"), leaf_frame("new")) == [
        False,
        False,
        True,
    ]
    assert port.refreshed(100, leaf_frame("new")) == [True]
    assert port.names(220) == ["new"]
    assert port.missing(221) == "expired"


def test_a_port_description_is_confirmed_like_a_name() -> None:
    """It becomes the label port-name where the Port ID is no name, so one odd frame leaves it."""
    port = damped()
    seen = []
    for when, description in enumerate(["etp1", "etp1", "etp9", "etp1", "etp2", "etp2"]):
        port.receive(when, leaf_frame(description=description))
        seen += [sender.effective.port_description for sender in port.senders(when)]
    assert seen == ["etp1"] * 5 + ["etp2"]


@pytest.mark.parametrize("better", [{"destination": NEAREST}, {"enabled": BRIDGE}])
def test_a_new_sender_does_not_displace_a_settled_one_by_one_frame(better: dict[str, Any]) -> None:
    """Whatever its rank would be."""
    port = damped()
    worse: dict[str, Any] = {"destination": CUSTOMER, "enabled": STATION}
    for when in (0, 30):
        port.receive(when, leaf_frame("incumbent", **worse))
    port.receive(31, leaf_frame("new", source=OTHER, **(worse | better)))
    assert port.names(31) == ["incumbent", "new"]
    port.receive(61, leaf_frame("new", source=OTHER, **(worse | better)))
    assert port.names(61) == ["new", "incumbent"]


def test_a_side_band_with_the_first_frame_gives_way_once() -> None:
    """From start to steady state the selected neighbor changes at most once."""
    port = damped()
    firsts = []
    for when in range(100):
        if when % 30 == 3:
            port.receive(when, leaf_frame("bmc", source=OTHER, enabled=STATION))
        if when % 30 == 20:
            port.receive(when, leaf_frame("leaf-1"))
        firsts += port.names(when)[:1]
    assert [
        name for name, before in zip(firsts, [None, *firsts], strict=False) if name != before
    ] == ["bmc", "leaf-1"]


ORDERED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nearest bridge": ({"destination": NEAREST}, {"destination": NON_TPMR}),
    "non-TPMR bridge": ({"destination": NON_TPMR}, {"destination": CUSTOMER}),
    "a group address before none": ({"destination": CUSTOMER}, {"destination": "ffffffffffff"}),
    "destination before capability": (
        {"enabled": STATION},
        {"destination": NON_TPMR, "enabled": BRIDGE},
    ),
    "bridge": ({"enabled": BRIDGE}, {"enabled": STATION}),
    "router": ({"enabled": 0x10}, {"enabled": 0x28}),
    "bridge before one that does not say": ({"enabled": BRIDGE}, {"enabled": None}),
    "one that does not say before a station": ({"enabled": None}, {"enabled": STATION}),
    "one that enables nothing before a station": ({"enabled": 0}, {"enabled": STATION}),
}


@pytest.mark.parametrize(("better", "worse"), ORDERED.values(), ids=ORDERED)
@pytest.mark.parametrize("better_first", [True, False])
@pytest.mark.parametrize("confirm", [1, 2])
def test_the_better_neighbor_goes_first(
    better: dict[str, Any], worse: dict[str, Any], better_first: bool, confirm: int
) -> None:
    port = Port(NeighborTable(grace=30, confirm=confirm))
    frames = [leaf_frame("better", **better), leaf_frame("worse", source=OTHER, **worse)]
    for when in range(4):
        port.receive(when, frames[(when + (not better_first)) % 2])
        port.names(when)
    assert port.names(4) == ["better", "worse"]


@pytest.mark.parametrize("confirm", [1, 2])
def test_equals_never_flip(confirm: int) -> None:
    port = Port(NeighborTable(grace=30, confirm=confirm))
    port.receive(0, leaf_frame("a", source=LEAF))
    firsts = set()
    for when in range(500):
        firsts.add(port.names(when)[0])
        name, source = (("b", OTHER), ("c", THIRD), ("a", LEAF))[when % 3]
        port.receive(when, leaf_frame(name, source=source))
    assert firsts == {"a"}


@pytest.mark.parametrize("own", ["00:1c:73:00:00:01", "00:1c:73:aa:bb:cc"])
def test_own_frames_are_ignored(own: str) -> None:
    """By their source address or by their Chassis ID."""
    port = Port()
    port.receive(0, leaf_frame(), (own,))
    assert port.missing(0) == "silent"
    port.receive(1, shutdown_frame(), (own,))
    assert port.missing(1) == "silent"


def test_the_next_expiry_is_that_of_the_first_sender() -> None:
    """The TTL, and the end of the grace after it or a shutdown frame, of all netdevs asked for."""
    port = damped()
    port.receive(0, leaf_frame(ttl=120))
    port.receive(10, leaf_frame(ttl=60, source=OTHER))
    assert port.next_expiry(10) == 70
    assert port.next_expiry(70.1) == 100
    port.receive(80, shutdown_frame(source=OTHER))
    assert port.next_expiry(80) == 110
    assert port.next_expiry(111) == 120
    port.table.receive(Frame("eth1", 30, leaf_frame(ttl=10)))
    assert port.table.next_expiry([PORT, "eth1", "eth9"]) == 40
    assert port.table.next_expiry([PORT, "eth9"]) == 120


def test_a_link_that_is_down_expires_with_its_senders() -> None:
    """Without a sender nothing changes at the end of the grace."""
    port = damped()
    port.link(5, up=False)
    assert port.next_expiry(5) == math.inf
    port.receive(6, leaf_frame())
    assert port.next_expiry(6) == 35
    assert port.next_expiry(35) == math.inf


def test_netdevs_are_independent() -> None:
    """One switch on two ports is two neighbors, and a forgotten netdev is silent."""
    table = NeighborTable()
    for netdev in ("eth0", "eth1"):
        table.receive(Frame(netdev, 0, leaf_frame(port=b"\x05" + netdev.encode())))
        table.expire(netdev, 1)
        [sender] = table.neighbors(netdev)
        assert sender.effective.port_id == netdev
    table.set_link("eth0", 2, up=False)
    table.expire("eth1", 2)
    assert table.neighbors("eth1")
    table.forget(["eth1", "eth9"])
    table.expire("eth1", 2)
    assert (table.neighbors("eth1"), table.missing("eth1")) == ((), "silent")


def test_neighbors_and_missing_change_nothing() -> None:
    """Only `expire` drops a sender: the queries answer as of the last one, and know no other."""
    port = Port()
    assert (port.table.neighbors(PORT), port.table.missing(PORT)) == ((), "silent")
    port.receive(0, leaf_frame())
    assert port.table.neighbors(PORT) == ()
    assert port.names(1) == ["leaf-1"]
    port.receive(2, shutdown_frame())
    for _ in range(2):
        assert port.table.missing(PORT) == "silent"
    assert port.missing(2) == "shutdown"


@pytest.mark.parametrize("known", [False, True])
def test_a_malformed_frame_changes_nothing(known: bool) -> None:
    """Wherever it is cut before its three mandatory TLVs are complete."""
    port = Port()
    if known:
        port.receive(0, leaf_frame())
    for length in range(34):
        with pytest.raises(Malformed):
            port.receive(100, leaf_frame("leaf-2")[:length])
    assert port.names(120) == (["leaf-1"] if known else [])
    assert port.missing(121) == ("expired" if known else "silent")


def spoofed(number: int) -> str:
    return f"02{number:010x}"


@pytest.mark.slow
@pytest.mark.parametrize("confirm", [1, 2])
@pytest.mark.parametrize("looked", [True, False])
def test_a_flood_leaves_the_selected_neighbor(confirm: int, looked: bool) -> None:
    """Of 10,000 senders in a minute 32 are kept, among them the switch that came first."""
    port = Port(NeighborTable(grace=30, confirm=confirm))
    port.receive(0, leaf_frame(enabled=BRIDGE))
    port.receive(1, leaf_frame(enabled=BRIDGE))
    if looked:
        port.names(1)
    for number in range(10_000):
        port.receive(
            2 + number * 0.006,
            leaf_frame(f"flood-{number}", source=spoofed(number), enabled=STATION),
        )
    names = port.names(62)
    assert len(names) == MAX_NEIGHBORS
    assert names[0] == "leaf-1"


def test_a_flood_leaves_settled_neighbors() -> None:
    """Senders with two equal frames are not dropped for those with one."""
    port = damped()
    steady = [
        leaf_frame(f"steady-{number}", source=f"06{number:010x}")
        for number in range(MAX_NEIGHBORS - 1)
    ]
    for when in range(2):
        for frame in steady:
            port.receive(when, frame)
    for number in range(1000):
        port.receive(2, leaf_frame("flood", source=spoofed(number)))
    assert sum(name.startswith("steady") for name in port.names(3)) == MAX_NEIGHBORS - 1


class Touched(bytes):
    """Octets that note which of them are looked at."""

    def __new__(cls, octets: bytes, notes: list[object]) -> Self:
        self = super().__new__(cls, octets)
        self.notes = notes
        return self

    notes: list[object]

    def __getitem__(self, place: Any) -> Any:
        self.notes.append(place)
        return super().__getitem__(place)


def test_an_unchanged_frame_costs_a_compare() -> None:
    """Nothing but its source address is read, and the decoded content stays the same object."""
    port = Port()
    port.receive(0, leaf_frame())
    [before] = [sender.effective for sender in port.senders(0)]
    notes: list[object] = []
    port.receive(30, Touched(leaf_frame(), notes))
    assert set(map(repr, notes)) == {repr(slice(6, 12, None))}
    [after] = [sender.effective for sender in port.senders(30)]
    assert after is before
    port.receive(60, Touched(leaf_frame("leaf-2"), notes))
    assert len(set(map(repr, notes))) > 1


# Any story.

SOURCES = (LEAF, OTHER)
NAMES = ("x", "y")
TTL = 20


@dataclass(frozen=True)
class Sent:
    """A frame in an event stream; None as name: a shutdown frame."""

    source: str
    name: str | None


def frame_of(event: Sent) -> bytes:
    if event.name is None:
        return shutdown_frame(source=event.source)
    return leaf_frame(event.name, source=event.source, ttl=TTL)


happenings = st.sampled_from(
    [
        *[Sent(source, name) for source in SOURCES for name in (*NAMES, *NAMES, None)],
        None,
        None,
        True,
        False,
    ]
)
steps = st.sampled_from((0.25, 1, 5, 10, 20, 29.75, 30, 50))


@pytest.mark.slow
@given(
    story=st.lists(
        st.tuples(st.sampled_from((0.25, 5, 20, 50)), st.integers(0, 1), st.booleans()), max_size=20
    ),
    addresses=st.lists(st.sampled_from((LEAF, OTHER, THIRD)), min_size=20, max_size=20),
)
@settings(max_examples=200, deadline=None)
def test_source_addresses_play_no_role(
    story: list[tuple[float, int, bool]], addresses: list[str]
) -> None:
    """Two switches whose frames come from any address, or each from its own: the same neighbors."""
    one, other, now = damped(), damped(), 0.0
    for (step, switch, speaks), address in zip(story, addresses, strict=False):
        now += step
        for port, source in ((one, (LEAF, OTHER)[switch]), (other, address)):
            chassis = (b"\x07a", b"\x07b")[switch]
            if speaks:
                port.receive(now, leaf_frame(f"s{switch}", chassis=chassis, source=source, ttl=20))
            else:
                port.receive(now, shutdown_frame(chassis=chassis, source=source))
        assert one.names(now) == other.names(now)


@pytest.mark.slow
@given(
    story=st.lists(st.tuples(steps, happenings), min_size=4, max_size=30),
    confirm=st.sampled_from((1, 2)),
)
@settings(max_examples=200, deadline=None)
def test_a_refresh_has_the_effect_of_receiving_the_frame(
    story: list[tuple[float, Sent | bool | None]], confirm: int
) -> None:
    """The same neighbors, in the same order, until the same time.

    Each has sent within its TTL, no shutdown frame since, and has a name that it gave.
    """
    received = Port(NeighborTable(grace=30, confirm=confirm))
    refreshed = Port(NeighborTable(grace=30, confirm=confirm))
    now, sent = 0.0, defaultdict[str, list[tuple[float, str | None]]](list)
    for step, event in story:
        now += step
        if isinstance(event, Sent):
            sent[event.source].append((now, event.name))
            for _ in range(2):
                received.receive(now, frame_of(event))
                refreshed.refreshed(now, frame_of(event))
        elif event is not None:
            received.link(now, up=event)
            refreshed.link(now, up=event)
        senders = received.senders(now)
        assert described(senders) == described(refreshed.senders(now))
        for neighbor in (sender.effective for sender in senders):
            frames = sent[neighbor.source_mac.replace(":", "")]
            when, last = frames[-1]
            assert last
            assert now - when <= TTL
            assert neighbor.system_name in {name for _, name in frames}


def described(senders: tuple[Sender, ...]) -> list[object]:
    return [(one.effective, one.expires_at, one.shut_down, one.link_ups) for one in senders]
