"""Signals as events, through the wakeup descriptor of the signal module."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from agent.events.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

_PIPE_SIZE = 1 << 16  # octets, one for each signal (man 7 pipe)


class SignalMonitor:
    """Turns the signals in `numbers` into events; usable in the main thread only.

    `close` restores the handlers that were installed before.
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
