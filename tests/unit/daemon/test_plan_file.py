"""The plan files of the daemon: when they are read, and which rows stand meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.cabling import one_node
from agent.daemon.background import BackgroundTask
from agent.daemon.plan_file import (
    LOOK_INTERVAL,
    RETRY_INTERVAL,
    STALLED,
    PlanFile,
    signature,
)
from agent.encode import Naming
from agent.errors import Unavailable
from tests.support.kernel_tree import hca
from tests.support.running import World

HEADER = "node,interface,device,port-id\n"
ROW = "gpu-17,mlx5_0,{},swp17\n"
OTHER = "gpu-18,mlx5_0,leaf9,swp18\n"


@dataclass
class Agent:
    """An agent with one plan file, which passes its time."""

    path: Path
    asked: int = 0  # readings
    error: str | None = None  # of the helper
    looks: int = 0
    time: float = 1000.0

    def __post_init__(self) -> None:
        task = BackgroundTask[Any](lambda work: work())
        files = (str(self.path),)
        self.plan = PlanFile(files, ("gpu-17",), Naming(), task, self._ask, self._look)

    def _ask(self, payload: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        if self.error:
            raise Unavailable(self.error)
        return dict(json.loads(json.dumps(one_node.read(json.loads(json.dumps(payload))))))

    def _look(self, files: Iterable[str]) -> Any:
        self.looks += 1
        return signature(files)

    def wait(self, seconds: float = LOOK_INTERVAL) -> bool:
        """Pass the time in turns of the loop; return True if one had something new."""
        end, news = self.time + seconds, False
        while self.time < end:
            self.plan.start_due(self.time)
            news |= self.plan.collect(self.time)
            self.time = min(self.plan.next_due(), self.time + 20.0, end)
        return news

    @property
    def devices(self) -> list[str | None] | None:
        """The devices that are expected; None while nothing was read."""
        expected = self.plan.expected
        return None if expected is None else [row.device for row in expected.rows]

    @property
    def state(self) -> tuple[Any, Any]:
        """These, and the problem."""
        return self.devices, self.plan.problem


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """An agent that has read its plan."""
    path = tmp_path / "plan.csv"
    path.write_text(HEADER + ROW.format("leaf1") + OTHER)
    found = Agent(path)
    assert found.wait()
    assert found.state == (["leaf1"], None)
    return found


def test_an_unchanged_file_is_read_once(agent: Agent) -> None:
    assert not agent.wait(3600)
    assert agent.asked == 1
    assert agent.looks == 1 + 3600 / LOOK_INTERVAL


def test_a_changed_file_is_read_again(agent: Agent) -> None:
    """Written in place, or another in its place; also with the size and the time of the old one."""
    agent.path.write_text(HEADER + ROW.format("leaf2"))
    assert agent.wait()
    assert agent.devices == ["leaf2"]
    was = agent.path.stat()
    other = agent.path.with_name("other.csv")
    other.write_text(HEADER + ROW.format("leaf3"))
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.rename(agent.path)
    assert agent.wait()
    assert agent.devices == ["leaf3"]
    assert agent.asked == 3


def test_the_symlink_of_a_configmap_volume(tmp_path: Path) -> None:
    """The kubelet swaps `..data`, to which the file's own link leads."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "plan.csv").write_text(HEADER + ROW.format(f"leaf{number}"))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "plan.csv").symlink_to("..data/plan.csv")
    agent = Agent(tmp_path / "plan.csv")
    assert agent.wait()
    assert agent.devices == ["leaf1"]
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert agent.wait()
    assert agent.devices == ["leaf2"]


def test_a_file_that_comes_later(tmp_path: Path) -> None:
    """A ConfigMap may be made after the agent: it is a problem until then, and no end."""
    agent = Agent(tmp_path / "plan.csv")
    assert agent.wait(3600)
    assert agent.plan.problem == f"{agent.path}: No such file or directory"
    assert (agent.devices, agent.asked) == (None, 0)
    agent.path.write_text(HEADER + OTHER)
    assert agent.wait()
    assert agent.state == ([], None)


