"""PID 1 of a new PID namespace, with an orphan: `unshare ... python -m tests.support.init_process`.

It starts a helper, whose exit status it waits for itself, and a shell that leaves a process behind.
It prints, as JSON, what was reaped and the status of the helper.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from agent.events.event import Event
from agent.events.monitor import Monitors
from agent.helper.process import reap

TIMEOUT = 60.0  # seconds


def zombies() -> set[int]:
    """Return the PIDs of the zombies of this namespace."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        pid, _, rest = path.read_text().partition(" ")
        if rest.rpartition(")")[2].split()[0] == "Z":
            found.add(int(pid))
    return found


def main() -> None:
    """Reap orphans until one was, then wait for the helper."""
    assert os.getpid() == 1
    monitors = Monitors(signals=(signal.SIGCHLD,), monitors={})
    helper = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)  # it has ended; its status stays
    script = "sleep 0.2 & echo $!"
    left_behind = int(subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout)
    reaped: list[int] = []
    end = time.monotonic() + TIMEOUT
    while left_behind not in reaped and time.monotonic() < end:
        if Event("signal", "SIGCHLD") in monitors.wait(1):
            reaped += reap(lambda: {helper.pid})
    left = zombies()
    result = {
        "orphan reaped": left_behind in reaped,
        "others reaped": len(reaped) - 1,
        "helper's zombie left": left == {helper.pid},
        "helper's status": helper.wait(),
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
