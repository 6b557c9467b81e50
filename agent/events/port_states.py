"""A periodic sweep of InfiniBand port states, of whose changes no event is certain.

A change of a port's state raises no uevent. A link message follows it if the port has an IPoIB
netdev that is up: IPoIB joins its broadcast group when the port is ACTIVE, and its carrier changes
(drivers/infiniband/ulp/ipoib). If all ports have such a netdev, the sweep is slow, as a check.
libibverbs' asynchronous events (PORT_ERR, PORT_ACTIVE) would report it, at 1.4 MB and no
CPU, but only while a uverbs device is held open. That takes /dev/infiniband in the container and
the vendor's library in this process, and while it is open soft-RoCE's `rdma link del` hangs and
`modprobe -r` is refused (Linux 6.1): the agent would block driver upgrades. So the files are read
periodically, through descriptors that stay open: sysfs generates an attribute anew for each read at
offset 0 (fs/seq_file.c), which costs about a microsecond beyond what the driver needs.

Invariants:
- One daemon thread, the sweeper, reads all files and is never joined. A read of a failing HCA may
  block in the kernel for ever; READ_TIMEOUT after the next sweep was due another sweeper continues
  with the other devices. So a device that blocks delays the others by that once, and there is at
  most one thread for each blocked device, and the sweeper.
- Only the sweeper opens, reads and closes files. The exception is the device at which a replaced
  sweeper is blocked: that thread closes the device's files and ends, and the sweeper opens them
  anew.
- Nothing wakes to supervise the sweeper: before each sweep it sets a timer of the kernel anew,
  which expires if the next sweep does not come.
- The event is that a port changed; its state is read by the sources. The first read of a port
  counts as a change, since the sources may have read it before.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from agent.events.event import Event, Notifier

Read = Callable[[int, int, int], bytes]  # os.pread

FILES = ("state", "rate")  # the labels depend on both; for each read the driver queries the HCA
MAX_LENGTH = 128  # octets; "2.5 Gb/sec (1X SDR)" and "4: ACTIVE" are typical
SWEEP_INTERVAL = 2.0  # seconds
SLOW_INTERVAL = 30.0  # seconds; where a link message follows each change
READ_TIMEOUT = 2.0  # seconds; a device whose files take longer is left to the thread at it
REMOVED = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR}
)  # no driver (any more)
_ITIMERSPEC = struct.Struct("@4l")  # interval and value, each of seconds and nanoseconds


class PortStateSweep:
    """A monitor of the ports of RDMA devices; `sys` is the mount point of the host's sysfs.

    `interval` is in seconds, `read` is os.pread or a stand-in.
    """

    def __init__(
        self, interval: float = SWEEP_INTERVAL, *, sys: str = "/sys", read: Read = os.pread
    ) -> None:
        self._interval, self._sys, self._pread = interval, sys, read
        self._is_slow = False
        self._notifier, self._timer = Notifier(), _Timer()
        self._epoll = select.epoll()
        for part in (self._notifier, self._timer):
            self._epoll.register(part.fileno(), select.EPOLLIN)
        self._lock = threading.Lock()  # guards all that follows
        self._wanted: dict[str, set[int]] = {}  # device to port numbers
        self._blocked: set[str] = set()  # devices at which a replaced sweeper is blocked
        self._changed: set[str] = set()  # ports, until they are read
        self._sweeper: _Sweeper | None = None

    def watch(self, ports: Iterable[tuple[str, int]], *, slow: bool = False) -> None:
        """Sweep these ports (device, number) from now on, and no others."""
        wanted: dict[str, set[int]] = {}
        for device, number in ports:
            wanted.setdefault(device, set()).add(number)
        with self._lock:
            if (wanted, slow) == (self._wanted, self._is_slow):
                return
            if self._sweeper:
                self._sweeper.alarm.put(None)
            elif not self._start({}):
                return  # try again later
            self._wanted, self._is_slow = wanted, slow

    def fileno(self) -> int:
        return self._epoll.fileno()

    def read(self) -> set[Event]:
        """Return the ports that have changed, and replace a sweeper that is blocked."""
        if self._timer.expired():
            self._replace_blocked()
        self._notifier.read()
        with self._lock:
            changed, self._changed = self._changed, set()
        return {Event("port", port) for port in changed}

    def close(self) -> None:
        """End the sweep; a thread that is blocked ends when its read returns."""
        with self._lock:
            sweeper, self._sweeper = self._sweeper, None
            if sweeper:
                sweeper.alarm.put(None)
            self._epoll.close()
            self._notifier.close()
            self._timer.close()

    def _start(self, devices: dict[str, _DeviceFiles]) -> bool:
        """Start a sweeper; False if no thread can be started."""
        sweeper = _Sweeper(devices)
        thread = threading.Thread(target=self._run, args=(sweeper,), name="sweep", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._sweeper = sweeper
        return True

    def _run(self, me: _Sweeper) -> None:
        """Sweep periodically until `me` is replaced: the body of a thread."""
        while self._sweep(me):
            with suppress(Empty):
                me.alarm.get(timeout=self._pause() if me.devices else None)
        for device in me.devices.values():
            device.close()

    def _sweep(self, me: _Sweeper) -> bool:
        """Read all files once; False if `me` was replaced."""
        with self._lock:
            if self._sweeper is not me:
                return False
            for device in list(me.devices.values()):
                if device.ports != self._wanted.get(device.name):
                    me.devices.pop(device.name).close()
            for name in self._wanted.keys() - me.devices.keys() - self._blocked:
                folder = f"{self._sys}/class/infiniband/{name}/ports"
                me.devices[name] = _DeviceFiles(name, folder, self._wanted[name])
            self._timer.set(self._pause() + READ_TIMEOUT if me.devices else 0)
        for device in me.devices.values():
            me.reading = device, time.monotonic()
            changed = device.changed(self._pread)
            with self._lock:
                me.reading = None
                if self._sweeper is not me:  # replaced while it read this device
                    self._blocked.discard(device.name)
                    if self._sweeper:
                        self._sweeper.alarm.put(None)
                    return False
                self._report(changed)
        return True

    def _pause(self) -> float:
        """Return the seconds between two sweeps."""
        return max(self._interval, SLOW_INTERVAL) if self._is_slow else self._interval

    def _replace_blocked(self) -> None:
        """Start another sweeper if the present one has been at one device for READ_TIMEOUT.

        It sweeps all other devices. The old sweeper keeps the device at which it is blocked.
        """
        with self._lock:
            old = self._sweeper
            if not old:
                return
            device, since = old.reading or (None, time.monotonic())
            left = since + READ_TIMEOUT - time.monotonic()
            if device is None or left > 0:  # the sweep takes long, and no device of it blocks
                self._timer.set(left)
                return
            others = {name: files for name, files in old.devices.items() if files is not device}
            if not self._start(others):
                self._timer.set(READ_TIMEOUT)
                return
            old.devices = {device.name: device}
            self._blocked.add(device.name)
            self._report(set(device.names.values()))

    def _report(self, ports: set[str]) -> None:
        self._changed |= ports
        if ports:
            self._notifier.notify()


@dataclass(slots=True, eq=False)
class _Sweeper:
    """The state of one sweeping thread; an entry in `alarm` interrupts its sleep."""

    devices: dict[str, _DeviceFiles]
    reading: tuple[_DeviceFiles, float] | None = None  # and since when
    alarm: SimpleQueue[None] = field(default_factory=SimpleQueue)


class _DeviceFiles:
    """The files of the swept ports of one device: their descriptors, and the last outcomes."""

    def __init__(self, name: str, folder: str, ports: set[int]) -> None:
        self.name, self.ports = name, ports
        # by path, the name of the port as events have it: "mlx5_0/1"
        self.names = {
            f"{folder}/{number}/{file}": f"{name}/{number}"
            for number in sorted(ports)
            for file in FILES
        }
        self._open: dict[str, int] = {}
        self._last: dict[str, bytes | int] = {}  # the content, or the errno of a failed read

    def changed(self, read: Read) -> set[str]:
        """Read all files; return the names of the ports that have changed, at first all of them."""
        changed = set()
        for path, port in self.names.items():
            outcome: bytes | int
            try:
                if path not in self._open:
                    self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                outcome = read(self._open[path], MAX_LENGTH, 0)
            except OSError as error:
                outcome = error.errno or errno.EIO
                if outcome in REMOVED:
                    if path in self._open:
                        os.close(self._open.pop(path))
                    outcome = errno.ENODEV  # for all of REMOVED
            if self._last.get(path) != outcome:
                self._last[path] = outcome
                changed.add(port)
        return changed

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


class _Timer:
    """A kernel timer with a descriptor (man 2 timerfd_create); Python has it from 3.13 on.

    Setting and clearing it wakes nobody.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK, TFD_CLOEXEC
        self._fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        return self._fd

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
