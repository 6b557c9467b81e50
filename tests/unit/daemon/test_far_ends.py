"""How long a running agent keeps a far end that it does not see, by the port, and a leaf group."""

from __future__ import annotations

import errno
import json
import re
from functools import partial

import pytest

from agent.events.event import Event
from tests.support.kernel_tree import CLASS, HOME, NET, Entries, hca, netdev, nic
from tests.support.lldp_frames import BRIDGE, MAC, station, switch
from tests.support.running import HOUR, HUP, World
from tests.support.smps import Fabric

A, B = "0000:18:00.0", "0000:19:00.0"
GROUP = "leafgroup.current"


@pytest.fixture
def world() -> World:
    """Two RoCE NICs, on leaf-0 and leaf-1."""
    world = World(nic(0, A), nic(1, B))
    hear(world, 120)
    world.run(120)
    assert leaves(world) == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")
    return world


def hear(world: World, seconds: int, numbers: tuple[int, ...] = (0, 1)) -> None:
    """Let the switches send a frame each 30 s."""
    for after in range(0, seconds, 30):
        for number in numbers:
            frame = switch(f"leaf-{number}")
            world.at(after, do=partial(world.hear, f"eth{number}", frame))


def leaves(world: World) -> tuple[str | None, ...]:
    """The neighbors of both ports, the leaves and the leaf group."""
    neighbors = [f"neighbors.current.mlx5_{number}.device" for number in (0, 1)]
    keys = [*neighbors, "leaves.current", "leafgroup.current"]
    return tuple(world.labels.get(key) for key in keys)


def test_names_that_a_boot_swapped_beside_an_unread_port(world: World) -> None:
    """The link layer of one port gives EIO after that boot: no leaf of the group is missing."""
    path = f"{HOME}/{A}/infiniband/mlx5_1/ports/1/link_layer"
    world.errors[path] = errno.EIO
    for path in [path for path in world.entries if path.startswith((f"{HOME}/", CLASS, NET))]:
        del world.entries[path]
    world.entries |= nic(1, A) | nic(0, B) | {f"{NET}/lo": None}
    world.write("proc/sys/kernel/random/boot_id", b"another\n")
    world.start_again()
    world.look(HOUR)
    assert leaves(world)[3] == "leaf-0_leaf-1"


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_switch_is_renamed_before_a_port_goes_down(world: World, *, is_heard: bool) -> None:
    """The port that is down has heard one frame with the new name, or none: it takes it over."""
    for after in range(0, 120, 30):
        for number in (0, 1):
            frame = switch("old", f"\x05swp{number}".encode())
            world.at(after, do=partial(world.hear, f"eth{number}", frame))
    world.run(120)
    assert leaves(world)[2:] == ("old", "old")
    for after in range(1, 200, 30):
        world.at(after, do=partial(world.hear, "eth0", switch("new", b"\x05swp0")))
    if is_heard:
        world.at(1, do=partial(world.hear, "eth1", switch("new", b"\x05swp1")))
    world.run(40)
    world.write(f"{HOME}/{B}/infiniband/mlx5_1/ports/1/state", b"1: DOWN\n")
    world.look(160)
    assert leaves(world)[2:] == ("new", "new")


def test_restarts_renew_no_hold_of_a_far_end(world: World) -> None:
    """A switch is silent; the agent is started again each five minutes."""
    hear(world, int(HOUR), (1,))
    for _ in range(4):
        world.start_again()
        world.run(HOUR / 12)
    assert leaves(world)[:3] == (None, "leaf-1", "leaf-1")


def test_a_port_that_is_lent_and_down_has_no_neighbor(world: World) -> None:
    """Its link goes down in the pod; the labels go with the grace of any link."""
    world.remove(*netdev("eth0", A), f"{HOME}/{A}/net")
    hear(world, int(HOUR), (1,))
    world.look()
    world.write(f"{HOME}/{A}/infiniband/mlx5_0/ports/1/state", b"1: DOWN\n")
    world.look(25.0)
    assert (leaves(world)[0], world.labels["speed.current"]) == ("leaf-0", "400G")
    world.run(10.0)
    assert leaves(world) == (None, "leaf-1", "leaf-1", "leaf-0_leaf-1")


# A restart: the neighbor of before is the one in the annotation.


