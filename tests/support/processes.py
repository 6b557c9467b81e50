"""Processes that tests start, and others of this host."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from agent.helper.process import close_pipes


class Started(list[subprocess.Popen[bytes]]):
    """Starts processes as `subprocess.Popen` does; those that are left at the end of the block are
    killed and waited for, be the test one that failed.
    """

    def __call__(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        self.append(subprocess.Popen(*arguments, **options))
        return self[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self:
            process.kill()
            close_pipes(process)
            process.wait(60)


def with_environment(entry: str) -> list[psutil.Process]:
    """Return the running processes that have this NAME=VALUE in their environment.

    A process inherits it, whatever its parent and session are by now.
    """
    name, _, value = entry.partition("=")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(name) == value and runs(process.pid):
                found.append(process)
    return found


def runs(pid: int) -> bool:
    """True unless the process has ended; a zombie that init has not reaped yet has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
