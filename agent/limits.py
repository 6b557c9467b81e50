"""Limits of processes, threads and their memory, and the collector of reference cycles.

clone(2) fails with EAGAIN at pids.max of the cgroup, at RLIMIT_NPROC and at kernel.threads-max.
Python raises BlockingIOError for a process and RuntimeError for a thread.
"""

from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PROCESS_LIMIT = "the limit of processes is reached (pids.max of the cgroup, or ulimit -u)"

M_ARENA_MAX = -8  # malloc.h


def use_one_arena() -> None:
    """Let all threads allocate from one arena of glibc's malloc; call it before the first thread.

    glibc gives threads arenas of their own so that they do not wait for each other. They wait for
    the GIL anyway, and each arena is 20 to 300 kB: 0.5 MB of an idle agent.
    """
    import ctypes

    with suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; raises RuntimeError that names the limit."""
    try:
        thread.start()
    except RuntimeError as error:
        raise RuntimeError(thread_fault(error)) from error


def thread_fault(error: RuntimeError) -> str:
    """Return the reason why Python could not start a thread."""
    return f"{error}: {PROCESS_LIMIT}"


def process_fault(error: OSError) -> str:
    """Return the reason why a process could not be started."""
    return PROCESS_LIMIT if error.errno == errno.EAGAIN else str(error)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector from all that is made, which stays: it would find no cycle there."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()
