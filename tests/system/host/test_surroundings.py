"""Commands in the surroundings of a container: as process 1, with closed descriptors, without
privileges, under a limit of processes, on a busy CPU, and beside a filesystem that has died.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from agent.errors import Malformed
from agent.helper.process import reap
from agent.host import Host
from agent.model import Seen
from agent.snapshot.replay import replay
from agent.sources.observe import Memories
from agent.sysfs.reader import LiveRoot
from tests.support import dead_filesystem, few_processes, stand_in_nvml
from tests.support.kernel_tree import HOME, NET, Entries, gpu, hca
from tests.support.kubeconfigs import kubeconfig
from tests.support.processes import runs
from tests.support.real_parts import lacks, require
from tests.support.snapshots import REPOSITORY
from tests.support.sources import memories_of, read_rdma
from tests.support.switch import PATIENCE, wait_for
from tests.support.sysfs_on_disk import lay, rewrite

BWAGENT = [sys.executable, "-m", "agent.cli"]
PORT = "0000:18:00.0"
TREE: Entries = {
    **hca("mlx5_0", PORT, "Ethernet"),
    f"{HOME}/{PORT}/net/eth9": None,
    f"{NET}/lo": None,
    **gpu(),
}
AT_ONCE = 20.0  # seconds; a wait of the command would take three times that
LIMIT = "the limit of processes is reached (pids.max of the cgroup, or ulimit -u)"


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Lay out a node with a RoCE port and a GPU."""
    return lay(TREE, tmp_path / "node")


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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


# Whether this host has a default route, and where, is not of the node.
BACKEND = ("--backend-device", "mlx5_*")
WAITING = {
    "probe": ("probe", "--dry-run", "--source", "lldp", "--wait", "60", *BACKEND),
    "capture": ("capture", "snapshot", "--source", "lldp", "--wait", "60", *BACKEND),
}


@pytest.mark.parametrize("command", WAITING)
def test_process_1_ends_on_sigterm_at_once(command: str, sys_root: Path) -> None:
    """The kernel has no default action for it."""
    require(None if os.geteuid() == 0 else "a PID namespace needs root")
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    with start([*unshare, *BWAGENT, *WAITING[command], "--sysfs-root", str(sys_root)]) as process:
        wait_for(lambda: bool(children(process.pid)))
        [first] = children(process.pid)
        wait_for(lambda: settled(first))
        began = time.monotonic()
        os.kill(first, signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < AT_ONCE
    assert (process.returncode, said) == (143, "bwagent: terminated\n")


@pytest.mark.parametrize("command", ["probe", "capture"])
def test_a_helper_ends_with_the_command(command: str, sys_root: Path, tmp_path: Path) -> None:
    """It hangs in a library, and nothing of it is left."""
    require(lacks("cc"))
    (tmp_path / "plan").write_text("hang init -1\n")
    library = ("--nvml-library", stand_in_nvml.build(tmp_path / "library"))
    to = ("--dry-run",) if command == "probe" else (str(tmp_path / "snapshot"),)
    arguments = [command, *to, "--source", "nvml", "--sysfs-root", str(sys_root), *library]
    with start([*BWAGENT, *arguments], STAND_IN_NVML=str(tmp_path / "plan")) as process:
        wait_for(lambda: bool(children(process.pid)))
        helpers = children(process.pid)
        began = time.monotonic()
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < AT_ONCE
    assert (process.returncode, said) == (143, "bwagent: terminated\n")
    wait_for(lambda: not any(map(runs, helpers)))


def daemon(root: Path, address: str) -> list[str]:
    """Return the words of a daemon without an API server that serves its page at this address."""
    where = ("--sysfs-root", str(root), "--kubeconfig", str(kubeconfig(root / "kubeconfig")))
    return ["run", "--node-name", "n1", "--metrics-address", address, *where]


def runs_until_terminated(process: subprocess.Popen[str]) -> None:
    """Wait until a daemon waits, and end it: it had no fault."""
    wait_for(lambda: process.poll() is not None or settled(process.pid))
    process.terminate()
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in said) == (0, False), said


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_the_daemon_runs_with_closed_descriptors(closed: tuple[int, ...], sys_root: Path) -> None:
    """They are /dev/null, and nothing else becomes descriptor 0, 1 or 2."""
    line = [*BWAGENT, *daemon(sys_root, "127.0.0.1:0")]
    closing = " ".join(f"{number}>&-" for number in closed)
    with start(["sh", "-c", f'exec "$@" {closing}', "sh", *line]) as process:
        wait_for(lambda: any("socket" in name for name in descriptors(process.pid)))
        opened = descriptors(process.pid)[:3]
        assert {opened[number] for number in closed} == {"/dev/null"}
        assert not [name for name in opened if "socket" in name]
        runs_until_terminated(process)


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
    arguments = ("probe", "--dry-run", "--no-wait", "--sysfs-root", str(sys_root), *BACKEND)
    code, said = limited(1, *arguments)
    words = " ".join(said.split())
    assert code == 0
    assert f"mlx5_0: not read: can't start new thread: {LIMIT} (EAGAIN)" in words
    assert f"nvml: helper nvml: cannot be started: {LIMIT}" in words


