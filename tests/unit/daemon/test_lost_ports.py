"""An HCA that leaves the bus, over restarts of the agent, a reboot and `cleanup --lost`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.events.event import Event
from agent.kube.answers import Answer
from agent.kube.change import forgetting
from agent.kube.negotiation import negotiate
from tests.support import nodes
from tests.support.kernel_tree import BUS, CLASS, HOME, bdf, card, union
from tests.support.nodes import KEYS, SPEED
from tests.support.running import HOUR, Api, World

LOST = "ibp3 (0000:1b:00.0) is gone from the bus"


def falls_off(world: World) -> None:
    """Remove an HCA with its function, and report it."""
    paths = (f"{CLASS}/ibp3", f"{HOME}/{bdf(3)}", f"{BUS}/{bdf(3)}")
    world.at(0.0, Event("device", "ibp3"), do=lambda: world.remove(*paths))
    world.run(30.0)


def remembered(world: World) -> list[str]:
    """The lost interfaces in the Node's annotation."""
    return [row["interface"] for row in lost_rows(world)]


def lost_rows(world: World) -> list[dict[str, Any]]:
    return [row for row in world.rows if "lost" in row]


def counted(world: World) -> int | None:
    cycle = world.metrics.snapshot.cycle
    return len(cycle.known.lost) if cycle and cycle.known.is_seeded else None


@pytest.fixture
def world() -> World:
    """Four HCAs that are labeled; the agent has been running for a minute."""
    world = World(union(card(f"ibp{number}", bdf(number)) for number in range(4))).run(60.0)
    assert world.labels["speed.current"] == "1600G"
    assert (remembered(world), counted(world)) == ([], 0)
    return world


@pytest.mark.slow
def test_it_is_a_warning_and_stays_known(world: World) -> None:
    """The log has one warning, the Node the loss; the labels are those of three HCAs."""
    writes = len(world.api.writes)
    falls_off(world)
    assert world.labels["speed.current"] == "1200G"
    assert (remembered(world), counted(world)) == (["ibp3"], 1)
    assert [line for line in world.lines if "warning" in line and LOST in line]
    changed = [line for line in world.lines if f"label changed key={SPEED}" in line]
    assert "gone from the bus" in changed[-1]
    assert len(world.api.writes) == writes + 1
    world.run(3 * HOUR)
    assert (remembered(world), counted(world)) == (["ibp3"], 1)
    assert sum(LOST in line for line in world.lines if "problem" in line) == 1


def test_it_survives_a_restart_and_a_reboot(world: World) -> None:
    """The annotation has it; a time is that of the loss."""
    falls_off(world)
    (row,) = lost_rows(world)
    assert row["pci"] == bdf(3)
    world.start_again()
    world.run(100.0)
    world.write("proc/sys/kernel/random/boot_id", b"another\n")
    world.start_again()
    world.run(100.0)
    assert lost_rows(world) == [row]
    assert json.loads(world.told)["boot_id"] == "another"
    assert counted(world) == 1
    verified = [line for line in world.lines if "labels verified" in line]
    assert ['ports="3 of 4"' in line for line in verified] == [True, True], verified


def test_a_port_without_driver_is_one_of_those_that_are_verified(world: World) -> None:
    """Its function is on the bus; "3 of 3" of a node with four rails would hide it."""
    world.at(0.0, Event("device", "ibp3"), do=lambda: world.remove(f"{CLASS}/ibp3"))
    world.run(HOUR)
    world.start_again()
    world.run(HOUR)
    verified = [line for line in world.lines if "labels verified" in line]
    assert 'ports="3 of 4"' in verified[-1], world.lines


def test_before_the_node_is_read_nothing_is_known(world: World) -> None:
    """While the API server is away the metric has no value."""
    world.api.trouble = lambda _request: Answer(error="timeout")
    world.start_again()
    world.run(60.0)
    assert counted(world) is None


def clean_up(api: Api) -> None:
    """Run `cleanup --lost` beside the agent."""
    todo = forgetting(nodes.node(api.labels, observed=api.annotation), KEYS)
    assert todo.is_due
    assert negotiate(todo, api).is_complete


def test_cleanup_beside_a_running_agent(world: World) -> None:
    """The agent forgets it with its next request, an hour later at most, and changes no label."""
    falls_off(world)
    labels = dict(world.api.labels)
    clean_up(world.api)
    assert (remembered(world), world.api.labels) == ([], labels)
    world.run(1.3 * HOUR)
    assert (remembered(world), counted(world)) == ([], 0)
    world.start_again()
    world.run(60.0)
    assert (remembered(world), counted(world)) == ([], 0)


def test_a_removed_annotation_comes_back(world: World) -> None:
    """Only one that has the others, and not this one, was cleaned up."""
    falls_off(world)
    world.api.annotation = None
    world.look()
    assert (remembered(world), counted(world)) == (["ibp3"], 1)


def test_requests_of_a_node_with_a_lost_port(world: World) -> None:
    """Each is preceded by a GET, and there is one an hour."""
    falls_off(world)
    world.api.requests.clear()
    world.run(5.5 * HOUR)
    operations = [operation for _, operation in world.api.requests if operation != "look"]
    assert operations[:2] == ["get", "apply"]
    assert len(world.api.applied()) in (5, 6)
    assert len(operations) == 2 * len(world.api.applied())


def test_an_hca_that_the_annotation_has_twice_is_lost_once(world: World) -> None:
    """An edited annotation has its row as present and as lost: the next requests are hourly."""
    falls_off(world)
    told = json.loads(world.told)
    (row,) = lost_rows(world)
    told["ports"].insert(0, {name: fact for name, fact in row.items() if name != "lost"})
    world.api.annotation = json.dumps(told)
    world.start_again()
    world.look()
    assert (remembered(world), counted(world)) == (["ibp3"], 1)
    writes = len(world.api.applied())
    for _ in range(20):
        world.look()
    assert len(world.api.applied()) <= writes + 1
