"""Neighbors in simulated time: their lifetime, their identity and their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.lldp.frame import Frame
from agent.lldp.neighbors import MAX_NEIGHBORS, NeighborTable, Sender
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
    enabled: int = BRIDGE,
    chassis: bytes | None = None,
    description: str | None = None,
) -> bytes:
    """A frame of a switch."""
    text = tlv(4, description.encode()) if description else b""
    text += tlv(5, name.encode()) if name else b""
    return ethernet(
        identity(chassis or chassis_of(source), port, ttl) + text + capabilities(enabled) + END,
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
        """The neighbors' names, the selected one first."""
        return [
            sender.effective.system_name or sender.effective.chassis_id
            for sender in self.senders(when)
        ]

    def ports(self, when: float) -> list[str]:
        return [sender.effective.port_id for sender in self.senders(when)]

    def missing(self, when: float) -> str:
        assert self.names(when) == []
        return self.table.missing(PORT)

    def next_expiry(self, when: float) -> float:
        self.table.expire(PORT, when)
        return self.table.next_expiry([PORT])


def damped() -> Port:
    """A port as the daemon keeps it."""
    return Port(NeighborTable(grace=30, confirm=2))


def test_a_port_that_nobody_spoke_on_is_silent() -> None:
    """A netdev that the table does not know is silent, and so is one whose link is up."""
    port = Port()
    assert port.missing(0) == "silent"
    port.link(1, up=True)
    assert port.missing(2) == "silent"


@pytest.mark.parametrize(("grace", "last"), [(0, 220), (30, 250)])
def test_a_neighbor_stays_until_its_ttl_and_the_grace_are_over(grace: float, last: float) -> None:
    """Received at 100 with a TTL of 120 s: there at 220 (in the daemon at 250), then expired."""
    port = Port(NeighborTable(grace=grace))
    port.receive(100, leaf_frame())
    assert port.names(last) == ["leaf-1"]
    assert port.missing(last + 0.001) == "expired"


def test_a_refresh_is_a_frame_that_changes_nothing_else() -> None:
    """Not the frame that confirms, nor the first one after a shutdown frame or a link flap, nor one
    of an unknown sender or netdev.
    """
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


def test_a_shorter_ttl_takes_effect_at_once() -> None:
    """The TTL is no part of the identity: it needs no second frame."""
    port = damped()
    port.receive(0, leaf_frame())
    port.receive(1, leaf_frame(ttl=10))
    assert port.missing(41.5) == "expired"


def test_a_shutdown_frame_counts_like_a_flap_in_the_daemon() -> None:
    """The neighbor stays for 30 s, with the name that its shutdown frame does not repeat."""
    port = damped()
    port.receive(0, leaf_frame())
    port.receive(5, shutdown_frame())
    assert port.names(35) == ["leaf-1"]
    assert port.missing(35.001) == "shutdown"


def test_a_repeated_shutdown_frame_postpones_nothing() -> None:
    """A switch that sends one every second is gone 30 s after the first."""
    port = damped()
    port.receive(0, leaf_frame())
    for when in range(5, 60):
        port.receive(when, shutdown_frame())
    assert port.missing(36) == "shutdown"


@pytest.mark.parametrize("grace", [0, 30])
def test_a_frame_after_a_shutdown_frame_revives_its_sender(grace: float) -> None:
    """A port that was shut and opened again between two observations has lost no neighbor."""
    port = Port(NeighborTable(grace=grace))
    for when, frame in enumerate([leaf_frame(), shutdown_frame(), leaf_frame()]):
        port.receive(when, frame)
    assert port.names(100) == ["leaf-1"]
    port.receive(101, shutdown_frame())
    assert port.missing(102 + grace) == "shutdown"


def test_a_shutdown_frame_of_another_port_changes_nothing() -> None:
    """A switch that ends one of its ports, behind the same source address, keeps the others."""
    port = Port()
    port.receive(0, leaf_frame())
    port.receive(1, shutdown_frame(b"\x05swp2"))
    assert port.names(100) == ["leaf-1"]


@pytest.mark.parametrize(("grace", "before"), [(0, None), (30, "silent")])
def test_a_shutdown_frame_of_an_unknown_sender_is_a_reason(
    grace: float, before: str | None
) -> None:
    """After a restart no other frame may come; the labels from before get their
    grace.
    """
    port = Port(NeighborTable(grace=grace))
    port.receive(100, shutdown_frame())
    port.receive(120, shutdown_frame())
    if before:
        assert port.missing(129.9) == before
    assert port.missing(130) == "shutdown"


