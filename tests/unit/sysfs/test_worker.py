"""Reads in threads: a slow device is late, a blocked one is missing, and both are alone."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.sysfs import worker
from agent.sysfs.reader import LiveRoot
from agent.sysfs.worker import DEVICE_TIMEOUT, DeviceReaders, DeviceWorker, InlineWorker
from tests.support.switch import wait_for

SHORT = 0.5  # seconds to wait for a read that blocks
PLENTY = 120.0  # seconds for one that does not, however busy the machine is


class Device:
    """A device whose reads are counted, and block while `gate` is closed; it has the reads' number
    as its fact.
    """

    def __init__(self) -> None:
        self.reads = 0
        self.threads: list[threading.Thread] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> int:
        self.reads += 1
        self.threads.append(threading.current_thread())
        number = self.reads
        self.gate.wait(PLENTY)
        return number


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Rack:
    """The devices and readers of one test."""

    all_devices: list[Device] = field(default_factory=list)
    all_readers: list[DeviceReaders] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    before: set[threading.Thread] = field(default_factory=lambda: set(threading.enumerate()))

    def devices(self, *names: str) -> dict[str, Device]:
        """Devices whose reads end with the test at the latest."""
        found = {name: Device() for name in names}
        self.all_devices += found.values()
        return found

    def readers(
        self,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[], DeviceWorker] = DeviceWorker,
    ) -> DeviceReaders:
        """Readers that are closed with the test, and note their notifications."""

        def notify() -> None:
            self.calls.append("notified")

        self.all_readers.append(DeviceReaders(notify, clock=clock, worker=make))
        return self.all_readers[-1]

    def workers(self) -> list[threading.Thread]:
        """The threads of the test's workers."""
        found = set(threading.enumerate()) - self.before
        return [thread for thread in found if thread.name.startswith("device ")]

    def threads(self) -> list[str]:
        return sorted(thread.name for thread in self.workers())


@pytest.fixture
def rack() -> Iterator[Rack]:
    found = Rack()
    yield found
    for device in found.all_devices:
        device.gate.set()
    for readers in found.all_readers:
        readers.close()
    wait_for(lambda: not found.threads())


