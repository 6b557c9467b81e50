"""Cost of a probe, side by side in one run: a cold start, and reading 16 HCAs warm. Prints medians.

    python -m benchmarks.probe

Where valgrind is installed, it also counts the instructions of a cold probe of an 8-rail machine,
in Pythons: multiples of those of an empty Python. They are the same on a busy machine.

node_exporter's infiniband collector reads the same tree where Debian's prometheus-node-exporter is
installed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from agent.host import Host
from agent.sources.observe import Memories
from agent.sysfs.reader import LiveRoot
from benchmarks.rack import ENVIRONMENT
from tests.support.sources import memories_of, read_rdma

DEVICES = 16
ROUNDS = 31
SCRAPES = 300
RAILS = Path(__file__).parents[1] / "sysfs_fixtures/dgx-h100"

DEVICE = {
    "node_type": "1: CA",
    "node_guid": "a088:c203:00ab:{0:04x}",
    "sys_image_guid": "a088:c203:00ab:{0:04x}",
    "hca_type": "MT4129",
    "board_id": "MT_0000000838",
    "fw_ver": "28.39.2048",
    "ports/1/link_layer": "InfiniBand",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/rate": "400 Gb/sec (4X NDR)",
    "ports/1/has_smi": "1",
    "ports/1/gids/0": "fe80:0000:0000:0000:a088:c203:00ab:{0:04x}",
    "ports/1/counters/link_downed": "0",
}
FUNCTION = {
    "class": "0x020700",
    "numa_node": "0",
    "vpd": "\x82\x05\0CX-7 \x78",
    "net/ib{0}/dev_port": "0",
}


def machine(top: Path) -> Path:
    """Write a snapshot of a node with 16 InfiniBand HCAs, laid out as the kernel does."""
    (top / "proc/net").mkdir(parents=True)
    (top / "proc/net/route").write_text("Iface\tDestination\tGateway\n")
    classes = top / "sys/class/infiniband"
    classes.mkdir(parents=True)
    for number in range(DEVICES):
        function = top / f"sys/devices/pci0000:00/0000:{number:02x}:00.0"
        device = function / f"infiniband/mlx5_{number}"
        for folder, files in ((function, FUNCTION), (device, DEVICE)):
            for name, text in files.items():
                path = folder / name.format(number)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.format(number) + "\n")
        (device / "device").symlink_to(f"../../../0000:{number:02x}:00.0")
        (function / "driver").symlink_to("../../../bus/pci/drivers/mlx5_core")
        (classes / device.name).symlink_to(
            f"../../devices/pci0000:00/0000:{number:02x}:00.0/infiniband/{device.name}"
        )
    return top


def medians(runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of each in milliseconds; the runs take turns under the same load."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            taken[name].append(run())
    return {name: statistics.median(times) * 1000 for name, times in taken.items()}


def wall(*command: str) -> Callable[[], float]:
    """Return the seconds that a program takes."""

    def run() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        return time.perf_counter() - start

    return run


def instructions(*command: str) -> int:
    """Return the number of instructions that a program executes in user space."""
    callgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command)
    done = subprocess.run(callgrind, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    match = re.search(r"Collected : (\d+)", done.stderr)
    assert match  # noqa: S101
    return int(match[1])


def reading(host: Host, memories: Memories) -> float:
    """Return the CPU-seconds of all threads for one more read of every device of the RDMA class."""
    memories.readers.refresh()
    start = time.process_time()
    outcome = read_rdma(host, memories)
    spent = time.process_time() - start
    assert len(outcome.outcome.value) == DEVICES  # type: ignore[union-attr]  # noqa: S101
    return spent


def exporter(top: Path) -> float | None:
    """Return node_exporter's CPU milliseconds for one scrape of its infiniband collector, less an
    empty scrape.
    """
    binary = shutil.which("prometheus-node-exporter")
    if not binary:
        return None
    with_it, without = (
        _scrapes(binary, top, flag) for flag in ("--collector.infiniband", "--collector.time")
    )
    return (with_it - without) * 1000


def _scrapes(binary: str, top: Path, collector: str) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [
        f"--path.sysfs={top}/sys",
        "--collector.disable-defaults",
        collector,
        f"--web.listen-address={address}",
    ]
    process = subprocess.Popen([binary, *flags], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if not _answers(address):
                time.sleep(0.05)
        start = _cpu_seconds(process.pid)
        for _ in range(SCRAPES):
            _answers(address)
        return (_cpu_seconds(process.pid) - start) / SCRAPES
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return bool(answer.read())
    except OSError:
        return False


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)


def main() -> None:
    """Measure and print the README's table."""
    python = sys.executable
    program = "import sys; from agent.cli import main; sys.argv[0] = 'bwagent'; main()"
    with tempfile.TemporaryDirectory() as folder:
        top = machine(Path(folder) / "m")
        found = medians(
            {
                "an empty Python": wall(python, "-c", "pass"),
                "Python with click, json, dataclasses": wall(
                    python, "-c", "import click, json, dataclasses"
                ),
                "`bwagent --help`": wall(python, "-c", program, "--help"),
                "`bwagent probe --replay`, 16 HCAs, cold": wall(
                    python, "-c", program, "probe", "--replay", str(top)
                ),
            }
        )
        host = Host(LiveRoot(f"{top}/sys", f"{top}/proc"), time.time)
        memories = memories_of(host)
        reading(host, memories)
        found |= medians({"reading 16 HCAs, warm, CPU": lambda: reading(host, memories)})
        theirs = exporter(top)
        pythons = None
        if shutil.which("valgrind"):
            probe = python, "-c", program, "probe", "--dry-run", "--replay", str(RAILS)
            wall(*probe)()
            pythons = instructions(*probe) / instructions(python, "-c", "pass")
    print("| | ms |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value:.1f} |")
    if pythons is not None:
        print(f"| instructions of a cold probe of {RAILS.name}, in Pythons | {pythons:.1f} |")
    if theirs is not None:
        print(f"| node_exporter's infiniband collector over the same tree, CPU | {theirs:.1f} |")


if __name__ == "__main__":
    main()
