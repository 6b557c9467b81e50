"""The benchmarks' account of a process: nothing that it has spent is lost with a helper or a thread
that has ended.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import benchmarks
from benchmarks import cost

SPENT = 0.2  # CPU seconds
SIZE = 40  # MiB
WAIT = "\nimport sys\nprint(flush=True)\nsys.stdin.read()"
BURN = f"import time\nwhile time.process_time() < {SPENT}: pass\n"
LARGE = f"block = b'x' * ({SIZE} << 20)\n"


def ended(work: str) -> str:
    """A helper that does this and is waited for."""
    return f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {work!r}])\n"


def living(work: str) -> str:
    """Start a helper that does this and keeps running."""
    start = f"subprocess.Popen([sys.executable, '-c', {work + WAIT!r}], stdout=subprocess.PIPE)"
    return f"import subprocess, sys\nhelper = {start}\nhelper.stdout.readline()\n"


def threaded(work: str) -> str:
    """A thread that does this and ends."""
    thread = f"threading.Thread(target=exec, args=({work!r}, {{}}))"
    return f"import threading\none = {thread}\none.start()\none.join()\n"


@contextmanager
def having(done: str) -> Iterator[int]:
    """A process that has done this, and does nothing more."""
    command = [sys.executable, "-c", done + WAIT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid


@pytest.mark.slow
def test_every_benchmark_can_be_imported() -> None:
    """The agent's functions that they measure are still there; mypy does not look at them."""
    for path in Path(benchmarks.__file__).parent.glob("[!_]*.py"):
        importlib.import_module(f"benchmarks.{path.stem}")


@pytest.mark.slow
@pytest.mark.parametrize("by", [ended, living, threaded])
def test_what_helpers_and_threads_have_spent_is_counted(by: Callable[[str], str]) -> None:
    """A helper that was waited for, one that is running, and a thread that has ended."""
    with having(by(BURN)) as pid:
        assert cost.cpu(pid) >= SPENT


def test_memory_is_that_of_the_process_and_of_all_below_it() -> None:
    """A block that is written to is resident, in the process or in a helper."""
    with having("") as pid:
        before = cost.memory(pid).rss
    for done in (LARGE, living(LARGE)):
        with having(done) as pid:
            assert (
                cost.memory(pid).rss >= before + SIZE * 1000
            )  # an interpreter is not the same size twice


def test_a_page_of_a_file_counts_once() -> None:
    """The helper's own block counts, the interpreter that both map does not count again."""
    with having("") as pid:
        alone = cost.distinct(pid)
    with having(living("")) as pid:
        assert cost.distinct(pid) < alone * 2 - 1000
        assert cost.distinct(pid) < cost.memory(pid).rss
    with having(living(LARGE)) as pid:
        assert cost.distinct(pid) >= alone + SIZE * 1000
