"""Private flags that a worker reads, by a worker that a test runs."""

from __future__ import annotations

from collections.abc import Callable

from agent.lldp.driver_flags import DriverFlags

BLOCKING, OPEN = {"disable-fw-lldp": False}, {"disable-fw-lldp": True}


class Driver:
    """A driver with flags, and a worker whose calls return when `work` is called."""

    def __init__(self, flags: dict[str, bool]) -> None:
        self.flags = flags
        self.reads = 0
        self.calls: list[Callable[[], None]] = []

    def read(self, _netdev: str) -> dict[str, bool]:
        self.reads += 1
        return self.flags

    def work(self) -> None:
        while self.calls:
            self.calls.pop(0)()


def test_flags_are_unknown_until_the_worker_has_read_them() -> None:
    """The caller gets {} at once, and one read is under way however often it asks."""
    driver = Driver(BLOCKING)
    flags = DriverFlags(driver.read, driver.calls.append)
    flags.set_links({"eth0": True})
    assert [flags("eth0"), flags("eth0")] == [{}, {}]
    assert (len(driver.calls), flags.collect()) == (1, False)
    driver.work()
    assert (flags.collect(), flags.collect()) == (True, False)
    assert flags("eth0") == BLOCKING
    assert driver.calls == []


def test_flags_are_read_once_for_each_time_the_link_comes_up() -> None:
    """Until they are read again those read before stay valid."""
    driver = Driver(BLOCKING)
    flags = DriverFlags(driver.read, driver.calls.append)
    for up, reads in ((True, 1), (True, 1), (False, 1), (False, 1), (True, 2), (True, 2)):
        flags.set_links({"eth0": up})
        flags("eth0")
        driver.work()
        flags.collect()
        assert driver.reads == reads
    driver.flags = OPEN
    flags.set_links({"eth0": False})
    flags.set_links({"eth0": True})
    assert flags("eth0") == BLOCKING
    driver.work()
    assert flags.collect()
    assert flags("eth0") == OPEN


def test_the_same_flags_again_are_no_change() -> None:
    """Nor is it a change that a driver has none."""
    for known in ({}, OPEN):
        driver = Driver(known)
        flags = DriverFlags(driver.read, driver.calls.append)
        for expected in (bool(known), False):
            flags.set_links({"eth0": False})
            flags.set_links({"eth0": True})
            flags("eth0")
            driver.work()
            assert flags.collect() is expected


def test_the_flags_of_a_netdev_that_goes_are_dropped() -> None:
    """Also those that are being read; another netdev of that name has its own."""
    driver = Driver(BLOCKING)
    flags = DriverFlags(driver.read, driver.calls.append)
    flags.set_links({"eth0": True})
    flags("eth0")
    flags.set_links({})
    driver.work()
    assert flags.collect() is False
    flags.set_links({"eth0": True})
    assert flags("eth0") == {}
    driver.work()
    flags.collect()
    flags.set_links({})
    flags.set_links({"eth0": True})
    assert flags("eth0") == {}
    assert len(driver.calls) == 1


def test_without_a_thread_the_flags_are_requested_again() -> None:
    driver, threads = Driver(OPEN), [False, True]

    def run(call: Callable[[], None]) -> None:
        if not threads.pop(0):
            raise RuntimeError("can't start new thread")
        call()

    flags = DriverFlags(driver.read, run)
    flags.set_links({"eth0": True})
    assert [flags("eth0"), flags("eth0")] == [{}, OPEN]
