"""The leaf group of a running agent: over restarts and reboots, and the requests that it takes."""

from __future__ import annotations

import json

import pytest

from agent.events.event import Event
from tests.support.kernel_tree import HOME, hca
from tests.support.nodes import LEAF_GROUP
from tests.support.running import HOUR, World
from tests.support.smps import Fabric

A, B = "0000:18:00.0", "0000:19:00.0"
GROUP = "leafgroup.current"


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(ibp0=(1, "a"), ibp1=(2, "b"))


@pytest.fixture
def world(fabric: Fabric) -> World:
    """Two HCAs on two leaves; the agent has been running for a minute."""
    world = World(hca("ibp0", A) | hca("ibp1", B), smp=fabric).run(60.0)
    assert world.labels[GROUP] == "a_b"
    return world


def state(world: World, name: str, bdf: str, text: bytes) -> World:
    path = f"{HOME}/{bdf}/infiniband/{name}/ports/1/state"
    world.at(0.0, Event("port", f"{name}/1"), do=lambda: world.write(path, text))
    return world.run(120.0)


@pytest.mark.slow
def test_it_outlives_everything_but_another_leaf(world: World, fabric: Fabric) -> None:
    """A link that is down for hours, new agents, a reboot; then the cable is in another switch."""
    state(world, "ibp1", B, b"1: DOWN\n")
    assert "neighbors.current.ibp1.device" not in world.labels
    assert world.labels["leaves.current"] == "a"
    for _ in range(2):
        assert world.run(3 * HOUR).labels[GROUP] == "a_b"
        world.start_again()
    world.write("proc/sys/kernel/random/boot_id", b"another\n")
    world.start_again()
    assert world.run(3 * HOUR).labels[GROUP] == "a_b"
    assert all(LEAF_GROUP in labels for labels in world.api.writes)
    fabric.leaves = {"ibp0": (1, "a"), "ibp1": (3, "c")}
    assert state(world, "ibp1", B, b"4: ACTIVE\n").labels[GROUP] == "a_c"


def test_the_memory_alone_makes_no_request(world: World, fabric: Fabric) -> None:
    """A switch was replaced by one of the same name: its GUID comes with the next hourly one."""
    before = len(world.api.applied())
    fabric.leaves = {"ibp0": (1, "a"), "ibp1": (9, "b")}
    world.look(60.0)
    applied = len(world.api.applied())
    world.run(120.0)
    state(world, "ibp0", A, b"4: ACTIVE\n")
    assert len(world.api.applied()) == applied <= before + 1
    world.run(1.2 * HOUR)
    document = json.loads(world.told)
    index, _port = document["ports"][1]["far"]
    assert document["switches"][index][0] == f"{9:016x}"


def test_restarts_renew_no_hold_of_the_group(world: World) -> None:
    """Nobody knows whose leaf it is; the agent is started again each five minutes."""
    state(world, "ibp1", B, b"1: DOWN\n")
    world.api.annotation = None
    for _ in range(3):
        world.start_again()
        world.run(HOUR / 12)
    assert world.labels[GROUP] == "a"
