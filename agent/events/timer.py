"""A kernel timer with a descriptor (man 2 timerfd_create); Python has it from 3.13 on."""

from __future__ import annotations

import ctypes
import math
import os
import struct
import time
from contextlib import suppress

_ITIMERSPEC = struct.Struct("@4l")  # interval and value, each of seconds and nanoseconds


class Timer:
    """Becomes readable once the time set has passed; arming and disarming wakes nobody."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK, TFD_CLOEXEC
        self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        return int(self._fd)

    def set(self, seconds: float) -> None:
        """Expire once in `seconds`, in place of a time set before; 0 disarms the timer."""
        fraction, whole = math.modf(seconds)
        value = _ITIMERSPEC.pack(0, 0, int(whole), int(fraction * 1e9))
        self._libc.timerfd_settime(self._fd, 0, value, None)

    def expired(self) -> bool:
        """Return True once after the time set has passed."""
        with suppress(BlockingIOError):
            return bool(os.read(self._fd, 8))
        return False

    def close(self) -> None:
        os.close(self._fd)
