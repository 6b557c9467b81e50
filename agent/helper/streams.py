"""The pipes and files between a helper and its parent: stdin, stdout, stderr, temporary files.

Invariants:
- Nothing here blocks for longer than the caller's deadline: a payload is a file in memory, and the
  pipes are polled.
- The size of what is read is limited, and of stderr only the end is kept.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator

    Process = subprocess.Popen[bytes]

MAX_ANSWER = 1 << 20  # bytes on stdout
MAX_STDERR = 4096  # bytes of stderr that are kept
_CHUNK = 1 << 16  # bytes, the capacity of a pipe


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """Yield the descriptor of a file with this content.

    As stdin it is better than a pipe: writing it cannot block.
    """
    fd = os.memfd_create("payload")
    try:
        _fill(fd, content)
        yield fd
    finally:
        os.close(fd)


def _fill(fd: int, content: bytes) -> None:
    """Write a file and go back to its start."""
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)


@contextmanager
def temporary_folder() -> Iterator[str | None]:
    """Make a folder (0700) for a helper's temporary files and remove it afterwards.

    None if no folder is writable, as on a read-only root file system; the helper has none either.
    """
    try:
        folder = tempfile.mkdtemp(prefix="bwagent-")
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_output(process: Process, deadline: float, lines: float = math.inf) -> tuple[bytes, bytes]:
    """Read stdout and the end of stderr until both are closed or stdout has so many `lines`.

    Raises TimeoutError at the deadline (of the monotonic clock), and Unavailable if stdout exceeds
    MAX_ANSWER.
    """
    output = _Output(process)
    while output.is_open() and output.stdout.count(b"\n") < lines:
        output.read(deadline)
    output.read_rest_of_stderr()
    return output.stdout, output.stderr


class _Output:
    """The pipes of a helper, and what has been read from them."""

    def __init__(self, process: Process) -> None:
        self._out, self._err = fileno(process.stdout), fileno(process.stderr)
        self._read = {self._out: b"", self._err: b""}
        self._open, self._poll = set(self._read), _poll_for(self._read)

    @property
    def stdout(self) -> bytes:
        return self._read[self._out]

    @property
    def stderr(self) -> bytes:
        return self._read[self._err][-MAX_STDERR:]

    def is_open(self) -> bool:
        return bool(self._open)

    def read(self, deadline: float) -> None:
        """Wait for output until the deadline and read what is there."""
        for fd in _readable(self._poll, deadline):
            self._read_chunk(fd)
        self._read[self._err] = self.stderr
        self._require_small_answer()

    def _require_small_answer(self) -> None:
        if len(self.stdout) > MAX_ANSWER:
            raise Unavailable(f"its answer is longer than {MAX_ANSWER} bytes")

    def _read_chunk(self, fd: int) -> None:
        chunk = os.read(fd, _CHUNK)
        self._read[fd] += chunk
        if not chunk:
            self._poll.unregister(fd)
            self._open.discard(fd)

    def read_rest_of_stderr(self) -> None:
        """Read what was written there before the last line of stdout."""
        if any(fd == self._err for fd, _ in self._poll.poll(0)):
            self._read_chunk(self._err)


def _poll_for(fds: Iterable[int]) -> select.poll:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll


def _readable(poll: select.poll, deadline: float) -> list[int]:
    left = deadline - time.monotonic()
    ready = poll.poll(left * 1000) if left > 0 else []
    if not ready:
        raise TimeoutError
    return [fd for fd, _ in ready]


def fileno(pipe: Any) -> int:
    """Return the descriptor of a pipe that Popen has opened."""
    return int(pipe.fileno())


def close_pipes(process: Process) -> None:
    """Close the parent's ends of the pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