@pytest.mark.parametrize("wrong", ["", "no plan", HEADER + "gpu-17,mlx5_0\n", None])
def test_the_last_good_rows_stand(agent: Agent, wrong: str | None) -> None:
    """A file that is gone, empty or wrong is a problem that is new once."""
    if wrong is None:
        agent.path.unlink()
    else:
        agent.path.write_text(wrong)
    assert agent.wait()
    assert agent.devices == ["leaf1"]
    assert str(agent.plan.problem).startswith(f"{agent.path}")
    assert not agent.wait(3600)
    assert agent.asked == (1 if wrong is None else 2)
    agent.path.write_text(HEADER + ROW.format("leaf1") + OTHER)
    assert agent.wait()
    assert agent.state == (["leaf1"], None)


def test_a_helper_that_fails_is_asked_again_later(agent: Agent) -> None:
    """Its last good rows stand, and a helper that hangs does not run all the time."""
    agent.error = "helper plan: no answer within 30 s"
    agent.path.write_text(HEADER + ROW.format("leaf2"))
    assert agent.wait()
    assert agent.plan.problem == f"{agent.path}: {agent.error}"
    assert not agent.wait(RETRY_INTERVAL - 2 * LOOK_INTERVAL)
    assert (agent.devices, agent.asked) == (["leaf1"], 2)
    agent.error = None
    assert agent.wait(2 * LOOK_INTERVAL)
    assert agent.state == (["leaf2"], None)


def test_an_answer_of_another_version_is_a_problem(agent: Agent) -> None:
    """The package of a running agent was replaced; the loop goes on."""
    place, answer = ((str(agent.path),), ("n",), Naming()), {"expected": {"rows": [[1, 2]]}}
    plan = PlanFile(*place, agent.plan.task, lambda _payload: answer)
    plan.start_due(0.0)
    assert plan.collect(0.0)
    assert str(plan.problem).startswith(f"{agent.path}: ")
    assert plan.expected is None


def test_a_file_system_that_does_not_answer(agent: Agent) -> None:
    """The thread hangs; the rows stand, the problem is shown, and ends with the hang."""
    held: list[Callable[[], None]] = []
    place = (str(agent.path),), ("gpu-17",), Naming()
    plan = PlanFile(*place, BackgroundTask(held.append), agent.plan.ask)
    plan.start_due(0.0)
    assert not plan.collect(STALLED - 1)
    assert plan.collect(STALLED)
    assert plan.problem == f"{agent.path}: the file system does not answer"
    assert not plan.collect(STALLED + 1)
    plan.start_due(STALLED + 1)
    assert len(held) == 1
    held.pop()()
    assert plan.collect(STALLED + 2)
    assert plan.expected == agent.plan.expected
    assert not plan.problem


def test_the_log_has_a_line_for_each_change(agent: Agent) -> None:
    """Rows that are in use; a problem, each other problem, and its end."""
    path = agent.path
    world = World(hca("ibp0", "0000:18:00.0"), plan=Agent(path).plan)
    world.at(100, do=lambda: path.write_text("no plan"))
    world.at(200, do=path.unlink)
    world.at(300, do=lambda: path.write_text(HEADER + ROW.format("leaf1") + OTHER))
    world.at(400, do=lambda: path.write_text(HEADER + ROW.format("größe")[:-1] + "\n"))
    world.at(500, do=lambda: path.write_bytes(path.read_bytes().replace("ö".encode(), b"\xf6")))
    world.run(3600)
    lines = [line.partition(" ")[2] for line in world.lines if " plan " in line.partition("=")[0]]
    assert [line.partition(" files=")[0].partition(" flag=")[0] for line in lines] == [
        *("info plan in use", "warning plan not read", "warning plan not read", "info plan read"),
        *("info plan in use", "info plan in use"),
    ]
    assert lines[0] == f"info plan in use files={path} rows=1"
    missing = f"{path}: No such file or directory"
    assert lines[2] == f'warning plan not read flag="--plan" reason="{missing}"'
    assert lines[-1].endswith(f'rows=1 note="{path}: not UTF-8: read as Latin-1"')


def test_a_plan_delays_no_label(agent: Agent) -> None:
    """The first apply does not wait for a file system that does not answer."""

    def applied(**more: Any) -> list[float]:
        return World(hca("ibp0", "0000:18:00.0"), **more).run(30).api.applied()

    held: list[Callable[[], None]] = []
    stuck = PlanFile((str(agent.path),), ("n",), Naming(), BackgroundTask(held.append))
    assert applied(plan=stuck) == applied()
    assert stuck.task.busy
