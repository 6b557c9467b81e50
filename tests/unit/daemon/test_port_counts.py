"""The speed label over time, while some ports or devices cannot be read."""

from __future__ import annotations

import errno
import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from agent.events.event import Event
from agent.kube.answers import Answer
from tests.support.kernel_tree import BUS, CLASS, HOME, hca, netdev, routes
from tests.support.lldp_frames import switch
from tests.support.nodes import IB_SPEED, SPEED
from tests.support.running import Api, World
from tests.support.smps import exchanges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.kernel_tree import Entries

HUP = Event("signal", "SIGHUP")
HOUR = 3600.0
HOLD = 600.0


def bdf(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00.0"


def base(number: int, name: str = "ibp{}") -> str:
    """The folder of a device."""
    return f"{HOME}/{bdf(number)}/infiniband/{name.format(number)}"


def eight() -> Entries:
    """Eight InfiniBand HCAs."""
    return {
        path: one for number in range(8) for path, one in hca(f"ibp{number}", bdf(number)).items()
    }


def rails(count: int = 4) -> Entries:
    """RoCE NICs, each with a netdev."""
    tree: Entries = {}
    for number in range(count):
        tree |= hca(f"mlx5_{number}", bdf(number), "Ethernet", {1: f"eth{number}"})
        tree |= netdev(f"eth{number}", bdf(number))
    return tree


def leaf(address: tuple[str, int]) -> dict[str, Any]:
    answer = {"exchanges": exchanges(), "error": None, "text": None}
    return {"device": address[0], "port": address[1], **answer}


def fabric(*trees: Entries, **changes: Any) -> World:
    """An agent whose switches answer SMPs."""
    world = World(*trees, **changes)
    world.smp = leaf
    return world


def look(world: World, seconds: float = 0.0) -> World:
    """Have the agent observe now, and let time pass."""
    world.at(0.0, HUP)
    return world.run(seconds or 1.0)


def block(world: World, number: int, name: str = "ibp{}") -> None:
    """No file of a device can be read."""
    world.errors[f"{base(number, name)}/ports"] = errno.ETIMEDOUT


def unbind(world: World, number: int, name: str = "mlx5_{}") -> None:
    """RoCE is switched off: no RDMA device, but the function and its netdev are there."""
    world.remove(f"{CLASS}/{name.format(number)}", base(number, name))


def pull(world: World, numbers: Iterable[int]) -> None:
    for number in numbers:
        world.write(f"{base(number)}/ports/1/state", b"1: DOWN\n")


def speeds(world: World) -> list[str]:
    """The speeds that the Node was given, in their order, without repetitions."""
    return [speed for speed, _ in itertools.groupby(labels[SPEED] for labels in world.api.writes)]


def changes(world: World) -> int:
    """The number of times that labels changed; the hourly request may change none."""
    return sum(one != before for before, one in itertools.pairwise(world.api.writes))


def counted(world: World) -> dict[str, float]:
    """What the interfaces count, by the annotation."""
    rows = json.loads(world.told)["ports"]
    return {row["interface"]: row["gbps"] for row in rows}


def test_one_hca_is_blocked_and_four_cables_are_pulled() -> None:
    """The Node has the sum of three ports that are up and what the blocked one counted."""
    world = fabric(eight()).run(60)
    block(world, 0)
    look(world, 30)
    writes = changes(world)
    began = world.time
    pull(world, (1, 2, 3, 4))
    look(world)
    assert world.api.labels[SPEED] == world.api.labels[IB_SPEED] == "1600G"
    assert changes(world) == writes + 1
    assert world.api.applied()[-1] - began < 0.1
    assert counted(world) == {
        f"ibp{number}": 0.0 if 0 < number < 5 else 400.0 for number in range(8)
    }
    assert world.metrics.snapshot.observation is not None


@pytest.mark.parametrize("text", ["0: NOP", "5: ACTIVE_DEFER", "6: <unknown>", "4:ACTIVE"])
def test_a_state_that_tells_nothing_keeps_the_count(text: str) -> None:
    """Neither up nor down: the port counts what it last counted, until the hold ends."""
    world = fabric(eight()).run(60)
    neighbor = world.labels["neighbors.current.ibp0.device"]
    world.write(f"{base(0)}/ports/1/state", f"{text}\n".encode())
    look(world, HOLD - 5)
    assert speeds(world) == ["3200G"]
    assert world.labels["neighbors.current.ibp0.device"] == neighbor
    world.run(10)
    assert speeds(world) == ["3200G", "2800G"]


@pytest.mark.parametrize("name", ["board_id", "hca_type", "sys_image_guid", "node_type"])
def test_with_backend_device_no_fact_of_a_card_decides(name: str) -> None:
    """Unread, it removes no label, neither before nor after a restart."""
    named: dict[str, Any] = {"backend": ("ibp*",)}
    world = fabric(eight(), **named).run(60)
    before = world.api.labels
    for number in range(8):
        world.errors[f"{base(number)}/{name}"] = errno.EIO
    look(world, HOLD + 60)
    world.start_again(**named)
    world.run(HOLD + 60)
    assert (world.api.labels, speeds(world)) == (before, ["3200G"])


def test_a_sum_with_a_held_count_is_logged_once() -> None:
    """After a minute there is one line with the reason, and one for its end."""
    world = fabric(eight()).run(60)
    block(world, 0)
    look(world, 200)
    pull(world, (1,))
    look(world, 200)
    lines = [line for line in world.lines if "label held" in line and SPEED in line]
    assert len(lines) == 1
    assert "last-count" in lines[0]
    world.run(300)
    assert any("label no longer held" in line and SPEED in line for line in world.lines)
    assert any("from=2800G to=2400G" in line and "ibp0" in line for line in world.lines)


@pytest.mark.slow
def test_a_restart_while_a_count_is_held() -> None:
    """The new agent has the count from the annotation, and for how long; it writes nothing."""
    world = fabric(eight()).run(60)
    block(world, 0)
    pull(world, (1, 2, 3, 4))
    look(world, 300)
    writes = changes(world)
    world.start_again()
    world.run(HOLD - 320)
    assert (speeds(world), changes(world)) == (["3200G", "1600G"], writes)
    pull(world, (5,))
    look(world)
    assert speeds(world)[-1] == "1200G"
    world.run(30)
    assert speeds(world)[-1] == "800G"


def clocks(world: World) -> dict[str, list[int | None]]:
    """Since when interfaces are unread, by the annotation."""
    rows = json.loads(world.told)["ports"]
    return {row["interface"]: row["unread"] for row in rows if "unread" in row}


def test_restarts_renew_no_hold() -> None:
    """An HCA that went down while it cannot be read counts for the hold, however often the agent
    starts.
    """
    world = fabric(eight()).run(60)
    block(world, 0)
    began = world.time
    look(world, 90)
    assert clocks(world) == {"ibp0": [int(began)] * 3}
    for _ in range(4):
        world.start_again()
        world.run(100)
        assert speeds(world) == ["3200G"]
    world.start_again()
    world.run(HOLD - (world.time - began) + 10)
    assert speeds(world) == ["3200G", "2800G"]
    assert not any("ibp0" in key for key in world.labels)
    world.start_again()
    world.run(100)
    assert speeds(world) == ["3200G", "2800G"]


def test_another_boot_begins_another_hold() -> None:
    """The clock of the former boot says nothing."""
    world = fabric(eight()).run(60)
    block(world, 0)
    look(world, 400)
    world.write("proc/sys/kernel/random/boot_id", b"6f0492e8\n")
    world.start_again()
    world.run(HOLD - 10)
    assert speeds(world) == ["3200G"]
    world.run(20)
    assert speeds(world) == ["3200G", "2800G"]


def test_an_episode_costs_three_requests() -> None:
    """One when a port is unread for a minute, one when it is read, one when its switch answers."""
    world = fabric(eight(), resync=1e6).run(60)
    before = len(world.api.applied())
    block(world, 0)
    look(world, 50)
    assert len(world.api.applied()) == before
    look(world, 200)
    look(world, 200)
    assert len(world.api.applied()) == before + 1
    world.errors.clear()
    look(world, 200)
    look(world, 200)
    assert len(world.api.applied()) == before + 3
    assert clocks(world) == {}
    block(world, 0)
    look(world, 30)
    world.errors.clear()
    look(world, 100)
    assert len(world.api.applied()) == before + 3


def forged(world: World, **changes: Any) -> None:
    """Change the annotation; `gbps` is the count of ibp0."""
    document = json.loads(world.told)
    if "gbps" in changes:
        document["ports"][0]["gbps"] = changes.pop("gbps")
    world.api.annotation = json.dumps(document | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"gbps": 9000}, "their sum is 11800G"),
        ({"gbps": -400}, "their sum is 2800G"),
        ({"gbps": 1e308}, "their sum is 2800G"),
        ({"gbps": float("nan")}, "their sum is 2800G"),
        ({"boot_id": "another"}, "of another boot"),
    ],
)
def test_counts_that_are_not_used(changes: dict[str, Any], text: str) -> None:
    """A count of another boot, or one that does not sum up to the label, holds the whole label."""
    world = fabric(eight()).run(60)
    block(world, 0)
    look(world, 10)
    forged(world, **changes)
    pull(world, (1, 2, 3, 4))
    world.start_again()
    world.run(30)
    assert world.api.labels[SPEED] == "3200G"
    if "gbps" not in changes or 0 <= changes["gbps"] <= 10_000:
        assert any(text in line and "ibp0" in line for line in world.lines)
    world.run(HOLD)
    assert world.api.labels[SPEED] == "1200G"


