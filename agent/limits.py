"""The limit of processes and threads, in words.

clone(2) fails with EAGAIN at pids.max of the cgroup, at RLIMIT_NPROC and at kernel.threads-max.
Python raises BlockingIOError for a process and RuntimeError for a thread.
"""

from __future__ import annotations

import errno
import threading

PROCESS_LIMIT = "the limit of processes is reached (pids.max of the cgroup, or ulimit -u)"


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
