"""Queue the LLDP frames of the daemon: most frames repeat the last one and need no observation.

Invariants: a frame that repeats the last one restarts its sender's TTL and is not queued; any other
is queued for the next observation. The queue is bounded, and after a burst the sockets are not
polled for PAUSE_INTERVAL. Frames then stay in the sockets' buffers, which drop what does not fit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from agent.lldp.driver_flags import DriverFlags
from agent.lldp.socket_opener import run_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.lldp.frame import Frame
    from agent.lldp.neighbors import NeighborTable
    from agent.lldp.reception import Links, Received

MAX_QUEUED = 512  # frames
MAX_BURST = 64  # frames received at once, before a pause
PAUSE_INTERVAL = 0.1  # seconds


class Listener(Protocol):
    """The part of agent.lldp.packet_socket.Listener that the inbox uses."""

    dropped: dict[str, int]

    @property
    def errors(self) -> Mapping[str, str]:
        """The error of each netdev whose socket could not be opened."""

    def watch(self, netdevs: Iterable[str]) -> Mapping[str, str | None]:
        """Receive on these netdevs; return those without a socket, with the error, if any."""

    def receive(self, timeout: float) -> list[Frame]:
        """Return the frames received."""

    def filenos(self) -> list[int]:
        """Return the descriptors to poll, with those of sockets opened meanwhile."""

    def close(self) -> None:
        """Close all sockets."""


class FrameInbox:
    """The received frames of the netdevs of the last observation; see LldpNeighbors.

    The sockets are opened, and `flags` read, in the thread of an RtnlWorker. When that notifies,
    call `receive`.
    """

    def __init__(
        self,
        listener: Listener,
        table: NeighborTable,
        clock: Callable[[], float],
        flags: DriverFlags | None = None,
    ) -> None:
        self.netdevs: frozenset[str] = frozenset()
        self.dropped = listener.dropped
        self._listener, self._table, self._clock = listener, table, clock
        self._flags = flags or DriverFlags(lambda _netdev: {}, run_at_once)
        self._errors: Mapping[str, str] = {}  # of the last observation
        self._queue: deque[Frame] = deque(maxlen=MAX_QUEUED)
        self._paused_until = 0.0

    def __call__(self, netdevs: Links) -> Received:
        """Return and clear the queue for an observation of these netdevs, up or down.

        The second value has the netdevs without a socket: the error, or None if it is being opened.
        """
        self._table.forget(self.netdevs - netdevs.keys())
        self.netdevs = frozenset(netdevs)
        self._flags.set_links(netdevs)
        missing = self._watch(netdevs)
        self.receive()
        return self._take(netdevs), missing

    def receive(self) -> tuple[bool, set[str]]:
        """Receive without waiting.

        Return True if an observation is due, and the netdevs whose frames only repeated the last.
        """
        try:
            frames = self._listener.receive(0)
        except OSError:  # the sockets are unusable; the next observation opens others
            self._listener.close()
            return True, set()
        self._pause_after_burst(frames)
        changes = self._changes(frames)
        self._queue += changes
        due = self._has_news() or bool(changes)
        return due, _netdevs(frames) - _netdevs(changes)

    def filenos(self) -> list[int]:
        """Return the descriptors to poll now; none during a pause."""
        return self._listener.filenos() if self.pause() == 0 else []

    def pause(self) -> float:
        """Return the seconds left of the pause after a burst; 0 if there is none."""
        return max(self._paused_until - self._clock(), 0.0)

    def _watch(self, netdevs: Links) -> Mapping[str, str | None]:
        try:
            return self._listener.watch(netdevs)
        finally:
            self._errors = self._listener.errors

    def _take(self, netdevs: Links) -> list[Frame]:
        """Return the queued frames of these netdevs, and clear the queue."""
        frames = [frame for frame in self._queue if frame.netdev in netdevs]
        self._queue.clear()
        return frames

    def _pause_after_burst(self, frames: list[Frame]) -> None:
        if len(frames) >= MAX_BURST:
            self._paused_until = self._clock() + PAUSE_INTERVAL

    def _has_news(self) -> bool:
        """Return True if flags, or the errors of sockets, differ from the last observation's."""
        flags_changed = self._flags.collect()
        return flags_changed or self._listener.errors != self._errors

    def _changes(self, frames: list[Frame]) -> list[Frame]:
        """Return the frames that are not repetitions; refresh the senders of the others.

        The frames of a sender stay in order: once one is queued, those after it are queued, too.
        """
        queued = set(map(_sender, self._queue))
        changes = []
        for frame in frames:
            sender = _sender(frame)
            if sender in queued or not self._table.refresh(frame):
                queued.add(sender)
                changes.append(frame)
        return changes


def _sender(frame: Frame) -> tuple[str, bytes]:
    """Return the netdev and the source address."""
    return frame.netdev, frame.data[6:12]


def _netdevs(frames: Iterable[Frame]) -> set[str]:
    return {frame.netdev for frame in frames}
