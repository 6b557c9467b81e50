"""What `bwagent run` costs while nothing happens: resident memory, and CPU seconds an hour.

    python -m benchmarks.run_idle [SECONDS]

An API server (tests/kube), a /sys of 8 InfiniBand ports as files, all wake-ups and the sweep, metrics served and nobody
asking for them; no GPU, and no umad, so a helper is started now and then to ask again. What is counted begins after
the first request.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kernel_tree import NET, Entries, hca, netdev
from tests.kube.cluster import Cluster
from tests.sysfs_on_disk import lay

TICKS = os.sysconf("SC_CLK_TCK")
SETTLED = 12.0  # seconds


def cpu(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children that it has waited for (proc(5): schedstat, stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    return own / 1e9, sum(map(int, fields[13:15])) / TICKS


def resident(pid: int) -> dict[str, int]:
    """VmRSS and VmHWM in KiB, threads."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) for name in ("VmRSS", "VmHWM", "RssAnon", "Threads")}


def measure(cluster: Cluster, entries: Entries, node: str, seconds: float, *flags: str) -> None:
    """Run an agent, and print what it has cost."""
    cluster.node(node)
    with tempfile.TemporaryDirectory() as folder:
        place = lay(entries, Path(folder))
        arguments = ["-m", "agent.cli", "run", "--node-name", node, "--sysfs-root", str(place), *flags]
        command = [sys.executable, *arguments, "--kubeconfig", str(cluster.kubeconfig())]
        with subprocess.Popen([*command, "--metrics-address", "127.0.0.1:0"]) as agent:
            time.sleep(SETTLED)
            began, before = time.monotonic(), cpu(agent.pid)
            time.sleep(seconds)
            own, children = (after - earlier for after, earlier in zip(cpu(agent.pid), before, strict=True))
            hours = (time.monotonic() - began) / 3600
            print(
                f"{node}: {own / hours:.3f} CPU-s an hour itself, {children:.2f} s of children, {resident(agent.pid)}"
            )
            agent.send_signal(signal.SIGTERM)
            agent.wait()


def main() -> None:
    """Measure the three kinds of node, one after the other."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 60.0
    infiniband: Entries = {f"{NET}/lo": None}
    ethernet: Entries = {f"{NET}/lo": None}
    for number in range(8):
        address = f"0000:{0x10 + number:02x}:00.0"
        infiniband |= hca(f"ibp{number}", address)
        ethernet |= hca(f"mlx5_{number}", address, "Ethernet", {1: f"eth{number}"}) | netdev(f"eth{number}", address)
    with Cluster() as cluster:
        measure(cluster, infiniband, "idle-infiniband", seconds)
        measure(cluster, ethernet, "idle-ethernet", seconds)
        measure(cluster, infiniband, "idle-sysfs-only", seconds, "--source", "rdma")


if __name__ == "__main__":
    main()
