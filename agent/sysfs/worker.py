"""Daemon threads that read the RDMA devices.

A read of a failing HCA may block in the kernel for minutes or without end, and no signal interrupts
it. So the facts of a device, and of its netdevs, are read in a thread that reads no other device
meanwhile: a slow device is late, a device that blocks is missing, and neither delays the facts of
another.

Invariants:
- A device has at most one read under way. So a device that blocks has one stuck thread, however
  often it is asked for.
- A thread whose read has ended reads the next device. At most one thread is idle, so devices that
  answer have one thread in all: a thread for each device would be 50 to 80 kB each.
- An idle thread waits without a timeout and costs no CPU time. It shares the agent's memory: a
  child process would cost milliseconds for a read of microseconds.
- Devices that answer are read one after the other; the reads of devices that take longer than
  STAGGER overlap. Sixteen threads that read at the same time contend for the GIL and use five
  times the CPU time (benchmarks/probe.py).
- No thread is joined; Python does not wait for daemon threads at exit.

Work that may crash, or leave a library mapped, needs a process: see agent/helper/process.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from agent.limits import start_thread

T = TypeVar("T")

STAGGER = 0.005  # seconds that a read has before the next device's begins
DEVICE_TIMEOUT = 5.0  # seconds until a device whose read has not ended counts as blocked
STACK_SIZE = 512 << 10  # bytes of a thread; a limit of the address space (ulimit -v) counts them


class DeviceWorker:
    """A daemon thread that runs tasks one at a time and sleeps between them."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[str, Callable[[], None]] | None] = SimpleQueue()

    def start(self) -> None:
        """Start the thread; RuntimeError if none can be created."""
        thread = threading.Thread(target=_run, args=(self._tasks,), daemon=True)
        default = threading.stack_size(STACK_SIZE)
        try:
            start_thread(thread)
        finally:
            threading.stack_size(default)

    def put(self, device: str, task: Callable[[], None]) -> None:
        """Run the task after those put before it; the thread is named after the device."""
        self._tasks.put((device, task))

    def stop(self) -> None:
        """End the thread after the tasks that were put before; does not wait for it."""
        self._tasks.put(None)


class InlineWorker(DeviceWorker):
    """A worker without a thread, for a tree that cannot block: `put` runs the task."""

    def start(self) -> None:
        """Nothing to start."""

    def put(self, device: str, task: Callable[[], None]) -> None:  # noqa: ARG002 - for a thread's name
        """Run the task."""
        task()


def _run(tasks: SimpleQueue[tuple[str, Callable[[], None]] | None]) -> None:
    """Run tasks until None: the body of a worker's thread, which holds no reference to it."""
    while (item := tasks.get()) is not None:
        device, task = item
        threading.current_thread().name = f"device {device}"
        task()
        del item, task  # a thread that waits keeps no job alive


class _DeviceRead:
    def __init__(self) -> None:
        self.started: float | None = None  # when the read under way began; None: idle
        self.generation = 0  # the generation that its last complete read began in; 0: never read


