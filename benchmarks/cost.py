"""What a process has cost so far: CPU seconds and resident memory, its children and their children
included.

CPU is the kernel's own count. A process has a clock that counts its threads to the nanosecond,
those that have ended included (clock_getcpuclockid(3)); children that were waited for stand in
`stat` in ticks; those alive are asked themselves. So a helper that lived 20 ms is counted, and what
is read is never what some sampling caught.

Memory is `smaps_rollup`: Rss is what `ps` says, Pss shares pages among those that have them mapped.
Pss depends on what else runs; `distinct` does not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h: a process's clock is ~pid << 3 | this


class Memory(NamedTuple):
    """KiB."""

    rss: int
    pss: int


def family(pid: int) -> list[int]:
    """The process and all that live below it."""
    found = [pid]
    for parent in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
    return found


def cpu(pid: int) -> float:
    """CPU seconds of the process and of all below it, living or dead."""
    spent = 0.0
    for one in reversed(
        family(pid)
    ):  # whoever has ended meanwhile stands in the account of its parent
        try:
            spent += own(one) + waited_for(one)
        except OSError:
            if one == pid:
                raise
    return spent


def own(pid: int) -> float:
    """CPU seconds of all threads that the process has or had."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def waited_for(pid: int) -> float:
    """CPU seconds of the children that the process has waited for (proc(5): stat, cutime and
    cstime).
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / TICKS


def memory(pid: int) -> Memory:
    """Resident memory of the process and of all below it."""
    sizes = [rollup(pid)]
    for one in family(pid)[1:]:
        with suppress(OSError):
            sizes.append(rollup(one))
    return Memory(*(sum(column) for column in zip(*sizes, strict=True)))


def distinct(pid: int) -> int:
    """Resident KiB of the process and of all below it, where a page of a file that several of them
    map counts once (proc(5): smaps).
    """
    anonymous, files = 0, {}
    for one in family(pid):
        with suppress(OSError):
            for mapping, size in mappings(one):
                anonymous += size["Anonymous:"]
                cached = size["Rss:"] - size["Anonymous:"]
                files[mapping] = max(files.get(mapping, 0), cached)
    return anonymous + sum(files.values())


def mappings(pid: int) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
    """Offset, device and inode of each mapping, and its sizes in KiB."""
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
    """Open files."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Threads alive."""
    return len(os.listdir(f"/proc/{pid}/task"))


def load() -> str:
    """How busy the machine is, for people: the load average of the last minute and the last
    five.
    """
    return "load average {:.2f} {:.2f}".format(*os.getloadavg()[:2])


def rollup(pid: int) -> Memory:
    """Resident memory of one process."""
    lines = (
        line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    sizes = {line[0]: int(line[1]) for line in lines}
    return Memory(sizes["Rss:"], sizes["Pss:"])
