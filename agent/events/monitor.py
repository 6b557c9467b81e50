"""Supervision of the monitors, behind one poll(2) for a single-threaded loop.

Invariants:
- An event is a hint. It names a subject that may have changed; its state is read from sysfs. A
  duplicate costs little, so monitors may report more than has changed.
- No event is lost without notice. A monitor whose buffer overflowed (ENOBUFS) or whose socket
  failed is closed and reopened, and "resync" follows. While it cannot be reopened each attempt
  yields "resync", so that the loop polls slowly instead.
- Memory is bounded. A monitor reads a limited number of messages at a time; the rest stays in the
  kernel's socket buffer, which drops further messages and reports that by ENOBUFS.
"""

from __future__ import annotations

import math
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from agent.errors import Unavailable
from agent.events.event import Event, SignalMonitor
from agent.events.netlink import DevlinkMonitor, LinkMonitor, UeventMonitor
from agent.pace import BackOff

MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL = 1.0, 300.0  # seconds between two attempts to reopen


class Monitor(Protocol):
    """A source of events. An OSError from `read` means that events were lost: close and reopen."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `read` has something to return."""

    def read(self) -> set[Event]:
        """Return the events so far; never blocks."""

    def close(self) -> None:
        """Release the descriptors."""


Open = Callable[[set[str]], Monitor]  # of the names of netdevs

MONITORS: Mapping[str, Open] = {
    "links": LinkMonitor,
    "uevents": UeventMonitor,
    "devlink": DevlinkMonitor,
}


class Monitors:
    """All events that concern the node, of `netdevs` and all RDMA devices.

    `frames` returns the descriptors of the LLDP packet sockets. `others` are monitors that need no
    supervision. `monitors` maps the name of each supervised monitor to its constructor, which takes
    the set of netdev names.
    """

    def __init__(
        self,
        netdevs: Iterable[str] = (),
        *,
        frames: Callable[[], Iterable[int]] = tuple,
        others: Iterable[Monitor] = (),
        signals: Iterable[signal.Signals] = (signal.SIGHUP, signal.SIGTERM),
        monitors: Mapping[str, Open] = MONITORS,
    ) -> None:
        self._names = set(netdevs)
        self._frames = frames
        self._supervised = {name: _Supervised(build) for name, build in monitors.items()}
        self._fixed: list[Monitor] = [*others, *([SignalMonitor(signals)] if signals else [])]
        for monitor in self._supervised.values():
            monitor.reopen(self._names)

    @property
    def unavailable(self) -> dict[str, str]:
        """The monitors that could not be opened, with the error of the last attempt."""
        return {name: monitor.error for name, monitor in self._closed().items()}

    def watch(self, netdevs: Iterable[str]) -> None:
        """Report these netdevs from now on, present or not; "resync" follows if the set changed."""
        names = set(netdevs)
        if names != self._names:
            self._names = names
            for monitor in self._supervised.values():
                monitor.restart()

    def wait(self, timeout: float) -> set[Event]:
        """Return the events so far, or wait up to `timeout` seconds for the first; may be empty."""
        end = time.monotonic() + timeout
        events: set[Event] = set()
        while True:
            for name, monitor in self._closed().items():
                if time.monotonic() >= monitor.due:
                    monitor.reopen(self._names)
                    events.add(Event("resync", name))
            opened = (monitor for monitor in self._supervised.values() if monitor.is_open)
            readers = {monitor.fileno(): monitor for monitor in (*opened, *self._fixed)}
            poll = select.poll()
            for fd in (*readers, *self._frames()):
                poll.register(fd, select.POLLIN)
            now = time.monotonic()
            ends = [now if events else end, *(monitor.due for monitor in self._closed().values())]
            for fd, _ in poll.poll(math.ceil(1000 * max(0, min(ends) - now))):
                events |= readers[fd].read() if fd in readers else {Event("frames", "")}
            if events or time.monotonic() >= end:
                return events

    def close(self) -> None:
        """Close all monitors and restore the signal handlers."""
        for monitor in (*self._fixed, *self._supervised.values()):
            monitor.close()
        self._supervised, self._fixed = {}, []

    def _closed(self) -> dict[str, _Supervised]:
        supervised = self._supervised.items()
        return {name: monitor for name, monitor in supervised if not monitor.is_open}


class _Supervised:
    """Supervises one monitor: reopens it with exponential back-off and keeps the last error."""

    def __init__(self, build: Open) -> None:
        self.error = ""
        self.due = 0.0  # time of the next attempt, while the monitor is closed
        self._monitor: Monitor | None = None
        self._build = build
        self._back_off = BackOff(2 * MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL)

    @property
    def is_open(self) -> bool:
        """True between a successful `reopen` and the next `close`."""
        return self._monitor is not None

    def reopen(self, names: set[str]) -> None:
        """Close the monitor and open another; on failure keep the error and double the delay."""
        self.close()
        try:
            self._monitor, delay = self._build(names), MIN_RETRY_INTERVAL
            self._back_off.succeeded()
        except (OSError, Unavailable) as error:
            self.error, delay = str(error), self._back_off.failed()
        self.due = time.monotonic() + delay

    def fileno(self) -> int:
        return self._monitor.fileno() if self._monitor else -1

    def read(self) -> set[Event]:
        """Return the monitor's events; close it if it has lost some."""
        try:
            return self._monitor.read() if self._monitor else set()
        except OSError as error:
            self.close()
            self.error = str(error)
            return set()

    def restart(self) -> None:
        """Close an open monitor, to be reopened at once; a closed one keeps its back-off."""
        if self._monitor:
            self.close()
            self.due = 0.0

    def close(self) -> None:
        if self._monitor:
            self._monitor.close()
        self._monitor = None
