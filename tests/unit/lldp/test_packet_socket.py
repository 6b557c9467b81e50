"""Sockets that are opened in another thread, that thread, and the filter of a socket."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from agent.errors import Unavailable
from agent.host import Host
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker, lldp_program
from agent.lldp.reception import LldpNeighbors
from agent.model import Link, PortRole, Seen
from agent.snapshot.tree import MemoryStore, Tree
from tests.support.devices import netdev
from tests.support.lldp_frames import END, MAC, ethernet, identity
from tests.support.observations import PORT
from tests.support.observations import role as role_of
from tests.support.sources import read_lldp

TIMEOUT = 60.0  # seconds
JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ, include/uapi/linux/bpf_common.h
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
        for _ in range(count):
            assert self.notified.acquire(timeout=TIMEOUT)

    def inbox(self) -> FrameInbox:
        return FrameInbox(self.listener, self.table, time.time)

    def links(self, inbox: FrameInbox, *netdevs: str) -> dict[str, Link]:
        """Observe: the links of backend ports with these netdevs."""
        neighbors = LldpNeighbors(inbox, self.table)
        host = Host(Tree(MemoryStore({}), {}), time.time, lldp_neighbors=neighbors)
        outcome = read_lldp(host, tuple(map(role, netdevs))).outcome
        assert isinstance(outcome, Seen)
        return {link.interface: link for link in outcome.value}


def role(name: str) -> PortRole:
    return role_of(name, PORT._replace(link_layer="Ethernet", netdev=netdev(name)))


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    for sock in made.sockets.values():
        sock.close()


def test_a_socket_that_is_being_opened_stops_nothing(kernel: Kernel) -> None:
    """While the rtnl lock is held for eth1 the others receive, and eth1 is silent."""
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
    """It is tried again at each; the same error is no news, and no error any more is."""
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
    assert inbox({"eth0": True})[1] == {"eth0": None}  # nothing could be received so far
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
    """Closing waits for the rtnl lock. One that is not wanted any more is closed at once."""
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


def block(gate: threading.Event) -> None:
    gate.wait(TIMEOUT)


def test_calls_run_in_order_in_one_thread_and_notify() -> None:
    """The thread is another than the caller's, and each call is followed by a notification."""
    done: SimpleQueue[tuple[str, int]] = SimpleQueue()

    def call(name: str) -> Callable[[], None]:
        return lambda: done.put((name, threading.get_ident()))

    worker = RtnlWorker(lambda: done.put(("notified", threading.get_ident())))
    for name in ("first", "second"):
        worker.submit(call(name))
    found = [done.get(timeout=TIMEOUT) for _ in range(4)]
    assert [name for name, _ in found] == ["first", "notified", "second", "notified"]
    assert len({thread for _, thread in found} - {threading.get_ident()}) == 1


def test_no_thread_is_started_before_the_first_call_nor_two_after_it() -> None:
    """However many calls wait behind one that blocks, one thread is stuck; the caller goes on."""
    before, gate, done = {*threading.enumerate()}, threading.Event(), threading.Event()
    worker = RtnlWorker()
    assert before.issuperset(threading.enumerate())
    worker.submit(lambda: block(gate))
    for _ in range(100):
        worker.submit(lambda: None)
    worker.submit(done.set)
    assert len({*threading.enumerate()} - before) == 1
    assert not done.is_set()
    gate.set()
    assert done.wait(TIMEOUT)


def test_a_thread_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    worker = RtnlWorker()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            worker.submit(done.set)
    worker.submit(done.set)
    assert done.wait(TIMEOUT)


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_the_filter_jumps_forward_only() -> None:
    """The kernel would refuse it otherwise; and both ends are reached."""
    program = lldp_program()
    jumps = [
        (at, true, false)
        for at, (code, true, false, _) in enumerate(program)
        if code == JUMP_IF_EQUAL
    ]
    targets = {at + 1 + jump for at, true, false in jumps for jump in (true, false)}
    assert {len(program) - 1, len(program) - 2} < targets <= set(range(len(program)))
