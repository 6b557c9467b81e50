"""Orphans of an agent that is PID 1, in a PID namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from agent.helper.process import reap
from tests.support.real_parts import require

REPOSITORY = Path(__file__).parents[3]


def test_pid_1_reaps_orphans_and_leaves_helpers_alone() -> None:
    """A helper that has ended first does not hide the orphan, and its exit status is not taken."""
    require(None if os.geteuid() == 0 else "a PID namespace needs root")
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    command = [*unshare, sys.executable, "-m", "tests.support.init_process"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {
        "orphan reaped": True,
        "others reaped": 0,
        "helper's zombie left": True,
        "helper's status": 7,
    }


def test_another_process_reaps_none_of_its_helpers() -> None:
    """Children that run, or that are known, are not waited for."""
    with subprocess.Popen(["sleep", "60"]) as runs, subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not {runs.pid, ended.pid} & set(reap(lambda: {ended.pid}))
        assert ended.wait() == 0
        runs.kill()
