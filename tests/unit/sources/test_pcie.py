"""The PCIe path of a NIC."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from agent.host import Host
from agent.snapshot.capture import entries, record, write_folder
from agent.snapshot.replay import replay
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import observe
from agent.sources.pci import PcieFunction, PciePath, functions_on_bus, read_paths
from agent.sysfs.worker import DeviceReaders, InlineWorker
from tests.support.kernel_tree import HOME, Kernel, card
from tests.support.snapshots import FIXTURES
from tests.support.switch import wait_for

BDF = "0000:18:00.0"
LINK = {
    "vendor": b"0x15b3\n",
    "current_link_speed": b"16.0 GT/s PCIe\n",
    "max_link_speed": b"32.0 GT/s PCIe\n",
    "current_link_width": b"8\n",
    "max_link_width": b"16\n",
}


def read(changes: dict[str, bytes], errors: dict[str, int] | None = None) -> PciePath:
    entries = card("mlx5_0", BDF) | {f"{HOME}/{BDF}/{key}": data for key, data in changes.items()}
    host = Host(Tree(MemoryStore(entries), errors or {}), lambda: 0.0, worker=InlineWorker)
    assert BDF in functions_on_bus(host)
    [path] = read_paths(host, observe(host).ports).values()
    return path


def test_attributes() -> None:
    """Each file is a field; what the kernel does not know, or cannot read, is None."""
    assert read(LINK) == (PcieFunction(BDF, 0x15B3, 16.0, 32.0, 8, 16),)
    unknown = {"current_link_speed": b"Unknown speed\n", "current_link_width": b"0\n"}
    assert read(LINK | unknown) == (PcieFunction(BDF, 0x15B3, None, 32.0, None, 16),)
    assert read({}) == (PcieFunction(BDF, 0x15B3),)
    errors = {f"{HOME}/{BDF}/current_link_speed": errno.EINVAL}
    assert read(LINK, errors)[0].speed is None


def test_a_blocked_device_has_no_path() -> None:
    """Its read does not return."""
    errors = {f"{HOME}/{BDF}/current_link_speed": errno.ETIMEDOUT}
    assert read(LINK, errors) == ()


def test_paths_of_a_machine() -> None:
    """From the root port over a switch to the NIC."""
    host = replay(str(FIXTURES / "pcie-downtrained"))
    paths = read_paths(host, observe(host).ports)
    addresses = [function.address for function in paths["0000:19:00.0"]]
    assert addresses == ["0000:15:01.0", "0000:16:00.0", "0000:17:01.0", "0000:19:00.0"]


def test_a_capture_has_the_links(tmp_path: Path) -> None:
    host = replay(str(FIXTURES / "pcie-downtrained"))
    captured, observation = record(host)
    write_folder(entries(captured), str(tmp_path / "copy"))
    copy = replay(str(tmp_path / "copy"))
    found = read_paths(copy, observe(copy).ports)
    assert found == read_paths(host, observation.ports)
    assert all(function.max_speed for path in found.values() for function in path)


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("device ")}


def test_a_device_that_blocks_keeps_one_thread() -> None:
    """However often its path is read; without it no thread stays."""
    entries = card("mlx5_0", BDF) | {f"{HOME}/{BDF}/{key}": data for key, data in LINK.items()}
    root = Kernel(entries)
    good = Host(root, lambda: 0.0)
    ports = observe(good).ports
    before = threads()
    root.blocks_below = f"{HOME}/{BDF}"
    stuck = Host(root, lambda: 0.0, deadline=0.01)
    readers = DeviceReaders()
    for _ in range(5):
        assert read_paths(stuck, ports, readers) == {BDF: ()}
    assert len(threads() - before) == 1  # an earlier test may have left some that end
    root.unblocked.set()
    wait_for(lambda: len(read_paths(stuck, ports, readers)[BDF]) == 1)
    wait_for(lambda: not threads() - before)
