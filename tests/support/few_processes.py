"""A cgroup with a limit of processes and threads, in which a command runs (needs root)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.switch import wait_for

# The pids controller of version 1, or the one hierarchy of version 2.
TOPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
JOIN = 'echo $$ >"$0" && exec "$@"'


def _top() -> Path | None:
    """Return the folder in which a cgroup with a pids.max can be made."""
    for top in TOPS:
        control = top / "cgroup.subtree_control"
        if (top / "cgroup.procs").exists() and (
            not control.exists() or "pids" in control.read_text().split()
        ):
            return top
    return None


def missing() -> str | None:
    """Return the reason why no limit can be set here, or None."""
    if os.geteuid() != 0:
        return "a cgroup needs root"
    return None if _top() else "no pids controller below /sys/fs/cgroup"


@contextmanager
def limited(count: int) -> Iterator[list[str]]:
    """Yield what to put before a command that may have `count` threads with all its children."""
    top = _top()
    assert top
    group = top / f"bwagent-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(str(count))
        yield ["sh", "-c", JOIN, str(group / "cgroup.procs")]
    finally:
        remove(group)


def remove(group: Path) -> None:
    """Remove a cgroup; its last process may still be ending."""

    def is_gone() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_for(is_gone)
