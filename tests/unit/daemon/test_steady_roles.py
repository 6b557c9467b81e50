"""The roles of ports in a running agent, while evidence is missing and when it is contradicted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.events.event import Event
from agent.sources.steady import VERSION
from tests.support.kernel_tree import BUS, CLASS, HOME, NET, card, hca, netdev, routes
from tests.support.running import World

if TYPE_CHECKING:
    from tests.support.kernel_tree import Entries

HUP = Event("signal", "SIGHUP")
HOUR = 3600.0
OTHER_KIND = b"0x101d\n"


def bdf(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00.0"


def nic(number: int, *, other: bool = False) -> Entries:
    """A RoCE NIC, of the backend's kind or of another one."""
    name = f"mlx5_{number}"
    tree = hca(name, bdf(number), "Ethernet", {1: f"eth{number}"})
    tree |= netdev(f"eth{number}", bdf(number))
    return tree | ({f"{HOME}/{bdf(number)}/device": OTHER_KIND} if other else {})


def agent(*trees: Entries, **changes: Any) -> World:
    """An agent whose roles have lasted."""
    world = World(*trees, **changes).run(120)
    world.at(0.0, HUP)
    return world.run(120)


def look(world: World, seconds: float = HOUR) -> World:
    world.at(0.0, HUP)
    return world.run(seconds)


def speeds(world: World) -> list[str]:
    """The speeds that the Node has had, each once in a row."""
    found = [labels["backend.coreweave.cloud/speed.current"] for labels in world.api.writes]
    return [one for one, before in zip(found, [None, *found], strict=False) if one != before]


NAMES = [f"mlx5_{number}" for number in range(4)]
FOUR = {path: one for number in range(4) for path, one in nic(number).items()}


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


def test_a_lease_without_its_route_changes_no_role() -> None:
    """The front end, of the backend's kind, is no fifth rail, for a minute or for hours."""
    world = agent(FOUR, nic(4), routes("eth4"))
    world.entries |= routes()
    look(world)
    assert (speeds(world), world.labels["flavor"]) == (["1600G"], "roce")
    world.entries |= routes("eth4")
    look(world)
    assert speeds(world) == ["1600G"]
    assert world.metrics.snapshot.roles_changed == 0


def test_a_route_through_another_nic_changes_two_roles_after_a_minute() -> None:
    """One line for each port with both verdicts, the counter, and an Event."""
    world = agent(FOUR, nic(4), routes("eth4"), events=True)
    world.entries |= routes("eth0")
    since = world.time
    look(world, 50)
    assert speeds(world) == ["1600G"]
    look(world, 30)
    lines = [line for line in world.lines if "role changed" in line]
    assert len(lines) == world.metrics.snapshot.roles_changed == 2
    [line] = [line for line in lines if "device=mlx5_0" in line]
    assert "before=" in line
    assert 'after="no backend (front end: carries the default route)"' in line
    assert world.time < since + 90
    look(world)
    told = [event for event in world.api.events.values() if event["reason"] == "RoleChanged"]
    assert len(told) == 2
    assert world.metrics.snapshot.roles_changed == 2


def test_nics_that_are_lent_to_a_vm_outvote_nobody() -> None:
    """Their functions are there, with another driver and no RDMA device."""
    world = agent(FOUR, nic(5, other=True), nic(6, other=True), nic(7, other=True))
    away(world, driver="vfio-pci")
    look(world)
    assert {row["interface"] for row in json.loads(world.told)["ports"]} == {"mlx5_0"}
    assert world.metrics.snapshot.roles_changed == 0
    assert speeds(world) == ["1600G", "400G"]


def test_hcas_in_recovery_outvote_nobody() -> None:
    """Their functions are there, with their driver and no RDMA device: they count for the hold."""
    world = agent(FOUR, nic(5, other=True), nic(6, other=True), nic(7, other=True))
    away(world, driver="mlx5_core")
    look(world)
    assert world.metrics.snapshot.roles_changed == 0
    assert speeds(world) == ["1600G", "400G"]


