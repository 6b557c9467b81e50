"""Supervision of the monitors, behind one poll(2) for a single-threaded loop.

Invariants:
- An event is a hint. It names what may have changed; the state is read from sysfs. A duplicate
  costs little, so monitors may report more than has changed.
- No event is lost without notice. A monitor whose buffer overflowed (ENOBUFS) or whose socket
  failed is closed and reopened, and "resync" follows. While it cannot be reopened each attempt
  yields "resync", so that the loop polls slowly instead.
- Memory is bounded. A monitor reads a limited number of messages at a time; the rest stays in the
  kernel's socket buffer, which drops what does not fit and reports that by ENOBUFS.
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
from agent.events.netlink import LinkMonitor, UeventMonitor
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


Open = Callable[[set[str]], Monitor]  # of the netdevs that it is about

MONITORS: Mapping[str, Open] = {"links": LinkMonitor, "uevents": UeventMonitor}


class Monitors:
    """All events that concern the node, of `netdevs` and all RDMA devices.

    `frames` returns the descriptors of the LLDP packet sockets. `others` are monitors that need no
    supervision. `monitors` maps the name of each supervised one to its constructor, which takes the
    set of netdev names.
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
        for one in self._supervised.values():
            one.reopen(self._names)

    @property
    def unavailable(self) -> dict[str, str]:
        """The monitors that could not be opened, with the error of the last attempt."""
        return {name: one.error for name, one in self._closed().items()}

    def watch(self, netdevs: Iterable[str]) -> None:
        """Report these netdevs from now on, present or not; "resync" follows if the set changed."""
        names = set(netdevs)
        if names != self._names:
            self._names = names
            for one in self._supervised.values():
                one.restart()

    def wait(self, timeout: float) -> set[Event]:
        """Return the events so far, or wait up to `timeout` seconds for the first; may be empty."""
        end = time.monotonic() + timeout
        found: set[Event] = set()
        while True:
            for name, one in self._closed().items():
                if time.monotonic() >= one.due:
                    one.reopen(self._names)
                    found.add(Event("resync", name))
            readers: dict[int, Monitor | _Supervised] = {
                one.fileno(): one for one in self._supervised.values() if one.monitor
            }
            readers |= {one.fileno(): one for one in self._fixed}
            poll = select.poll()
            for fd in (*readers, *self._frames()):
                poll.register(fd, select.POLLIN)
            now = time.monotonic()
            ends = [now if found else end, *(one.due for one in self._closed().values())]
            for fd, _ in poll.poll(math.ceil(1000 * max(0, min(ends) - now))):
                found |= readers[fd].read() if fd in readers else {Event("frames", "")}
            if found or time.monotonic() >= end:
                return found

    def close(self) -> None:
        """Close all monitors and restore the signal handlers."""
        for monitor in (*self._fixed, *self._supervised.values()):
            monitor.close()
        self._supervised, self._fixed = {}, []

    def _closed(self) -> dict[str, _Supervised]:
        return {name: one for name, one in self._supervised.items() if not one.monitor}


class _Supervised:
    """Supervises one monitor: reopens it with exponential back-off and keeps the last error."""

    def __init__(self, build: Open) -> None:
        self.monitor: Monitor | None = None
        self.error = ""
        self.due = 0.0  # time of the next attempt, while there is no monitor
        self._build = build
        self._back_off = BackOff(2 * MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL)

    def reopen(self, names: set[str]) -> None:
        """Close the monitor and open another; on failure keep the error and double the delay."""
        self.close()
        try:
            self.monitor, delay = self._build(names), MIN_RETRY_INTERVAL
            self._back_off.succeeded()
        except (OSError, Unavailable) as error:
            self.error, delay = str(error), self._back_off.failed()
        self.due = time.monotonic() + delay

    def fileno(self) -> int:
        return self.monitor.fileno() if self.monitor else -1

    def read(self) -> set[Event]:
        """Return the monitor's events; close it if it has lost some."""
        try:
            return self.monitor.read() if self.monitor else set()
        except OSError as error:
            self.close()
            self.error = str(error)
            return set()

    def restart(self) -> None:
        """Close a working monitor, to be reopened at once; a failed one keeps its back-off."""
        if self.monitor:
            self.close()
            self.due = 0.0

    def close(self) -> None:
        if self.monitor:
            self.monitor.close()
        self.monitor = None
