"""Receive the LLDP frames of observations: the daemon's queue, and the wait of `probe`.

The daemon. Most frames repeat their sender's last frame and need no observation. Invariants: such a
repetition restarts the sender's TTL and is not queued; any other frame is queued for the next
observation. The queue is bounded, and after a burst the sockets are not polled for PAUSE_INTERVAL.
Frames then stay in the sockets' buffers, which drop frames that do not fit.

`probe` waits until each netdev has a neighbor, or for a time. Switches send every 30 s by default,
so the wait is long, and its progress is shown on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from agent.errors import Malformed
from agent.lldp import frame as lldp
from agent.lldp.driver_flags import DriverFlags
from agent.lldp.frame import Frame
from agent.lldp.neighbors import AWAITED, NeighborTable
from agent.lldp.packet_socket import Listener, run_at_once
from agent.lldp.reception import Links, Received
from agent.model import OF_NOTE, Problem
from agent.text import natural

MAX_QUEUED = 512  # frames
MAX_BURST = 64  # frames received at once, before a pause
PAUSE_INTERVAL = 0.1  # seconds
PROGRESS_INTERVAL = 0.5  # seconds
MAX_LINE = 79  # characters that fit into one line of every terminal, with the cursor in it


class Frames(Protocol):
    """The part of Listener that the inbox uses."""

    dropped: dict[str, int]

    @property
    def errors(self) -> Mapping[str, str]: ...
    def watch(self, netdevs: Iterable[str]) -> Mapping[str, str | None]: ...
    def receive(self, timeout: float) -> list[Frame]: ...
    def filenos(self) -> list[int]: ...
    def close(self) -> None: ...


class FrameInbox:
    """The received frames of the netdevs of the last observation; see LldpNeighbors.

    The sockets are opened, and `flags` read, in the thread of an RtnlWorker. When that notifies,
    call `receive`.
    """

    def __init__(
        self,
        listener: Frames,
        table: NeighborTable,
        clock: Callable[[], float],
        flags: DriverFlags | None = None,
    ) -> None:
        self.netdevs: frozenset[str] = frozenset()
        self._listened: frozenset[str] = frozenset()  # netdevs since whose last observation it did
        self.dropped = listener.dropped
        self._listener, self._table, self._clock = listener, table, clock
        self._flags = flags or DriverFlags(lambda _netdev: {}, run_at_once)
        self._errors: Mapping[str, str] = {}  # of the last observation
        self._queue: deque[Frame] = deque(maxlen=MAX_QUEUED)
        self._paused_until = 0.0

    def __call__(self, netdevs: Links) -> Received:
        """Return and clear the queue for an observation of these netdevs, up or down.

        The second value has the netdevs that nothing could be received on since the observation
        before: the error of the socket, or None if it is being opened, or was.
        """
        self._table.forget(self.netdevs - netdevs.keys())
        new, self.netdevs = netdevs.keys() - self._listened, frozenset(netdevs)
        self._flags.set_links(netdevs)
        try:
            missing = self._listener.watch(netdevs)
        finally:
            self._errors = self._listener.errors
        self._listened = self.netdevs - missing.keys()
        self.receive()
        frames = [frame for frame in self._queue if frame.netdev in netdevs]
        self._queue.clear()
        return frames, {**dict.fromkeys(new), **missing}

    def receive(self) -> tuple[bool, set[str]]:
        """Receive without waiting.

        Return True if an observation is due, and the netdevs whose frames only repeated the last.
        """
        try:
            frames = self._listener.receive(0)
        except OSError:  # the sockets are unusable; the next observation opens others
            self._listener.close()
            self._listened = frozenset()
            return True, set()
        if len(frames) >= MAX_BURST:
            self._paused_until = self._clock() + PAUSE_INTERVAL
        # The frames of a chassis stay in order: once a frame of it is queued, those after it are
        # queued, too. The senders of the other repetitions are refreshed.
        queued = {_chassis(frame) for frame in self._queue}
        changes = []
        for frame in frames:
            if (queued and _chassis(frame) in queued) or not self._table.refresh(frame):
                queued.add(_chassis(frame))
                changes.append(frame)
        self._queue += changes
        # flags, and the errors of sockets, that differ from the last observation's
        has_news = self._flags.collect() or self._listener.errors != self._errors
        repeated = {frame.netdev for frame in frames} - {frame.netdev for frame in changes}
        return has_news or bool(changes), repeated

    def filenos(self) -> list[int]:
        """Return the descriptors to poll now; none during a pause."""
        return self._listener.filenos() if self.pause() == 0 else []

    def pause(self) -> float:
        """Return the seconds left of the pause after a burst; 0 if there is none."""
        return max(self._paused_until - self._clock(), 0.0)


def _chassis(frame: Frame) -> tuple[str, bytes]:
    """Return the netdev and the Chassis ID, which is empty if the frame is malformed."""
    try:
        return frame.netdev, lldp.msap(frame.data)[0]
    except Malformed:
        return frame.netdev, b""


class Netdevs(NamedTuple):
    """The netdevs of one wait, each in one of the sets."""

    received: set[str]  # have a neighbor
    failed: set[str]  # have no socket
    awaited: set[str]


def progress(netdevs: Netdevs, left: float) -> None:
    """Show on stderr, if it is a terminal, the netdevs awaited and the seconds left."""
    if not sys.stderr.isatty():
        return
    received, failed, awaited = map(len, netdevs)
    line = f"LLDP: neighbors on {received} of {received + failed + awaited} ports"
    if failed:
        line += f", {failed} failed"
    line += f", {left:.0f} s left"
    if awaited:
        line += f"; awaited: {' '.join(sorted(netdevs.awaited, key=natural))}"
    if len(line) > MAX_LINE:
        line = f"{line[: MAX_LINE - 1]}~"
    sys.stderr.write(f"\r{line:<{MAX_LINE}}" if left else f"\r{'':<{MAX_LINE}}\r")
    sys.stderr.flush()


class LldpWait:
    """The frames of one observation.

    With a `wait` of None it ends when each netdev with a link has a neighbor, at the latest after
    AWAITED; a number is the seconds to wait in any case. `progress` is called with the
    netdevs that have a neighbor, failed or are awaited, and the seconds left, 0 at the end.
    `elapsed` is the duration in seconds.
    """

    def __init__(
        self,
        wait: float | None,
        progress: Callable[[Netdevs, float], None],
        listener: Listener | None = None,
    ) -> None:
        self.elapsed = 0.0
        self._received = False
        self._wait = wait
        self._progress = progress
        self._listener = listener or Listener()

    def __call__(self, netdevs: Links) -> Received:
        """Receive; raise Unavailable without CAP_NET_RAW. See LldpNeighbors."""
        errors = self._listener.watch(netdevs)
        up = {netdev for netdev, has_link in netdevs.items() if has_link}
        frames: list[Frame] = []
        status = _status(up, frames, errors)
        start = time.monotonic()
        self._received = bool(status.awaited)
        limit = AWAITED if self._wait is None else self._wait
        try:
            while (status.awaited or self._wait is not None) and self.elapsed < limit:
                left = limit - self.elapsed
                self._progress(status, left)
                frames += self._listener.receive(min(left, PROGRESS_INTERVAL))
                errors |= self._listener.watch(up)  # a netdev may go meanwhile
                status = _status(up, frames, errors)
                self.elapsed = time.monotonic() - start
        finally:
            self._progress(status, 0)
            self._listener.close()
        return frames, errors

    def notes(self) -> list[Problem]:
        """Return a note for the report if the wait was too short to show all neighbors."""
        if not self._received or self.elapsed >= AWAITED:
            return []
        until = ", until each port with a link had a neighbor" if self._wait is None else ""
        text = (
            f"waited {self.elapsed:.0f} s for LLDP frames{until}: "
            f"a port's second neighbor may be missing (--wait {AWAITED:.0f})"
        )
        return [Problem(OF_NOTE, "lldp", None, text)]


def _status(netdevs: set[str], frames: Iterable[Frame], errors: Iterable[str]) -> Netdevs:
    received = set()
    for frame in frames:
        with suppress(Malformed):
            lldp.decode(frame.data)
            received.add(frame.netdev)
    failed = netdevs.intersection(errors) - received
    return Netdevs(received, failed, netdevs - received - failed)
