"""Rounds over several devices, in which the process of some fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from agent.errors import Malformed, Unavailable
from agent.infiniband import devices
from agent.infiniband.devices import Address, DeviceQueries, SubnetPort, by_port

PORTS = [(f"mlx5_{number}", 1) for number in range(8)]


class Processes:
    """Processes that are late if one of their devices blocks."""

    def __init__(self, *blocking: str) -> None:
        self.blocking = set(blocking)
        self.groups: list[tuple[str, ...]] = []
        self.running = self.most = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def __call__(self, group: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        names = tuple(dict.fromkeys(device for device, *_ in group))
        with self._lock:
            self.groups.append(names)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
        if self.blocking & set(names):
            raise Unavailable(f"helper smp {' '.join(names)}: no answer within 5 s")
        return {"ports": [{"device": one[0], "port": one[1], "error": None} for one in group]}


def errors(answer: dict[str, Any]) -> dict[str, str | None]:
    return {entry["device"]: entry["error"] for entry in answer["ports"]}


def test_one_process_queries_all_ports() -> None:
    processes = Processes()
    answer = DeviceQueries(processes)(PORTS)
    assert [(entry["device"], entry["port"]) for entry in answer["ports"]] == PORTS
    assert answer["failed"] == []
    assert processes.groups == [tuple(device for device, _ in PORTS)]


def test_a_device_that_blocks_costs_its_own_ports() -> None:
    """Its entries have no neighbor and the process's error; the others are unchanged."""
    ports = [*PORTS, ("mlx5_3", 2)]
    answer = DeviceQueries(Processes("mlx5_3"))(ports)
    assert errors(answer) == dict.fromkeys(dict(PORTS)) | {"mlx5_3": "no-answer"}
    assert answer["failed"] == [["mlx5_3", 1], ["mlx5_3", 2]]
    [text] = {entry["text"] for entry in answer["ports"] if entry["error"]}
    assert text == "helper smp mlx5_3: no answer within 5 s"


def test_it_is_left_out_of_the_next_round_until_it_answers() -> None:
    """The others are queried together again, and it in a process of its own."""
    processes = Processes("mlx5_3")
    query = DeviceQueries(processes)
    query(PORTS)
    others = tuple(device for device, _ in PORTS if device != "mlx5_3")
    for blocking in ({"mlx5_3"}, set[str]()):
        processes.groups, processes.blocking = [], blocking
        query(PORTS)
        assert sorted(processes.groups) == sorted([others, ("mlx5_3",)])
    processes.groups = []
    query(PORTS)
    assert len(processes.groups) == 1


def test_a_bounded_number_of_processes_runs_at_a_time() -> None:
    processes = Processes("mlx5_0")
    processes.seconds = 0.01
    ports = [(f"mlx5_{number}", 1) for number in range(32)]
    answer = DeviceQueries(processes)(ports)
    assert len(answer["ports"]) == 32
    assert len(processes.groups) == 33
    assert 1 < processes.most <= devices.MAX_PROCESSES


def test_when_all_fail_the_round_fails() -> None:
    """No answer stands, and the error is that of a process."""
    query = DeviceQueries(Processes(*dict(PORTS)))
    with pytest.raises(Unavailable, match="helper smp mlx5_"):
        query(PORTS)
    with pytest.raises(Unavailable, match="helper smp mlx5_0: "):
        DeviceQueries(Processes("mlx5_0"))(PORTS[:1])


def test_the_subnet_administrator_has_one_question_at_a_time() -> None:
    """A device that blocks costs its own ports there, too, and no other is asked beside it."""
    ports = [SubnetPort(device, number, 3, 9, 0, 0) for device, number in PORTS]
    helpers = Processes("mlx5_3")
    helpers.seconds = 0.01
    answer = DeviceQueries(helpers, processes=1)(ports)
    assert errors(answer) == dict.fromkeys(dict(PORTS)) | {"mlx5_3": "no-answer"}
    assert (answer["failed"], helpers.most) == ([["mlx5_3", 1]], 1)


def test_a_malformed_answer_is_a_failure() -> None:

    def query(group: tuple[tuple[str, int], ...]) -> dict[str, Any]:
        if ("mlx5_1", 1) in group:
            return {"ports": 5}
        return {"ports": [{"device": name, "port": port, "error": None} for name, port in group]}

    answer = DeviceQueries(query)(PORTS)
    assert answer["failed"] == [["mlx5_1", 1]]
    with pytest.raises(Malformed, match="malformed answer of the helper"):
        by_port({"ports": 5})


def test_without_threads_the_round_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, in the thread that asks."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    answer = DeviceQueries(Processes("mlx5_3"))(PORTS)
    assert answer["failed"] == [["mlx5_3", 1]]


def test_a_port_without_an_entry_is_left_out() -> None:
    """The source reports it as not recorded."""
    query = DeviceQueries[Address](lambda _group: {"ports": []})
    assert query(PORTS) == {"ports": [], "failed": []}