def test_a_frame_after_an_unknown_shutdown_frame_is_a_neighbor() -> None:
    """A restarted switch needs nothing but its next frame."""
    port = damped()
    port.receive(0, shutdown_frame())
    port.receive(10, leaf_frame())
    assert port.names(31) == ["leaf-1"]
    assert port.missing(161) == "expired"


def test_an_unknown_shutdown_frame_is_forgotten_with_the_link() -> None:
    """A frame from before the cable was pulled proves nothing about the next cable."""
    port = damped()
    port.receive(0, shutdown_frame())
    port.link(1, up=False)
    port.link(2, up=True)
    assert port.missing(40) == "silent"


def test_a_mac_address_before_the_alias_is_one_change() -> None:
    """SONiC first sends a MAC address as Port ID; its alias counts in its second frame."""
    port = damped()
    mac = leaf_frame(port=b"\x03" + MAC)
    alias = leaf_frame(port=b"\x07etp1a")
    port.receive(0, mac)
    port.receive(1, alias)
    assert port.ports(1) == ["00:1c:73:aa:bb:cc"]
    port.receive(31, alias)
    assert port.ports(31) == ["etp1a"]


def test_a_settled_identity_outlives_one_odd_frame() -> None:
    """A restarting SONiC switch sends its MAC address once: no label changes."""
    port = damped()
    alias = leaf_frame(port=b"\x07etp1a")
    seen = set()
    for when, frame in enumerate([alias, alias, leaf_frame(port=b"\x03" + MAC), alias, alias]):
        port.receive(when, frame)
        seen |= set(port.ports(when))
    assert seen == {"etp1a"}


def test_a_port_description_is_confirmed_like_a_name() -> None:
    """It becomes the label port-name where the Port ID is no name, so one odd frame leaves it."""
    port = damped()
    seen = []
    for when, description in enumerate(["etp1", "etp1", "etp9", "etp1", "etp2", "etp2"]):
        port.receive(when, leaf_frame(description=description))
        seen += [sender.effective.port_description for sender in port.senders(when)]
    assert seen == ["etp1"] * 5 + ["etp2"]


def test_an_identity_is_confirmed_whatever_else_changes() -> None:
    """The second frame has another TTL."""
    port = damped()
    for when, frame in enumerate(
        [leaf_frame("old"), leaf_frame("old"), leaf_frame("new"), leaf_frame("new", ttl=121)]
    ):
        port.receive(when, frame)
    assert port.names(3) == ["new"]


def test_an_odd_frame_of_the_selected_neighbor_changes_no_selection() -> None:
    """It was confirmed once, which is enough."""
    port = damped()
    for when in (0, 30):
        port.receive(when, leaf_frame("leaf-1"))
        assert port.names(when)[0] == "leaf-1"
        port.receive(when + 1, leaf_frame("leaf-2", source=OTHER))
    port.receive(60, leaf_frame("odd"))
    assert port.names(60) == ["leaf-1", "leaf-2"]


def test_a_flapping_identity_never_settles() -> None:
    """Two names by turns, from one address: the first stays, and a steady neighbor is
    selected before it.
    """
    port = damped()
    for when in range(40):
        port.receive(when, leaf_frame("x" if when % 2 == 0 else "y"))
        assert port.names(when) == ["x"]
    port.receive(40, leaf_frame("steady", source=OTHER))
    assert port.names(40) == ["x", "steady"]
    port.receive(41, leaf_frame("steady", source=OTHER))
    assert port.names(41) == ["steady", "x"]


def test_a_shutdown_frame_confirms_nothing() -> None:
    """A new name and two shutdown frames are one frame with the new name."""
    port = damped()
    for when, frame in enumerate(
        [
            leaf_frame("old"),
            leaf_frame("old"),
            leaf_frame("new"),
            shutdown_frame(),
            shutdown_frame(),
            shutdown_frame(),
        ]
    ):
        port.receive(when, frame)
    assert port.names(6) == ["old"]
    port.receive(7, leaf_frame("new"))
    assert port.names(7) == ["new"]


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


