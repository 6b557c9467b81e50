"""What a look at the GPUs costs: `python -m benchmarks.nvml_poll [ROUNDS [POLLS]]`, from the
repository.

Over a stand-in libnvidia-ml with eight GPUs that answers at once, so that what is measured is ours;
what nvmlInit does in a real driver comes on top of every row alike. The ways take turns in one run.
CPU is that of the child and of starting it, from getrusage(), and of the helper that stands by the
mean, since the kernel tells what its forks took in hundredths of a second only; an hour has 60
looks, and the whole agent may take 1.5 CPU-seconds of it.

Then POLLS looks are taken through either way of the agent's own, and its memory must be what it was
before.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import agent
from agent.helper.forkserver import ForkServer
from agent.helper.process import HelperProcesses
from benchmarks import cost
from tests.support import nvml_by_binding, stand_in_nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPUS = 8
BUDGET_MS = 1500 / 60  # CPU a look, were it the agent's only work
LEAK_KB = 256  # an allocator's noise over a thousand looks
STANDBY, CHILD = "run: a fork of a bare process", "probe: -I -S, ctypes"

ROOT = str(Path(agent.__file__).parents[1])
BARE = (
    f"import sys; sys.path.append({ROOT!r}); "
    "from agent.nvml.library import query; print(query(sys.argv[1]))"
)


def by_standby() -> Callable[[], object]:
    """The way of `run`: a fork of a helper that stands by."""
    return partial(ForkServer("nvml", 10).call, {})


def by_child() -> Callable[[], object]:
    """The way of `probe`: an isolated interpreter that loads neither json nor signal, NVML by
    ctypes.
    """
    return partial(HelperProcesses().call, "nvml", {}, 10)


def by_binding(*flags: str) -> Callable[[], object]:
    """A child of the same kind that imports nvidia-ml-py instead."""
    packages = sysconfig.get_paths()["purelib"]
    command = [sys.executable, *flags, nvml_by_binding.__file__, packages]
    return partial(HelperProcesses(lambda _verb, _seconds: command).call, "nvml", {}, 10)


def by_fork(library: str) -> None:
    """A fork of this process, with nvidia-ml-py imported but no library loaded."""
    import_module("pynvml")  # so that the child need not
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        ctypes.CDLL(library)  # the binding's own dlopen finds it by its soname
        os.write(writing, repr(nvml_by_binding.look()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        if b"GPU-" not in answer.read():
            raise SystemExit("the forked child found no GPU")
    os.waitpid(child, 0)


def interpreter(*arguments: str) -> Callable[[], object]:
    """An interpreter with that command line."""
    return lambda: subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL
    )


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended, to the microsecond."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU milliseconds, by way."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    ways[STANDBY]()  # it is there from now on
    before = helpers_seconds()
    for _ in range(rounds):
        for name, work in ways.items():
            start, used = time.perf_counter(), cpu_seconds()
            work()
            taken[name].append((time.perf_counter() - start, cpu_seconds() - used))
    forks = (helpers_seconds() - before) / rounds
    return {
        name: (
            statistics.median(wall for wall, _ in times) * 1000,
            (statistics.median(cpu for _, cpu in times) + forks * (name == STANDBY)) * 1000,
        )
        for name, times in taken.items()
    }


def helpers_seconds() -> float:
    """CPU time of the children that live, and of what they have waited for, to the hundredth."""
    return sum(cost.cpu(pid) for pid in cost.family(os.getpid())[1:])


def resident_kb() -> int:
    """Resident memory of this process (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def growth(work: Callable[[], object], polls: int) -> tuple[int, int]:
    """Resident KB before and after so many looks; the first few may warm up what stays."""
    for _ in range(10):
        work()
    before = resident_kb()
    for _ in range(polls):
        work()
    return before, resident_kb()


@contextmanager
def stand_in() -> Iterator[str]:
    """The stand-in with its plan, found by path and by the dynamic loader of every child."""
    with tempfile.TemporaryDirectory() as folder:
        library, plan = stand_in_nvml.build(Path(folder)), Path(folder) / "plan"
        plan.write_text(stand_in_nvml.tray(gpus=GPUS))
        os.environ |= {"STAND_IN_NVML": str(plan), "LD_LIBRARY_PATH": folder}
        yield library


def main(rounds: int, polls: int) -> int:
    """Print the table; 1 when the agent's way is over the budget, or either leaks."""
    with stand_in() as library:
        grown = {
            name: growth(work, polls)
            for name, work in ((STANDBY, by_standby()), (CHILD, by_child()))
        }
        ways: dict[str, Callable[[], object]] = {
            "interpreter, -I -S": interpreter("-I", "-S", "-c", "pass"),
            STANDBY: by_standby(),
            CHILD: by_child(),
            "the same with json and signal": interpreter(
                "-I", "-S", "-c", f"import json, signal; {BARE}", library
            ),
            "-I -S, ctypes, nothing else": interpreter("-I", "-S", "-c", BARE, library),
            "-I -S, nvidia-ml-py": by_binding("-I", "-S"),
            "as usual, nvidia-ml-py": by_binding(),
            "fork with nvidia-ml-py loaded": partial(by_fork, library),
        }
        results = measure(ways, rounds)
    print(f"{GPUS} GPUs{'':28}{'wall ms':>9}{'CPU ms':>9}{'CPU-s an hour':>15}")
    for name, (wall, cpu) in results.items():
        print(f"{name:34}{wall:9.1f}{cpu:9.1f}{cpu * 60 / 1000:15.2f}")
    for name, (before, after) in grown.items():
        print(
            f"memory of the parent before and after {polls} looks by {name}: "
            f"{before} KB, {after} KB"
        )
    leaks = max(after - before for before, after in grown.values())
    return int(results[STANDBY][1] > BUDGET_MS or leaks > LEAK_KB)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(numbers + [40, 200][len(numbers) :])))
