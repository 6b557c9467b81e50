"""CPU seconds and resident memory of a process, its descendants included.

CPU is the kernel's own count. A process has a clock that counts its threads to the nanosecond,
those that have ended included (clock_getcpuclockid(3)); children that were waited for are in `stat`
in ticks; running ones are read themselves. So a helper that ran for 20 ms is counted, and nothing
is sampled.

Memory is `smaps_rollup`: Rss is that of `ps`, Pss shares pages among the processes that have them
mapped. Pss depends on other processes; `distinct` does not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h: a process's clock is ~pid << 3 | this


class Memory(NamedTuple):
    """Resident memory in KiB."""

    rss: int
    pss: int


def family(pid: int) -> list[int]:
    """Return the PIDs of the process and of its running descendants."""
    found = [pid]
    for parent in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
    return found


def cpu(pid: int) -> float:
    """Return the CPU seconds of the process and of its descendants, running or ended."""
    spent = 0.0
    for one in reversed(family(pid)):  # a process that has ended meanwhile is counted by its parent
        try:
            spent += own(one) + waited_for(one)
        except OSError:
            if one == pid:
                raise
    return spent


def own(pid: int) -> float:
    """Return the CPU seconds of all threads that the process has or had."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def waited_for(pid: int) -> float:
    """Return the CPU seconds of the children that the process has waited for (proc(5): stat, cutime
    and cstime).
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / TICKS


def memory(pid: int) -> Memory:
    """Return the resident memory of the process and of its descendants."""
    sizes = [rollup(pid)]
    for one in family(pid)[1:]:
        with suppress(OSError):
            sizes.append(rollup(one))
    return Memory(*(sum(column) for column in zip(*sizes, strict=True)))


def above(pid: int) -> int:
    """Return by how many KiB the process alone was larger once than now (proc(5): VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return int(sizes["VmHWM"].split()[0]) - int(sizes["VmRSS"].split()[0])


def distinct(pid: int) -> int:
    """Return the resident KiB of the process and of its descendants; a page of a file that several
    of them map counts once (proc(5): smaps).
    """
    anonymous, files = 0, dict[tuple[str, ...], int]()
    for one in family(pid):
        with suppress(OSError):
            for mapping, size in mappings(one):
                anonymous += size["Anonymous:"]
                cached = size["Rss:"] - size["Anonymous:"]
                files[mapping] = max(files.get(mapping, 0), cached)
    return anonymous + sum(files.values())


def mappings(pid: int) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
    """Yield offset, device and inode of each mapping, and its sizes in KiB."""
    mapping: tuple[str, ...] = ()
    size: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            mapping, size = tuple(words[2:5]), {}
        elif words[0] == "VmFlags:":
            yield mapping, size
        else:
            size[words[0]] = int(words[1])


def descriptors(pid: int) -> int:
    """Return the number of open files."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Return the number of running threads."""
    return len(os.listdir(f"/proc/{pid}/task"))


def load() -> str:
    """Return the load average of the last minute and the last five as text."""
    return "load average {:.2f} {:.2f}".format(*os.getloadavg()[:2])


def rollup(pid: int) -> Memory:
    """Return the resident memory of one process."""
    lines = (
        line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    sizes = {line[0]: int(line[1]) for line in lines}
    return Memory(sizes["Rss:"], sizes["Pss:"])
