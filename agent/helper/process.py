"""Start helper processes, read their answers and end them: the parent's side.

Invariants:
- A helper never blocks the agent: it has a timeout, after which it is killed, and the size of its
  output is limited.
- A helper that cannot be killed, because it is in an uninterruptible sleep in a driver, is
  abandoned; no second one of its kind starts while it lives.

A helper is an interpreter started isolated and without `site` (-I -S), which saves it the .pth
files and a third of its start. It gets the paths of `agent` and of the installed packages instead.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent
from agent.errors import Unavailable
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = dict[str, Any]

MAX_ANSWER = 1 << 20  # bytes on stdout
MAX_STDERR = 4096  # bytes of stderr that are kept
MAX_QUOTE = 200  # characters of stderr in an error message
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


class HelperProcesses:
    """Runs helpers, at most one of a verb stuck; `command_line` and `popen` are for tests."""

    def __init__(
        self,
        command_line: Callable[[str, float], list[str]] = command,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self._command_line = command_line
        self._popen = popen
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def call(self, verb: str, payload: Mapping[str, Any], timeout_s: float) -> Answer:
        """Run a helper and return its answer to `payload`.

        Raises Unavailable if it is late, dies or its answer is malformed. Blocks for up to
        `timeout_s`, and for up to KILL_TIMEOUT more if the helper has to be killed.
        """
        self._refuse_second(verb)
        process = self._start(verb, payload, timeout_s)
        try:
            stdout, stderr = read_output(process, time.monotonic() + timeout_s)
            process.wait(KILL_TIMEOUT)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise Unavailable(
                f"helper {verb}: no answer within {timeout_s:g} s{self._kill(verb, process)}"
            ) from None
        except Unavailable as error:
            raise Unavailable(f"helper {verb}: {error}{self._kill(verb, process)}") from None
        finally:
            close_pipes(process)
        return parse_answer(verb, process.returncode, stdout, stderr)

    def _refuse_second(self, verb: str) -> None:
        stuck = self._stuck.get(verb)
        if stuck is None:
            return
        if stuck.poll() is None:
            raise Unavailable(f"helper {verb}: process {stuck.pid} is still stuck in the kernel")
        del self._stuck[verb]

    def _start(
        self, verb: str, payload: Mapping[str, Any], timeout_s: float
    ) -> subprocess.Popen[bytes]:
        # stdin is a file, not a pipe, so that writing the payload cannot block.
        stdin = os.memfd_create("payload")
        try:
            with os.fdopen(os.dup(stdin), "wb") as file:
                file.write(json.dumps(payload).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            return self._popen(
                self._command_line(verb, timeout_s),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"helper {verb}: cannot be started: {error}") from error
        finally:
            os.close(stdin)

    def _kill(self, verb: str, process: subprocess.Popen[bytes]) -> str:
        """Kill the helper; returns the end of the error message if it does not die."""
        process.kill()
        try:
            process.wait(KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._stuck[verb] = process
            return f", and process {process.pid} cannot be killed"
        return ""


call = HelperProcesses().call


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


def parse_answer(verb: str, status: int, stdout: bytes, stderr: bytes) -> Answer:
    """Decode an answer; raises Unavailable for a failed exit status or anything but an object."""
    if status:
        raise Unavailable(f"helper {verb}: {_exit_text(status)}{_last_line(stderr)}")
    try:
        answer = json.loads(stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"helper {verb}: its answer is no JSON object{_last_line(stderr)}")
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
