"""CPU time and memory of one query of the GPUs: `python -m benchmarks.nvml_poll [ROUNDS [POLLS]]`,
from the repository.

Over a stand-in libnvidia-ml with eight GPUs that answers at once, so that only the agent's share is
measured; nvmlInit of a real driver adds the same to every row. The ways take turns in one run. CPU
is that of the child and of starting it, from getrusage(), and for the fork server the mean, since
the kernel counts its forks in hundredths of a second; an hour has 60 queries, and the whole agent
may take 1.5 CPU-seconds of it.

Then POLLS queries are made in both ways of the agent, and its memory must not have grown.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import agent
from agent.helper.process import ForkServer, HelperProcesses
from benchmarks import cost
from tests.support import stand_in_nvml

GPUS = 8
BUDGET_MS = 1500 / 60  # CPU a look, were it the agent's only work
LEAK_KB = 256  # noise of the allocator over a thousand queries
FORK, CHILD, LATE = "run: a fork of the server", "probe: a helper process", "a fork that imports it"

ROOT = str(Path(agent.__file__).parents[1])
# The fork server as it is, but nvidia-ml-py is imported by each fork.
LATE_IMPORT = """\
import ctypes.util, os, sys
sys.path += {path!r}
from agent.helper import main
main.PRELOADED["nvml"] = ()
os._exit(main.serve_forks(["nvml", "10"]))
"""


def by_fork(*code: str) -> ForkServer:
    """Query as `run` does: by a fork server, with other code if some is given."""
    if not code:
        return ForkServer("nvml", 10)
    return ForkServer("nvml", 10, lambda *_: [sys.executable, "-I", "-S", "-c", *code])


def by_child() -> Callable[[], object]:
    """Query as `probe` does: by a helper process for each query."""
    return partial(HelperProcesses().call, "nvml", {}, 10)


def interpreter(*arguments: str) -> Callable[[], object]:
    """Return the command line of an interpreter with these arguments."""
    return lambda: subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL
    )


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children, to the microsecond."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return median wall and mean CPU milliseconds, by way."""
    wall: dict[str, list[float]] = {name: [] for name in ways}
    used = dict.fromkeys(ways, 0.0)
    for work in ways.values():
        work()  # the fork servers run from now on
    for name, work in ways.items():
        before = cpu_seconds() + helpers_seconds()
        for _ in range(rounds):
            start = time.perf_counter()
            work()
            wall[name].append(time.perf_counter() - start)
        used[name] = (cpu_seconds() + helpers_seconds() - before) / rounds
    return {name: (statistics.median(wall[name]) * 1000, used[name] * 1000) for name in ways}


def helpers_seconds() -> float:
    """Return the CPU time of the running children and of their ended ones, to the hundredth."""
    return sum(cost.cpu(pid) for pid in cost.family(os.getpid())[1:])


def resident_kb() -> int:
    """Return the resident memory of this process (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def growth(work: Callable[[], object], polls: int) -> tuple[int, int]:
    """Return resident KB before and after so many queries; the first few may fill caches."""
    for _ in range(10):
        work()
    before = resident_kb()
    for _ in range(polls):
        work()
    return before, resident_kb()


@contextmanager
def stand_in() -> Iterator[str]:
    """Install the stand-in with its plan, found by path and by the dynamic loader of every
    child.
    """
    with tempfile.TemporaryDirectory() as folder:
        library, plan = stand_in_nvml.build(Path(folder)), Path(folder) / "plan"
        plan.write_text(stand_in_nvml.tray(gpus=GPUS))
        os.environ |= {"STAND_IN_NVML": str(plan), "LD_LIBRARY_PATH": folder}
        yield library


def main(rounds: int, polls: int) -> int:
    """Print the table; return 1 if the agent's way exceeds the budget, or either way leaks."""
    with stand_in():
        server, child = by_fork(), by_child()
        grown = {
            name: growth(work, polls)
            for name, work in ((FORK, partial(server.call, {})), (CHILD, child))
        }
        late = by_fork(LATE_IMPORT.format(path=[ROOT, *sys.path]))
        ways: dict[str, Callable[[], object]] = {
            "interpreter, -I -S": interpreter("-I", "-S", "-c", "pass"),
            FORK: partial(server.call, {}),
            LATE: partial(late.call, {}),
            CHILD: child,
        }
        results = measure(ways, rounds)
        servers = cost.family(os.getpid())[1:]
        resident = [cost.rollup(pid).rss for pid in servers]
    print(f"{GPUS} GPUs{'':28}{'wall ms':>9}{'CPU ms':>9}{'CPU-s an hour':>15}")
    for name, (wall, cpu) in results.items():
        print(f"{name:34}{wall:9.1f}{cpu:9.1f}{cpu * 60 / 1000:15.2f}")
    print("resident KB of the fork server, and of the one without nvidia-ml-py:", *resident)
    for name, (before, after) in grown.items():
        print(
            f"memory of the parent before and after {polls} queries by {name}: "
            f"{before} KB, {after} KB"
        )
    leaks = max(after - before for before, after in grown.values())
    return int(results[FORK][1] > BUDGET_MS or leaks > LEAK_KB)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(numbers + [40, 200][len(numbers) :])))
