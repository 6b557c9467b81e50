"""Cycles over time: a read that fails for longer than the hold is judged by what was read before.

The VPD of a function carries SW_MNG if it manages NVSwitches. Firmware whose VPD always gives EIO
is common, so a device with such a one cannot stay failed without end.
"""

from __future__ import annotations

import os
from errno import EIO, ENODEV
from typing import TYPE_CHECKING

import pytest

from agent.daemon.observer import Observer
from agent.host import Host
from agent.labels.table import Naming
from agent.lldp.neighbors import NeighborTable
from agent.snapshot.tree import MemoryStore, Tree
from agent.sysfs.worker import DeviceReaders, InlineWorker
from tests.support.kernel_tree import HOME, NET, Entries, card
from tests.support.nodes import PREFIX

if TYPE_CHECKING:
    from agent.daemon.observer import Cycle

HOLD = 600.0
A, B, C, D = (f"0000:{bus}:00.0" for bus in ("18", "19", "1a", "1b"))
LO: Entries = {f"{NET}/lo": None}
SPEED = f"{PREFIX}/speed.current"


def management(name: str, bdf: str, *, board: str = "MT_0000001294") -> Entries:
    """A function that manages NVSwitches."""
    return card(name, bdf, board=board) | {f"{HOME}/{bdf}/vpd": b"\x82\x10\x00NVIDIA SW_MNG"}


def unbound(*parts: Entries) -> Entries:
    """The same functions while their driver is not loaded."""
    tree: Entries = {}
    for part in parts:
        tree |= {path: entry for path, entry in part.items() if "infiniband" not in path}
    return tree


BACKEND = LO | card("ibp0", A) | card("ibp1", B)


class Node:
    """A node whose tree, sick files and clock a test sets; also the Root of its observer."""

    def __init__(self, *parts: Entries) -> None:
        self.sick: dict[str, int] = {}
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
        if number := self.sick.get(self._tree.resolve(path)):
            raise OSError(number, os.strerror(number), path)
        return self._tree.read(path, limit)

    def names(self, path: str) -> list[str]:
        return self._tree.names(path)

    def link(self, path: str) -> str:
        return self._tree.link(path)


def vpd(bdf: str) -> str:
    return f"{HOME}/{bdf}/vpd"


def backend(cycle: Cycle) -> list[str]:
    return [role.interface for role in cycle.observation.ports if role.backend]


def test_a_function_whose_vpd_fails_is_hidden_during_the_hold() -> None:
    """It may manage NVSwitches: it is neither counted nor published while that is not known."""
    node = Node(BACKEND, management("mlx5_8", C))
    node.sick[vpd(C)] = EIO
    for after in (0.0, 1.0, HOLD - 2.0):
        cycle = node.observe(after)
        assert backend(cycle) == ["ibp0", "ibp1"]
        assert cycle.rendered.labels[SPEED] == "800G"


@pytest.mark.parametrize("number", [EIO, ENODEV])
def test_a_vpd_that_was_read_decides_after_the_hold(number: int) -> None:
    """A function that carried SW_MNG stays ignored when its driver was reloaded and its VPD cannot
    be read any more.
    """
    node = Node(BACKEND, switches := management("mlx5_8", C))
    assert backend(node.observe()) == ["ibp0", "ibp1"]
    node.show(BACKEND, unbound(switches))
    node.observe()
    node.show(BACKEND, switches)
    node.sick[vpd(C)] = number
    cycle = node.observe_past_the_hold()
    assert backend(cycle) == ["ibp0", "ibp1"]
    assert cycle.rendered.labels[SPEED] == "800G"
    assert backend(node.observe(10 * HOLD)) == ["ibp0", "ibp1"]


def test_a_backend_port_whose_vpd_was_read_counts_after_the_hold() -> None:
    """It carried no SW_MNG: after the hold its state is followed again."""
    node = Node(BACKEND)
    node.observe()
    node.show(LO, card("ibp0", A), unbound(card("ibp1", B)))
    node.observe()
    node.show(BACKEND)
    node.sick[vpd(B)] = EIO
    assert node.observe().rendered.labels[SPEED] == "800G"
    cycle = node.observe_past_the_hold()
    assert backend(cycle) == ["ibp0", "ibp1"]
    assert cycle.rendered.labels[SPEED] == "800G"
    node.show(BACKEND, {f"{HOME}/{B}/infiniband/ibp1/ports/1/state": b"1: DOWN\n"})
    assert node.observe().rendered.labels[SPEED] == "400G"


@pytest.mark.parametrize("name", ["mlx5_8", "mlx5_9"])
def test_the_last_value_is_known_by_address_whatever_the_device_is_called(name: str) -> None:
    """A reload may rename the device; the function is the same."""
    node = Node(BACKEND, management("mlx5_8", C))
    node.observe()
    node.show(BACKEND, unbound(management("mlx5_8", C)))
    node.observe()
    node.show(BACKEND, management(name, C))
    node.sick[vpd(C)] = EIO
    assert backend(node.observe_past_the_hold()) == ["ibp0", "ibp1"]


def test_the_value_of_another_board_is_not_the_last_one() -> None:
    """A card that was exchanged has another board_id at the same address: nothing was ever read
    of it.
    """
    node = Node(BACKEND, management("mlx5_8", C))
    node.observe()
    node.show(BACKEND, unbound(management("mlx5_8", C)))
    node.observe()
    node.show(BACKEND, card("mlx5_8", C, board="MT_0000000838"))
    node.sick[vpd(C)] = EIO
    assert backend(node.observe()) == ["ibp0", "ibp1"]
    cycle = node.observe_past_the_hold()
    assert backend(cycle) == ["ibp0", "ibp1", "mlx5_8"]
    assert cycle.rendered.labels[SPEED] == "1200G"


def test_a_vpd_that_was_never_read_counts_as_one_without_sw_mng() -> None:
    """After the hold the device has its role, with a problem that says what was assumed."""
    node = Node(BACKEND)
    node.sick[vpd(B)] = EIO
    assert backend(node.observe()) == ["ibp0"]
    assert backend(node.observe(HOLD - 1.0)) == ["ibp0"]
    cycle = node.observe(2.0)
    assert backend(cycle) == ["ibp0", "ibp1"]
    assert cycle.rendered.labels[SPEED] == "800G"
    assert not cycle.rendered.held
    assumed = [one.text for one in cycle.observation.problems if one.subject.endswith("/vpd")]
    assert any("SW_MNG" in text for text in assumed)


def test_a_vpd_that_is_read_again_ends_the_assumption() -> None:
    """A value is better than an assumption: the function that carries SW_MNG is ignored."""
    node = Node(BACKEND, management("mlx5_8", C))
    node.sick[vpd(C)] = EIO
    assert backend(node.observe_past_the_hold()) == ["ibp0", "ibp1", "mlx5_8"]
    node.sick.clear()
    cycle = node.observe()
    assert backend(cycle) == ["ibp0", "ibp1"]
    assert cycle.rendered.labels[SPEED] == "800G"


@pytest.mark.parametrize("first", [True, False])
def test_functions_of_one_board_manage_nvswitches_together(*, first: bool) -> None:
    """An HGX board shows several such functions with one board_id: if one of them carries SW_MNG, a
    VPD of the same board that was never read counts as one with SW_MNG, too.
    """
    node = Node(BACKEND, management("mlx5_8", C), management("mlx5_9", D))
    node.sick[vpd(C if first else D)] = EIO
    cycle = node.observe_past_the_hold()
    assert backend(cycle) == ["ibp0", "ibp1"]
    assert cycle.rendered.labels[SPEED] == "800G"