def test_a_flap_is_no_absence() -> None:
    """29 s without a link, twice, change nothing; 30 s in a row do."""
    port = damped()
    port.receive(0, leaf_frame(ttl=600))
    for when in (10, 40, 70):
        port.link(when, up=False)
        port.link(when + 1, up=False)
        assert port.names(when + 29) == ["leaf-1"]
        if when < 70:
            port.link(when + 29, up=True)
    assert port.missing(100) == "link-down"


def test_a_link_that_came_back_waits_for_a_frame() -> None:
    """Down long enough, then up: silent until a frame is received."""
    port = damped()
    port.receive(0, leaf_frame())
    port.link(1, up=False)
    assert port.missing(31) == "link-down"
    port.link(40, up=True)
    assert port.missing(40) == "silent"
    port.receive(41, leaf_frame("leaf-2"))
    assert port.names(41) == ["leaf-2"]


def test_a_link_that_comes_up_for_a_moment_is_still_down() -> None:
    """It came up and went down again between two observations: the reason is not silence."""
    port = damped()
    port.link(0, up=False)
    assert port.missing(30) == "link-down"
    port.link(40, up=True)
    port.link(41, up=False)
    assert port.missing(41) == "link-down"
    assert port.missing(71) == "link-down"


def test_a_recabled_port_changes_once_it_is_confirmed() -> None:
    """The old leaf stays for one more frame of the new one, and never comes back."""
    port = damped()
    for when in (0, 30):
        port.receive(when, leaf_frame("old"))
    port.link(40, up=False)
    port.link(45, up=True)
    port.receive(50, leaf_frame("new", source=OTHER))
    assert port.names(50)[0] == "old"
    port.receive(80, leaf_frame("new", source=OTHER))
    assert [port.names(when)[0] for when in range(80, 200, 10)] == ["new"] * 12


def test_a_cable_that_is_moved_between_two_looks() -> None:
    """The link was never observed down, but the kernel counted: the new leaf is selected; without a
    count it has to wait.
    """
    for counts, first in (((4, 6), "new"), ((4, 4), "old"), ((None, 6), "old"), ((4, None), "old")):
        port = damped()
        port.link(0, up=True, changes=counts[0])
        for when in (0, 30):
            port.receive(when, leaf_frame("old"))
        assert port.names(40) == ["old"]
        port.link(40, up=True, changes=counts[1])
        for when in (50, 80):
            port.receive(when, leaf_frame("new", source=OTHER))
        assert port.names(80)[0] == first


def test_a_cable_that_is_moved_twice() -> None:
    """The neighbor behind the last cable precedes those of both cables before."""
    port = damped()
    for changes, source in enumerate((LEAF, OTHER, THIRD)):
        when = 100 * changes
        port.link(when, up=True, changes=changes)
        port.receive(when + 1, leaf_frame(source, source=source, ttl=600))
        port.receive(when + 31, leaf_frame(source, source=source, ttl=600))
        assert port.names(when + 31)[0] == source


def test_a_frame_that_waited_is_of_the_cable_before() -> None:
    """It came before the link was found to have been down, and was taken in afterwards."""
    port = damped()
    port.link(0, up=True, changes=4)
    port.receive(0, leaf_frame("old"))
    assert port.names(0) == ["old"]
    port.link(31, up=True, changes=6)
    port.receive(30, leaf_frame("old"))
    for when in (50, 80):
        port.receive(when, leaf_frame("new", source=OTHER))
    assert port.names(80) == ["new", "old"]


def test_a_sender_whose_frames_all_waited_is_of_the_cable_before() -> None:
    """It was not known before the link came up, so the sender behind the new cable precedes it."""
    port = damped()
    port.link(0, up=True, changes=4)
    port.link(31, up=True, changes=6)
    for when in (29, 30):
        port.receive(when, leaf_frame("old"))
    assert port.names(31) == ["old"]
    for when in (50, 80):
        port.receive(when, leaf_frame("new", source=OTHER))
    assert port.names(80) == ["new", "old"]


def test_a_flap_does_not_prefer_the_quicker_sender() -> None:
    """After a flap the first frame is the side-band's: the switch keeps its place."""
    port = damped()
    for when in (0, 30, 60):
        port.receive(when, leaf_frame("leaf-1"))
        port.receive(when + 1, leaf_frame("bmc", source=OTHER, enabled=STATION))
    port.link(70, up=False)
    port.link(71, up=True)
    port.receive(72, leaf_frame("bmc", source=OTHER, enabled=STATION))
    assert port.names(73) == ["leaf-1", "bmc"]


