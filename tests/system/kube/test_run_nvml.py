"""`bwagent run` beside GPUs of a stand-in libnvidia-ml: the accelerator label over a
machine's life cycle.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import stand_in_nvml
from tests.support.kernel_tree import NET
from tests.support.kernel_tree import gpu as gpu_on_bus
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import Agent
from tests.support.real_parts import require
from tests.support.stand_in_nvml import gpu, tray

TREE = gpu_on_bus() | {f"{NET}/lo": None}
DOMAIN = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
IN_PROGRESS, COMPLETED = 2, 3


class Driver:
    """The installed library and its answers; each is replaced atomically, as packages do."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.soname, self._plan, self._folder = (
            folder / "libnvidia-ml.so.1",
            folder / "plan",
            folder,
        )
        self.environment = {"STAND_IN_NVML": str(self._plan)}

    def says(self, plan: str) -> None:
        """Set the answer of the next query."""
        self._put(self._plan, plan)

    def install(self, *without: str) -> None:
        """Install a version of the library that lacks these functions."""
        Path(stand_in_nvml.build(self._folder / "new", *without)).replace(self.soname)

    def remove(self) -> None:
        self.soname.unlink()

    @staticmethod
    def _put(place: Path, text: str) -> None:
        new = place.with_suffix(".new")
        new.write_text(text)
        new.replace(place)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """Provide a machine without a driver."""
    require(stand_in_nvml.missing())
    return Driver(tmp_path_factory.mktemp("nvml") / "driver")


@pytest.fixture(scope="module")
def agent(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, driver: Driver
) -> Iterator[Agent]:
    """The agent on a node with a GPU on its bus; each test installs its own driver."""
    cluster.node("tray")
    flags = ("--nvml-library", str(driver.soname))
    folder = tmp_path_factory.mktemp("tray")
    with Agent(cluster, folder, "tray", TREE, *flags, environment=driver.environment) as agent:
        yield agent


def domain(agent: Agent, value: str | None) -> None:
    """Wait until the Node has this domain, and check the metrics."""
    agent.until(lambda: agent.accelerator() == value)
    assert agent.metrics().holds("bwagent_accelerator_info", "domain") == ([value] if value else [])


def reason(agent: Agent, word: str) -> None:
    """Wait until the metrics have this reason for a missing domain."""
    agent.until(lambda: agent.metrics().holds("bwagent_accelerator_missing", "reason") == [word])


def test_the_life_of_a_tray(driver: Driver, agent: Agent) -> None:
    """No driver, registering, registered, moved, registering again, a driver of another version,
    unhealthy, healthy.
    """
    reason(agent, "failed")
    agent.speaks("0G")
    driver.says("".join(gpu(index, state=IN_PROGRESS) for index in range(4)))
    driver.install()
    reason(agent, "in-progress")
    assert agent.metrics().value("bwagent_gpus", fabric_state="in-progress") == 4
    assert agent.accelerator() is None
    driver.says(tray())
    domain(agent, f"{DOMAIN}.32766")
    assert agent.metrics().value("bwagent_gpus", fabric_state="completed") == 4
    driver.says("".join(gpu(index, clique=7) for index in range(4)))
    domain(agent, f"{DOMAIN}.7")
    driver.says(gpu(0, state=IN_PROGRESS))
    reason(agent, "in-progress")
    assert (agent.accelerator(), agent.metrics().value("bwagent_labels_held")) == (f"{DOMAIN}.7", 1)
    driver.says(gpu(0, clique=8))
    driver.install("V")
    domain(agent, f"{DOMAIN}.8")
    driver.says(gpu(0) + gpu(1, status=15))
    reason(agent, "unhealthy")
    domain(agent, None)
    driver.says(tray())
    domain(agent, f"{DOMAIN}.32766")
    agent.metrics().lint()


def test_what_goes_wrong_changes_nothing(driver: Driver, agent: Agent) -> None:
    """The library crashes, is missing, and hangs until its helper is killed: the Node is
    not written to.
    """
    driver.says(tray())
    driver.install()
    domain(agent, f"{DOMAIN}.32766")
    version = agent.version()
    driver.says(tray("crash fabric -1"))
    agent.says("killed by SIGABRT")
    driver.remove()
    agent.says("cannot open shared object file")
    driver.says(tray("hang fabric -1"))
    driver.install()
    os.kill(hanging(agent), signal.SIGKILL)
    agent.says("killed by SIGKILL")
    assert agent.metrics().value("bwagent_labels_held") == 1
    hanging(agent)
    [helper] = agent.helpers("nvml")
    os.kill(helper, signal.SIGKILL)
    driver.says(tray())
    agent.until(lambda: agent.metrics().value("bwagent_source_success", source="nvml") == 1)
    assert (agent.accelerator(), agent.version()) == (f"{DOMAIN}.32766", version)


def hanging(agent: Agent) -> int:
    """Wait for a fork that queries, check that events start no second one; return its PID."""
    agent.until(lambda: agent.forks("nvml"))
    found = agent.forks("nvml")
    agent.look()
    time.sleep(0.5)
    assert agent.forks("nvml") == found
    return found[0]
