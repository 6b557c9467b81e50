"""Cost of waiting for events on an idle node: `python -m benchmarks.idle_wakeups [SECONDS]`, from
the repository, as root.

Each way to wait runs in a process of its own, all at the same time, over a node without changes;
CPU time is scaled to an hour, memory is the difference to a process that has only imported its
sockets. The sweep reads real sysfs files (of the loopback device, whose driver costs nothing) for 8
ports every 2 s. IPRoute is how pyroute2 would be used; it is left out where it is not installed.
Then, the cost of a thousand link messages and uevents of other netdevs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.events.monitor import Monitor, Monitors
from agent.events.netlink import LinkMonitor, UeventMonitor
from agent.events.port_states import FILES, PortStateSweep

Wait = Callable[[float], object]

SECONDS = 60.0
HOUR = 3600.0
PORTS = [(f"mlx5_{number}", 1) for number in range(8)]
STAND_INS = ("operstate", "mtu")  # of lo, for FILES
STORM = 50  # veth pairs made and deleted


def tree(root: Path) -> str:
    """Make a class of eight devices whose files are links to real sysfs attributes."""
    for device, number in PORTS:
        folder = root / "class/infiniband" / device / "ports" / str(number)
        folder.mkdir(parents=True)
        for name, stand_in in zip(FILES, STAND_INS, strict=True):
            (folder / name).symlink_to(f"/sys/class/net/lo/{stand_in}")
    return str(root)


def idle(**monitors: Callable[[set[str]], Monitor]) -> Wait:
    """Wait with these monitors."""
    return Monitors(["eth0"], monitors=monitors).wait


def sweep() -> Wait:
    """Wait with all monitors and a sweep, whose first turn is over."""
    with tempfile.TemporaryDirectory() as root:
        ports = PortStateSweep(sys=tree(Path(root)))
        ports.watch(PORTS)
        wakeups = Monitors(["eth0"], others=[ports])
        wakeups.wait(1)
    return wakeups.wait  # by the files that stay open


def iproute() -> Wait:
    """Wait with pyroute2."""
    from pyroute2 import IPRoute  # type: ignore[import-untyped]

    messages = IPRoute()
    messages.bind(1)
    poll = select.poll()
    poll.register(messages.fileno(), select.POLLIN)
    return lambda seconds: poll.poll(seconds * 1000)


WAYS: dict[str, Callable[[], Wait]] = {
    "nothing": lambda: time.sleep,
    "signals": idle,
    "links": lambda: idle(links=LinkMonitor),
    "links and uevents (pyudev)": lambda: idle(links=LinkMonitor, uevents=UeventMonitor),
    "all, and a sweep of 8 ports": sweep,
    "IPRoute (pyroute2)": iproute,
}


def memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(way: str, seconds: float) -> None:
    """Wait in one way, and print CPU seconds after the start, and bytes."""
    before = memory()
    wait = WAYS[way]()
    start = time.process_time()
    wait(seconds)
    print(json.dumps([time.process_time() - start, memory() - before]))


def storm(name: str, monitor: LinkMonitor | UeventMonitor) -> None:
    """Print the cost of discarding messages about other netdevs."""
    lines = "link add pod0 type veth peer name pod1\nlink delete pod0\n"
    spent = 0.0
    for _ in range(STORM):
        subprocess.run(["ip", "-batch", "-"], input=lines, check=True, text=True)
        start = time.process_time()
        while select.select([monitor.fileno()], [], [], 0)[0]:
            monitor.read()
        spent += time.process_time() - start
    print(f"{name}: {1e6 * spent / STORM:.0f} us for each pod that comes and goes")
    monitor.close()


def main(seconds: float) -> None:
    """Run all ways side by side."""
    names = [
        name for name in WAYS if importlib.util.find_spec("pyroute2") or "pyroute2" not in name
    ]
    command = ["unshare", "--net", sys.executable, "-m", "benchmarks.idle_wakeups", str(seconds)]
    children = {
        name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True)
        for name in names
    }
    for name, child in children.items():
        cpu, size = json.loads(child.communicate()[0])
        print(f"{name:28} {cpu * HOUR / seconds:6.3f} CPU-s an hour   +{size / 2**20:4.1f} MB")
    storm("links", LinkMonitor({"eth0"}))
    storm("uevents", UeventMonitor({"eth0"}))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(sys.argv[2], float(sys.argv[1]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
