"""The event type that every monitor produces, and the monitors of this process's own events."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PIPE_SIZE = 1 << 16  # octets, one for each signal (man 7 pipe)


class Event(NamedTuple):
    """A hint that part of the node may have changed; the state itself is read from sysfs.

    kind      subject          meaning
    "link"    netdev           a link message or uevent named this netdev
    "device"  RDMA device      a uevent named this device
    "device"  PCI address      a driver was bound to this function
    "port"    "DEVICE/NUMBER"  the state or rate of this port changed
    "health"  PCI address      a health reporter of this NIC has changed; not PCI: BUS/NAME
    "frames"  ""               LLDP frames are waiting in the packet sockets
    "signal"  "SIGHUP", ...    this process received the signal
    "resync"  monitor          this monitor may have missed events
    "resync"  "clock"          the process did not run for a time: all may have
    "results" ""               a background task has finished
    "results" "facts"          a late device was read
    "results" "sockets"        packet sockets or private flags are ready (lldp/packet_socket.py)
    """

    kind: str
    subject: str


WOKE = Event("resync", "clock")
HANGUP = Event("signal", "SIGHUP")


class Notifier:
    """An eventfd by which other threads wake the loop when they have a result (man 2 eventfd).

    Any number of notifications become one Event("results", `subject`).
    """

    def __init__(self, subject: str = "") -> None:
        self._event = Event("results", subject)
        self._lock = threading.Lock()  # no write to the descriptor after `close`
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def notify(self) -> None:
        """Make the descriptor readable; from any thread, without effect after `close`."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def read(self) -> set[Event]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)
            return {self._event}
        return set()

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class SignalMonitor:
    """Turns the signals in `numbers` into events; usable in the main thread only.

    They come through the wakeup descriptor of the signal module. `close` restores the handlers that
    were installed before.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._descriptor = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def fileno(self) -> int:
        return self._reader

    def read(self) -> set[Event]:
        """Return one event for each signal received since the last call."""
        numbers = set(os.read(self._reader, _PIPE_SIZE))
        return {Event("signal", signal.Signals(number).name) for number in numbers}

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor)
        os.close(self._reader)
        os.close(self._writer)
