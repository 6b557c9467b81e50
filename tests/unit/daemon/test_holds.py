"""A hold lasts as long as the table says, however long an agent lives and whatever else is away."""

from __future__ import annotations

import errno

import pytest

from agent.kube.answers import Answer
from tests.support.gpus import ACCELERATOR, FABRIC, GPU, answer
from tests.support.kernel_tree import Entries, base, bdf, gpu, hca, netdev, nic, union
from tests.support.nodes import SPEED
from tests.support.running import HOUR, World
from tests.support.smps import far_end, leaf

EIGHT = union(hca(f"ibp{number}", bdf(number)) for number in range(8))
BOOT_ID = "proc/sys/kernel/random/boot_id"


def block(world: World, *numbers: int) -> None:
    """No file of these devices can be read."""
    for number in numbers:
        world.errors[f"{base(number)}/ports"] = errno.ETIMEDOUT


def pull(world: World, number: int) -> None:
    world.write(f"{base(number)}/ports/1/state", b"1: DOWN\n")


def live_short(world: World, seconds: float, life: float, **changes: float) -> float:
    """Kill and start agents of `life` seconds each; return the seconds until the labels changed."""
    began, before = world.time, dict(world.api.labels)
    while world.time < began + seconds:
        world.start_again(**changes)
        world.run(life)
        if world.api.labels != before:
            return world.time - began
    return seconds


@pytest.mark.parametrize("has_boot_id", [True, False])
@pytest.mark.parametrize("life", [5.0, 45.0])
def test_agents_that_live_short_hold_an_unread_device_no_longer(
    life: float, has_boot_id: bool
) -> None:
    """An agent that is killed before it is a minute old renews no hold of 100 s, and ends none."""
    world = World(EIGHT, smp=leaf, hold=100.0)
    if not has_boot_id:
        world.remove(BOOT_ID)
    world.run(300)
    block(world, 0)
    assert 100 <= live_short(world, 400, life, hold=100.0) <= 100 + 2 * life + 15
    assert world.api.labels[SPEED] == "2800G"


@pytest.mark.parametrize("life", [5.0, 45.0])
def test_agents_that_live_short_hold_the_neighbor_of_a_down_link_no_longer(life: float) -> None:
    """The grace of 30 s is that of the first agent that saw the link down."""
    world = World(EIGHT, smp=leaf).run(300)
    world.run(10)
    pull(world, 0)
    world.start_again()
    world.run(5)
    assert world.api.labels[SPEED] == "2800G"
    assert any("ibp0" in key for key in world.labels)
    assert live_short(world, 300, life) <= 30 + 2 * life + 15
    assert not any("ibp0" in key for key in world.labels)


def test_a_hold_begins_with_the_agent_and_not_with_the_api_server() -> None:
    """The API server is away for 90 s: a hold of 40 s has ended by then."""
    world = World(EIGHT, smp=leaf, hold=40.0).run(300)
    block(world, 0)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no")
    world.start_again(hold=40.0)
    world.run(90)
    world.api.trouble = lambda _request: None
    world.run(30)
    assert world.speeds == ["3200G", "2800G"]
    assert world.labels.get("neighbors.current.ibp0.device") is None


def test_what_was_read_before_the_node_was_is_not_unread_since_the_start() -> None:
    """A device that the agent read until a second ago has its whole hold."""
    world = World(EIGHT, smp=leaf, hold=40.0).run(300)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no")
    world.start_again(hold=40.0)
    world.run(85)
    block(world, 0)
    world.look(5)
    world.api.trouble = lambda _request: None
    world.run(30)
    assert world.speeds == ["3200G"]
    world.run(100)
    assert world.speeds == ["3200G", "2800G"]


FILES = ("node_type", "ports", "ports/1/link_layer", "ports/1/state", "ports/1/rate", "")


@pytest.mark.parametrize("file", FILES)
def test_a_fresh_node_whose_reads_fail_has_no_speed(file: str) -> None:
    """`0G` is said of ports that were read; nothing was, and the reason says so."""
    world = World(EIGHT, smp=leaf)
    paths = [f"{base(number)}/{file}".rstrip("/") for number in range(8)]
    for path in world.entries:
        if any(f"{path}/".startswith(f"{failed}/") for failed in paths):
            world.errors[path] = errno.EIO
    world.errors |= dict.fromkeys(paths, errno.EIO)
    world.run(30)
    assert SPEED not in world.api.labels
    world.run(1200)
    assert SPEED not in world.api.labels
    world.errors.clear()
    world.look(30)
    assert world.api.labels[SPEED] == "3200G"


HOME = "sys/devices/pci0000:00"
SECOND = "0000:18:00.1"


def cards() -> Entries:
    """A RoCE card with two functions of one port each."""
    return nic(0, bdf(0)) | nic(1, SECOND)


