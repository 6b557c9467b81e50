"""A periodic sweep of InfiniBand port states, of whose changes no event is certain.

A change of a port's state raises no uevent. A link message follows it if the port has an IPoIB
netdev. libibverbs' asynchronous events (PORT_ERR, PORT_ACTIVE) would report it, at 1.4 MB and no
CPU, but only while a uverbs device is held open. That takes /dev/infiniband in the container and
the vendor's library in this process, and while it is open soft-RoCE's `rdma link del` hangs and
`modprobe -r` is refused (Linux 6.1): the agent would block driver upgrades. So the files are read
periodically, through descriptors that stay open: sysfs generates an attribute anew for each read at
offset 0 (fs/seq_file.c), which costs about a microsecond beyond what the driver needs.

Invariants:
- One daemon thread, the sweeper, reads all files and is never joined. A read of a failing HCA may
  block in the kernel for ever; READ_TIMEOUT later another sweeper continues with the other devices.
  So a device that blocks delays the others by READ_TIMEOUT once, and there is at most one thread
  for each blocked device, and one.
- Only the sweeper opens, reads and closes files, but for the device at which a replaced one is
  blocked: that thread closes the device's files and ends, and the sweeper opens them anew.
- Nothing wakes to supervise the sweeper: it sets a timer before a sweep and clears it afterwards.
- The event is that a port changed; its state is read by the sources. The first read of a port
  counts as a change, since the sources may have read it before.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from agent.events.event import Event
from agent.events.notifier import Notifier
from agent.events.timer import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Read = Callable[[int, int, int], bytes]  # os.pread

FILES = ("state", "rate")  # the labels depend on both; for each read the driver queries the HCA
MAX_LENGTH = 128  # octets; "2.5 Gb/sec (1X SDR)" and "4: ACTIVE" are typical
SWEEP_INTERVAL = 2.0  # seconds
READ_TIMEOUT = 2.0  # seconds; a device whose files take longer is left to the thread at it
REMOVED = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR}
)  # no driver (any more)


class PortStateSweep:
    """A monitor of the ports of RDMA devices; `sys` is the mount point of the host's sysfs.

    `interval` is in seconds, `read` is os.pread or a stand-in.
    """

    def __init__(
        self, interval: float = SWEEP_INTERVAL, *, sys: str = "/sys", read: Read = os.pread
    ) -> None:
        self._interval, self._sys, self._pread = interval, sys, read
        self._notifier, self._timer = Notifier(), Timer()
        self._epoll = select.epoll()
        for part in (self._notifier, self._timer):
            self._epoll.register(part.fileno(), select.EPOLLIN)
        self._lock = threading.Lock()  # guards all that follows
        self._wanted: dict[str, set[int]] = {}  # device to port numbers
        self._blocked: set[str] = set()  # devices at which a replaced sweeper is blocked
        self._changed: set[str] = set()  # ports, until they are read
        self._sweeper: _Sweeper | None = None

    def watch(self, ports: Iterable[tuple[str, int]]) -> None:
        """Sweep these ports (device, number) from now on, and no others."""
        wanted = _by_device(ports)
        with self._lock:
            if wanted != self._wanted and self._wake():
                self._wanted = wanted

    def _wake(self) -> bool:
        """Wake the sweeper, or start one; False if no thread can be started."""
        if not self._sweeper:
            return self._start({})
        self._sweeper.wake()
        return True

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
                sweeper.wake()
            self._epoll.close()
            self._notifier.close()
            self._timer.close()

    def _start(self, devices: dict[str, _Device]) -> bool:
        """Start a sweeper; False if no thread can be started, so try again later."""
        sweeper = _Sweeper(devices)
        thread = threading.Thread(target=self._run, args=(sweeper,), name="sweep", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            sweeper.close()
            return False
        self._sweeper = sweeper
        return True

    def _run(self, me: _Sweeper) -> None:
        """Sweep periodically until `me` is replaced: the body of a thread."""
        while self._sweep(me):
            me.sleep(self._interval if me.devices else None)
        for device in me.devices.values():
            device.close()
        me.close()

    def _sweep(self, me: _Sweeper) -> bool:
        """Read all files once; False if `me` was replaced."""
        if not self._begin_sweep(me):
            return False
        for device in me.devices.values():
            me.reading = device, time.monotonic()
            changed = device.changed(self._pread)
            if not self._end_device(me, device, changed):
                return False
        return self._end_sweep(me)

    def _begin_sweep(self, me: _Sweeper) -> bool:
        """Open and close files as watched, and set the timer; False if `me` was replaced."""
        with self._lock:
            if self._sweeper is not me:
                return False
            self._close_unwanted(me.devices)
            self._open_wanted(me.devices)
            self._timer.set(READ_TIMEOUT if me.devices else 0)
            return True

    def _close_unwanted(self, devices: dict[str, _Device]) -> None:
        for device in list(devices.values()):
            if device.ports != self._wanted.get(device.name):
                devices.pop(device.name).close()

    def _open_wanted(self, devices: dict[str, _Device]) -> None:
        for name in self._wanted.keys() - devices.keys() - self._blocked:
            folder = f"{self._sys}/class/infiniband/{name}/ports"
            devices[name] = _Device(name, folder, self._wanted[name])

    def _end_device(self, me: _Sweeper, device: _Device, changed: set[str]) -> bool:
        """Report the changed ports of a device; False if `me` was replaced while it read them."""
        with self._lock:
            me.reading = None
            if self._sweeper is not me:
                self._blocked.discard(device.name)
                if self._sweeper:
                    self._sweeper.wake()
                return False
            self._report(changed)
            return True

    def _end_sweep(self, me: _Sweeper) -> bool:
        """Clear the timer; False if `me` was replaced."""
        with self._lock:
            if self._sweeper is not me:
                return False
            self._timer.set(0)
            return True

    def _replace_blocked(self) -> None:
        """Start another sweeper if the present one has been at one device for READ_TIMEOUT."""
        with self._lock:
            old = self._sweeper
            if not old:
                return
            device, since = old.reading or (None, time.monotonic())
            left = since + READ_TIMEOUT - time.monotonic()
            if device is None or left > 0:  # the sweep takes long, and no device of it blocks
                self._timer.set(left)
                return
            self._replace(old, device)

    def _replace(self, old: _Sweeper, device: _Device) -> None:
        """Start another sweeper for all devices but the one at which the old is blocked."""
        if not self._start(old.others(device)):
            self._timer.set(READ_TIMEOUT)
            return
        old.devices = {device.name: device}
        self._blocked.add(device.name)
        self._report(device.names())

    def _report(self, ports: set[str]) -> None:
        self._changed |= ports
        if ports:
            self._notifier.notify()


def _by_device(ports: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for device, number in ports:
        found.setdefault(device, set()).add(number)
    return found


class _Sweeper:
    """The state of one sweeping thread, and its interruptible sleep on an eventfd.

    A timed poll costs half the CPU of a Condition's timed wait.
    """

    def __init__(self, devices: dict[str, _Device]) -> None:
        self.devices = devices
        self.reading: tuple[_Device, float] | None = None  # and since when
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._alarm, select.POLLIN)

    def others(self, device: _Device) -> dict[str, _Device]:
        """Return the devices but this one."""
        return {name: one for name, one in self.devices.items() if one is not device}

    def sleep(self, seconds: float | None) -> None:
        """Sleep until `wake` is called, or `seconds` have passed."""
        if self._poll.poll(None if seconds is None else 1000 * seconds):
            os.eventfd_read(self._alarm)

    def wake(self) -> None:
        os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        os.close(self._alarm)


class _Device:
    """The files of the swept ports of one device."""

    def __init__(self, name: str, folder: str, ports: set[int]) -> None:
        self.name, self.ports = name, ports
        self._files = [
            (f"{name}/{number}", _File(f"{folder}/{number}/{file}"))
            for number in sorted(ports)
            for file in FILES
        ]

    def names(self) -> set[str]:
        """Return the names of the ports, as events have them: "mlx5_0/1"."""
        return {port for port, _ in self._files}

    def changed(self, read: Read) -> set[str]:
        """Read all files; return the names of the ports that have changed."""
        return {port for port, file in self._files if file.changed(read)}

    def close(self) -> None:
        for _, file in self._files:
            file.close()


class _File:
    """One attribute: its descriptor, if it is open, and the outcome of the last read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._last: bytes | int | None = None  # the content, or the errno of a failed read

    def changed(self, read: Read) -> bool:
        """Read the file; return True if the outcome differs from the last, also the first time."""
        last, self._last = self._last, self._outcome(read)
        return last != self._last

    def _outcome(self, read: Read) -> bytes | int:
        try:
            self._open()
            return read(self._fd, MAX_LENGTH, 0)
        except OSError as error:
            return self._failed(error.errno or errno.EIO)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def _failed(self, number: int) -> int:
        """Return the errno to compare: one for all that mean a removed device."""
        if number not in REMOVED:
            return number
        self.close()
        return errno.ENODEV

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
