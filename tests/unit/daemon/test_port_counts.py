"""The speed label over time, while some ports or devices cannot be read."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from agent.kube.answers import Answer
from tests.support.kernel_tree import BUS, CLASS, HOME, base, bdf, gpu, hca, netdev, routes, union
from tests.support.nodes import IB_SPEED, SPEED
from tests.support.running import HOUR, Api, World
from tests.support.smps import leaf

HOLD = 600.0
EIGHT = union(hca(f"ibp{number}", bdf(number)) for number in range(8))


def block(world: World, number: int, name: str = "ibp{}") -> None:
    """No file of a device can be read."""
    world.errors[f"{base(number, name)}/ports"] = errno.ETIMEDOUT


def pull(world: World, numbers: Iterable[int]) -> None:
    for number in numbers:
        world.write(f"{base(number)}/ports/1/state", b"1: DOWN\n")


def changes(world: World) -> int:
    """The number of times that labels changed; the hourly request may change none."""
    return sum(one != before for before, one in itertools.pairwise(world.api.writes))


def unread(world: World) -> dict[str, dict[str, int]]:
    """Since when interfaces are unread, by the annotation."""
    return {row["interface"]: row["unread"] for row in world.rows if "unread" in row}


def test_one_hca_is_blocked_and_four_cables_are_pulled() -> None:
    """The Node has the sum of three ports that are up and what the blocked one counted."""
    world = World(EIGHT, smp=leaf).run(60)
    block(world, 0)
    world.look(30)
    writes = changes(world)
    began = world.time
    pull(world, (1, 2, 3, 4))
    world.look(1)
    assert world.api.labels[SPEED] == world.api.labels[IB_SPEED] == "1600G"
    assert changes(world) == writes + 1
    assert world.api.applied()[-1] - began < 0.1
    counted = {row["interface"]: row["gbps"] for row in world.rows}
    assert counted == {f"ibp{n}": 0.0 if 0 < n < 5 else 400.0 for n in range(8)}
    assert world.metrics.snapshot.cycle is not None


@pytest.mark.slow
@pytest.mark.parametrize("text", ["5: ACTIVE_DEFER", "4:ACTIVE"])
def test_a_state_that_tells_nothing_keeps_the_count(text: str) -> None:
    """Neither up nor down: the port counts what it last counted, until the hold ends."""
    world = World(EIGHT, smp=leaf).run(60)
    neighbor = world.labels["neighbors.current.ibp0.device"]
    world.write(f"{base(0)}/ports/1/state", f"{text}\n".encode())
    world.look(HOLD - 5)
    assert world.speeds == ["3200G"]
    assert world.labels["neighbors.current.ibp0.device"] == neighbor
    world.run(10)
    assert world.speeds == ["3200G", "2800G"]


@pytest.mark.parametrize("name", ["board_id", "sys_image_guid"])
def test_with_backend_device_no_fact_of_a_card_decides(name: str) -> None:
    """Unread, it removes no label, neither before nor after a restart."""
    named: dict[str, Any] = {"backend": ("ibp*",)}
    world = World(EIGHT, **named, smp=leaf).run(60)
    before = world.api.labels
    for number in range(8):
        world.errors[f"{base(number)}/{name}"] = errno.EIO
    world.look(HOLD + 60)
    world.start_again(**named)
    world.run(HOLD + 60)
    assert (world.api.labels, world.speeds) == (before, ["3200G"])


def test_a_sum_with_a_held_count_is_logged_once() -> None:
    """After a minute there is one line with the reason, and one for its end."""
    world = World(EIGHT, smp=leaf).run(60)
    block(world, 0)
    world.look(200)
    pull(world, (1,))
    world.look(200)
    lines = [line for line in world.lines if "label held" in line and SPEED in line]
    assert len(lines) == 1
    assert "last-count" in lines[0]
    world.run(300)
    assert any("label no longer held" in line and SPEED in line for line in world.lines)
    assert any("from=2800G to=2400G" in line and "ibp0" in line for line in world.lines)


def test_a_source_that_fails_for_ever_does_not_make_the_counts_old() -> None:
    """No observation is full; after a restart the cables that were pulled count at once."""
    world = World(EIGHT, gpu(), smp=leaf).run(90)
    assert json.loads(world.told)["time"] is None
    block(world, 0)
    pull(world, (1, 2, 3, 4))
    world.start_again()
    world.run(30)
    assert world.speeds == ["3200G", "1600G"]
    assert not any("ignored" in line for line in world.lines)
    world.run(HOLD)
    assert world.speeds == ["3200G", "1600G", "1200G"]


def test_another_boot_begins_another_hold() -> None:
    """The clock of the former boot says nothing."""
    world = World(EIGHT, smp=leaf).run(60)
    block(world, 0)
    world.look(400)
    world.write("proc/sys/kernel/random/boot_id", b"6f0492e8\n")
    world.start_again()
    world.run(HOLD - 10)
    assert world.speeds == ["3200G"]
    world.run(20)
    assert world.speeds == ["3200G", "2800G"]


def test_an_episode_costs_three_requests() -> None:
    """One when a port is unread for a minute, one when it is read, one when its switch answers."""
    world = World(EIGHT, resync=1e6, smp=leaf).run(60)
    before = len(world.api.applied())
    block(world, 0)
    world.look(50)
    assert len(world.api.applied()) == before
    world.look(200)
    world.look(200)
    assert len(world.api.applied()) == before + 1
    world.errors.clear()
    world.look(200)
    world.look(200)
    assert len(world.api.applied()) == before + 3
    assert unread(world) == {}
    block(world, 0)
    world.look(30)
    world.errors.clear()
    world.look(100)
    assert len(world.api.applied()) == before + 3


def test_a_front_end_that_fails_does_not_hold_the_speed() -> None:
    """It never counted, so the cables of others are seen at once."""
    front = hca("mlx5_9", bdf(30), "Ethernet", {1: "front"}) | netdev("front", bdf(30))
    world = World(EIGHT, front, routes("front"), smp=leaf).run(60)
    block(world, 30, "mlx5_9")
    pull(world, (1, 2))
    world.look(1)
    assert world.api.labels[SPEED] == "2400G"


@pytest.mark.slow
def test_a_restart_beside_a_device_that_was_given_up() -> None:
    """It counts 0 in the annotation, so the new agent has a sum that fits the label."""
    world = World(EIGHT, smp=leaf).run(60)
    block(world, 7)
    world.look(HOUR)
    writes = changes(world)
    block(world, 1)
    world.start_again()
    world.run(300)
    assert (world.speeds[-1], changes(world)) == ("2800G", writes)
    assert not any("is ignored" in line for line in world.lines)


def test_the_api_server_is_away_at_the_start() -> None:
    """A count that the agent has seen itself is used, though the annotation's is older."""
    world = World(EIGHT, smp=leaf).run(60)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no")
    world.start_again()
    pull(world, (1,))
    world.run(60)
    block(world, 0)
    world.look(60)
    world.api.trouble = lambda _request: None
    world.run(200)
    assert world.speeds == ["3200G", "2800G"]