def test_a_count_beside_ports_that_are_seen() -> None:
    """What the annotation has of a port that can be read is of no account."""
    world = fabric(eight()).run(60)
    document = json.loads(world.told)
    document["ports"][0]["gbps"] = 800
    document["ports"][1]["gbps"] = 0
    world.api.annotation = json.dumps(document)
    world.start_again()
    world.run(30)
    assert speeds(world) == ["3200G"]


def test_an_annotation_without_counts() -> None:
    """One of an earlier agent: the whole label is held while an HCA is blocked."""
    world = fabric(eight()).run(60)
    document = json.loads(world.told)
    for row in document["ports"]:
        del row["gbps"]
    world.api.annotation = json.dumps(document)
    block(world, 0)
    pull(world, (1, 2))
    world.start_again()
    world.run(HOLD - 10)
    assert speeds(world) == ["3200G"]
    world.run(20)
    assert speeds(world) == ["3200G", "2000G"]


def test_a_front_end_that_fails_does_not_hold_the_speed() -> None:
    """It never counted, so the cables of others are seen at once."""
    front = hca("mlx5_9", bdf(30), "Ethernet", {1: "front"}) | netdev("front", bdf(30))
    world = fabric(eight(), front, routes("front")).run(60)
    block(world, 30, "mlx5_9")
    pull(world, (1, 2))
    look(world)
    assert world.api.labels[SPEED] == "2400G"


