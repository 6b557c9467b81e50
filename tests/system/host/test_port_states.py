"""Changes of port states, in plain files and in files of the real sysfs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent.events.event import Event
from agent.events.monitor import Monitors
from agent.events.port_states import FILES, READ_TIMEOUT, PortStateSweep
from tests.support.real_parts import require
from tests.support.switch import missing, wait_for

QUIET = 0.3  # seconds without an event after which none is on its way


class Tree:
    """Ports of RDMA devices in a folder of plain files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, port: str, name: str = "state") -> Path:
        device, _, number = port.partition("/")
        return self.root / "class/infiniband" / device / "ports" / number / name

    def plug(self, *ports: str) -> None:
        """Make all files of these ports."""
        for port in ports:
            self.file(port).parent.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                self.file(port, name).write_text("4: ACTIVE\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two devices, one of which has two ports."""
    made = Tree(tmp_path)
    made.plug("mlx5_0/1", "mlx5_1/1", "mlx5_1/2")
    return made


ALL = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2)]


@contextmanager
def sweeping(
    tree: Tree, ports: list[tuple[str, int]], read: Callable[[int, int, int], bytes] = os.pread
) -> Iterator[tuple[PortStateSweep, Monitors]]:
    """A sweep of short interval, and the monitors that it is one of."""
    sweep = PortStateSweep(0.02, sys=str(tree.root), read=read)
    monitors = Monitors(signals=(), monitors={}, others=[sweep])
    try:
        sweep.watch(ports)
        yield sweep, monitors
    finally:
        monitors.close()
    wait_for(lambda: not sweepers())


def test_without_ports_there_is_no_thread(tree: Tree) -> None:
    """A node without InfiniBand never wakes for a sweep."""
    with sweeping(tree, []) as (sweep, _):
        assert not sweepers()
        sweep.watch(ALL)
        assert sweepers()