def test_devices_that_answer_share_one_thread(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a daemon, stays, and has the name of the device that it reads."""
    monkeypatch.setattr(worker, "STAGGER", PLENTY)
    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers()
    for number in (1, 2, 3):
        assert readers.read(jobs, PLENTY) == {"ibp0": number, "ibp1": number}
        assert rack.threads() == ["device ibp1"]
        readers.refresh()
    (thread,) = {thread for job in jobs.values() for thread in job.threads}
    assert thread.daemon
    readers.close()
    wait_for(lambda: not rack.threads())


def test_devices_that_answer_are_read_one_after_the_other(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that read at the same time contend for the GIL."""
    monkeypatch.setattr(worker, "STAGGER", PLENTY)
    running, most = 0, 0

    def job() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1

    rack.readers().read(dict.fromkeys(("ibp0", "ibp1", "ibp2"), job), PLENTY)
    assert most == 1


@pytest.mark.slow
def test_a_slow_device_does_not_delay_the_others(rack: Rack) -> None:
    """The read of another begins while its own is under way."""
    jobs = rack.devices("ibp0", "ibp1")
    jobs["ibp0"].gate.clear()
    assert rack.readers().read(jobs, SHORT) == {"ibp1": 1}


def test_an_inline_worker_has_no_thread(rack: Rack) -> None:
    """Its device is read in the caller's thread, and is waited for without a timeout."""
    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers(make=InlineWorker)
    for number in (1, 2):
        assert readers.read(jobs, 0.0) == {"ibp0": number, "ibp1": number}
        readers.refresh()
    assert set(jobs["ibp0"].threads) == {threading.current_thread()}
    assert rack.threads() == []


def test_facts_are_read_once_until_they_are_old(rack: Rack) -> None:
    """A second `read` has them without a read of the device; `refresh` makes them old."""
    jobs = rack.devices("ibp0")
    readers = rack.readers()
    assert readers.read(jobs, PLENTY) == readers.read(jobs, PLENTY) == {"ibp0": 1}
    readers.refresh()
    readers.refresh()
    assert readers.read(jobs, PLENTY) == {"ibp0": 2}


def test_falsy_facts_are_facts(rack: Rack) -> None:
    facts: dict[str, Callable[[], int | None]] = {"ibp0": lambda: None, "ibp1": lambda: 0}
    assert rack.readers().read(facts, PLENTY) == {"ibp0": None, "ibp1": 0}


def test_no_thread_without_devices(rack: Rack) -> None:
    start = time.monotonic()
    assert rack.readers().read({}, PLENTY) == {}
    assert rack.threads() == []
    assert time.monotonic() - start < PLENTY / 3


def test_the_last_read_ends_the_wait(rack: Rack) -> None:
    jobs = rack.devices("ibp0")
    start = time.monotonic()
    assert rack.readers().read(jobs, PLENTY) == {"ibp0": 1}
    assert time.monotonic() - start < PLENTY / 3


@pytest.mark.slow
def test_a_blocked_device_costs_one_thread_and_one_wait(rack: Rack) -> None:
    """However often it is asked for; it is read again when its read ends."""
    jobs = rack.devices("ibp0", "ibp1", "ibp2")
    jobs["ibp1"].gate.clear()
    clock = Clock()
    readers = rack.readers(clock=clock)
    start = time.monotonic()
    assert readers.read(jobs, SHORT) == {"ibp0": 1, "ibp2": 1}
    assert SHORT <= time.monotonic() - start < PLENTY / 3
    for number in range(2, 12):
        clock.now += PLENTY
        readers.refresh()
        start = time.monotonic()
        assert readers.read(jobs, PLENTY) == {"ibp0": number, "ibp2": number}
        assert time.monotonic() - start < PLENTY / 3
    assert len(rack.threads()) == 2
    assert "device ibp1" in rack.threads()
    assert (jobs["ibp1"].reads, rack.calls) == (1, [])
    jobs["ibp1"].gate.set()
    wait_for(lambda: rack.calls == ["notified"])
    assert readers.read(jobs, PLENTY) == {"ibp0": 11, "ibp1": 2, "ibp2": 11}
    assert (jobs["ibp1"].reads, rack.calls) == (2, ["notified"])


@pytest.mark.slow
def test_a_late_device_has_its_last_facts_until_it_counts_as_blocked(rack: Rack) -> None:
    """Less than DEVICE_TIMEOUT after its read began it has the facts of the read before."""
    jobs = rack.devices("ibp0")
    clock = Clock()
    readers = rack.readers(clock=clock)
    assert readers.read(jobs, PLENTY) == {"ibp0": 1}
    readers.refresh()
    jobs["ibp0"].gate.clear()
    assert readers.read(jobs, SHORT) == {"ibp0": 1}
    clock.now += DEVICE_TIMEOUT - 0.01
    assert readers.read(jobs, SHORT) == {"ibp0": 1}
    clock.now += 0.01
    assert readers.read(jobs, SHORT) == {}


@pytest.mark.slow
def test_a_late_read_notifies_once_and_is_not_repeated(rack: Rack) -> None:
    """Its facts are taken by the next `read`, without another read of the device: no loop spins."""
    jobs = rack.devices("ibp0")
    readers = rack.readers()
    jobs["ibp0"].gate.clear()
    assert readers.read(jobs, SHORT) == {}
    jobs["ibp0"].gate.set()
    wait_for(lambda: rack.calls == ["notified"])
    for _ in range(3):
        assert readers.read(jobs, PLENTY) == {"ibp0": 1}
    assert rack.calls == ["notified"]


@pytest.mark.slow
def test_a_refresh_during_a_read_asks_once_more(rack: Rack) -> None:
    """The pending read may have begun before the change, so the device is read again."""
    jobs = rack.devices("ibp0")
    readers = rack.readers()
    jobs["ibp0"].gate.clear()
    assert readers.read(jobs, SHORT) == {}
    readers.refresh()
    jobs["ibp0"].gate.set()
    wait_for(lambda: readers.read(jobs, SHORT) == {"ibp0": 2})


@pytest.mark.slow
def test_a_read_that_is_waited_for_does_not_notify(rack: Rack) -> None:
    """Its caller has the facts."""
    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers()
    jobs["ibp0"].gate.clear()
    threading.Timer(SHORT, jobs["ibp0"].gate.set).start()
    assert readers.read(jobs, PLENTY) == {"ibp0": 1, "ibp1": 1}
    assert rack.calls == []


@pytest.mark.slow
def test_threads_of_slow_devices_end(rack: Rack) -> None:
    """Each has one while it is slow; one remains."""
    jobs = rack.devices("ibp0", "ibp1", "ibp2")
    for job in jobs.values():
        job.gate.clear()
    readers = rack.readers()
    assert readers.read(jobs, SHORT) == {}
    assert rack.threads() == ["device ibp0", "device ibp1", "device ibp2"]
    for job in jobs.values():
        job.gate.set()
    wait_for(lambda: len(rack.threads()) == 1)
    assert readers.read(jobs, PLENTY) == {"ibp0": 1, "ibp1": 1, "ibp2": 1}


def test_a_device_that_is_gone_is_forgotten(rack: Rack) -> None:
    """Its facts and constants are dropped; a device that returns is read again."""
    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers()
    readers.constants("ibp0")["0000:18:00.0", "hca_type"] = "MT4129"
    for number in range(1, 20):
        assert readers.read(jobs, PLENTY) == {"ibp0": number, "ibp1": 1}
        assert readers.read({"ibp1": jobs["ibp1"]}, PLENTY) == {"ibp1": 1}
        assert readers.constants("ibp0") == {}
    readers.keep(())
    wait_for(lambda: not rack.threads())


@pytest.mark.slow
def test_a_device_that_is_gone_while_it_blocks_gets_no_second_thread(rack: Rack) -> None:
    """When it is back it has the thread that is stuck; its facts of before are not handed out."""
    jobs = rack.devices("ibp0")
    readers = rack.readers()
    assert readers.read(jobs, PLENTY) == {"ibp0": 1}
    jobs["ibp0"].gate.clear()
    readers.refresh()
    assert readers.read(jobs, SHORT) == {"ibp0": 1}
    for _ in range(5):
        readers.keep(())
        readers.refresh()
        assert readers.read(jobs, SHORT) == {}
    assert rack.threads() == ["device ibp0"]
    jobs["ibp0"].gate.set()
    wait_for(lambda: readers.read(jobs, SHORT) == {"ibp0": 3})
    assert rack.threads() == ["device ibp0"]


@pytest.mark.slow
def test_readers_that_are_dropped_leave_no_thread(rack: Rack) -> None:
    """Nor do those whose device blocks, once its read has ended."""
    jobs = rack.devices("ibp0", "ibp1")
    jobs["ibp1"].gate.clear()
    assert DeviceReaders().read(jobs, SHORT) == {"ibp0": 1}
    jobs["ibp1"].gate.set()
    gc.collect()
    wait_for(lambda: not rack.threads())


@pytest.mark.slow
def test_closed_readers_notify_no_more(rack: Rack) -> None:
    """A read that ends after the agent's loop has ended causes no event."""
    jobs = rack.devices("ibp0")
    readers = rack.readers()
    jobs["ibp0"].gate.clear()
    assert readers.read(jobs, SHORT) == {}
    readers.close()
    jobs["ibp0"].gate.set()
    wait_for(lambda: not rack.threads())
    assert rack.calls == []


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_surfaces(rack: Rack, error: BaseException) -> None:
    """After the others were read; the device has no facts until a read of it succeeds."""
    jobs = rack.devices("ibp0", "ibp2")

    def broken() -> int:
        raise error

    readers = rack.readers()
    with pytest.raises(type(error)) as caught:
        readers.read({"ibp1": broken} | jobs, PLENTY)
    assert caught.value is error
    assert [job.reads for job in jobs.values()] == [1, 1]
    assert readers.read(jobs | {"ibp1": broken}, PLENTY) == {"ibp0": 1, "ibp2": 1}
    readers.refresh()
    assert readers.read(jobs | {"ibp1": lambda: 7}, PLENTY)["ibp1"] == 7


def test_no_thread_to_be_had(rack: Rack) -> None:
    """A device that gets no thread is missing, and the next `read` tries again; others are read."""
    refused = [True]

    class Refused(DeviceWorker):
        def start(self) -> None:
            if refused and refused.pop():
                raise RuntimeError("can't start new thread")
            super().start()

    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers(make=Refused)
    assert readers.read(jobs, PLENTY) == {"ibp1": 1}
    assert readers.unstarted == {"ibp0": "can't start new thread"}
    assert readers.read(jobs, PLENTY) == {"ibp0": 1, "ibp1": 1}
    assert readers.unstarted == {}


@pytest.mark.slow
def test_old_facts_are_none_where_no_thread_is_to_be_had(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One device blocks in the only thread: what the others said before is not what they say."""
    monkeypatch.setattr(worker, "STAGGER", PLENTY)
    threads: list[DeviceWorker] = []

    class Only(DeviceWorker):
        def start(self) -> None:
            if threads:
                raise RuntimeError("can't start new thread")
            threads.append(self)
            super().start()

    jobs = rack.devices("ibp0", "ibp1")
    readers = rack.readers(make=Only)
    assert readers.read(jobs, PLENTY) == {"ibp0": 1, "ibp1": 1}
    readers.refresh()
    jobs["ibp0"].gate.clear()
    assert readers.read(jobs, SHORT) == {"ibp0": 1}
    assert list(readers.unstarted) == ["ibp1"]


def test_a_blocked_thread_does_not_hold_the_process(repository: Path) -> None:
    code = (
        "import threading; from agent.sysfs.worker import DeviceReaders\n"
        "print(DeviceReaders().read({'ibp0': threading.Event().wait}, 0.05), flush=True)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True, timeout=PLENTY
    )
    assert (done.stdout, done.stderr) == ("{}\n", "")


@pytest.mark.slow
def test_an_idle_thread_uses_no_cpu_time(rack: Rack) -> None:
    """It is not woken, since its wait has no timeout."""
    jobs = rack.devices(*(f"ibp{number}" for number in range(8)))
    readers = rack.readers()
    readers.read(jobs, PLENTY)

    def are_idle() -> bool:
        before = _switches(rack)
        time.sleep(0.5)
        return _switches(rack) == before

    wait_for(are_idle)


def _switches(rack: Rack) -> dict[str, str]:
    """The context switches of each worker's thread (proc(5), /proc/[pid]/task/[tid]/status)."""
    root = LiveRoot()
    found = {}
    for one in rack.workers():
        lines = root.read(f"proc/self/task/{one.native_id}/status", 4096).decode().splitlines()
        found[one.name] = " ".join(line for line in lines if "ctxt_switches" in line)
    assert found
    return found