def test_storage_nics_do_not_count_while_a_rail_fails() -> None:
    """With one of two rails unread the storage NICs are the larger group; they add nothing."""
    storage: Entries = {}
    for number in (20, 21):
        storage |= hca(f"mlx5_{number}", bdf(number), "Ethernet", {1: f"store{number}"})
        storage |= netdev(f"store{number}", bdf(number), speed="100000")
        storage[f"{HOME}/{bdf(number)}/device"] = b"0x101d\n"
    world = World(rails(2), storage).run(60)
    assert world.api.labels[SPEED] == "800G"
    block(world, 0, "mlx5_{}")
    look(world, 300)
    assert speeds(world) == ["800G"]


def listen(world: World, count: int, hours: float) -> None:
    """Let the switches send a frame each 30 s."""
    for second in range(0, int(hours * HOUR), 30):
        for number in range(count):
            frame = switch(f"leaf-{number}")
            world.at(second, do=partial(world.hear, f"eth{number}", frame))


@pytest.mark.slow
def test_roce_that_is_switched_off_on_one_nic_for_days() -> None:
    """After the hold its labels go; then a transient failure of another NIC changes nothing."""
    world = World(rails())
    listen(world, 4, 1)
    world.run(120)
    unbind(world, 3)
    look(world, HOLD - 10)
    assert speeds(world) == ["1600G"]
    world.run(60)
    assert speeds(world) == ["1600G", "1200G"]
    world.run(1500)
    before, writes = dict(world.api.labels), changes(world)
    for failing in (f"{base(1, 'mlx5_{}')}/ports", f"{base(1, 'mlx5_{}')}/ports/1/state"):
        world.errors[failing] = errno.EIO
        look(world, 20)
        world.errors.clear()
        look(world, 20)
    assert (world.api.labels, changes(world)) == (before, writes)
    world.entries |= rails()
    look(world, 60)
    assert speeds(world)[-1] == "1600G"
    assert world.labels["neighbors.current.mlx5_3.device"] == "leaf-3"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unbound", "blocked"])