def test_a_fresh_node_with_a_port_that_goes_down() -> None:
    """The sum that lacks an unknown count follows the ports that are seen."""
    world = World(EIGHT, api=Api(), smp=leaf)
    block(world, 0)
    pull(world, (1,))
    world.run(30)
    pull(world, (2,))
    world.look(20)
    world.entries |= EIGHT
    world.look(20)
    assert world.speeds == ["2400G", "2000G", "2800G"]
    block(world, 3)
    world.look(20)
    assert world.speeds[-1] == "2800G"
    world.errors.clear()
    world.look(20)
    assert world.speeds[-1] == "3200G"


def test_a_port_that_is_pulled_out_beside_a_device_that_nobody_could_read() -> None:
    """It counts when it returns, though the new agent has seen no complete observation."""
    odd = hca("mlx5_9", bdf(30), "Ethernet", {1: "front"}) | netdev("front", bdf(30))
    world = World(EIGHT, odd, smp=leaf).run(60)
    block(world, 30, "mlx5_9")
    world.start_again()
    world.run(30)
    world.remove(f"{CLASS}/ibp7", base(7), f"{BUS}/{bdf(7)}", f"{HOME}/{bdf(7)}")
    world.look(20)
    world.entries |= hca("ibp7", bdf(7))
    world.look(20)
    assert world.speeds == ["3200G", "2800G", "3200G"]