ODD = {
    "a BMC": station(),
    "a BMC that says bridge": station(enabled=BRIDGE),
    "SONiC's MAC address": switch("leaf-0", b"\x03" + MAC),  # as Port ID, once
    "another name": switch("leaf-9"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_one_frame_after_a_restart_replaces_nothing(world: World, odd: bytes) -> None:
    """It comes before those of the leaf: no label, no event, no request."""
    requests = len(world.api.requests)
    for after in (1, 31):
        world.start_again(events=True)
        world.at(after, do=partial(world.hear, "eth0", odd))
        hear(world, 90, (1,))
        world.at(60, do=partial(world.hear, "eth0", switch("leaf-0")))
        world.run(90)
        assert leaves(world) == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")
    assert not world.api.events
    assert not [at for at, operation in world.api.requests[requests:] if operation == "apply"]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("is_lent", [False, True])
def test_one_frame_after_a_netdev_is_back_replaces_nothing(
    world: World, odd: bytes, *, is_lent: bool
) -> None:
    """Its driver was loaded again, or a Pod gave it back: the port had a neighbor before."""
    paths = netdev("eth0", A)
    gone = [path for path in world.entries if path in paths or path.startswith(f"{HOME}/{A}/net")]
    if not is_lent:
        gone += [path for path in world.entries if path.startswith(f"{HOME}/{A}/infiniband")]
        gone.append(f"{CLASS}/mlx5_0")
    before = {path: world.entries.pop(path) for path in gone}
    hear(world, 120, (1,))
    world.look(20)
    world.entries |= before
    world.at(1, HUP)
    world.at(2, do=partial(world.hear, "eth0", odd))
    world.run(20)
    assert leaves(world) == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")
    world.hear("eth0", switch("leaf-0"))
    world.run(60)
    assert leaves(world) == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")


def test_the_drivers_of_all_nics_are_reloaded(world: World) -> None:
    """Nobody listened meanwhile: that the TTL is over says nothing of the switch."""
    rdma = re.compile(f"{CLASS}/|{NET}/eth|{HOME}/.*/(infiniband|net)(/|$)")
    world.remove(*filter(rdma.match, [*world.entries]))
    world.look(300)
    world.entries |= nic(0, A)
    world.look(20)
    assert leaves(world) == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")


def test_the_first_frame_on_a_port_that_never_had_one_is_published_at_once(world: World) -> None:
    world.entries |= nic(2, "0000:1a:00.0")
    world.run(60).start_again()
    world.run(10)
    world.hear("eth2", switch("leaf-2"))
    world.run(1)
    assert world.labels["neighbors.current.mlx5_2.device"] == "leaf-2"


@pytest.mark.parametrize("name", ["leaf-0", "x" * 64, "x" * 99, "leaf/0", "/", ""])
def test_any_neighbor_of_before_is_known_by_its_first_frame(name: str) -> None:
    """The annotation cuts a long name, and the label has a hash or the Chassis ID."""
    frame = switch(name)
    world = World(nic(0, A))
    world.hear("eth0", frame)
    world.run(60)
    device = world.labels["neighbors.current.mlx5_0.device"]
    world.start_again()
    world.run(5)
    world.hear("eth0", frame)
    world.run(1)
    assert not any("silent" in line for line in world.lines[-3:])
    assert world.labels["neighbors.current.mlx5_0.device"] == device
    assert world.runtime.observer.neighbors.neighbors("eth0")


# Stations: a neighbor that says that it is neither Bridge nor Router is no leaf.


def test_a_station_of_a_port_without_pci_function() -> None:
    """The annotation has no row of soft-RoCE: the joined label tells that it is no leaf."""
    home, virtual = f"{HOME}/{A}/infiniband/mlx5_0/", "sys/devices/virtual/infiniband/mlx5_0/"
    soft: Entries = {
        path.replace(home, virtual): entry
        for path, entry in hca("mlx5_0", A, "Ethernet", {1: "eth0"}).items()
        if path.startswith(home) and not path.endswith("/device")
    }
    soft |= {f"{CLASS}/mlx5_0": "../../devices/virtual/infiniband/mlx5_0"} | netdev("eth0")
    world = World(soft)
    for after in range(0, 300, 30):
        world.at(after, do=partial(world.hear, "eth0", station()))
    world.run(130)
    assert (leaves(world)[0], world.rows) == ("PowerEdge-R750", [])
    before = len(world.api.writes)
    world.start_again()
    world.run(110)
    assert leaves(world) == ("PowerEdge-R750", None, None, None)
    assert len(world.api.writes) == before


def test_a_station_that_is_left_of_a_leaf(world: World) -> None:
    """The leaf is silent, and a BMC behind its port is not: the last leaf stays in the group."""
    hear(world, 300, (1,))
    for after in range(0, 300, 30):
        world.at(after, do=partial(world.hear, "eth0", station()))
    world.run(180)
    assert leaves(world) == ("PowerEdge-R750", "leaf-1", "leaf-1", "leaf-0_leaf-1")
    world.start_again()
    world.run(110)
    assert leaves(world) == ("PowerEdge-R750", "leaf-1", "leaf-1", "leaf-0_leaf-1")


def test_a_leaf_of_the_annotation_that_is_a_station() -> None:
    """An agent that took a BMC for a leaf has published it: it goes with the first frame."""
    world = World(nic(0, A))
    world.at(0, do=partial(world.hear, "eth0", station(enabled=BRIDGE)))
    world.run(30)
    assert leaves(world)[3] == "PowerEdge-R750"
    world.start_again()
    world.hear("eth0", station())
    world.run(40)
    assert leaves(world) == ("PowerEdge-R750", None, None, None)


# The leaf group: over restarts and reboots, and the requests that it takes.


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(ibp0=(1, "a"), ibp1=(2, "b"))


@pytest.fixture
def racked(fabric: Fabric) -> World:
    """Two HCAs on two leaves; the agent has been running for a minute."""
    world = World(hca("ibp0", A) | hca("ibp1", B), smp=fabric).run(60.0)
    assert world.labels[GROUP] == "a_b"
    return world


def state(world: World, name: str, bdf: str, text: bytes) -> World:
    path = f"{HOME}/{bdf}/infiniband/{name}/ports/1/state"
    world.at(0.0, Event("port", f"{name}/1"), do=lambda: world.write(path, text))
    return world.run(120.0)


@pytest.mark.parametrize("frozen", [31.0, 80.0, 8 * HOUR])
def test_a_cable_that_was_moved_during_a_freeze(
    racked: World, fabric: Fabric, frozen: float
) -> None:
    """No event tells it, and the state of the port is that of before: every far end is asked."""

    def freeze() -> None:
        fabric.move(1)
        racked.time += frozen

    racked.at(30.0, do=freeze)
    racked.run(30.0 + frozen + 8.0)
    assert racked.labels["neighbors.current.ibp1.device"] == "leaf99"
    assert racked.labels[GROUP] == "a_leaf99"


@pytest.mark.parametrize("while_it", ["reads", "asks"])
@pytest.mark.parametrize("frozen", [11.0, 31.0, 80.0, 8 * HOUR])
def test_a_freeze_that_begins_while_the_agent_works(
    racked: World, fabric: Fabric, frozen: float, while_it: str
) -> None:
    """It is noticed too, and the answer to a query that was under way ends no other query."""

    def freeze() -> None:
        racked.time += frozen
        fabric.move(1)

    def ask(address: tuple[str, int]) -> dict[str, object]:
        answer = fabric(address)
        if address[0] == "ibp1":
            racked.smp = fabric
            freeze()
        return answer

    if while_it == "reads":  # in the observation that no event causes
        racked.at(30.0, do=lambda: setattr(racked, "on_read", freeze))
    else:
        racked.at(300.0, HUP, do=lambda: setattr(racked, "smp", ask))
    racked.run(300.0 + frozen + 8.0)
    assert racked.labels["neighbors.current.ibp1.device"] == "leaf99"
    assert racked.labels[GROUP] == "a_leaf99"


@pytest.mark.parametrize("while_it", ["waits", "reads"])
def test_a_freeze_ends_no_lldp_neighbor(world: World, while_it: str) -> None:
    """The grace of its TTL would end in the next second: the switch has sent all the time."""

    def freeze() -> None:
        world.time += 80

    hear(world, 1)
    world.run(1)
    if while_it == "waits":
        world.at(148, do=freeze)
    else:
        world.at(148, HUP, do=lambda: setattr(world, "on_read", freeze))
    world.run(149 + 80)
    before = leaves(world)
    world.run(63)
    assert leaves(world) == before == ("leaf-0", "leaf-1", "leaf-0_leaf-1", "leaf-0_leaf-1")
    world.run(40)
    assert leaves(world)[:3] == (None, None, None)


def test_the_memory_alone_makes_no_request(racked: World, fabric: Fabric) -> None:
    """A switch was replaced by one of the same name: its GUID comes with the next hourly one."""
    before = len(racked.api.applied())
    fabric.leaves = {"ibp0": (1, "a"), "ibp1": (9, "b")}
    racked.look(60.0)
    applied = len(racked.api.applied())
    racked.run(120.0)
    state(racked, "ibp0", A, b"4: ACTIVE\n")
    assert len(racked.api.applied()) == applied <= before + 1
    racked.run(1.2 * HOUR)
    assert json.loads(racked.told)["ports"][1]["far"]["id"] == f"{9:016x}"


def test_restarts_renew_no_hold_of_the_group(racked: World) -> None:
    """Nobody knows whose leaf it is; the agent is started again each five minutes."""
    state(racked, "ibp1", B, b"1: DOWN\n")
    racked.api.annotation = None
    for _ in range(3):
        racked.start_again()
        racked.run(HOUR / 12)
    assert racked.labels[GROUP] == "a"
