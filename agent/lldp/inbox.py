"""The door to LLDP frames of an agent that runs: most frames say what the last one said, and cost no look.

The law of this module: a frame that tells nothing new renews its sender, and that is all. Any other waits here for the
look that it is worth. Whatever a neighbour sends, what waits is bounded, and after a burst nobody listens for a moment:
the rest stays in the sockets' buffers, which drop what does not fit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.lldp.frame import Frame
    from agent.lldp.neighbors import Table

MOST_WAITING = 512  # frames
BURST = 64  # frames at once
REST = 0.1  # seconds of deafness after a burst


class Listener(Protocol):
    """As much of agent.lldp.packet_socket.Listener as is needed."""

    dropped: dict[str, int]

    def watch(self, netdevs: Iterable[str]) -> dict[str, str]:
        """Listen on these; why not, where that cannot be."""

    def receive(self, timeout: float) -> list[Frame]:
        """What has come in."""

    def filenos(self) -> list[int]:
        """What to poll."""

    def close(self) -> None:
        """Listen on none."""


class FrameInbox:
    """The frames of the netdevs that a look asks for."""

    def __init__(self, listener: Listener, table: Table, clock: Callable[[], float]) -> None:
        self.netdevs: frozenset[str] = frozenset()
        self.dropped = listener.dropped
        self._listener, self._table, self._clock = listener, table, clock
        self._waiting: deque[Frame] = deque(maxlen=MOST_WAITING)
        self._deaf_until = 0.0

    def __call__(self, netdevs: Mapping[str, bool]) -> tuple[list[Frame], dict[str, str]]:
        """The frames for a look; see Host.frames."""
        self._table.forget(self.netdevs - netdevs.keys())
        self.netdevs = frozenset(netdevs)
        refused = self._listener.watch(netdevs)
        self.hear()
        frames = [frame for frame in self._waiting if frame.netdev in netdevs]
        self._waiting.clear()
        return frames, refused

    def hear(self) -> tuple[bool, set[str]]:
        """Take in what has come: whether it is worth a look, and which netdevs' neighbours only repeated themselves."""
        try:
            frames = self._listener.receive(0)
        except OSError:  # the sockets are of no use any more; the next look opens others
            self._listener.close()
            return True, set()
        if len(frames) >= BURST:
            self._deaf_until = self._clock() + REST
        news = self._news(frames)
        self._waiting += news
        return bool(news), {frame.netdev for frame in frames} - {frame.netdev for frame in news}

    def _news(self, frames: list[Frame]) -> list[Frame]:
        """Those that tell something new; a sender's frames stay in their order, behind those that wait for a look."""
        waiting = {(frame.netdev, frame.data[6:12]) for frame in self._waiting}
        news = []
        for frame in frames:
            sender = frame.netdev, frame.data[6:12]
            if sender in waiting or not self._table.repeats(frame):
                waiting.add(sender)
                news.append(frame)
        return news

    def filenos(self) -> list[int]:
        """What to poll now."""
        return self._listener.filenos() if self._clock() >= self._deaf_until else []

    def rest(self) -> float:
        """Seconds until there is more to poll; 0: now."""
        return max(self._deaf_until - self._clock(), 0.0)