ORDERED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("nearest bridge", {"destination": NEAREST}, {"destination": NON_TPMR}),
    ("non-TPMR bridge", {"destination": NON_TPMR}, {"destination": CUSTOMER}),
    ("a group address before none", {"destination": CUSTOMER}, {"destination": "ffffffffffff"}),
    (
        "destination before capability",
        {"enabled": STATION},
        {"destination": NON_TPMR, "enabled": BRIDGE},
    ),
    ("bridge", {"enabled": BRIDGE}, {"enabled": STATION}),
    ("router", {"enabled": 0x10}, {"enabled": 0x28}),
)


@pytest.mark.parametrize(("_why", "better", "worse"), ORDERED, ids=[case[0] for case in ORDERED])
@pytest.mark.parametrize("better_first", [True, False])
@pytest.mark.parametrize("confirm", [1, 2])
def test_the_better_neighbor_goes_first(
    _why: str, better: dict[str, Any], worse: dict[str, Any], better_first: bool, confirm: int
) -> None:
    """Whichever frame came first or last."""
    port = Port(NeighborTable(grace=30, confirm=confirm))
    frames = [
        leaf_frame("better", source=LEAF, **better),
        leaf_frame("worse", source=OTHER, **worse),
    ]
    for when in range(4):
        port.receive(when, frames[(when + (not better_first)) % 2])
        port.names(when)
    assert port.names(4) == ["better", "worse"]


def test_the_freshest_of_equals_is_the_first_choice() -> None:
    """An observation that finds several for the first time selects the latest."""
    port = Port()
    port.receive(0, leaf_frame("a", source=LEAF))
    port.receive(1, leaf_frame("b", source=OTHER))
    assert port.names(1) == ["b", "a"]


@pytest.mark.parametrize("confirm", [1, 2])
def test_equals_never_flip(confirm: int) -> None:
    """A selected neighbor stays selected for as long as it is there."""
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
    """The TTL plus the grace, or the shutdown frame plus the grace, of all netdevs asked for."""
    port = damped()
    port.receive(0, leaf_frame(ttl=120))
    port.receive(10, leaf_frame(ttl=60, source=OTHER))
    assert port.next_expiry(10) == 100
    port.receive(20, shutdown_frame(source=OTHER))
    assert port.next_expiry(20) == 50
    assert port.next_expiry(51) == 150
    port.table.receive(Frame("eth1", 30, leaf_frame(ttl=10)))
    assert port.table.next_expiry([PORT, "eth1", "eth9"]) == 70
    assert port.table.next_expiry([PORT, "eth9"]) == 150


def test_a_link_that_is_down_expires_with_its_senders() -> None:
    """Without a sender nothing changes at the end of the grace."""
    port = damped()
    port.link(5, up=False)
    assert port.next_expiry(5) == math.inf
    port.receive(6, leaf_frame())
    assert port.next_expiry(6) == 35
    assert port.next_expiry(35) == math.inf


def test_an_unknown_shutdown_frame_expires_once() -> None:
    """At the end of the grace the reason changes, and nothing after that."""
    port = damped()
    assert port.next_expiry(0) == math.inf
    port.receive(100, shutdown_frame())
    assert port.next_expiry(100) == 130
    assert port.missing(130) == "shutdown"
    assert port.next_expiry(130) == math.inf


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
    port.link(2, up=False)
    for _ in range(2):
        assert len(port.table.neighbors(PORT)) == 1
        assert port.table.missing(PORT) == "silent"
    assert port.missing(2) == "link-down"


@pytest.mark.parametrize("known", [False, True])
def test_a_malformed_frame_changes_nothing(known: bool) -> None:
    """It neither restarts a TTL nor changes a name, wherever it is cut before its three mandatory
    TLVs are complete.
    """
    port = Port()
    if known:
        port.receive(0, leaf_frame())
    for length in range(34):
        with pytest.raises(Malformed):
            port.receive(100, leaf_frame("leaf-2")[:length])
    assert port.names(120) == (["leaf-1"] if known else [])
    assert port.missing(121) == ("expired" if known else "silent")


