"""Devices that block, in real helper processes over the stand-in libibumad."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.helper import process as child
from agent.helper.process import HelperProcesses
from agent.infiniband import devices
from agent.infiniband.devices import DeviceQueries, SubnetPort
from tests.support.processes import Started
from tests.support.switch import wait_for

if TYPE_CHECKING:
    import pytest

DEVICES = 32
PORTS = [(f"mlx5_{number}", 1) for number in range(DEVICES)]
TIMEOUT = 3.0  # seconds for a process; its start takes one where the machine is busy


def queries(library: str, helpers: HelperProcesses, verb: str = "smp") -> DeviceQueries[Any]:
    """Return queries as agent/live_host.py makes them, over the stand-in."""

    def query(group: tuple[Any, ...]) -> dict[str, Any]:
        names = {port[0] for port in group}
        subject = names.pop() if len(names) == 1 else f"for {len(names)} devices"
        payload = {"ports": [list(port) for port in group], "library": library}
        return helpers.call(verb, payload, TIMEOUT, subject)

    return DeviceQueries(query, 1 if verb == "sa" else devices.MAX_PROCESSES)


def test_a_device_whose_open_blocks_takes_no_other_with_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31 of 32 have their neighbors."""
    monkeypatch.setenv("STAND_IN", "mlx5_7:blocks")
    query = queries(library, HelperProcesses())
    answer = query(PORTS)
    missing = {entry["device"]: entry["error"] for entry in answer["ports"] if entry["error"]}
    assert missing == {"mlx5_7": "no-answer"}
    assert answer["failed"] == [["mlx5_7", 1]]
    start = time.monotonic()
    assert query(PORTS)["failed"] == [["mlx5_7", 1]]
    assert time.monotonic() - start < 2 * TIMEOUT
    monkeypatch.delenv("STAND_IN")
    assert query(PORTS)["failed"] == []


def test_a_device_that_blocks_costs_no_other_its_answer_of_the_sa(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subnet administrator is asked about the others, and each has its neighbor."""
    monkeypatch.setenv("STAND_IN", "mlx5_1:blocks")
    ports = [SubnetPort(f"mlx5_{number}", 1, 22, 9, 2, 0) for number in range(3)]
    answer = queries(library, HelperProcesses(), "sa")(ports)
    errors = {entry["device"]: entry["error"] for entry in answer["ports"]}
    assert errors == {"mlx5_0": None, "mlx5_1": "no-answer", "mlx5_2": None}


def test_a_process_in_an_uninterruptible_sleep_is_remembered(
    library: str, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    """It is not replaced while it exists; after its end, its device is queried again."""
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.05)
    monkeypatch.setenv("STAND_IN", "mlx5_1:blocks")
    ports = PORTS[:3]
    helpers = HelperProcesses(
        # neither its alarm nor the end of the thread that has started it ends such a process
        lambda verb, _timeout_s: child.command(verb, 600)[:-1],
        started,
        kill=lambda _pid, _signal: None,
    )
    query = queries(library, helpers)
    assert query(ports)["failed"] == [["mlx5_1", 1]]
    stuck = [process for process in started if process.poll() is None]
    assert len(stuck) == 2  # the process of all devices, and that of this one
    count = len(started)
    answer = query(ports)
    assert answer["failed"] == [["mlx5_1", 1]]
    [text] = [entry["text"] for entry in answer["ports"] if entry["error"]]
    assert text.startswith("helper smp mlx5_1: process ")
    assert text.endswith("was killed and has not ended")
    assert len(started) == count + 1

    monkeypatch.delenv("STAND_IN")
    for process in stuck:
        child.kill_group(process)
        process.wait(5)
    wait_for(lambda: child.unended() == 0)
    assert query(ports)["failed"] == [], query(ports)
