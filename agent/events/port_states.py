"""The sweep of InfiniBand port states, which change without an event that a node agent may count on.

A port's state raises no uevent. An IPoIB netdev's link message tells of it where there is one. libibverbs' asynchronous
events (PORT_ERR, PORT_ACTIVE) would, at 1.4 MB and no CPU, but only while a uverbs device is held open. That takes
/dev/infiniband in the container and the vendor's library in this process; and as long as it is open, soft-RoCE's
`rdma link del` hangs and `modprobe -r` is refused (Linux 6.1). An agent must not be what blocks a driver upgrade. So
the files are read again and again, by descriptors that stay open: sysfs makes an attribute anew for each read at
offset 0, which costs about a microsecond beside what the driver does for it.

The law of this module: a sick HCA's read may block in the kernel for good, and nothing else may wait for that. One
daemon thread sweeps, never joined (agent/sysfs/worker.py has the same rule for work that is done once). When it is on one
device for too long, `relieve` lets another thread go on with all other devices; whoever was stuck gives its device back
when the kernel lets go, and ends. So there are at most as many threads as stuck devices, and one.

What is said is "this port changed", never how. The first sweep of a port counts as a change: whatever was read of it
before may be older than that.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.events.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILES = ("state", "rate")  # what labels are made of: for each read the driver asks the HCA
LONGEST = 128  # octets; "2.5 Gb/sec (1X SDR)" and "4: ACTIVE" are as long as it gets
INTERVAL = 2.0  # seconds between two sweeps
PATIENCE = 1.0  # seconds on one device after which the others are swept by another thread
VANISHED = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR}
)  # what a removed driver leaves behind


class PortStateSweep:
    """Says which ports of RDMA devices changed; `sys` is where the host's /sys is mounted.

    `interval` in seconds; `read` is a door.
    """

    def __init__(
        self,
        interval: float = INTERVAL,
        *,
        sys: str = "/sys",
        read: Callable[[int, int, int], bytes] = os.pread,
    ) -> None:
        self._interval, self._sys, self._read = interval, sys, read
        self._lock = threading.Lock()  # guards all that follows
        self._devices: dict[str, _Device] = {}
        self._held: dict[str, _Device] = {}  # what a thread is at now, be it still watched or not
        self._changed: set[str] = set()
        self._sweeper: _Sweeper | None = None  # whose turn it is; any other thread is to end
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, ports: Iterable[tuple[str, int]]) -> None:
        """Sweep these ports (device, number) and no others from now on, all of them at once if any is new."""
        wanted: dict[str, set[int]] = {}
        for device, number in ports:
            wanted.setdefault(device, set()).add(number)
        with self._lock:
            for name in [
                name for name, device in self._devices.items() if wanted.get(name) != device.numbers
            ]:
                self._devices.pop(name).retire()
            new = wanted.keys() - self._devices.keys()
            for name in new:
                folder = f"{self._sys}/class/infiniband/{name}/ports"
                self._devices[name] = _Device(name, folder, wanted[name])
            if new and self._sweeper:
                self._sweeper.wake()
            elif new:
                self._start()

    @property
    def sweeping(self) -> bool:
        """Whether there is a port to sweep, so that `relieve` may have something to do."""
        return bool(self._devices)

    def fileno(self) -> int:
        """Readable when `read` has something to say."""
        return self._reader

    def read(self) -> set[Event]:
        """The ports that have changed since; never waits."""
        with self._lock:
            with suppress(BlockingIOError):
                os.read(self._reader, 1)
            changed, self._changed = self._changed, set()
        return {Event("port", port) for port in changed}

    def relieve(self) -> None:
        """See to it that a device that blocks holds up nobody but itself; to be called every few seconds."""
        with self._lock:
            late = time.monotonic() - PATIENCE
            for device in self._held.values():
                if device.sweeper is self._sweeper and device.since < late:
                    self._tell(device.ports())
                    self._start()

    def close(self) -> None:
        """End the sweep; a thread that is stuck is left to end by itself."""
        with self._lock:
            sweeper, self._sweeper = self._sweeper, None
            for device in self._devices.values():
                device.retire()
            self._devices = {}
            if sweeper:  # last, for who wakes looks at once whether it is still his turn
                sweeper.wake()
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1

    def _start(self) -> None:
        self._sweeper = _Sweeper()
        threading.Thread(
            target=self._sweep, args=(self._sweeper,), name="sweep", daemon=True
        ).start()

    def _sweep(self, me: _Sweeper) -> None:
        """Sweep again and again, the first time at once: the body of a thread."""
        while self._sweeper is me:
            me.rest(self._interval if self._devices else None)
            for name in list(self._devices):
                device = self._take(name, me)
                if device:
                    self._give_back(device, device.changed(self._read))
        with self._lock:  # so that nobody is about to wake me
            me.close()

    def _take(self, name: str, me: _Sweeper) -> _Device | None:
        with self._lock:
            device = self._devices.get(name)
            if device is None or name in self._held or self._sweeper is not me:
                return None
            device.sweeper, device.since = me, time.monotonic()
            self._held[name] = device
            return device

    def _give_back(self, device: _Device, changed: set[str]) -> None:
        with self._lock:
            device.sweeper = None
            del self._held[device.name]
            if self._devices.get(device.name) is device:
                self._tell(changed)
            else:
                device.retire()

    def _tell(self, ports: set[str]) -> None:
        if ports and not self._changed:
            os.write(self._writer, b"\0")
        self._changed |= ports


class _Sweeper:
    """A sweeping thread's bed; a poll in it costs half of what a Condition's timed wait does."""

    def __init__(self) -> None:
        self._alarm = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._alarm, select.POLLIN)

    def rest(self, seconds: float | None) -> None:
        """Sleep so long, or until somebody calls `wake`."""
        if self._poll.poll(None if seconds is None else 1000 * seconds):
            os.eventfd_read(self._alarm)

    def wake(self) -> None:
        """Rest no more."""
        os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._alarm)


class _Device:
    """The open files of the swept ports of one device; whoever is its `sweeper` has them to itself."""

    def __init__(self, name: str, folder: str, numbers: set[int]) -> None:
        self.name, self.numbers = name, numbers
        self.sweeper: _Sweeper | None = None
        self.since = 0.0  # when it was taken
        self._files = [
            (f"{name}/{number}", _File(f"{folder}/{number}/{file}"))
            for number in sorted(numbers)
            for file in FILES
        ]

    def ports(self) -> set[str]:
        """All of them, as they are called in a Wake."""
        return {port for port, _ in self._files}

    def changed(self, read: Callable[[int, int, int], bytes]) -> set[str]:
        """Read all files; the ports of those that say something new."""
        return {port for port, file in self._files if file.changed(read)}

    def retire(self) -> None:
        """Close the files, unless somebody is at them: then that is for him to do."""
        if self.sweeper is None:
            for _, file in self._files:
                file.close()


class _File:
    """One attribute: what it said last, be it an errno, and its descriptor while there is one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._said: bytes | int | None = None

    def changed(self, read: Callable[[int, int, int], bytes]) -> bool:
        """Whether it says something else than at the last call."""
        said = self._said
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._said = read(self._fd, LONGEST, 0)
        except OSError as error:
            self._said = error.errno or errno.EIO
            if self._said in VANISHED:
                self._said = errno.ENODEV
                self.close()
        return said != self._said

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