def spoofed(number: int) -> str:
    """A source address of its own for each sender of a flood."""
    return f"02{number:010x}"


@pytest.mark.slow
@pytest.mark.parametrize("confirm", [1, 2])
@pytest.mark.parametrize("looked", [True, False])
def test_a_flood_leaves_the_selected_neighbor(confirm: int, looked: bool) -> None:
    """Of 10,000 senders in a minute 32 are kept, among them the switch, whose frames came
    before.
    """
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


# An oracle that shares no code and no shape with the table: it keeps every event, and answers by
# searching them.

SOURCES = (LEAF, OTHER)
NAMES = ("x", "y")
TTL = 20


@dataclass(frozen=True)
class Sent:
    """A frame in an event stream; None as name: a shutdown frame."""

    source: str
    name: str | None


Event = tuple[float, Sent | bool | None]  # when; a frame, the link, or a look


def frame_of(event: Sent) -> bytes:
    if event.name is None:
        return shutdown_frame(source=event.source)
    return leaf_frame(event.name, source=event.source, ttl=TTL)


def oracle(events: list[Event], now: float, grace: float, confirm: int) -> dict[str, str]:
    """Return the neighbors at that time and their identity; searches all earlier frames
    each time.
    """
    since = _emptied(events, now, grace)
    found = {}
    for source in SOURCES:
        sent = [
            (when, event.name)
            for when, event in events
            if isinstance(event, Sent) and event.source == source
        ]
        sent = _last_life([one for one in sent if one[0] > since], events, grace, now)
        if sent:
            found[source] = _believed([name for _, name in sent if name], confirm)
    return found


def _emptied(events: list[Event], now: float, grace: float) -> float:
    """Return the last time at which the link had been down for too long."""
    emptied = down = -1.0
    for when, event in [*events, (now, None)]:
        if event is None and down >= 0 and when - down >= grace:
            emptied = when
        if isinstance(event, bool):
            down = -1.0 if event else down if down >= 0 else when
    return emptied


def _last_life(
    sent: list[tuple[float, str | None]], events: list[Event], grace: float, now: float
) -> list[tuple[float, str | None]]:
    """The frames of a sender since an observation last found it gone; none if it is gone now."""
    looks = [when for when, event in events if event is None] + [now]
    life: list[tuple[float, str | None]] = []
    for number, (when, name) in enumerate(sent):
        if name or life:
            life.append((when, name))
        behind = sent[number + 1][0] if number + 1 < len(sent) else now + 1
        if life and any(when <= look < behind and _is_gone(life, look, grace) for look in looks):
            life = []
    return life


def _is_gone(life: list[tuple[float, str | None]], look: float, grace: float) -> bool:
    if life[-1][1]:
        return look - life[-1][0] - TTL > grace
    last = max(index for index, (_, name) in enumerate(life) if name)
    return grace == 0 or look - life[last + 1][0] > grace


def _believed(names: list[str], confirm: int) -> str:
    """The first name, until another one came `confirm` times in a row."""
    believed = names[0]
    for index in range(len(names)):
        row = names[max(0, index + 1 - confirm) : index + 1]
        if len(row) == confirm and len(set(row)) == 1:
            believed = row[0]
    return believed


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


def test_a_switch_that_changes_its_mac_address_stays_one_neighbor() -> None:
    """Its new name counts in its second frame, and nothing is left of the former one."""
    port, chassis = damped(), b"\x07chassis"
    for when in (0, 30):
        port.receive(when, leaf_frame("old", chassis=chassis, ttl=65535))
    port.receive(60, leaf_frame("new", chassis=chassis, source=OTHER))
    assert port.names(60) == ["old"]
    port.receive(90, leaf_frame("new", chassis=chassis, source=OTHER))
    assert port.names(90) == ["new"]
    assert port.missing(90 + 120 + 30.001) == "expired"


def test_a_shutdown_frame_from_another_mac_address_ends_its_msap() -> None:
    """The MSAP is the sender, not the address."""
    port, chassis = damped(), b"\x07chassis"
    port.receive(0, leaf_frame(chassis=chassis, ttl=65535))
    port.receive(5, shutdown_frame(chassis=chassis, source=OTHER))
    assert port.names(35) == ["leaf-1"]
    assert port.missing(35.001) == "shutdown"