def test_an_hca_that_fails_for_hours(how: str) -> None:
    """A transient failure of another HCA changes no label, joined ones included."""
    world = fabric(eight()).run(60)
    if how == "blocked":
        block(world, 7)
    else:
        unbind(world, 7, "ibp{}")
    look(world, 2 * HOUR)
    before, writes = dict(world.api.labels), changes(world)
    assert before[SPEED] == "2800G"
    block(world, 1)
    look(world, 300)
    assert world.api.labels == before
    pull(world, (2,))
    look(world, 10)
    assert world.api.labels[SPEED] == "2400G"
    del world.errors[f"{base(1)}/ports"]
    look(world, 10)
    assert changes(world) == writes + 1
    world.errors.clear()
    world.entries |= hca("ibp7", bdf(7))
    look(world, 30)
    assert world.api.labels[SPEED] == "2800G"


@pytest.mark.slow
def test_a_restart_beside_a_device_that_was_given_up() -> None:
    """It counts 0 in the annotation, so the new agent has a sum that fits the label."""
    world = fabric(eight()).run(60)
    block(world, 7)
    look(world, HOUR)
    writes = changes(world)
    block(world, 1)
    world.start_again()
    world.run(300)
    assert (speeds(world)[-1], changes(world)) == ("2800G", writes)
    assert not any("is ignored" in line for line in world.lines)


def test_the_api_server_is_away_at_the_start() -> None:
    """A count that the agent has seen itself is used, though the annotation's is older."""
    world = fabric(eight()).run(60)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no")
    world.start_again()
    pull(world, (1,))
    world.run(60)
    block(world, 0)
    look(world, 60)
    world.api.trouble = lambda _request: None
    world.run(200)
    assert speeds(world) == ["3200G", "2800G"]


def test_a_fresh_node() -> None:
    """With an HCA that never was read, the sum of the others is published."""
    world = fabric(eight(), api=Api())
    block(world, 0)
    world.run(30)
    assert world.api.labels[SPEED] == "2800G"


def test_a_fresh_node_with_a_port_that_goes_down() -> None:
    """The sum that lacks an unknown count follows the ports that are seen."""
    world = fabric(eight(), api=Api())
    block(world, 0)
    pull(world, (1,))
    world.run(30)
    pull(world, (2,))
    look(world, 20)
    world.entries |= eight()
    look(world, 20)
    assert speeds(world) == ["2400G", "2000G", "2800G"]
    block(world, 3)
    look(world, 20)
    assert speeds(world)[-1] == "2800G"
    world.errors.clear()
    look(world, 20)
    assert speeds(world)[-1] == "3200G"


def test_a_port_that_is_pulled_out_beside_a_device_that_nobody_could_read() -> None:
    """It counts when it returns, though the new agent has seen no complete observation."""
    odd = hca("mlx5_9", bdf(30), "Ethernet", {1: "front"}) | netdev("front", bdf(30))
    world = fabric(eight(), odd).run(60)
    block(world, 30, "mlx5_9")
    world.start_again()
    world.run(30)
    world.remove(f"{CLASS}/ibp7", base(7), f"{BUS}/{bdf(7)}", f"{HOME}/{bdf(7)}")
    look(world, 20)
    world.entries |= hca("ibp7", bdf(7))
    look(world, 20)
    assert speeds(world) == ["3200G", "2800G", "3200G"]


def test_a_driver_that_is_unbound_at_the_start() -> None:
    """The first observation lacks the device; with the annotation the agent has its count."""
    world = fabric(eight()).run(60)
    unbind(world, 7, "ibp{}")
    world.start_again()
    world.run(300)
    assert speeds(world) == ["3200G"]


def test_a_front_end_beside_a_driver_that_is_unbound_at_the_start() -> None:
    """Without the annotation the front end is all there is, hence the backend; it does not stay."""
    front = hca("mlx5_9", bdf(30), "Ethernet", {1: "front"}) | netdev("front", bdf(30))
    world = fabric(hca("ibp0", bdf(0)), front, routes("front")).run(60)
    unbind(world, 0, "ibp{}")
    world.start_again()
    world.run(300)
    assert speeds(world) == ["400G"]