def test_links_that_are_down_decide_no_role() -> None:
    """As many storage NICs, and only they have a link."""
    storage = {path: one for number in range(5, 9) for path, one in nic(number, other=True).items()}
    slow: Entries = {
        f"{HOME}/{bdf(number)}/net/eth{number}/speed": b"100000\n" for number in range(5, 9)
    }
    world = agent(FOUR, storage, slow)
    assert speeds(world) == ["1600G"]
    for number in range(4):
        world.write(f"{HOME}/{bdf(number)}/infiniband/mlx5_{number}/ports/1/state", b"1: DOWN\n")
    look(world)
    assert speeds(world) == ["1600G", "0G"]


# A new agent, while evidence is missing


def test_a_restart_without_the_route_changes_no_role() -> None:
    world = agent(FOUR, nic(4), routes("eth4"))
    world.entries |= routes()
    world.start_again()
    look(world.run(120))
    assert speeds(world) == ["1600G"]
    assert world.metrics.snapshot.roles_changed == 0


def test_a_second_restart_changes_no_role_either() -> None:
    """The annotation that the first one wrote has the role that it kept."""
    world = agent(FOUR, nic(4), routes("eth4"))
    world.entries |= routes()
    for _ in range(2):
        world.start_again()
        world.run(2 * HOUR)
    assert speeds(world) == ["1600G"]


def test_a_restart_while_hcas_are_in_recovery_changes_no_role() -> None:
    """Their functions have no RDMA device; they count for the hold, and then 0."""
    world = agent(FOUR, nic(5, other=True), nic(6, other=True), nic(7, other=True))
    away(world)
    world.start_again()
    world.run(120)
    assert speeds(world) == ["1600G"]
    look(world)
    world.start_again()
    look(world.run(120))
    assert world.metrics.snapshot.roles_changed == 0
    assert {row["interface"] for row in json.loads(world.told)["ports"]} == set(NAMES)
    assert speeds(world) == ["1600G", "400G"]


def test_a_restart_while_nics_are_lent_to_a_vm_changes_no_role() -> None:
    """Their functions are there, with another driver, and are no ports of this node."""
    world = agent(FOUR, nic(5, other=True), nic(6, other=True), nic(7, other=True))
    away(world, driver="vfio-pci")
    look(world)
    for _ in range(2):
        world.start_again()
        look(world.run(120))
    assert world.metrics.snapshot.roles_changed == 0
    assert {row["interface"] for row in json.loads(world.told)["ports"]} == {"mlx5_0"}
    assert speeds(world) == ["1600G", "400G"]


def test_a_restart_while_nics_are_off_the_bus_changes_no_role() -> None:
    """They are lost, and outvoted by nobody."""
    world = agent(FOUR, nic(5, other=True), nic(6, other=True), nic(7, other=True))
    away(world, has_left=True)
    look(world)
    world.start_again()
    look(world.run(2 * HOUR))
    assert world.metrics.snapshot.roles_changed == 0
    assert {row["interface"] for row in json.loads(world.told)["ports"]} == set(NAMES)
    assert speeds(world) == ["1600G", "400G"]


def test_the_second_function_of_a_card_counts_nothing_while_the_first_is_in_recovery() -> None:
    """Socket Direct: one cable, whichever of the functions is read."""
    first, second = card("ibp0", bdf(0)), card("ibp1", bdf(1))
    one, other = f"{HOME}/{bdf(0)}/infiniband/ibp0", f"{HOME}/{bdf(1)}/infiniband/ibp1"
    second[f"{other}/sys_image_guid"] = first[f"{one}/sys_image_guid"]
    second[f"{other}/ports/1/has_smi"] = b"0\n"
    world = agent(first, second, card("ibp2", bdf(2)))
    world.remove(f"{CLASS}/ibp0", f"{HOME}/{bdf(0)}/infiniband")
    look(world, 120)
    world.start_again()
    look(world.run(120))
    assert speeds(world) == ["800G", "400G"]
    assert world.metrics.snapshot.roles_changed == 0


def gpu(number: int) -> Entries:
    """A GPU on the same bus as all others."""
    address = f"0000:{0x80 + number:02x}:00.0"
    return {
        f"{BUS}/{address}": f"../../../devices/pci0000:00/{address}",
        f"{HOME}/{address}/class": b"0x030200\n",
        f"{HOME}/{address}/vendor": b"0x10de\n",
        f"{HOME}/{address}/device": b"0x2330\n",
    }


