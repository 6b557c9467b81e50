"""`bwagent run` as a process, over a small /sys that the test changes, on a real API server, also
while the time of day jumps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agent.cabling.one_node import MAX_SIZE
from agent.facts import parse_time
from tests.support.kernel_tree import CLASS, Entries
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import IB, Agent, P
from tests.support.real_parts import lacks, require
from tests.support.stand_in import build_preloaded
from tests.support.sysfs_on_disk import remove


def test_the_labels_follow_the_ports(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """A link goes down and up, and the site's own labels stay; SIGTERM ends the agent at once and
    changes nothing.
    """
    cluster.node("run-follows", labels={f"{P}/speed.expected": "800G"})
    with Agent(cluster, tmp_path, "run-follows", two) as agent:
        agent.speaks("800G")
        agent.set("ibp1", "state", "1: DOWN")
        agent.speaks("400G")
        agent.set("ibp1", "state", "4: ACTIVE")
        agent.speaks("800G")
        before = agent.metadata()["labels"]
        assert before[f"{P}/flavor"] == "infiniband"
        assert before[f"{IB}/speed.current"] == "800G"
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 20  # nothing is waited for
        assert agent.metadata()["labels"] == before
        assert before[f"{P}/speed.expected"] == "800G"


def test_a_restart_changes_nothing(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """Killed with -9 and started again, the agent does not write to the Node."""
    cluster.node("run-restart")
    with Agent(cluster, tmp_path, "run-restart", two) as agent:
        agent.speaks("800G")
        agent.until(lambda: f"{P}/observed" in agent.metadata().get("annotations", {}))
        agent.stop(signal.SIGKILL)
        before = agent.version()
    with Agent(cluster, tmp_path, "run-restart", two) as agent:
        agent.says("labels verified", 120)
        assert agent.version() == before
        agent.set("ibp0", "state", "1: DOWN")
        agent.speaks("400G")


def test_sighup_takes_a_label_back(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """Labels and the annotation that kubectl has changed or removed are restored; the log has the
    owner and the values that were on the Node.
    """
    cluster.node("repair")
    speed, ib_speed, observed = (f"{P}/speed.current", f"{IB}/speed.current", f"{P}/observed")
    with Agent(cluster, tmp_path, "repair", two) as agent:
        agent.speaks("800G")
        agent.says("label added")
        changes = (f"{speed}=1G", f"{ib_speed}=2G", f"{P}/flavor-")
        cluster.kubectl("label", "--overwrite", "node", "repair", *changes)
        cluster.kubectl("annotate", "--overwrite", "node", "repair", f"{observed}={{}}")
        agent.look()
        agent.speaks("800G")
        agent.until(lambda: len(agent.lines("taken over from its owner")) == 3)
        assert agent.lines(f"key={speed} owner=kubectl-label value=1G")
        assert agent.lines(f"key={ib_speed} owner=kubectl-label value=2G")
        assert agent.lines(f"key={observed} owner=kubectl-annotate")
        why = 'reason="kubectl-label had changed it from 800G"'
        assert agent.lines("label changed", f"key={speed} from=1G to=800G {why}")
        assert agent.lines("label changed", f"key={ib_speed} from=2G to=800G {why}")
        first, second = agent.lines("label added", f"key={P}/flavor to=infiniband")
        assert ("had removed it" in first, "another writer had removed it" in second) == (0, 1)
        entries = cluster.request("GET", "/api/v1/nodes/repair").body["metadata"]["managedFields"]
        assert [one["manager"] for one in entries if speed in str(one)] == ["bwagent"]
        assert "boot_id" in agent.metadata()["annotations"][observed]


def test_an_api_server_that_is_away_is_waited_for(
    cluster: Cluster, tmp_path: Path, two: Entries
) -> None:
    """The API server is stopped, so that connections hang: changes meanwhile are applied
    when it is back.
    """
    cluster.node("run-away")
    with Agent(cluster, tmp_path, "run-away", two) as agent:
        agent.speaks("800G")
        command = ["pgrep", "-f", f"kube-apiserver.*{cluster.folder}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        server = int(found.stdout.split()[-1])
        os.kill(server, signal.SIGSTOP)
        try:
            agent.set("ibp1", "state", "1: DOWN")
            time.sleep(1.5)
            agent.set("ibp0", "rate", "200 Gb/sec (4X HDR)")
            time.sleep(0.5)
        finally:
            os.kill(server, signal.SIGCONT)
        agent.speaks("200G")


def test_a_part_fits_a_configmap(cluster: Cluster) -> None:
    """The limit of a plan file is that of the API server, to the byte."""
    path = "/api/v1/namespaces/default/configmaps"
    for more, status in ((0, 201), (1, 422)):
        data = {"plan-001.csv": "x" * (MAX_SIZE + more)}
        body = {"metadata": {"name": f"plan-{more}"}, "data": data}
        assert cluster.request("POST", path, body).status == status


HOUR = 3600


class WallClock:
    """The wall clock of the processes with this environment, by jumping_clock.c."""

    def __init__(self, folder: Path) -> None:
        library, self._file = build_preloaded("jumping_clock", folder), folder / "ahead"
        self._file.write_text("0")
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._file)}

    def set(self, ahead: int) -> None:
        """Set it to so many seconds ahead of the real one."""
        part = self._file.with_suffix(".part")
        part.write_text(str(ahead))
        part.rename(self._file)


@pytest.mark.parametrize("jump", [pytest.param(HOUR, marks=pytest.mark.sweep), -HOUR])
def test_the_clock_jumps(cluster: Cluster, tmp_path: Path, two: Entries, jump: int) -> None:
    """Nothing expires and nothing is sent because of the time of day; what happens next is on the
    Node at once, before and after the clock is set right again.
    """
    require(lacks("cc"))
    clock = WallClock(tmp_path)
    cluster.node(f"run-clock-{jump}")
    with Agent(cluster, tmp_path, f"run-clock-{jump}", two, environment=clock.environment) as agent:
        agent.speaks("800G")
        remove(tmp_path, f"{CLASS}/ibp1")  # its function is on the bus: the speed is held
        agent.look()
        agent.says("rdma problem subject=ibp1")
        before = settled(agent)
        clock.set(jump)
        agent.look()
        time.sleep(3)
        assert agent.labels()["speed.current"] == "800G"
        # SIGHUP reads the Node; the annotation keeps since when a port is unread after a minute.
        assert agent.requests() <= before + 3
        agent.set("ibp0", "state", "1: DOWN")
        agent.until(lambda: abs(observed(agent) - time.time() - jump) < 60)
        clock.set(0)
        agent.set("ibp0", "state", "4: ACTIVE")
        agent.look()
        agent.until(lambda: abs(observed(agent) - time.time()) < 60)
        assert "another bwagent" not in agent.log.read_text()


def settled(agent: Agent) -> float:
    """Return the number of its requests once none was added for two seconds: a busy machine is late
    with those that the start caused.
    """
    while True:
        before = agent.requests()
        time.sleep(2)
        if agent.requests() == before:
            return before


def observed(agent: Agent) -> float:
    """Return the time of the last observation that the Node has."""
    found = json.loads(agent.metadata()["annotations"][f"{P}/observed"])
    times = [found["time"], (found.get("partial") or {}).get("time")]
    return max(parse_time(one) for one in times if one)
