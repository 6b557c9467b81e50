"""The processes, privileges and memory of a container as the kernel reports them.

The kubelet gives a container a cgroup of its own below k8s.io (machine.py); cgroup v1 and v2 have
other names for the same numbers (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")


class Memory(NamedTuple):
    """Memory of a container in bytes: the limit and the peak, and how often the limit was hit."""

    limit: int
    peak: int
    refused: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container by its id."""

    name: str

    @property
    def cgroup(self) -> Path:
        first = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
        return first / "k8s.io" / self.name

    def processes(self) -> list[int]:
        return [int(line) for line in (self.cgroup / "cgroup.procs").read_text().split()]

    def first(self) -> int:
        """Return its process 1, by the host's PID."""
        (found,) = (
            pid for pid in self.processes() if status(pid).get("NSpid", "").split()[-1:] == ["1"]
        )
        return found

    def memory(self) -> Memory:
        """Return its memory, page cache and kernel memory included."""
        if (self.cgroup / "memory.failcnt").exists():
            names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt")
            return Memory(*(int((self.cgroup / name).read_text()) for name in names))
        events = dict(
            line.split() for line in (self.cgroup / "memory.events").read_text().splitlines()
        )
        limit, peak = (
            int((self.cgroup / name).read_text()) for name in ("memory.max", "memory.peak")
        )
        return Memory(limit, peak, int(events["max"]))


def status(pid: int) -> dict[str, str]:
    """Return /proc/PID/status; empty if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def root_is_read_only(pid: int) -> bool:
    """True if a process's root is mounted read-only (proc(5), mountinfo)."""
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    (options,) = (mount[5] for mount in mounts if mount[4] == "/")
    return "ro" in options.split(",")
