"""A running agent whose devices cannot be read: their ports become no ports of another kind."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest

from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    Entries,
    base,
    bdf,
    card,
    hca,
    managing,
    netdev,
    union,
)
from tests.support.nodes import FLAVOR, PREFIX, SPEED
from tests.support.running import HOUR, World
from tests.support.smps import leaf

HOLD = 600.0
STORAGE = "0000:40:00.0"
STORED: Entries = {
    **hca("mlx5_8", STORAGE, "Ethernet", {1: "store0"}),
    **netdev("store0", STORAGE, speed="100000"),
    f"{HOME}/{STORAGE}/device": b"0x101d\n",
}


def rails(count: int) -> Entries:
    """InfiniBand HCAs."""
    return union(hca(f"ibp{number}", bdf(number)) for number in range(count))


def agent(*trees: Entries, unread: str = "", count: int = 0, **changes: Any) -> World:
    """An agent on a fresh Node; a file of the first HCAs gives EIO."""
    world = World(*trees, smp=leaf, **changes)
    fail(world, count, unread)
    return world


def fail(world: World, count: int, unread: str) -> None:
    world.errors |= {f"{base(number)}/{unread}": errno.EIO for number in range(count)}


def unbound(changes: Entries, **flags: Any) -> World:
    """An agent on a fresh Node, whose only HCA has no RDMA device beside an Ethernet port."""
    world = agent(rails(1), STORED, changes, **flags)
    world.remove(f"{CLASS}/ibp0", f"{HOME}/{bdf(0)}/infiniband")
    return world


def flavors(world: World) -> set[str | None]:
    """The flavors that the Node was given; None: it had none."""
    return {labels.get(FLAVOR) for labels in world.api.writes}


BY_NAME = {"backend": ("ibp*", "mlx5_8")}
UNREAD = {"link layer": "ports/1/link_layer", "ports": "ports"}


@pytest.mark.slow
@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("flags", [{}, BY_NAME], ids=["rules", "--backend-device"])
def test_a_fresh_infiniband_node_is_not_published_as_roce(
    unread: str, flags: dict[str, Any]
) -> None:
    """All HCAs give EIO beside an Ethernet port, for longer than a hold and over restarts."""
    world = agent(rails(8), STORED, unread=unread, count=8, **flags).run(120)
    for _ in range(2):
        world.run(HOUR)
        world.start_again(**flags)
    world.look(HOUR)
    assert flavors(world) == {None}
    world.errors.clear()
    assert world.look(60).labels["flavor"] == "infiniband"


def test_a_function_of_unread_class_may_be_infiniband() -> None:
    """Neither device nor PCI function of the only HCA can be read."""
    world = agent(rails(1), STORED, unread="ports", count=1)
    world.errors[f"{HOME}/{bdf(0)}/class"] = world.errors[f"{HOME}/{bdf(0)}/uevent"] = errno.EIO
    world.look(HOUR)
    assert flavors(world) == {None}


@pytest.mark.parametrize("missing", ["driver", "mlx5_ib"])
def test_an_hca_without_rdma_device_is_unread(missing: str) -> None:
    """No label is of the Ethernet port beside it, on a fresh Node and after a restart, until its
    driver is there.
    """
    world = unbound({})
    if missing == "driver":
        world.remove(f"{HOME}/{bdf(0)}/driver")
    world.look(HOUR)
    world.start_again()
    world.look(HOUR)
    assert flavors(world) == {None}
    assert {*world.speeds} <= {"0G", None}
    assert any("its driver loaded" in line for line in world.lines)
    world.entries |= rails(1)
    assert world.look(120.0).labels["flavor"] == "infiniband"


def test_the_reason_of_a_label_that_is_written_for_unread_ports() -> None:
    """Others removed it while the drivers of all HCAs are reloaded, beside an Ethernet port."""
    world = World(rails(2), STORED, smp=leaf).run(60)
    for number in range(2):
        world.remove(f"{CLASS}/ibp{number}", f"{HOME}/{bdf(number)}/infiniband")
    world.api.labels = {key: value for key, value in world.api.labels.items() if key != SPEED}
    world.lines.clear()
    world.start_again()
    world.run(30)
    [line] = [line for line in world.lines if f"label added key={PREFIX}/speed" in line]
    unread = [f"ibp{number} is not read (device-gone)" for number in range(2)]
    assert line.endswith(f'to=800G reason="{", ".join(unread)}"')


NOT_UNREAD: dict[str, tuple[Entries, dict[str, Any]]] = {
    "given to a VM": ({f"{HOME}/{bdf(0)}/driver": "../../../bus/pci/drivers/vfio-pci"}, {}),
    "virtual function": ({f"{HOME}/{bdf(0)}/physfn": "../0000:18:00.1"}, {}),
    "excluded": ({}, {"excluded": (f"pci:{bdf(0)}",)}),
    "excluded by its ids": ({}, {"excluded": ("15b3:1021",)}),
    "named by no --backend-device": ({}, {"backend": ("mlx5_8",)}),
}


@pytest.mark.parametrize(("changes", "flags"), NOT_UNREAD.values(), ids=NOT_UNREAD)
def test_a_function_without_rdma_device_that_withholds_nothing(
    changes: Entries, flags: dict[str, Any]
) -> None:
    """It is not for this node's backend."""
    assert unbound(changes, **flags).look(HOUR).labels["flavor"] == "roce"


def test_unbound_functions_that_manage_nvswitches_withhold_nothing() -> None:
    """More InfiniBand functions than a data card has: they look like those."""
    world = agent(managing(), STORED)
    for number in range(4):
        world.remove(
            f"{CLASS}/mlx5_{number}", f"{HOME}/0000:d2:00.{number}/infiniband/mlx5_{number}"
        )
    assert world.look(HOUR).labels["flavor"] == "roce"


