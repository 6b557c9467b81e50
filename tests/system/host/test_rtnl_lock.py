"""`bwagent run`, its packet sockets and its driver flags while the kernel's rtnl lock is held."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker
from tests.support import rtnl_lock
from tests.support.kernel_tree import hca, netdev
from tests.support.kubeconfigs import kubeconfig
from tests.support.lldp_frames import END, MAC, ethernet, identity
from tests.support.real_parts import require
from tests.support.snapshots import REPOSITORY
from tests.support.switch import Namespace, cable, missing, wait_for
from tests.support.sysfs_on_disk import lay

HELD_TIMEOUT = 30.0  # seconds in which a loop that does not wait for the lock turns, or ends


def test_the_lock_is_held() -> None:
    """`ip link` waits for it."""
    require(missing() or rtnl_lock.missing())
    with rtnl_lock.held():
        waiting = subprocess.Popen(["ip", "link"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        assert waiting.poll() is None
    assert waiting.wait(HELD_TIMEOUT) == 0


class Agent:
    """A `bwagent run` in a namespace, over two RoCE ports; no API server answers it."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._log = folder / "log"
        config = kubeconfig(folder / "kubeconfig")
        tree = netdev("eth0", "0000:18:00.0") | hca(
            "mlx5_0", "0000:18:00.0", "Ethernet", {1: "eth0"}
        )
        sys_root = str(lay(tree, folder))
        run = [sys.executable, "-m", "agent.cli", "run", "--node-name", "n1"]
        flags = ["--sysfs-root", sys_root, "--kubeconfig", str(config)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                namespace.command(*run, *flags),
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            )

    def handles(self, number: signal.Signals) -> bool:
        """Send a signal; return True if the loop handles it in time."""
        before = self._log.read_text().count(number.name)
        self.process.send_signal(number)
        end = time.monotonic() + HELD_TIMEOUT
        while self._log.read_text().count(number.name) == before:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that has made its first observation."""
    require(missing() or rtnl_lock.missing())
    with Namespace() as far, Namespace() as namespace:
        cable(far, "wire0", namespace, "eth0")
        running = Agent(namespace, tmp_path)
        try:
            wait_for((tmp_path / "log").read_text)  # the signal handlers are installed
            wait_for(lambda: running.handles(signal.SIGHUP))
            yield running
        finally:
            running.process.kill()
            running.process.wait()


def test_the_loop_turns_while_the_rtnl_lock_is_held(agent: Agent) -> None:
    """Each SIGHUP causes an observation, and SIGTERM ends the loop.

    The process is gone when the lock is released, since the kernel takes it to close a packet
    socket with a membership (net/packet/af_packet.c, packet_flush_mclist).
    """
    with rtnl_lock.held():
        for _ in range(3):
            assert agent.handles(signal.SIGHUP)
        assert agent.handles(signal.SIGTERM)
    assert agent.process.wait(HELD_TIMEOUT) == 0


FRAME = ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END)
AT_ONCE = 1.5  # seconds; a call that waits for the lock takes rtnl_lock.MAX_HOLD


@pytest.fixture
def networks() -> Iterator[tuple[Namespace, Namespace]]:
    """The node's network with eth0 and eth1, and a peer's with the far ends wire0 and wire1."""
    require(missing() or rtnl_lock.missing())
    with Namespace() as node, Namespace() as peer:
        for number in (0, 1):
            cable(peer, f"wire{number}", node, f"eth{number}")
        yield node, peer


def test_a_held_rtnl_lock_stops_neither_reception_nor_observation(
    networks: tuple[Namespace, Namespace],
) -> None:
    """Meanwhile eth0 receives and is closed, eth1 is being opened and flags are unknown; when the
    lock is released eth1 receives.
    """
    node, peer = networks
    notified = threading.Semaphore(0)
    worker = RtnlWorker(notified.release)
    listener = Listener(run=worker.submit)
    flags = DriverFlags(private_flags, worker.submit)
    inbox = FrameInbox(listener, NeighborTable(30.0, 2), time.time, flags)
    assert node.call(inbox, {"eth0": True}) == ([], {"eth0": None})  # starts the thread in there
    assert notified.acquire(timeout=HELD_TIMEOUT)
    with rtnl_lock.held():
        begun = time.monotonic()
        assert inbox({"eth0": True, "eth1": True}) == ([], {"eth0": None, "eth1": None})
        assert (flags("eth0"), flags("eth1")) == ({}, {})
        peer.send("wire0", FRAME)
        wait_for(lambda: inbox.receive()[0])
        [frame] = inbox({"eth0": True, "eth1": True})[0]
        assert (frame.netdev, frame.data) == ("eth0", FRAME)
        assert inbox({"eth1": True}) == ([], {"eth1": None})
        assert inbox.filenos() == []
        assert time.monotonic() - begun < AT_ONCE
        assert not notified.acquire(timeout=0.2)
    wait_for(lambda: len(inbox.filenos()) == 1)
    peer.send("wire1", FRAME)
    wait_for(lambda: inbox.receive()[0])
    assert [frame.netdev for frame in inbox({"eth1": True})[0]] == ["eth1"]
    listener.close()


def test_opening_a_socket_waits_for_the_lock_without_the_gil(
    networks: tuple[Namespace, Namespace],
) -> None:
    """Opened by the caller it waits, as `probe` does; and no other thread waits with it."""
    node, _ = networks
    listener = Listener()
    opened = threading.Thread(target=node.call, args=(listener.watch, ["eth0"]), daemon=True)
    with rtnl_lock.held() as release:
        begun = time.monotonic()
        opened.start()
        opened.join(0.3)
        assert opened.is_alive()
        assert time.monotonic() - begun < AT_ONCE
        release()
        opened.join(HELD_TIMEOUT)
    assert len(listener.filenos()) == 1
    listener.close()