def bond(world: World) -> None:
    """Bond the two ports of the first card: the RDMA device of its second function goes."""
    for number, address in ((0, bdf(0)), (1, SECOND)):
        device = f"{HOME}/{address}/infiniband/mlx5_{number}"
        world.remove(device, f"sys/class/infiniband/mlx5_{number}")
        world.entries |= netdev(
            f"eth{number}",
            address,
            master="../bond0",
            speed="200000",
            **{"bonding_slave/state": "active", "bonding_slave/mii_status": "up"},
        )
    world.entries |= hca("mlx5_bond_0", bdf(0), "Ethernet", {1: "bond0"})
    world.entries |= netdev("bond0", **{"bonding/slaves": "eth0 eth1", "speed": "400000"})


def test_the_second_function_of_a_bond_is_read_in_the_bond() -> None:
    """It has no RDMA device of its own any more, and is no port of which nothing is known."""
    world = World(cards()).run(300)
    assert world.api.labels[SPEED] == "800G"
    bond(world)
    world.look(30)
    assert world.api.labels[SPEED] == "400G"
    legs = {"mlx5_bond_0-eth0", "mlx5_bond_0-eth1"}
    assert {row["interface"] for row in world.rows} == legs
    assert not any("is its driver loading" in line for line in world.lines)
    world.start_again()
    world.run(1200)
    assert world.api.labels[SPEED] == "400G"


def test_agents_that_live_short_hold_an_unread_domain_no_longer() -> None:
    """Its GPUs do not answer: an hour and the hold after the last agent that read it."""
    world = World(EIGHT, gpu(), smp=leaf, hold=100.0)
    world.nvml = lambda: answer(GPU)
    world.run(300)
    world.nvml = world._no_nvml  # noqa: SLF001 - of a World without GPUs
    assert ACCELERATOR in world.api.labels
    assert live_short(world, 2 * HOUR, 50.0, hold=100.0) <= HOUR + 100 + 2 * 50
    assert ACCELERATOR not in world.api.labels


def test_a_domain_that_is_read_seconds_after_the_start_writes_nothing() -> None:
    """A restart changes no label and no annotation."""
    world = World(EIGHT, gpu(), smp=leaf)
    world.nvml = lambda: answer(GPU)
    world.run(300)
    writes = len(world.api.writes)
    world.nvml = lambda: answer(GPU | {"fabric": FABRIC | {"state": 2}})  # in progress
    world.start_again()
    world.run(8)
    world.nvml = lambda: answer(GPU)
    world.run(120)
    assert len(world.api.writes) == writes


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_away", [False, True])
def test_another_domain_is_an_event(*, restarts: bool, is_away: bool) -> None:
    """One, of the last known domain and the new one, though the node had none between."""
    world = World(EIGHT, gpu(), smp=leaf, events=True)
    world.nvml = lambda: answer(GPU)
    world.run(300)
    assert not world.api.events
    if is_away:  # it is registering again
        world.nvml = lambda: answer(GPU | {"fabric": FABRIC | {"state": 2}})
        world.run(60)
    world.nvml = lambda: answer(GPU | {"fabric": FABRIC | {"clique_id": 7}})
    if restarts:
        world.start_again(events=True)
    world.run(300)
    [event] = world.api.events.values()
    uuid = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
    assert (event["reason"], event["count"]) == ("DomainChanged", 1)
    assert event["message"] == f"the NVLink domain was {uuid}.4026, is {uuid}.7"
    assert world.api.labels[ACCELERATOR] == f"{uuid}.7"


def test_a_cable_that_moved_while_nobody_looked_is_another_one() -> None:
    """The agent sees the new switch before it can read the Node: it is told from the one before."""
    world = World(EIGHT, smp=leaf, events=True).run(300)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no")
    world.smp = lambda address: far_end(address, 0xB0CF0E0300D4EE49, "L90.1.9")
    world.start_again(events=True)
    world.run(20)
    world.api.trouble = lambda _request: None
    world.run(200)
    assert any("was connected to L90.1.3" in one["message"] for one in world.api.events.values())


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("path", ["ports", "ports/1/link_layer", "ports/1/state", "ports/1/rate"])
def test_what_was_unread_for_longer_than_its_hold_is_soon_there(path: str, error: int) -> None:
    """No event tells that it can be read again."""
    world = World(EIGHT, smp=leaf).run(300)
    world.errors[f"{base(0)}/{path}"] = error
    world.run(1000)
    assert world.api.labels[SPEED] == "2800G"
    world.errors.clear()
    assert world.run(45).api.labels[SPEED] == "3200G"


def test_a_listing_that_failed_since_the_start_is_soon_there() -> None:
    """Nothing of it is held."""
    world = World(EIGHT, smp=leaf)
    world.errors["sys/class/infiniband"] = errno.EIO
    world.run(700)
    world.errors.clear()
    assert world.run(45).api.labels[SPEED] == "3200G"


@pytest.mark.parametrize(("error", "most"), [(errno.EACCES, 20), (errno.EIO, 140)])
def test_the_pace_while_a_file_is_unread(error: int, most: int) -> None:
    """What is not permitted stays so: it keeps the agent at its pace of five minutes."""
    world = World(EIGHT, smp=leaf)
    world.errors[f"{base(0)}/fw_ver"] = error
    world.run(300)
    before, requests = len(world.looks), len(world.api.requests)
    world.run(HOUR)
    assert most - 20 <= len(world.looks) - before <= most
    assert len(world.api.requests) - requests <= 16
