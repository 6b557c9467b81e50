"""The agent's start on a CPU that others keep busy, with the CPU request of the manifests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = Path("/sys/fs/cgroup")
ALL = 1024  # shares of one CPU: all of it is requested
LIMIT = 20.0  # seconds; 2.6 were measured at 100m, 53 at 10m
DAEMON_SET = "manifests/base/agent/daemonset.yaml"
SPIN = "while True: pass"


def controller() -> Path | None:
    """Return the folder of the cpu controller's groups; None if there is none to write to."""
    if (CGROUPS / "cpu/cpu.shares").exists() or (CGROUPS / "cpu/tasks").exists():
        return CGROUPS / "cpu"
    enabled = CGROUPS / "cgroup.subtree_control"
    return CGROUPS if enabled.exists() and "cpu" in enabled.read_text().split() else None


@contextmanager
def group(parent: Path, name: str, shares: int) -> Iterator[Path]:
    """Make a group; it is removed when its last process has gone."""
    folder = parent / name
    folder.mkdir()
    try:
        if (folder / "cpu.shares").exists():
            (folder / "cpu.shares").write_text(str(shares))
        else:  # as container runtimes convert it
            (folder / "cpu.weight").write_text(str(1 + (shares - 2) * 9999 // 262142))
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(50):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


@contextmanager
def running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python in a group, on the last CPU, until the end of the block."""
    cpu = max(os.sched_getaffinity(0))
    script = f'echo $$ > {folder}/cgroup.procs && exec taskset -c {cpu} "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def requested(repository: Path) -> int:
    """Return the shares that the DaemonSet requests."""
    documents = yaml.safe_load_all((repository / DAEMON_SET).read_text())
    (daemon_set,) = (one for one in documents if one["kind"] == "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["requests"]["cpu"].removesuffix("m")) * ALL // 1000


@pytest.mark.slow
def test_a_start_on_a_busy_cpu(repository: Path) -> None:
    """The first log line does not wait for a minute."""
    parent = controller() if os.geteuid() == 0 else None
    require(None if parent else "the cpu controller of cgroups needs root")
    assert parent
    shares = requested(repository)
    machine = f"{repository}/sysfs_fixtures/dgx-h100/sys"
    flags = ["--dry-run", "--node-name=n", "--source=rdma", "--metrics-address=127.0.0.1:0"]
    with ExitStack() as stack:
        node = stack.enter_context(group(parent, f"bwagent{os.getpid()}", 2 * ALL))
        if (node / "cgroup.subtree_control").exists():
            (node / "cgroup.subtree_control").write_text("+cpu")
        busy = stack.enter_context(group(node, "busy", ALL - shares))
        agents = stack.enter_context(group(node, "agent", shares))
        stack.enter_context(running(busy, "-c", SPIN))
        start = time.monotonic()
        words = ["-m", "agent.cli", "run", *flags, f"--sysfs-root={machine}"]
        agent = stack.enter_context(running(agents, *words))
        assert agent.stderr
        assert "agent started" in agent.stderr.readline()
        assert time.monotonic() - start < LIMIT