NO_CANDIDATE: dict[str, tuple[Entries, dict[str, Any]]] = {
    "named by no --backend-device": ({}, {"backend": ("mlx5_8",)}),
    "virtual function": ({f"{HOME}/{bdf(0)}/physfn": "../0000:18:00.1"}, {}),
    "Omni-Path": ({f"{HOME}/{bdf(0)}/class": b"0x020800\n"}, {}),
    "iWARP": ({f"{base(0)}/node_type": b"4: RNIC\n"}, {}),
}


@pytest.mark.parametrize(("changes", "flags"), NO_CANDIDATE.values(), ids=NO_CANDIDATE)
def test_an_unread_device_that_is_no_candidate_withholds_nothing(
    changes: Entries, flags: dict[str, Any]
) -> None:
    """There is evidence of what it is; what cannot be read of it lacks nothing of the sum."""
    world = agent(rails(1), STORED, changes, unread="ports", count=1, **flags).look(HOUR)
    assert (world.labels["flavor"], {*world.speeds}) == ("roce", {"100G"})


def test_an_unread_device_of_class_ethernet_withholds_no_flavor() -> None:
    """It is no InfiniBand HCA, whatever its ports are."""
    kind: Entries = {
        f"{HOME}/{bdf(0)}/class": b"0x020000\n",
        f"{HOME}/{bdf(0)}/device": b"0x101d\n",
    }
    world = agent(rails(1), STORED, kind, unread="ports", count=1)
    assert world.look(HOUR).labels["flavor"] == "roce"


def test_an_hca_that_was_no_backend_port_withholds_nothing() -> None:
    """An InfiniBand HCA in a node whose backend is RoCE is unread, also by a new agent."""
    world = agent(rails(1), STORED, backend=("mlx5_8",))
    world.look(120.0)
    fail(world, 1, "ports")
    world.look(HOUR)
    world.start_again(backend=("mlx5_8",))
    assert world.look(HOUR).labels["flavor"] == "roce"


def test_a_virtual_function_that_is_removed_is_no_backend_port() -> None:
    """The kernel removes `physfn` first, then the device, then the function."""
    function = hca("ibp7", bdf(7)) | {f"{HOME}/{bdf(7)}/physfn": f"../{bdf(0)}"}
    world = agent(rails(2), function).look(HOUR)
    world.remove(f"{HOME}/{bdf(7)}/physfn")
    world.look(120.0)
    world.remove(f"{CLASS}/ibp7", base(7))
    world.look(60)
    world.remove(f"{HOME}/{bdf(7)}", f"{BUS}/{bdf(7)}")
    world.look(60)
    assert {*world.speeds} == {"800G"}
    assert [row["interface"] for row in world.rows] == ["ibp0", "ibp1"]


def test_functions_that_manage_nvswitches_never_count() -> None:
    """Their VPD gives EIO to a new agent, for hours."""
    cards = union(card(f"ibp{number}", bdf(number)) for number in range(8))
    world = agent(cards, managing()).look(120.0)
    world.errors |= {f"{HOME}/0000:d2:00.{number}/vpd": errno.EIO for number in range(4)}
    world.start_again()
    world.look(2 * HOUR)
    assert {*world.speeds} == {"3200G"}
    rows = [row["interface"] for row in world.rows]
    assert rows == [f"ibp{number}" for number in range(8)]


def leave(world: World, *numbers: int) -> World:
    """Remove functions of that board."""
    for number in numbers:
        address = f"0000:d2:00.{number}"
        world.remove(f"{CLASS}/mlx5_{number}", f"{HOME}/{address}", f"{BUS}/{address}")
    return world.look(120.0)


def test_a_function_that_is_known_stays_one_when_the_others_leave() -> None:
    """Until it leaves itself: two functions alone would be a data card, and join when nothing is
    missing.
    """
    board = managing()
    world = agent(union(card(f"ibp{number}", bdf(number)) for number in range(2)), board)
    assert leave(world.look(120.0), 2, 3).speeds == ["800G"]
    assert leave(world, 0, 1).speeds == ["800G"]
    world.entries |= {
        path: one for path, one in board.items() if re.search(r"00\.[01]|_[01]$", path)
    }
    assert world.look(120.0).speeds == ["800G"]
    assert world.metrics.snapshot.cycle
    seen = world.metrics.snapshot.cycle.observation
    assert [role.rule for role in seen.ports[-2:]] == ["undecided"] * 2


def test_a_function_of_unknown_kind_may_be_one() -> None:
    """A copied tree has no PCI ids, and `hca_type` of one of the four cannot be read."""
    board = managing()
    for number in range(4):
        for name in ("vendor", "device"):
            del board[f"{HOME}/0000:d2:00.{number}/{name}"]
    world = agent(card("ibp0", bdf(0)), board)
    world.errors[f"{HOME}/0000:d2:00.2/infiniband/mlx5_2/hca_type"] = errno.EIO
    assert world.look(120.0).speeds == ["400G"]


def test_the_vpd_is_read_once_and_the_counters_never() -> None:
    """A VPD takes milliseconds to read; each read of the counters writes to the kernel log."""
    asked = list[str]()

    class Reading(World):
        def read(self, path: str, limit: int) -> bytes:
            asked.append(path)
            return super().read(path, limit)

    world = Reading(managing()).run(60)
    for _ in range(3):
        world.look(60)
    vpd = [path for path in asked if path.endswith("vpd")]
    assert len(vpd) == len({*vpd}) == 4
    assert not [path for path in asked if "mlx5" in path and "counters" in path]
