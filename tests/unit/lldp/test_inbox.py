"""The daemon's receive queue over a listener that a test fills."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from agent.lldp.driver_flags import DriverFlags
from agent.lldp.frame import Frame
from agent.lldp.inbox import MAX_BURST, MAX_QUEUED, FrameInbox
from agent.lldp.neighbors import NeighborTable
from tests.support.lldp_frames import END, MAC, capabilities, ethernet, identity, tlv
from tests.support.running import FakeListener


def frame(
    name: str = "leaf-1", ttl: int = 120, source: str = "001c73aabbcc", at: float = 0.0
) -> Frame:
    lldpdu = identity(b"\x04" + MAC, b"\x05swp1", ttl) + tlv(5, name.encode()) + capabilities(4)
    return Frame("eth0", at, ethernet(lldpdu + END, source=source))


def test_the_queue_is_bounded_and_a_burst_is_followed_by_a_pause() -> None:
    """A flood of senders costs memory for some of them, and repetitions cost no observation."""
    now = [0.0]
    listener, table = FakeListener(), NeighborTable(30.0, 2)
    inbox = FrameInbox(listener, table, lambda: now[0])
    assert inbox({"eth0": True}) == ([], {"eth0": None})
    listener.frames = [frame(), frame()]
    assert inbox.receive() == (True, set())
    for one in inbox({"eth0": True})[0]:
        table.receive(one)
    listener.frames = [frame()]
    assert inbox.receive() == (False, {"eth0"})
    for number in range(0, 2000, MAX_BURST):
        listener.frames = [frame(source=f"02{number + one:010x}") for one in range(MAX_BURST)]
        assert inbox.receive()[0]
    assert (inbox.pause() > 0, inbox.filenos()) == (True, [])
    assert len(inbox({"eth0": True})[0]) == MAX_QUEUED


def test_what_ended_while_the_sockets_were_dead_proves_nothing() -> None:
    """Nobody observed these netdevs meanwhile."""

    class Dying(FakeListener):
        def receive(self, timeout: float) -> list[Frame]:
            if self.is_dead:
                self.is_dead = False
                raise OSError(errno.ENETDOWN, "it is simulated")
            return super().receive(timeout)

        is_dead = False

    listener = Dying()
    inbox = FrameInbox(listener, NeighborTable(30.0, 2), lambda: 0.0)
    assert [inbox({"eth0": True})[1] for _ in range(2)] == [{"eth0": None}, {}]
    listener.is_dead = True
    assert inbox.receive() == (True, set())
    assert [inbox({"eth0": True})[1] for _ in range(2)] == [{"eth0": None}, {}]


@pytest.mark.parametrize("source", ["001c73aabbcc", "020000000001"])
def test_the_frames_of_a_sender_stay_in_order(source: str) -> None:
    """A queued shutdown frame is not overwritten by a later frame, nor handed out after it."""
    listener, table = FakeListener(), NeighborTable(30.0, 2)
    inbox = FrameInbox(listener, table, lambda: 0.0)
    for at in (0.0, 30.0):
        table.receive(frame(at=at))
    for one in (frame(ttl=0, at=60.0, source=source), frame(at=65.0)):
        listener.frames = [one]
        assert inbox.receive()[0]
    for one in inbox({"eth0": True})[0]:
        table.receive(one)
    table.expire("eth0", 120.0)
    assert len(table.neighbors("eth0")) == 1


def test_flags_that_were_read_are_worth_an_observation() -> None:
    """The reason of a silent port may now be its NIC's firmware."""
    calls: list[Callable[[], None]] = []
    flags = DriverFlags(lambda _netdev: {"disable-fw-lldp": False}, calls.append)
    inbox = FrameInbox(FakeListener(), NeighborTable(), lambda: 0.0, flags)
    inbox({"eth0": True})
    assert flags("eth0") == {}
    assert inbox.receive() == (False, set())
    calls.pop()()
    assert inbox.receive() == (True, set())
    assert flags("eth0") == {"disable-fw-lldp": False}
    assert inbox.receive() == (False, set())
