"""Threads share one arena of malloc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

THREADS = """
import ctypes, threading
from agent import limits
{}
barrier = threading.Barrier(3)
def work():
    kept = bytearray(2000)  # larger than what Python's own allocator takes
    barrier.wait(60)
    del kept
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads: one.start()
for one in threads: one.join()
ctypes.CDLL(None).malloc_stats()
"""


def arenas(repository: Path, first: str) -> int:
    """Return the number of arenas that malloc_stats(3) lists after threads have allocated."""
    command = [sys.executable, "-c", THREADS.format(first)]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return done.stderr.count("Arena ")


def test_threads_share_one_arena(repository: Path) -> None:
    """Without the call there is one for each thread at least."""
    assert arenas(repository, "") > 1
    assert arenas(repository, "limits.use_one_arena()") == 1
