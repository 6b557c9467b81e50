"""Cycles over time: the functions that manage NVSwitches stay what they are, whatever fails.

They are three or more InfiniBand functions with one sys_image_guid, whose VPD has SW_MNG.
"""

from __future__ import annotations

import os
from errno import EACCES, EIO, ENODEV
from typing import TYPE_CHECKING

import pytest

from agent.daemon.observer import Observer
from agent.host import Host
from agent.labels.table import Naming
from agent.lldp.neighbors import NeighborTable
from agent.snapshot.tree import MemoryStore, Tree
from agent.sysfs.worker import DeviceReaders, InlineWorker
from tests.support.kernel_tree import HOME, NET, Entries, card, hca
from tests.support.nodes import PREFIX

if TYPE_CHECKING:
    from agent.daemon.observer import Cycle

HOLD = 600.0
A, B, C = (f"0000:{bus}:00.0" for bus in ("18", "19", "1a"))
BOARD = "0000:a3:00"
LO: Entries = {f"{NET}/lo": None}
SPEED = f"{PREFIX}/speed.current"


def management(*numbers: int) -> Entries:
    """Functions of one PCI device that manage NVSwitches."""
    entries: Entries = {}
    for number in numbers:
        bdf = f"{BOARD}.{number}"
        entries |= hca(f"sw{number}", bdf) | {f"{HOME}/{bdf}/vpd": b"\x82\x10\x00NVIDIA SW_MNG"}
    return entries


BACKEND = LO | card("ibp0", A) | card("ibp1", B)


class Node:
    """A node whose tree, sick files and clock a test sets; also the Root of its observer."""

    def __init__(self, *parts: Entries) -> None:
        self.sick: dict[str, int] = {}
        self.asked: list[str] = []
        self.now = 1000.0
        self.show(*parts)
        self.start()

    def show(self, *parts: Entries) -> None:
        """Replace the tree."""
        entries: Entries = {}
        for part in parts:
            entries |= part
        self._tree = Tree(MemoryStore(entries), {})

    def start(self) -> None:
        """Start an agent on a node without labels."""
        readers = DeviceReaders(worker=InlineWorker)
        host = Host(self, clock=lambda: self.now, name="n1", readers=readers)
        self._observer = Observer(
            host, NeighborTable(), Naming(), ("rdma",), HOLD, lambda: self.now
        )

    def observe(self, after: float = 1.0) -> Cycle:
        """Run a cycle so many seconds after the one before."""
        self.now += after
        return self._observer.observe()

    def observe_past_the_hold(self) -> Cycle:
        """Run a cycle now, one shortly before the end of the hold, and one after it."""
        self.observe()
        self.observe(HOLD - 1.0)
        return self.observe(2.0)

    def read(self, path: str, limit: int) -> bytes:
        self.asked.append(path)
        if number := self.sick.get(self._tree.resolve(path)):
            raise OSError(number, os.strerror(number), path)
        return self._tree.read(path, limit)

    def names(self, path: str) -> list[str]:
        return self._tree.names(path)

    def link(self, path: str) -> str:
        return self._tree.link(path)


def backend(cycle: Cycle) -> list[str]:
    return [role.interface for role in cycle.observation.ports if role.backend]


def of_board(attribute: str, number: int) -> dict[str, int]:
    """This attribute of each function fails."""
    return {f"{HOME}/{BOARD}.{one}/{attribute}": number for one in range(3)}


@pytest.mark.parametrize("number", [EACCES, EIO, ENODEV])
def test_a_vpd_that_fails_changes_no_role(number: int) -> None:
    """Neither before it was read, nor after, nor past any hold."""
    node = Node(BACKEND, management(0, 1, 2))
    assert backend(node.observe()) == ["ibp0", "ibp1"]
    node.sick = of_board("vpd", number)
    assert backend(node.observe_past_the_hold()) == ["ibp0", "ibp1"]
    node.start()
    first = node.observe()
    assert (backend(first), first.rendered.labels[SPEED]) == (["ibp0", "ibp1"], "800G")
    node.sick.clear()
    assert backend(node.observe()) == ["ibp0", "ibp1"]


def test_a_function_of_unknown_kind_may_be_one() -> None:
    """A copied tree has no PCI ids, and `hca_type` of one of the four cannot be read."""
    board = management(0, 1, 2, 3)
    ids = {
        f"{HOME}/{BOARD}.{number}/{name}" for number in range(4) for name in ("vendor", "device")
    }
    node = Node(BACKEND, {path: entry for path, entry in board.items() if path not in ids})
    node.sick = {f"{HOME}/{BOARD}.2/infiniband/sw2/hca_type": EIO}
    assert backend(node.observe()) == ["ibp0", "ibp1"]


def test_a_function_that_is_known_stays_one_when_the_others_leave() -> None:
    """Until it leaves itself: two functions alone would be a data card."""
    node = Node(BACKEND, management(0, 1, 2))
    node.observe()
    node.show(BACKEND, management(0, 1))
    assert backend(node.observe()) == ["ibp0", "ibp1"]
    node.show(BACKEND)
    node.observe()
    node.show(BACKEND, management(0, 1))
    assert backend(node.observe()) == ["ibp0", "ibp1", "sw0", "sw1"]


def test_the_vpd_is_read_once_and_the_counters_never() -> None:
    """A VPD takes milliseconds to read; each read of the counters writes to the kernel log."""
    node = Node(BACKEND, management(0, 1, 2))
    for _ in range(3):
        node.observe()
    read = [path for path in node.asked if f"sw{1}" in path]
    assert [path for path in read if path.endswith("vpd")] == [
        "sys/class/infiniband/sw1/device/vpd"
    ]
    assert not [path for path in read if "counters" in path]


def test_a_virtual_function_stays_one_until_it_leaves() -> None:
    """The kernel removes the link to its physical function first."""
    virtual = card("vf0", C) | {f"{HOME}/{C}/physfn": f"../{A}"}
    node = Node(BACKEND, virtual)
    assert backend(node.observe()) == ["ibp0", "ibp1"]
    node.show(BACKEND, card("vf0", C))
    assert backend(node.observe()) == ["ibp0", "ibp1"]
