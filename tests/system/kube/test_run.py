"""`bwagent run` as a process, over a small /sys that the test changes, on a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agent.kube.facts import parse_time
from tests.support.kernel_tree import BUS, NET, Entries, hca
from tests.support.kube.resident import IB, LIMIT, Agent, P

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

A, B = "0000:18:00.0", "0000:19:00.0"
GPU = {"vendor": "0x10de", "class": "0x030200"}


@pytest.fixture
def two() -> Entries:
    """Two InfiniBand HCAs, and a /sys that is mounted."""
    return hca("ibp0", A) | hca("ibp1", B) | {f"{NET}/lo": None}


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
        agent.says("labels verified")
        assert agent.version() == before
        agent.set("ibp0", "state", "1: DOWN")
        agent.speaks("400G")


def test_an_agent_whose_driver_is_missing_reports(
    cluster: Cluster, tmp_path: Path, two: Entries
) -> None:
    """No observation of it is full, and yet the Node has the time of the last one; a restart within
    the hour does not write it again.
    """
    cluster.node("run-partial")
    two |= {f"{BUS}/0000:3b:00.0/{name}": f"{text}\n".encode() for name, text in GPU.items()}
    broken = ("--source", "rdma", "--source", "nvml", "--nvml-library", "/nonexistent.so")
    with Agent(cluster, tmp_path, "run-partial", two, *broken) as agent:
        agent.until(lambda: f"{P}/observed" in agent.metadata().get("annotations", {}))
        found = json.loads(agent.metadata()["annotations"][f"{P}/observed"])
        assert found["time"] is None
        assert abs(parse_time(found["partial"]["time"]) - time.time()) < 60
        agent.stop(signal.SIGKILL)
        before = agent.version()
    with Agent(cluster, tmp_path, "run-partial", two, *broken) as agent:
        time.sleep(2)
        assert agent.version() == before


def test_drift_is_repaired_by_the_resync(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """A label that another manager changed or removed is restored without any event."""
    cluster.node("run-drift")
    with Agent(cluster, tmp_path, "run-drift", two, "--resync", "2") as agent:
        agent.speaks("800G")
        for value in ("1G", None):
            body = {"metadata": {"labels": {f"{P}/speed.current": value}}}
            cluster.request(
                "PATCH", "/api/v1/nodes/run-drift", body, kind="application/merge-patch+json"
            )
            agent.speaks("800G")


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


def test_every_wrong_setting_is_told_at_once() -> None:
    """Wrong flags, values and variables are reported in one line, with exit code 2."""
    wrong = {
        "BWAGENT_RUN_HOLDD": "1",
        "BWAGENT_RUN_RESYNC": "soon",
        "BWAGENT_SOURCE": "rdma lldb",
    }
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", "run", "--nosuch", "--metrics-address", "here"],
        env=os.environ | wrong, capture_output=True, text=True, check=False, timeout=LIMIT,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    named = ("--nosuch", "here", "BWAGENT_RUN_HOLDD", "soon", "lldb")
    assert [word for word in named if word not in done.stderr] == []