def test_a_sweeper_that_is_quick_to_wake_ends(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` wakes it; whatever it finds before `close` returns, it does not sleep again."""
    wake = os.eventfd_write

    def wake_and_dawdle(fd: int, value: int) -> None:
        wake(fd, value)
        time.sleep(0.1)

    monkeypatch.setattr(os, "eventfd_write", wake_and_dawdle)
    with sweeping(tree, ALL) as (sweep, _):
        sweep.watch([])
        time.sleep(0.1)
    assert not sweepers()


def sweepers() -> list[threading.Thread]:
    """Return the threads that sweep or are blocked."""
    return [thread for thread in threading.enumerate() if thread.name == "sweep"]


def changes(monitors: Monitors, *ports: str) -> bool:
    """Wait for changes of these ports; return True if no others have changed."""
    wanted = {Event("port", port) for port in ports}
    found: set[Event] = set()

    def complete() -> bool:
        found.update(monitors.wait(1))
        return wanted <= found

    wait_for(complete)
    return found == wanted


def descriptors(tree: Tree) -> int:
    """Return the number of open files of the tree."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile, by the sweeper's thread
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(path.startswith(str(tree.root)) for path in paths)


def test_a_file_that_changes_is_an_event(tree: Tree) -> None:
    """The first sweep reports all ports; later ones report those whose files changed."""
    with sweeping(tree, ALL) as (_, monitors):
        assert changes(monitors, "mlx5_0/1", "mlx5_1/1", "mlx5_1/2")
        assert not monitors.wait(QUIET)
        for name in FILES:
            tree.file("mlx5_1/2", name).write_text("1: DOWN\n")
            assert changes(monitors, "mlx5_1/2")
        tree.file("mlx5_0/1").write_text("2: INIT\n")
        assert changes(monitors, "mlx5_0/1")
        assert not monitors.wait(QUIET)


def test_descriptors_of_unwatched_ports_are_closed(tree: Tree) -> None:
    """When other ports are watched, or none."""
    with sweeping(tree, ALL) as (sweep, monitors):
        assert changes(monitors, "mlx5_0/1", "mlx5_1/1", "mlx5_1/2")
        assert descriptors(tree) == 3 * len(FILES)
        sweep.watch(ALL[:1])
        wait_for(lambda: descriptors(tree) == len(FILES))
        sweep.watch([])
        wait_for(lambda: descriptors(tree) == 0)
        assert not monitors.wait(QUIET)
        sweep.watch(ALL[:1])
        assert changes(monitors, "mlx5_0/1")
    wait_for(lambda: descriptors(tree) == 0)


def test_a_device_that_appears_is_an_event(tree: Tree) -> None:
    """A port without files is swept like any other."""
    with sweeping(tree, [("mlx5_9", 1)]) as (_, monitors):
        assert changes(monitors, "mlx5_9/1")
        tree.plug("mlx5_9/1")
        assert changes(monitors, "mlx5_9/1")


@pytest.fixture
def netdev() -> Iterator[str]:
    """A veth of the namespace whose /sys is mounted here."""
    require(missing())
    name = f"bw{os.getpid()}"
    add = ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"]
    subprocess.run(add, check=True)
    yield name
    subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)


def test_a_driver_reload_is_two_events(tree: Tree, netdev: str) -> None:
    """Files of the real sysfs: current at each read, ENODEV after the removal, then those of the
    new device.
    """
    for name in FILES:
        tree.file("mlx5_0/1", name).unlink()
        tree.file("mlx5_0/1", name).symlink_to(f"/sys/class/net/{netdev}/flags")
    with sweeping(tree, ALL[:1]) as (_, monitors):
        assert changes(monitors, "mlx5_0/1")
        subprocess.run(["ip", "link", "set", netdev, "up"], check=True)
        assert changes(monitors, "mlx5_0/1")
        subprocess.run(["ip", "link", "delete", netdev], check=True)
        assert changes(monitors, "mlx5_0/1")
        assert not monitors.wait(QUIET)
        subprocess.run(
            ["ip", "link", "add", netdev, "type", "veth", "peer", "name", f"{netdev}p"], check=True
        )
        assert changes(monitors, "mlx5_0/1")


def test_a_device_that_blocks_does_not_block_others(tree: Tree) -> None:
    """Its port is reported, one more thread sweeps the others, and it is swept again later."""
    blocks, returns = threading.Event(), threading.Event()

    def read(fd: int, limit: int, offset: int) -> bytes:
        if blocks.is_set() and "mlx5_0" in os.readlink(f"/proc/self/fd/{fd}"):
            returns.wait()
        return os.pread(fd, limit, offset)

    with sweeping(tree, ALL[:2], read) as (sweep, monitors):
        assert changes(monitors, "mlx5_0/1", "mlx5_1/1")
        blocks.set()
        assert changes(monitors, "mlx5_0/1")
        for text in ("1: DOWN\n", "4: ACTIVE\n"):
            tree.file("mlx5_1/1").write_text(text)
            assert changes(monitors, "mlx5_1/1")
        sweep.watch([])
        wait_for(lambda: descriptors(tree) == len(FILES))
        sweep.watch(ALL[:2])
        assert changes(monitors, "mlx5_1/1")
        time.sleep(1.5 * READ_TIMEOUT)
        assert not monitors.wait(0)
        assert len(sweepers()) == 2
        returns.set()
        assert changes(monitors, "mlx5_0/1")
        wait_for(lambda: len(sweepers()) == 1)


def test_the_only_device_may_block(tree: Tree) -> None:
    """It is swept again when its read returns, though the sweeper has nothing else to wake for."""
    blocks, returns = threading.Event(), threading.Event()

    def read(fd: int, limit: int, offset: int) -> bytes:
        if blocks.is_set():
            returns.wait()
        return os.pread(fd, limit, offset)

    with sweeping(tree, ALL[:1], read) as (_, monitors):
        assert changes(monitors, "mlx5_0/1")
        blocks.set()
        assert changes(monitors, "mlx5_0/1")
        assert not monitors.wait(QUIET)
        returns.set()
        assert changes(monitors, "mlx5_0/1")


def test_without_threads_the_sweep_starts_later(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next `watch` tries again."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with sweeping(tree, []) as (sweep, monitors):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            sweep.watch(ALL[:1])
        assert not sweepers()
        sweep.watch(ALL[:1])
        assert changes(monitors, "mlx5_0/1")


def test_a_long_sweep_is_not_a_blocked_device(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device takes less than the timeout, all of them more: no thread is added."""
    monkeypatch.setattr("agent.events.port_states.READ_TIMEOUT", 1.0)

    def read(fd: int, limit: int, offset: int) -> bytes:
        time.sleep(0.2)
        return os.pread(fd, limit, offset)

    with sweeping(tree, ALL, read) as (_, monitors):
        assert changes(monitors, "mlx5_0/1", "mlx5_1/1", "mlx5_1/2")
        tree.file("mlx5_1/2").write_text("1: DOWN\n")
        assert changes(monitors, "mlx5_1/2")
        assert len(sweepers()) == 1


def test_a_blocked_device_is_left_at_the_end(tree: Tree) -> None:
    """`close` does not wait for it; its files are closed when its read returns."""
    returns = threading.Event()

    def read(fd: int, limit: int, offset: int) -> bytes:
        returns.wait()
        return os.pread(fd, limit, offset)

    sweep = PortStateSweep(0.02, sys=str(tree.root), read=read)
    sweep.watch(ALL)
    wait_for(lambda: descriptors(tree) == 1)
    sweep.close()
    assert len(sweepers()) == 1
    returns.set()
    wait_for(lambda: not sweepers())
    assert descriptors(tree) == 0
