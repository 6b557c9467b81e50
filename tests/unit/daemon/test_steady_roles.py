"""The roles of ports in a running agent, while evidence is missing and when it is contradicted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.sources.steady import VERSION
from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    NET,
    Entries,
    bdf,
    card,
    gpu,
    nic,
    routes,
    union,
)
from tests.support.lldp_frames import switch
from tests.support.running import HOUR, World

OTHER_KIND = b"0x101d\n"


def other(number: int) -> Entries:
    """A RoCE NIC of another kind than those of the backend."""
    return nic(number) | {f"{HOME}/{bdf(number)}/device": OTHER_KIND}


NAMES = [f"mlx5_{number}" for number in range(4)]
FOUR = union(map(nic, range(4)))


def agent(*trees: Entries, **changes: Any) -> World:
    """An agent whose roles have lasted."""
    return World(*trees, **changes).run(120).look(120)


def away(world: World, *, driver: str | None = None, has_left: bool = False) -> None:
    """Three rails of four go: the storage NICs are as many, and more than those that are left."""
    for number in (1, 2, 3):
        home = f"{HOME}/{bdf(number)}"
        world.remove(
            f"{CLASS}/mlx5_{number}", f"{home}/infiniband", f"{home}/net", f"{NET}/eth{number}"
        )
        if driver:
            world.entries[f"{home}/driver"] = f"../../../bus/pci/drivers/{driver}"
        if has_left:
            world.remove(f"{BUS}/{bdf(number)}", home)


def test_a_route_through_another_nic_changes_two_roles_after_a_minute() -> None:
    """One line for each port with both verdicts, the counter, and an Event."""
    world = agent(FOUR, nic(4), routes("eth4"), events=True)
    world.entries |= routes("eth0")
    since = world.time
    world.look(50)
    assert world.speeds == ["1600G"]
    world.look(30)
    lines = [line for line in world.lines if "role changed" in line]
    assert len(lines) == world.metrics.snapshot.roles_changed == 2
    [line] = [line for line in lines if "device=mlx5_0" in line]
    assert "before=" in line
    assert 'after="no backend (front end: carries the default route)"' in line
    assert world.time < since + 90
    world.look(HOUR)
    told = [event for event in world.api.events.values() if event["reason"] == "RoleChanged"]
    assert len(told) == 2
    assert world.metrics.snapshot.roles_changed == 2


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        pytest.param({}, NAMES, id="in recovery: no RDMA device"),
        pytest.param({"driver": "vfio-pci"}, NAMES[:1], id="lent to a VM: another driver"),
        pytest.param({"has_left": True}, NAMES, id="off the bus: lost"),
    ],
)
def test_nics_that_are_away_outvote_nobody(how: dict[str, Any], rows: list[str]) -> None:
    """Nor over restarts; what may come back counts for the hold, and then 0."""
    world = agent(FOUR, other(5), other(6), other(7))
    away(world, **how)
    for _ in range(3):
        world.start_again()
        world.run(120).look(HOUR)
        assert world.metrics.snapshot.roles_changed == 0
        assert [row["interface"] for row in world.rows] == rows
        assert world.speeds == ["1600G", "400G"]


def test_the_second_function_of_a_card_counts_nothing_while_the_first_is_in_recovery() -> None:
    """Socket Direct: one cable, whichever of the functions is read."""
    first, second = card("ibp0", bdf(0)), card("ibp1", bdf(1))
    one, other = f"{HOME}/{bdf(0)}/infiniband/ibp0", f"{HOME}/{bdf(1)}/infiniband/ibp1"
    second[f"{other}/sys_image_guid"] = first[f"{one}/sys_image_guid"]
    second[f"{other}/ports/1/has_smi"] = b"0\n"
    world = agent(first, second, card("ibp2", bdf(2)))
    world.remove(f"{CLASS}/ibp0", f"{HOME}/{bdf(0)}/infiniband")
    world.look(120)
    world.start_again()
    world.run(120).look(HOUR)
    assert world.speeds == ["800G", "400G"]
    assert world.metrics.snapshot.roles_changed == 0


def rails_and_storage() -> Entries:
    """Four GPUs with four InfiniBand rails, and three storage HCAs of another kind."""
    tree: Entries = {}
    for number in range(4):
        tree |= card(f"ibp{number}", bdf(number)) | gpu(f"0000:{0x80 + number:02x}:00.0")
    for number in range(4, 7):
        tree |= card(f"ibp{number}", bdf(number), board="MT_0000000223")
        tree[f"{HOME}/{bdf(number)}/device"] = b"0x101b\n"
    return tree


@pytest.mark.slow
def test_a_restart_without_a_gpu_changes_no_role() -> None:
    """As many storage HCAs as GPUs are left; the annotation has the one that is missing."""
    world = agent(rails_and_storage())
    world.remove(f"{BUS}/0000:83:00.0", f"{HOME}/0000:83:00.0")
    world.look(HOUR)
    for _ in range(2):
        world.start_again()
        world.run(2 * HOUR).look(HOUR)
    assert world.speeds == ["1600G"]
    assert world.metrics.snapshot.roles_changed == 0


def test_the_flags_of_a_new_agent_win_at_once() -> None:
    """--backend-device names one NIC, then none any more."""
    world = agent(FOUR, nic(4), routes("eth4"))
    world.start_again(backend=("mlx5_0",))
    world.run(20)
    assert world.speeds == ["1600G", "400G"]
    world.start_again()
    world.run(20)
    assert world.speeds == ["1600G", "400G", "1600G"]


def test_another_version_of_the_rules_pins_no_role() -> None:
    """Of the same one, the rail that is left would stay the backend."""
    world = agent(FOUR, other(5), other(6), other(7))
    written = json.loads(world.told)
    world.api.annotation = json.dumps(written | {"rules": f"{VERSION - 1}"})
    away(world, has_left=True)
    world.start_again()
    world.run(20)
    names = [row["interface"] for row in world.rows if "lost" not in row]
    assert names == ["mlx5_5", "mlx5_6", "mlx5_7"]


def test_repeated_lldp_frames_postpone_no_change() -> None:
    """A frame that repeats the last one restarts a TTL, and no more than that."""
    world = agent(FOUR, nic(4), routes("eth4"))
    for second in range(0, 300, 20):
        world.at(second, do=lambda: world.hear("eth1", switch()))
    world.run(100)
    world.entries |= routes("eth0")
    world.look(90)
    assert world.metrics.snapshot.roles_changed == 2
