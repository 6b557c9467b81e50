"""Start helper processes and end them: the parent's side.

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
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import agent
from agent.errors import Unavailable
from agent.helper.answer import parse_answer
from agent.helper.streams import close_pipes, memory_file, read_output, temporary_folder
from agent.limits import process_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = dict[str, Any]
    Process = subprocess.Popen[bytes]
    Popen = Callable[..., Process]
    CommandLine = Callable[[str, float], list[str]]  # of a verb and its timeout

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
    boot = _BOOT.format(path=_import_path(), entry=entry)
    return [sys.executable, "-I", "-S", "-c", boot]


def _import_path() -> list[str]:
    """Return the folders of `agent` and of the installed packages."""
    root = str(Path(agent.__file__).resolve().parent.parent)
    return [root, *(folder for folder in _installed() if folder != root)]


def _installed() -> list[str]:
    return [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]


_lock = threading.Lock()
_pids: set[int] = set()


def known_pids() -> frozenset[int]:
    """Return the process IDs of the helpers that have not been waited for.

    An agent that is PID 1 has to reap orphans, and must not reap these. A helper is in the set
    before any caller can see its end.
    """
    with _lock:
        return frozenset(_pids)


def start(popen: Popen, command_line: list[str], **options: Any) -> Process:
    """Start a process in a session of its own, with pipes for stdout and stderr."""
    pipe = subprocess.PIPE
    with _lock:
        process = popen(command_line, stdout=pipe, stderr=pipe, start_new_session=True, **options)
        _pids.add(process.pid)
    return process


def wait(process: Process, timeout_s: float) -> int:
    """Wait for a process that `start` has started; raises subprocess.TimeoutExpired."""
    status = process.wait(timeout_s)
    with _lock:
        _pids.discard(process.pid)
    return status


def kill_group(process: Process) -> None:
    """Kill a process that `start` has started, and all of its session's process group."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)


class _Kind(NamedTuple):
    """The helpers of which at most one may be stuck."""

    verb: str
    subject: str

    @property
    def name(self) -> str:
        return f"helper {self.verb} {self.subject}".rstrip()


class HelperProcesses:
    """Runs helpers, at most one of a verb and subject stuck.

    `command_line`, `popen` and `kill` are for tests.
    """

    def __init__(
        self,
        command_line: CommandLine = command,
        popen: Popen = subprocess.Popen,
        kill: Callable[[Process], None] = kill_group,
    ) -> None:
        self._command_line, self._popen, self._kill = command_line, popen, kill
        self._stuck: dict[_Kind, Process] = {}

    def call(
        self, verb: str, payload: Mapping[str, Any], timeout_s: float, subject: str = ""
    ) -> Answer:
        """Run a helper and return its answer to `payload`; threads may call this at the same time.

        Raises Unavailable if it is late, dies or its answer is malformed. Blocks for up to
        `timeout_s`, and for up to KILL_TIMEOUT more if the helper has to be killed. `subject` is
        what the payload is about (a device), if the verb has helpers for several subjects.
        """
        kind = _Kind(verb, subject)
        self._require_not_stuck(kind)
        with temporary_folder() as folder:
            process = self._start(kind, payload, timeout_s, folder)
            try:
                status, stdout, stderr = self._result(process, kind, timeout_s)
            finally:
                self._kill(process)  # what it has started
                close_pipes(process)
        return parse_answer(kind.name, status, stdout, stderr)

    def _require_not_stuck(self, kind: _Kind) -> None:
        self._forget_ended()
        if process := self._stuck.get(kind):
            raise Unavailable(f"{kind.name}: process {process.pid} is still stuck in the kernel")
        self._require_few_stuck(kind.verb)

    def _require_few_stuck(self, verb: str) -> None:
        stuck = sum(kind.verb == verb for kind in tuple(self._stuck))
        if stuck >= MAX_STUCK:
            raise Unavailable(f"helper {verb}: {stuck} processes are stuck in the kernel")

    def _forget_ended(self) -> None:
        for kind, process in tuple(self._stuck.items()):
            with suppress(subprocess.TimeoutExpired):
                wait(process, 0)
                self._stuck.pop(kind, None)

    def _start(
        self, kind: _Kind, payload: Mapping[str, Any], timeout_s: float, folder: str | None
    ) -> Process:
        command_line = self._command_line(kind.verb, timeout_s)
        environment = _environment(folder)
        try:
            with memory_file(json.dumps(payload).encode()) as stdin:
                return start(self._popen, command_line, stdin=stdin, env=environment)
        except OSError as error:
            fault = process_fault(error)
            raise Unavailable(f"{kind.name}: cannot be started: {fault}") from error

    def _result(self, process: Process, kind: _Kind, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Return status and output of a helper; raises Unavailable if it is late."""
        try:
            stdout, stderr = read_output(process, time.monotonic() + timeout_s)
            return wait(process, KILL_TIMEOUT), stdout, stderr
        except (TimeoutError, subprocess.TimeoutExpired):
            problem = f"no answer within {timeout_s:g} s"
        except Unavailable as error:
            problem = str(error)
        raise Unavailable(f"{kind.name}: {problem}{self._abandon(process, kind)}")

    def _abandon(self, process: Process, kind: _Kind) -> str:
        """Kill a late helper; returns the end of the error message if it does not die."""
        self._kill(process)
        try:
            wait(process, KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._stuck[kind] = process
            return f", and process {process.pid} cannot be killed"
        return ""


def _environment(folder: str | None) -> dict[str, str] | None:
    """Return the environment of a helper with this temporary folder; None is the parent's own."""
    return {**os.environ, "TMPDIR": folder} if folder else None


call = HelperProcesses().call