class DeviceReaders:
    """The workers and the facts of all devices that they read last.

    `notify` is called from a worker's thread when a read ends that no `read` waits for, so that the
    owner calls `read` again. `worker` makes a worker. A DeviceReaders belongs to one thread: no
    other may call its methods.
    """

    def __init__(
        self,
        notify: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        worker: Callable[[], DeviceWorker] = DeviceWorker,
    ) -> None:
        self.unstarted: dict[str, str] = {}  # devices that got no thread in the last `read`: why
        self.old: set[str] = set()  # devices whose facts, if any, were still old after it
        self._notify, self._clock, self._worker = notify, clock, worker
        self._changed = threading.Condition()  # guards all that follows
        self._generation = 1
        self._idle: DeviceWorker | None = None
        self._is_closed = False
        self._devices: dict[str, _DeviceRead] = {}
        self._facts: dict[str, Any] = {}  # of the last complete read
        self._constants: dict[str, dict[tuple[str, str], Any]] = {}
        self._awaited: set[_DeviceRead] = set()  # the devices that `read` waits for
        self._error: BaseException | None = None

    def __del__(self) -> None:
        """End the threads."""
        self.close()

    def fresh(self) -> DeviceReaders:
        """Return readers with workers of the same kind, and no facts."""
        return DeviceReaders(clock=self._clock, worker=self._worker)

    def refresh(self) -> None:
        """Mark all facts as old: the next `read` reads every device again."""
        with self._changed:
            self._generation += 1

    def read(self, jobs: Mapping[str, Callable[[], T]], timeout: float) -> dict[str, T]:
        """Return the facts of the devices, by name; `jobs` maps a name to the function that reads.

        Only the devices that are idle and have old facts are read. A read is waited for until
        `timeout` seconds after it began; a read that takes longer goes on, and calls `notify` at
        its end. For a device whose read is still under way the result has the last facts. It lacks
        a device without facts, or whose read began DEVICE_TIMEOUT seconds ago or earlier, or for
        which no thread could be created (`unstarted`).

        Devices that are not named are forgotten (see `keep`). An exception of a job is raised here,
        once the others are done.
        """
        with self._changed:
            self.keep(jobs)
            self.unstarted = {}
            for name, job in jobs.items():
                self._begin(name, job, min(STAGGER, timeout))
            # Wait for the reads that began less than `timeout` seconds ago.
            now, devices = self._clock(), [self._devices[name] for name in jobs]
            ends = {
                device: device.started + timeout for device in devices if device.started is not None
            }
            self._awaited = {device for device, end in ends.items() if end > now}
            last = max((ends[device] for device in self._awaited), default=now)
            self._changed.wait_for(lambda: not self._awaited, last - now)
            self._awaited = set()
            if self._error:
                error, self._error = self._error, None
                raise error
            now = self._clock()
            self.old = {name for name in jobs if self._devices[name].generation < self._generation}
            return {
                name: self._facts[name]
                for name, device in zip(jobs, devices, strict=True)
                if name in self._facts
                and name not in self.unstarted
                and (device.started is None or now - device.started < DEVICE_TIMEOUT)
            }

    def keep(self, names: Collection[str]) -> None:
        """Forget the facts and constants of all other devices; without any, end the idle thread.

        A device whose read is under way stays known until the read has ended, so that it does not
        get a second read if it returns.
        """
        with self._changed:
            for name in self._devices.keys() - set(names):
                self._facts.pop(name, None)
                self._constants.pop(name, None)
                if self._devices[name].started is None:
                    self._devices.pop(name)
            if not names:
                self._stop_idle()

    def constants(self, name: str) -> dict[tuple[str, str], Any]:
        """Return the facts of a device that do not change, by PCI address and attribute.

        The job of the device fills and uses them. They are forgotten with the device.
        """
        return self._constants.setdefault(name, {})

    def close(self) -> None:
        """End all threads, each at the end of its read; `notify` is not called again."""
        with self._changed:
            self._notify = lambda: None
            self._is_closed = True
            self._stop_idle()
            self._devices.clear()

    def _stop_idle(self) -> None:
        if self._idle:
            self._idle.stop()
        self._idle = None

    def _begin(self, name: str, job: Callable[[], Any], stagger: float) -> None:
        """Begin the read of a device that has old facts, and wait `stagger` seconds for its end."""
        device = self._devices.setdefault(name, _DeviceRead())
        if device.started is None and device.generation < self._generation:
            worker, self._idle = self._idle, None
            if worker is None:
                worker = self._worker()
                try:
                    worker.start()
                except RuntimeError as error:  # the next `read` tries again
                    self.unstarted[name] = str(error)
                    return
            device.started = self._clock()
            self._awaited.add(device)
            worker.put(name, partial(self._work, worker, name, device, job, self._generation))
            self._changed.wait_for(lambda: device not in self._awaited, stagger)

    def _work(
        self,
        worker: DeviceWorker,
        name: str,
        device: _DeviceRead,
        job: Callable[[], Any],
        generation: int,
    ) -> None:
        """Read a device and hand over its facts: the task of a worker."""
        facts, error = None, None
        try:
            facts = job()
        except BaseException as caught:  # noqa: BLE001 - raised by `read`, in the owner's thread
            error = caught
        with self._changed:
            if self._idle or self._is_closed:
                worker.stop()
            else:
                self._idle = worker
            device.started, device.generation = None, generation
            if error is None:
                self._facts[name] = facts
            else:
                self._facts.pop(name, None)
                self._error = error
            is_late = device not in self._awaited
            self._awaited.discard(device)
            self._changed.notify()
        if is_late:
            self._notify()
