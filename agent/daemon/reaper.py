"""Reaping of orphans by an agent that is PID 1 of a container.

What a helper or a credential plugin leaves behind becomes a child of PID 1 when its parent ends
(kernel/exit.c, find_new_reaper), and stays a zombie until PID 1 waits for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container


def is_init() -> bool:
    """Return True if this process is PID 1 of its PID namespace."""
    return os.getpid() == 1


def reap(helpers: Callable[[], Container[int]]) -> list[int]:
    """Wait for the terminated orphans of this process and return their PIDs; never blocks.

    `helpers` returns the PIDs of the children whose exit status somebody else waits for; they are
    left alone. Call it when SIGCHLD was received.
    """
    children = _children()
    known = helpers()  # afterwards: a child that is started in between is not among the children
    return [pid for pid in children if pid not in known and _is_reaped(pid)]


def _children() -> list[int]:
    """Return the PIDs of the main thread's children, which orphans become (man 5 proc_pid_task).

    Empty where the kernel has no CONFIG_PROC_CHILDREN.
    """
    main_thread = os.getpid()
    with suppress(OSError):
        text = Path(f"/proc/self/task/{main_thread}/children").read_text(encoding="ascii")
        return [int(pid) for pid in text.split()]
    return []


def _is_reaped(pid: int) -> bool:
    """Wait for a child if it has terminated, and return whether it had."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    return False