def test_a_limit_of_processes_ends_the_daemon_in_one_line(sys_root: Path) -> None:
    """Where it cannot have its metrics server."""
    code, said = limited(1, *daemon(sys_root, "127.0.0.1:0"))
    assert code == 1
    assert said.splitlines()[-1] == (f"bwagent: metrics server: can't start new thread: {LIMIT}")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_daemon_of_few_processes_runs_on(sys_root: Path, count: int) -> None:
    """What it cannot start is a line of its log."""
    require(few_processes.missing())
    line = [*BWAGENT, *daemon(sys_root, "")]
    with few_processes.limited(count) as under, start([*under, *line]) as process:
        assert process.stderr
        assert any(LIMIT in line for line in process.stderr)
        runs_until_terminated(process)


EARLY = """
import builtins, os, signal, sys
load = builtins.__import__
def hooked(name, *more, **options):
    if name == "agent.daemon.main":
        os.kill(os.getpid(), signal.SIGHUP)
    return load(name, *more, **options)
builtins.__import__ = hooked
sys.argv[0] = "bwagent"
from agent.cli import main
main()
"""


def test_an_early_sighup_does_not_end_the_agent(sys_root: Path) -> None:
    """Its default action does, and a DaemonSet's Pod with a shared PID namespace is not PID 1."""
    with start([sys.executable, "-c", EARLY, *daemon(sys_root, "")]) as process:
        runs_until_terminated(process)


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


LIVE = """
from agent.live_host import live_host
from agent.shell.doctor import surroundings
host = live_host("/sys", (), (), None, {"nvml_library": None})
print(surroundings(host, None, openvswitch=False).lldp_fault("lo"))
"""


def test_without_privileges_a_socket_is_missing() -> None:
    """The fault of a packet socket without CAP_NET_RAW is EPERM."""
    require(None if os.geteuid() == 0 and shutil.which("setpriv") else "needs root and setpriv")
    command = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", sys.executable, "-c"]
    done = subprocess.run(
        [*command, LIVE], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "EPERM\n"


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


def test_the_root_of_this_machine_is_no_snapshot() -> None:
    """Its sys is live: a replay would read devices without a deadline, one after the other."""
    require(None if Path("/sys").is_mount() else "no sysfs is mounted at /sys")
    with pytest.raises(Malformed, match=r"^/: no snapshot: its sys is a mounted file system"):
        replay("/")


START_LIMIT = 20.0  # seconds; 2.6 were measured at 100m on a busy CPU, 53 at 10m
DAEMON_SET = "manifests/base/agent/daemonset.yaml"


def requested(repository: Path) -> float:
    """Return the CPUs that the DaemonSet requests."""
    documents = yaml.safe_load_all((repository / DAEMON_SET).read_text())
    (daemon_set,) = (one for one in documents if one["kind"] == "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["requests"]["cpu"].removesuffix("m")) / 1000


def test_a_start_on_a_busy_cpu(repository: Path) -> None:
    """The CPU time up to the first log line, spread over the requested share, is no minute."""
    machine = f"{repository}/sysfs_fixtures/dgx-h100/sys"
    flags = ["--dry-run", "--node-name=n", "--source=rdma", "--metrics-address=127.0.0.1:0"]
    words = [sys.executable, "-m", "agent.cli", "run", *flags, f"--sysfs-root={machine}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr
        line = agent.stderr.readline()
        agent.kill()
        _, status, usage = os.wait4(agent.pid, 0)
        agent.returncode = os.waitstatus_to_exitcode(status)
    assert "agent started" in line
    assert (usage.ru_utime + usage.ru_stime) / requested(repository) < START_LIMIT


A, B = "0000:18:00.0", "0000:19:00.0"


def failures(node: Host, memories: Memories) -> dict[str, str | None]:
    outcome = read_rdma(node, memories).outcome
    assert isinstance(outcome, Seen)
    return {device.name: device.failure for device in outcome.value}


@pytest.mark.slow
def test_a_read_that_never_returns_costs_one_thread(tmp_path: Path) -> None:
    """An attribute on a dead filesystem: its device blocks, the other has its facts each cycle."""
    require(dead_filesystem.missing())
    sys = lay(hca("ibp0", A) | hca("ibp1", B), tmp_path / "tree")
    state = tmp_path / "tree" / HOME / B / "infiniband/ibp1/ports/1/state"
    state.unlink()
    root = LiveRoot(str(sys), str(tmp_path / "tree/proc"))
    with dead_filesystem.mounted(tmp_path / "dead") as dead:
        state.symlink_to(dead / "state")
        node = Host(root, clock=time.time, deadline=1.0)
        memories = memories_of(node)
        before = threading.active_count()
        for _ in range(5):
            assert failures(node, memories) == {"ibp0": None, "ibp1": "blocks"}
            assert threading.active_count() <= before + 2
            memories.readers.refresh()
    state.unlink()
    rewrite(state, b"4: ACTIVE\n")

    def is_back() -> bool:
        memories.readers.refresh()
        return failures(node, memories)["ibp1"] is None

    wait_for(is_back)
    wait_for(lambda: threading.active_count() == before + 1)