def test_two_switches_behind_one_mac_address_are_two_neighbors() -> None:
    """One shutdown frame ends one of them."""
    port = damped()
    for when in (0, 30):
        port.receive(when, leaf_frame("a", chassis=b"\x07a"))
        port.receive(when + 1, leaf_frame("b", chassis=b"\x07b"))
    assert sorted(port.names(31)) == ["a", "b"]
    port.receive(40, shutdown_frame(chassis=b"\x07a"))
    assert port.names(71) == ["b"]


@pytest.mark.parametrize("confirm", [1, 2])
def test_two_ports_of_one_switch_that_send_by_turns_are_two_neighbors(confirm: int) -> None:
    """Behind a hub, with one source address for both: none replaces the other."""
    port = Port(NeighborTable(grace=30, confirm=confirm))
    for when in range(0, 300, 30):
        port.receive(when, leaf_frame("x", port=b"\x05swp1"))
        port.receive(when + 10, leaf_frame("x", port=b"\x05swp2"))
    assert sorted(port.ports(300)) == ["swp1", "swp2"]
    port.receive(301, shutdown_frame(b"\x05swp2"))
    assert port.ports(332) == ["swp1"]


def test_a_second_frame_of_the_former_port_discards_the_odd_one() -> None:
    """A candidate is not kept for its TTL, to become a neighbor with one more frame later on."""
    port = damped()
    for when, frame in enumerate([b"\x07a", b"\x07a", b"\x07odd", b"\x07a", b"\x07a", b"\x07odd"]):
        port.receive(when, leaf_frame(port=frame))
        assert port.ports(when) == ["a"]


def test_a_new_port_id_keeps_the_selection() -> None:
    """A selected switch under its alias stays selected before an equal one."""
    port = damped()
    for when in (0, 30):
        port.receive(when, leaf_frame(port=b"\x07a"))
        assert port.names(when)[0] == "leaf-1"
        port.receive(when + 1, leaf_frame("leaf-2", source=OTHER))
    for when in (60, 90):
        port.receive(when, leaf_frame(port=b"\x07alias"))
        port.receive(when + 1, leaf_frame("leaf-2", source=OTHER))
    assert port.names(91) == ["leaf-1", "leaf-2"]
    assert port.ports(91) == ["alias", "swp1"]


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
    grace=st.sampled_from((0, 30)),
    confirm=st.sampled_from((1, 2, 3)),
)
@settings(max_examples=400, deadline=None)
def test_any_story_ends_as_its_whole_past_says(
    story: list[tuple[float, Sent | bool | None]], grace: float, confirm: int
) -> None:
    """Frames, link changes and observations in any order: the same senders are there under the same
    names.
    """
    port = Port(NeighborTable(grace=grace, confirm=confirm))
    now, past = 0.0, list[Event]()
    for step, event in story:
        now += step
        if isinstance(event, Sent):
            port.receive(now, frame_of(event))
        elif event is not None:
            port.link(now, up=event)
        else:
            port.names(now)
        past.append((now, event))
    now += 0.25
    found = {
        one.effective.source_mac.replace(":", ""): one.effective.system_name
        for one in port.senders(now)
    }
    assert found == oracle(past, now, grace, confirm)
    assert len(port.names(now)) == len(found)


@pytest.mark.slow
@given(
    story=st.lists(st.tuples(steps, happenings), min_size=4, max_size=30),
    confirm=st.sampled_from((1, 2)),
)
@settings(max_examples=200, deadline=None)
def test_a_refresh_has_the_effect_of_receiving_the_frame(
    story: list[tuple[float, Sent | bool | None]], confirm: int
) -> None:
    """A table that receives every frame has the same neighbors, in the same order, until the same
    time.
    """
    received = Port(NeighborTable(grace=30, confirm=confirm))
    refreshed = Port(NeighborTable(grace=30, confirm=confirm))
    now = 0.0
    for step, event in story:
        now += step
        if isinstance(event, Sent):
            for _ in range(2):
                received.receive(now, frame_of(event))
                refreshed.refreshed(now, frame_of(event))
        elif event is not None:
            received.link(now, up=event)
            refreshed.link(now, up=event)
        assert described(received.senders(now)) == described(refreshed.senders(now))


def described(senders: tuple[Sender, ...]) -> list[object]:
    return [(one.effective, one.expires_at, one.shut_down, one.link_ups) for one in senders]
