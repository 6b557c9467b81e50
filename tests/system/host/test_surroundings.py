"""Commands in the surroundings of a container: as process 1, with closed descriptors, and under a
limit of processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import few_processes, stand_in_nvml
from tests.support.kernel_tree import BUS, HOME, NET, Entries, hca
from tests.support.processes import runs
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import lay

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[3]
BWAGENT = [sys.executable, "-m", "agent.cli"]
PORT, GPU = "0000:18:00.0", "0000:41:00.0"
TREE: Entries = {
    **hca("mlx5_0", PORT, "Ethernet"),
    f"{HOME}/{PORT}/net/eth9": None,
    f"{NET}/lo": None,
    f"{BUS}/{GPU}": f"../../../devices/pci0000:00/{GPU}",
    f"{HOME}/{GPU}/class": b"0x030200\n",
    f"{HOME}/{GPU}/vendor": b"0x10de\n",
}
PATIENCE = 120.0  # seconds until something that should have happened has not
AT_ONCE = 20.0  # seconds; a wait of the command would take three times that
LIMIT = "the limit of processes is reached (pids.max of the cgroup, or ulimit -u)"


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Lay out a node with a RoCE port and a GPU."""
    return lay(TREE, tmp_path / "node")


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    """Start a command in the repository, with pipes."""
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def sleeps(pid: int) -> bool:
    """Return True for a process that handles SIGTERM and waits."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    handles = int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1
    return bool(handles) and fields["State"].startswith("S")


def settled(pid: int) -> bool:
    """Return True for a process that waits for half a second."""
    for _ in range(5):
        if not sleeps(pid):
            return False
        time.sleep(0.1)
    return True


WAITING = {
    "probe": ("probe", "--dry-run", "--source", "lldp", "--wait", "60"),
    "capture": ("capture", "snapshot", "--source", "lldp", "--wait", "60"),
}


@pytest.mark.parametrize("command", WAITING)
def test_process_1_ends_on_sigterm_at_once(command: str, sys_root: Path) -> None:
    """The kernel has no default action for it."""
    require(None if os.geteuid() == 0 else "a PID namespace needs root")
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    with start([*unshare, *BWAGENT, *WAITING[command], "--sysfs-root", str(sys_root)]) as process:
        until(lambda: bool(children(process.pid)))
        [first] = children(process.pid)
        until(lambda: settled(first))
        began = time.monotonic()
        os.kill(first, signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < AT_ONCE
    assert (process.returncode, said) == (143, "bwagent: terminated\n")


@pytest.mark.parametrize("command", ["probe", "capture"])
def test_a_helper_ends_with_the_command(command: str, sys_root: Path, tmp_path: Path) -> None:
    """It hangs in a library, and nothing of it is left."""
    require(stand_in_nvml.missing())
    (tmp_path / "plan").write_text("hang init -1\n")
    library = ("--nvml-library", stand_in_nvml.build(tmp_path / "library"))
    to = ("--dry-run",) if command == "probe" else (str(tmp_path / "snapshot"),)
    arguments = [command, *to, "--source", "nvml", "--sysfs-root", str(sys_root), *library]
    with start([*BWAGENT, *arguments], STAND_IN_NVML=str(tmp_path / "plan")) as process:
        until(lambda: bool(children(process.pid)))
        helpers = children(process.pid)
        began = time.monotonic()
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < AT_ONCE
    assert (process.returncode, said) == (143, "bwagent: terminated\n")
    until(lambda: not any(map(runs, helpers)))


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_the_daemon_runs_with_closed_descriptors(
    closed: tuple[int, ...], sys_root: Path, tmp_path: Path
) -> None:
    """They are /dev/null, and nothing else becomes descriptor 0, 1 or 2."""
    flags = ["--metrics-address", "127.0.0.1:0", "--sysfs-root", str(sys_root), "--node-name", "n1"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(UNREACHABLE)
    line = [*BWAGENT, "run", *flags, "--kubeconfig", str(kubeconfig)]
    closing = " ".join(f"{number}>&-" for number in closed)
    with start(["sh", "-c", f'exec "$@" {closing}', "sh", *line]) as process:
        until(lambda: any("socket" in name for name in descriptors(process.pid)))
        opened = descriptors(process.pid)[:3]
        assert {opened[number] for number in closed} == {"/dev/null"}
        assert not [name for name in opened if "socket" in name]
        until(lambda: settled(process.pid))
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in said


UNREACHABLE = """{"current-context": "c", "users": [{"name": "c", "user": {"token": "t"}}],
"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}"""


def descriptors(pid: int) -> list[str]:
    """Return what the descriptors of a process are open on, by number."""
    found = []
    for path in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name)):
        with suppress(OSError):
            found.append(str(path.readlink()))
    return found


def limited(count: int, *arguments: str) -> tuple[int, str]:
    """Run bwagent with few processes; return exit code and output."""
    require(few_processes.missing())
    with few_processes.limited(count) as under, start([*under, *BWAGENT, *arguments]) as process:
        said, complained = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in said + complained
    return process.returncode, said + complained


def test_a_limit_of_processes_is_a_sentence(sys_root: Path) -> None:
    """For the thread of a device and for a helper; what needs neither is observed."""
    arguments = ("probe", "--dry-run", "--no-wait", "--sysfs-root", str(sys_root))
    code, said = limited(1, *arguments)
    words = " ".join(said.split())
    assert code == 0
    assert f"mlx5_0: not read: can't start new thread: {LIMIT} (EAGAIN)" in words
    assert f"nvml: helper nvml: cannot be started: {LIMIT}" in words


def test_a_limit_of_processes_ends_the_daemon_in_one_line(sys_root: Path) -> None:
    """Where it cannot have its metrics server."""
    config = sys_root / "kubeconfig"
    config.write_text(UNREACHABLE)
    flags = ("--sysfs-root", str(sys_root), "--node-name", "n1", "--kubeconfig", str(config))
    code, said = limited(1, "run", "--metrics-address", "127.0.0.1:0", *flags)
    assert code == 1
    assert said.splitlines()[-1] == (f"bwagent: metrics server: can't start new thread: {LIMIT}")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_daemon_of_few_processes_runs_on(sys_root: Path, count: int) -> None:
    """What it cannot start is a line of its log."""
    require(few_processes.missing())
    config = sys_root / "kubeconfig"
    config.write_text(UNREACHABLE)
    flags = ("--sysfs-root", str(sys_root), "--node-name", "n1", "--kubeconfig", str(config))
    line = [*BWAGENT, "run", "--metrics-address", "", *flags]
    with few_processes.limited(count) as under, start([*under, *line]) as process:
        assert process.stderr
        assert any(LIMIT in line for line in process.stderr)
        until(lambda: settled(process.pid))
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in said


FORK = """
from agent.errors import Unavailable
from agent.helper.process import ForkServer
server = ForkServer("nvml", 5)
for _ in range(2):
    try:
        server.call({"library": "/nowhere"})
    except Unavailable as error:
        print(error)
server.stop()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_limit_that_a_fork_meets_is_the_same_sentence(count: int) -> None:
    """The fork server itself, or its fork, cannot be started; it stays usable."""
    require(few_processes.missing())
    with (
        few_processes.limited(count) as under,
        start([*under, sys.executable, "-c", FORK]) as process,
    ):
        said, complained = process.communicate(timeout=PATIENCE)
    assert (said, complained) == (f"helper nvml: cannot be started: {LIMIT}\n" * 2, "")
