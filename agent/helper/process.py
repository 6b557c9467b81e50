"""Start helper processes, read their answers and end them: the parent's side.

Invariants:
- A helper never blocks the agent: it has a timeout, after which it is killed, and the size of its
  output is limited.
- Nothing of a helper outlives its call. It leads a session of its own, and its process group is
  killed when the call ends, with a credential plugin that it has started. Its temporary files lie
  in a folder that is removed: the Kubernetes client writes inline keys of a kubeconfig to files.
- A helper that cannot be killed, because it is in an uninterruptible sleep in a driver, is
  abandoned. While it lives no second one of its verb and subject starts, and at most MAX_STUCK of a
  verb are abandoned.

A helper is an interpreter started isolated and without `site` (-I -S), which saves it the .pth
files and a third of its start. It gets the paths of `agent` and of the installed packages instead.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent
from agent.errors import Unavailable
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Answer = dict[str, Any]

MAX_ANSWER = 1 << 20  # bytes on stdout
MAX_STDERR = 4096  # bytes of stderr that are kept
MAX_QUOTE = 200  # characters of stderr in an error message
MAX_STUCK = 8  # abandoned processes of a verb, about 10 MB each
KILL_TIMEOUT = 1.0  # seconds that a killed process may take to end

# os._exit: taking an interpreter down in order is a tenth of a request's CPU time.
_BOOT = """\
import os, sys
sys.path += {path!r}
from agent.helper.main import {entry}
os._exit({entry}(sys.argv[1:]))
"""


def command(verb: str, timeout_s: float) -> list[str]:
    """Return the command line of a helper."""
    # It dies with this process; its alarm is for a parent that dies before it can arrange that.
    alarm = math.ceil(timeout_s + KILL_TIMEOUT)
    return [*_python("main"), verb, str(alarm), str(os.getpid())]


def fork_server_command(verb: str, timeout_s: float) -> list[str]:
    """Return the command line of a fork server; it ends when its stdin is closed."""
    return [*_python("serve_forks"), verb, str(timeout_s)]


def _python(entry: str) -> list[str]:
    """Return the command line that calls `entry`, from a checkout, virtual environment or image."""
    root = str(Path(agent.__file__).resolve().parent.parent)
    installed = [
        folder
        for folder in sys.path
        if folder.endswith(("site-packages", "dist-packages")) and folder != root
    ]
    return [sys.executable, "-I", "-S", "-c", _BOOT.format(path=[root, *installed], entry=entry)]


_lock = threading.Lock()
_pids: set[int] = set()


def known_pids() -> frozenset[int]:
    """Return the process IDs of the helpers that have not been waited for.

    An agent that is PID 1 has to reap orphans, and must not reap these. A helper is in the set
    before any caller can see its end.
    """
    with _lock:
        return frozenset(_pids)


def start(
    popen: Callable[..., subprocess.Popen[bytes]], command_line: list[str], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with pipes for stdout and stderr."""
    pipe = subprocess.PIPE
    with _lock:
        process = popen(command_line, stdout=pipe, stderr=pipe, start_new_session=True, **options)
        _pids.add(process.pid)
    return process


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Wait for a process that `start` has started; raises subprocess.TimeoutExpired."""
    status = process.wait(timeout_s)
    with _lock:
        _pids.discard(process.pid)
    return status


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that `start` has started, and all of its session's process group."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)


class HelperProcesses:
    """Runs helpers, at most one of a verb and subject stuck.

    `command_line`, `popen` and `kill` are for tests.
    """

    def __init__(
        self,
        command_line: Callable[[str, float], list[str]] = command,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
        kill: Callable[[subprocess.Popen[bytes]], None] = kill_group,
    ) -> None:
        self._command_line, self._popen, self._kill = command_line, popen, kill
        self._stuck: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def call(
        self, verb: str, payload: Mapping[str, Any], timeout_s: float, subject: str = ""
    ) -> Answer:
        """Run a helper and return its answer to `payload`; threads may call this at the same time.

        Raises Unavailable if it is late, dies or its answer is malformed. Blocks for up to
        `timeout_s`, and for up to KILL_TIMEOUT more if the helper has to be killed. `subject` is
        what the payload is about (a device), if the verb has helpers for several subjects.
        """
        self._require_not_stuck(verb, subject)
        name = f"helper {verb} {subject}".rstrip()
        with _temporary_folder() as folder:
            process = self._start(name, verb, payload, timeout_s, folder)
            try:
                stdout, stderr = read_output(process, time.monotonic() + timeout_s)
                status = wait(process, KILL_TIMEOUT)
            except (TimeoutError, subprocess.TimeoutExpired):
                more = self._abandon(process, verb, subject)
                raise Unavailable(f"{name}: no answer within {timeout_s:g} s{more}") from None
            except Unavailable as error:
                more = self._abandon(process, verb, subject)
                raise Unavailable(f"{name}: {error}{more}") from None
            finally:
                self._kill(process)  # what it has started
                close_pipes(process)
        return parse_answer(name, status, stdout, stderr)

    def _require_not_stuck(self, verb: str, subject: str) -> None:
        for key, process in tuple(self._stuck.items()):
            with suppress(subprocess.TimeoutExpired):
                wait(process, 0)
                self._stuck.pop(key, None)
        if same := self._stuck.get((verb, subject)):
            name = f"helper {verb} {subject}".rstrip()
            raise Unavailable(f"{name}: process {same.pid} is still stuck in the kernel")
        stuck = sum(other == verb for other, _ in tuple(self._stuck))
        if stuck >= MAX_STUCK:
            raise Unavailable(f"helper {verb}: {stuck} processes are stuck in the kernel")

    def _start(
        self,
        name: str,
        verb: str,
        payload: Mapping[str, Any],
        timeout_s: float,
        folder: str | None,
    ) -> subprocess.Popen[bytes]:
        # stdin is a file, not a pipe, so that writing the payload cannot block.
        stdin = os.memfd_create("payload")
        environment = {**os.environ, "TMPDIR": folder} if folder else None
        try:
            with os.fdopen(os.dup(stdin), "wb") as file:
                file.write(json.dumps(payload).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            command_line = self._command_line(verb, timeout_s)
            return start(self._popen, command_line, stdin=stdin, env=environment)
        except OSError as error:
            raise Unavailable(f"{name}: cannot be started: {error}") from error
        finally:
            os.close(stdin)

    def _abandon(self, process: subprocess.Popen[bytes], verb: str, subject: str) -> str:
        """Kill a late helper; returns the end of the error message if it does not die."""
        self._kill(process)
        try:
            wait(process, KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._stuck[verb, subject] = process
            return f", and process {process.pid} cannot be killed"
        return ""


call = HelperProcesses().call


@contextmanager
def _temporary_folder() -> Iterator[str | None]:
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


def read_output(
    process: subprocess.Popen[bytes], deadline: float, lines: float = math.inf
) -> tuple[bytes, bytes]:
    """Read stdout and the end of stderr until both are closed or stdout has so many `lines`.

    Raises TimeoutError at the deadline (of the monotonic clock), and Unavailable if stdout exceeds
    MAX_ANSWER.
    """
    out, err = fileno(process.stdout), fileno(process.stderr)
    output, poll = {out: b"", err: b""}, select.poll()
    open_fds = {out, err}
    for fd in open_fds:
        poll.register(fd, select.POLLIN)
    while open_fds and output[out].count(b"\n") < lines:
        for fd in _wait(poll, deadline):
            chunk = os.read(fd, 1 << 16)
            output[fd] += chunk
            if not chunk:
                poll.unregister(fd)
                open_fds.discard(fd)
        output[err] = output[err][-MAX_STDERR:]
        if len(output[out]) > MAX_ANSWER:
            raise Unavailable(f"its answer is longer than {MAX_ANSWER} bytes")
    if any(fd == err for fd, _ in poll.poll(0)):  # written before the last line of stdout
        output[err] += os.read(err, 1 << 16)
    return output[out], output[err][-MAX_STDERR:]


def _wait(poll: select.poll, deadline: float) -> list[int]:
    left = deadline - time.monotonic()
    ready = poll.poll(left * 1000) if left > 0 else []
    if not ready:
        raise TimeoutError
    return [fd for fd, _ in ready]


def fileno(pipe: Any) -> int:
    """Return the descriptor of a pipe that Popen has opened."""
    return int(pipe.fileno())


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the parent's ends of the pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def parse_answer(name: str, status: int, stdout: bytes, stderr: bytes) -> Answer:
    """Decode an answer; raises Unavailable for a failed exit status or anything but an object.

    `name` is the helper's, for the message.
    """
    if status:
        raise Unavailable(f"{name}: {_exit_text(status)}{_last_line(stderr)}")
    try:
        answer = json.loads(stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"{name}: its answer is no JSON object{_last_line(stderr)}")
    return answer


def _exit_text(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    return f"killed by {signal.Signals(-status).name}"


def _last_line(stderr: bytes) -> str:
    """Return the last line of stderr, printable, as the end of a message."""
    lines = stderr.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {visible(last, MAX_QUOTE)}" if last else ""
