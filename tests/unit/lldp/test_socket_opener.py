"""Sockets that are opened in another thread: opening one holds up nothing else."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from agent.errors import Unavailable
from agent.host import Host
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker
from agent.lldp.reception import LldpNeighbors
from agent.model import Netdev, PortRole, RdmaDevice, RdmaPort, Seen
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources import lldp
from tests.support.lldp_frames import END, MAC, ethernet, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.model import Link

TIMEOUT = 60.0  # seconds
FRAME = ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END)


class FakeSocket:
    """A socket bound to a netdev; `wire` is its far end."""

    def __init__(self, netdev: str) -> None:
        self.netdev = netdev
        self.wire, self._sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        self.closed_by: int | None = None  # thread

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockname(self) -> tuple[Any, ...]:
        return self.netdev, 0x88CC, 0, 1, b"\2" * 6

    def recvmsg(self, size: int, _ancillary: int) -> tuple[Any, ...]:
        return self._sock.recv(size), [], 0, (self.netdev, 0x88CC, socket.PACKET_MULTICAST)

    def close(self) -> None:
        self.closed_by = threading.get_ident()
        self._sock.close()
        self.wire.close()


class Kernel:
    """Sockets by netdev; opening one waits while its gate is closed, or fails."""

    def __init__(self) -> None:
        self.sockets: dict[str, FakeSocket] = {}
        self.gates: dict[str, threading.Event] = {}
        self.errors: dict[str, OSError] = {}
        self.opened: list[str] = []
        self.entered = threading.Semaphore(0)
        self.notified = threading.Semaphore(0)
        self.table = NeighborTable(30.0, 2)
        self.listener = Listener(
            run=RtnlWorker(self.notified.release).submit,
            open_socket=self.open,  # type: ignore[arg-type]  # a FakeSocket
        )

    def open(self, netdev: str) -> FakeSocket:
        self.opened.append(netdev)
        self.entered.release()
        if gate := self.gates.get(netdev):
            gate.wait(TIMEOUT)
        if error := self.errors.get(netdev):
            raise error
        self.sockets[netdev] = FakeSocket(netdev)
        return self.sockets[netdev]

    def wait(self, count: int = 1) -> None:
        """Wait for notifications."""
        for _ in range(count):
            assert self.notified.acquire(timeout=TIMEOUT)

    def inbox(self) -> FrameInbox:
        return FrameInbox(self.listener, self.table, time.time)

    def links(self, inbox: FrameInbox, *netdevs: str) -> dict[str, Link]:
        """Observe: the links of backend ports with these netdevs."""
        neighbors = LldpNeighbors(inbox, self.table)
        host = Host(Tree(MemoryStore({}), {}), time.time, lldp_neighbors=neighbors)
        outcome = lldp.read(host, tuple(map(role, netdevs))).outcome
        assert isinstance(outcome, Seen)
        return {link.interface: link for link in outcome.value}


def role(name: str) -> PortRole:
    """A backend port with a netdev of this name, and a link."""
    netdev = Netdev(name, 100_000, "up", None, default_route=False)
    port = RdmaPort(1, "Ethernet", "ACTIVE", "LinkUp", None, 100.0, None, None, None, netdev, ())
    device = RdmaDevice(name, ports=(port,))
    return PortRole(name, device, port, None, backend=True, reason="", counted_gbps=100.0)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    for sock in made.sockets.values():
        sock.close()


def test_a_socket_that_is_being_opened_stops_nothing(kernel: Kernel) -> None:
    """While the rtnl lock is held for eth1 the others receive, observations return, and eth1 is
    silent, which holds its labels.
    """
    inbox = kernel.inbox()
    kernel.links(inbox, "eth0")
    kernel.wait()
    kernel.gates["eth1"] = threading.Event()
    begun = time.monotonic()
    link = kernel.links(inbox, "eth0", "eth1")["eth1"]
    assert (link.neighbors, link.missing, link.hold) == ((), "silent", True)
    kernel.sockets["eth0"].wire.send(FRAME)
    assert inbox.receive() == (True, set())
    found = kernel.links(inbox, "eth0", "eth1")
    assert found["eth0"].neighbors
    assert found["eth1"].missing == "silent"
    assert time.monotonic() - begun < TIMEOUT / 2
    for _ in range(2):
        assert kernel.entered.acquire(timeout=TIMEOUT)
    assert kernel.opened == ["eth0", "eth1"]
    assert len(inbox.filenos()) == 1
    kernel.gates["eth1"].set()
    kernel.wait()
    assert len(inbox.filenos()) == 2
    kernel.sockets["eth1"].wire.send(FRAME)
    assert inbox.receive() == (True, set())
    assert kernel.links(inbox, "eth0", "eth1")["eth1"].neighbors


def test_an_error_is_worth_one_observation(kernel: Kernel) -> None:
    """The socket is tried again at each observation; the same error again is no news, and no error
    any more is.
    """
    inbox = kernel.inbox()
    kernel.errors["eth0"] = OSError(errno.ENODEV, "No such device")
    assert inbox({"eth0": True}) == ([], {"eth0": None})
    kernel.wait()
    assert inbox.receive() == (True, set())
    assert inbox({"eth0": True}) == ([], {"eth0": "ENODEV: No such device"})
    kernel.wait()
    assert inbox.receive() == (False, set())
    assert inbox({"eth0": True})[1] == {"eth0": "ENODEV: No such device"}
    kernel.wait()
    kernel.errors.clear()
    assert inbox({"eth0": True})[1] == {"eth0": "ENODEV: No such device"}
    kernel.wait()
    assert inbox.receive() == (True, set())
    assert inbox({"eth0": True})[1] == {}


def test_a_missing_capability_is_reported_when_it_is_known(kernel: Kernel) -> None:
    """The first observation does not know it yet."""
    inbox = kernel.inbox()
    kernel.errors["eth0"] = PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    assert inbox({"eth0": True})[1] == {"eth0": None}
    kernel.wait()
    assert inbox.receive()[0]
    with pytest.raises(Unavailable, match="eth0: no packet socket for LLDP: CAP_NET_RAW is missin"):
        inbox({"eth0": True})
    kernel.wait()
    assert inbox.receive() == (False, set())


def test_sockets_are_closed_in_the_worker(kernel: Kernel) -> None:
    """Closing waits for the rtnl lock, too. A socket that is not wanted any more when it is open is
    closed at once.
    """
    listener = kernel.listener
    listener.watch(["eth0"])
    kernel.wait()
    assert len(listener.filenos()) == 1
    kernel.gates["eth1"] = threading.Event()
    listener.watch(["eth1"])
    assert listener.filenos() == []
    kernel.wait()  # eth0 is closed
    assert listener.watch([]) == {}
    kernel.gates["eth1"].set()
    kernel.wait()  # eth1 is open
    assert listener.filenos() == []
    kernel.wait()  # and closed
    closed_by = {kernel.sockets[netdev].closed_by for netdev in ("eth0", "eth1")}
    assert not closed_by & {None, threading.get_ident()}
    listener.watch(["eth0"])
    kernel.wait()
    assert len(listener.filenos()) == 1
    listener.close()
    assert listener.filenos() == []
    kernel.wait()


def test_a_netdev_made_again_while_its_socket_was_opened(kernel: Kernel) -> None:
    """The socket has no name any more, so the next observation replaces it."""
    listener = kernel.listener
    assert listener.watch(["eth0"]) == {"eth0": None}
    kernel.wait()
    kernel.sockets["eth0"].netdev = ""
    assert listener.watch(["eth0"]) == {"eth0": None}
    kernel.wait(2)
    assert listener.watch(["eth0"]) == {}
    assert kernel.opened == ["eth0", "eth0"]


def test_without_a_thread_no_socket_is_opened(kernel: Kernel) -> None:
    """The error stands for the socket, and the next observation tries again."""
    threads = [False, True]

    def run(call: Callable[[], None]) -> None:
        if not threads.pop(0):
            raise RuntimeError("can't start new thread")
        call()

    listener = Listener(run=run, open_socket=kernel.open)  # type: ignore[arg-type]  # a FakeSocket
    [(netdev, error)] = listener.watch(["eth0"]).items()
    assert (netdev, error) == ("eth0", f"EAGAIN: {os.strerror(errno.EAGAIN)}")
    assert listener.watch(["eth0"]) == {}