def rails_and_storage() -> Entries:
    """Four GPUs with four InfiniBand rails, and three storage HCAs of another kind."""
    tree: Entries = {}
    for number in range(4):
        tree |= card(f"ibp{number}", bdf(number)) | gpu(number)
    for number in range(4, 7):
        tree |= card(f"ibp{number}", bdf(number), board="MT_0000000223")
        tree[f"{HOME}/{bdf(number)}/device"] = b"0x101b\n"
    return tree


def without_a_gpu() -> World:
    """The storage HCAs are as many as the GPUs that are left."""
    world = agent(rails_and_storage())
    world.remove(f"{BUS}/0000:83:00.0", f"{HOME}/0000:83:00.0")
    return look(world)


def test_a_restart_without_a_gpu_changes_no_role() -> None:
    """The annotation has the GPUs that are there, and those that are missing."""
    world = without_a_gpu()
    for _ in range(2):
        world.start_again()
        look(world.run(2 * HOUR))
    assert speeds(world) == ["1600G"]
    assert world.metrics.snapshot.roles_changed == 0


def test_links_that_are_down_after_a_reboot_decide_no_role() -> None:
    """As many storage NICs, and only they have a link, in another boot."""
    storage = {path: one for number in range(5, 9) for path, one in nic(number, other=True).items()}
    slow: Entries = {
        f"{HOME}/{bdf(number)}/net/eth{number}/speed": b"100000\n" for number in range(5, 9)
    }
    world = agent(FOUR, storage, slow)
    for number in range(4):
        world.write(f"{HOME}/{bdf(number)}/infiniband/mlx5_{number}/ports/1/state", b"1: DOWN\n")
    world.write("proc/sys/kernel/random/boot_id", b"another\n")
    world.start_again()
    look(world.run(120))
    assert speeds(world) == ["1600G", "0G"]
    assert {row["interface"] for row in json.loads(world.told)["ports"]} == {
        f"mlx5_{number}" for number in range(4)
    }


def test_the_flags_of_a_new_agent_win_at_once() -> None:
    """--backend-device names one NIC, then none any more."""
    world = agent(FOUR, nic(4), routes("eth4"))
    world.start_again(backend=("mlx5_0",))
    world.run(20)
    assert speeds(world) == ["1600G", "400G"]
    world.start_again()
    world.run(20)
    assert speeds(world) == ["1600G", "400G", "1600G"]


def test_the_annotation_of_0_2_0_pins_no_role() -> None:
    """Its rows have no rule: the front end, of the backend's kind, was a fifth rail."""
    world = agent(FOUR, nic(4), routes("eth4"))
    rows = [
        {"interface": f"mlx5_{number}", "pci": bdf(number), "counted_gbps": 400.0}
        for number in range(5)
    ]
    world.api.annotation = json.dumps(
        {
            "schema": 1,
            "agent": "0.2.0",
            "boot_id": "5f0492e8",
            "time": "2027-01-15T08:00:00Z",
            "interfaces": rows,
        }
    )
    world.api.labels["backend.coreweave.cloud/speed.current"] = "2000G"
    world.api.writes.append(dict(world.api.labels))
    world.start_again()
    world.run(20)
    assert speeds(world)[-2:] == ["2000G", "1600G"]


def test_another_version_of_the_rules_pins_no_role() -> None:
    """Of the same one, the front end that has lost its route would stay one."""
    world = agent(FOUR, nic(4), routes("eth4"))
    written = json.loads(world.told)
    world.api.annotation = json.dumps(written | {"rules": f"{VERSION - 1}"})
    world.entries |= routes()
    world.start_again()
    world.run(20)
    assert speeds(world) == ["1600G", "2000G"]


def test_a_new_agent_takes_over_a_front_end_that_was_no_backend_before() -> None:
    """A route through another NIC is evidence after a restart, too."""
    world = agent(FOUR, nic(4), routes("eth4"))
    world.entries |= routes("eth0")
    world.start_again()
    world.run(150)
    assert world.metrics.snapshot.roles_changed == 2
