"""The daemon's packet sockets and driver flags while the kernel's rtnl lock is really held."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker
from tests.support import rtnl
from tests.support.lldp_frames import END, MAC, ethernet, identity
from tests.support.real_parts import require
from tests.support.switch import Namespace, cable, missing, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME = ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END)
AT_ONCE = 1.5  # seconds, of the rtnl.MAX_HELD that a call would take which waits for the lock
TIMEOUT = 60.0  # seconds


@pytest.fixture
def networks() -> Iterator[tuple[Namespace, Namespace]]:
    """The node's network with eth0 and eth1, and a peer's with the far ends wire0 and wire1."""
    require(missing() or rtnl.missing())
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
    assert notified.acquire(timeout=TIMEOUT)
    with rtnl.held():
        begun = time.monotonic()
        assert inbox({"eth0": True, "eth1": True}) == ([], {"eth1": None})
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
    with rtnl.held() as release:
        begun = time.monotonic()
        opened.start()
        opened.join(0.3)
        assert opened.is_alive()
        assert time.monotonic() - begun < AT_ONCE
        release()
        opened.join(TIMEOUT)
    assert len(listener.filenos()) == 1
    listener.close()
