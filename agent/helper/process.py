"""Start helper processes, read their answers and end them: the parent's side.

Invariants:
- A helper never blocks the agent: it has a timeout, after which it is killed, and the size of its
  output is limited, that of stderr to its end.
- Nothing of a helper outlives its call. A helper answers in a fork, and before it ends it has ended
  all that the fork has started (agent/helper/main.py), a credential plugin's daemons in other
  sessions included. It does the same when its parent ends. A late helper is ended from here, in
  the same order; a helper that others have killed leaves orphans, which are recognized by the MARK
  in their environment. Its temporary files lie in a folder that is removed: the Kubernetes client
  writes inline keys of a kubeconfig to files.
- A process that was killed and lives, because it is in an uninterruptible sleep in a driver, is
  abandoned. While it lives no second helper of its verb and subject starts, and at most MAX_STUCK
  of a verb are abandoned. `unended` counts them.

A helper is an interpreter started isolated and without `site` (-I -S), which saves it the .pth
files and a third of its start. It gets the paths of `agent` and of the installed packages instead.

Output is read here and not by Popen.communicate: that has no limit, and a fork server answers
without ending.

A fork server keeps one helper that answers each call in a fork of itself. A verb that runs every
minute spends nearly all of its CPU time on starting a process: Python, and the library of the verb.
A fork server imports its modules once (PRELOADED in agent/helper/main.py) and never opens a device
or a driver itself. It has one thread and so may fork, which the agent may not.

Measured over a stand-in library with 8 GPUs (benchmarks/; Python 3.11, 2 cores):

    a fork of the server           3.6 ms of CPU, 0.2 s an hour   15 MB resident
    a fork that imports the rest  13.5 ms of CPU, 0.8 s an hour   13 MB resident
    a helper process              43.1 ms of CPU, 2.6 s an hour   nothing resident

A call has a timeout, an answer a maximum size. The fork server ends a fork that is late, with all
that it has started, and then reports its end. One that does not report it is ended from here.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import agent
from agent.errors import Unavailable
from agent.limits import PROCESS_LIMIT, process_fault
from agent.text import Json, visible

if TYPE_CHECKING:
    import psutil

Process = subprocess.Popen[bytes]
Popen = Callable[..., Process]
CommandLine = Callable[[str, float], list[str]]  # of a verb and its timeout
Kill = Callable[[int, int], None]  # os.kill

MAX_STUCK = 8  # abandoned processes of a verb, about 10 MB each
KILL_TIMEOUT = 1.0  # seconds that a killed process may take to end
KILL_INTERVAL = 0.02  # seconds between two looks whether it has ended
MAX_ANSWER = 8 << 20  # bytes on stdout: the tables of 10,000 switches that a capture records
MAX_STDERR = 4096  # bytes of stderr that are kept
MAX_QUOTE = 200  # characters of stderr in an error message
PIPE_SIZE = 1 << 16  # bytes
MARK = "BWAGENT_HELPER"  # environment variable of a helper, another value for each
LINES = 2  # of a fork's answer: its output and its exit status (agent/helper/main.py, serve_forks)
_ANSWER = re.compile(rb"(.*)\n(late|limit|-?\d{1,3})\n")

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
    ends = "site-packages", "dist-packages"
    installed = (folder for folder in sys.path if folder.endswith(ends) and folder != root)
    path = [root, *installed]
    flags = ["-I", "-S", *(["-OO"] if sys.flags.optimize > 1 else [])]  # of the image
    return [sys.executable, *flags, "-c", _BOOT.format(path=path, entry=entry)]


_lock = threading.Lock()  # guards _pids and _marks
_pids: set[int] = set()
_marks: weakref.WeakKeyDictionary[Process, str] = weakref.WeakKeyDictionary()
_killed_lock = threading.Lock()  # guards _killed; not _lock: to read processes takes a while
_killed: set[psutil.Process] = set()  # and not seen to end


def known_pids() -> frozenset[int]:
    """Return the process IDs of the helpers that have not been waited for.

    A helper is in the set before any caller can see its end.
    """
    with _lock:
        return frozenset(_pids)


def reap(helpers: Callable[[], Container[int]] = known_pids) -> list[int]:
    """Wait for the terminated orphans of this process and return their PIDs; never blocks.

    For an agent that is PID 1 of a container: a process that a helper or a credential plugin leaves
    behind becomes its child when its parent ends (kernel/exit.c, find_new_reaper), and stays a
    zombie until it is waited for. `helpers` returns the PIDs of the children whose exit status
    other code waits for; they are left alone. Call it when SIGCHLD was received.
    """
    # The main thread's children, which orphans become (man 5 proc_pid_task); there is no such file
    # where the kernel has no CONFIG_PROC_CHILDREN.
    children: list[int] = []
    with suppress(OSError):
        path = Path(f"/proc/self/task/{os.getpid()}/children")
        children = [int(pid) for pid in path.read_text(encoding="ascii").split()]
    awaited = helpers()  # afterwards: a child that is started in between is not among the children
    reaped = []
    for pid in children:
        with suppress(ChildProcessError):
            if pid not in awaited and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG):
                reaped.append(pid)
    return reaped


def start(popen: Popen, command_line: list[str], **options: Any) -> Process:
    """Start a process in a session of its own, with pipes for stdout and stderr."""
    pipe, mark = subprocess.PIPE, os.urandom(8).hex()
    options["env"] = {**(options.get("env") or os.environ), MARK: mark}
    with _lock:
        process = popen(command_line, stdout=pipe, stderr=pipe, start_new_session=True, **options)
        _pids.add(process.pid)
        _marks[process] = mark
    return process


def wait(process: Process, timeout_s: float) -> int:
    """Wait for a process that `start` has started; raises subprocess.TimeoutExpired."""
    status = process.wait(timeout_s)
    with _lock:
        _pids.discard(process.pid)
    return status


def kill_group(process: Process, kill: Kill = os.kill) -> None:
    """Kill a process that `start` has started, and all of its process group."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended
        kill(-process.pid, signal.SIGKILL)


class Remains(NamedTuple):
    """The processes that are left of a helper that was killed."""

    process: Process
    left: tuple[psutil.Process, ...]

    def living(self) -> list[psutil.Process]:
        """Return the processes that have not ended yet."""
        with suppress(subprocess.TimeoutExpired):
            wait(self.process, 0)
        return [process for process in self.left if _lives(process)]


def end(process: Process, kill: Kill = os.kill) -> Remains:
    """Kill all that a process has started, in any session, and then the process itself.

    In this order, since it adopts the orphans; the orphans of a helper killed by others come last.
    psutil is loaded here (0.5 MB, 5 ms): most agents never have a helper that is late.
    """
    import psutil

    end_at = time.monotonic() + KILL_TIMEOUT
    while (left := descendants(process)) and time.monotonic() < end_at:
        for descendant in left:
            with suppress(ProcessLookupError, PermissionError):
                kill(descendant.pid, signal.SIGKILL)
        time.sleep(KILL_INTERVAL)
    kill_group(process, kill)
    with suppress(psutil.Error):
        left.append(psutil.Process(process.pid))
    with suppress(subprocess.TimeoutExpired):
        wait(process, KILL_TIMEOUT)
    mark, orphans = _marks.get(process), []
    for other in psutil.process_iter() if mark else ():
        with suppress(psutil.Error, OSError):
            if other.environ().get(MARK) == mark:  # inherited
                orphans.append(other)
    for orphan in orphans:
        with suppress(ProcessLookupError, PermissionError):
            kill(orphan.pid, signal.SIGKILL)
        left.append(orphan)
    time.sleep(KILL_INTERVAL)
    left = [killed for killed in dict.fromkeys(left) if _lives(killed)]
    expect_end(left)
    return Remains(process, tuple(left))


def descendants(process: Process) -> list[psutil.Process]:
    """Return all that a process has started, and their children, as far as they live."""
    import psutil

    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:  # it has ended
        return []
    return [descendant for descendant in started if _lives(descendant)]


def fate(killed: psutil.Process) -> str:
    """Return the state of a process that was killed and lives, in words."""
    import psutil

    is_stuck = False
    with suppress(psutil.Error):
        is_stuck = killed.status() == psutil.STATUS_DISK_SLEEP
    state = "is stuck in the kernel" if is_stuck else "was killed and has not ended"
    return f"process {killed.pid} {state}"


def expect_end(killed: Iterable[psutil.Process]) -> None:
    """Count these processes as `unended` until they end; forget those that have."""
    unended()
    with _killed_lock:
        _killed.update(killed)


def unended() -> int:
    """Return the number of processes of helpers that were killed and still live."""
    with _killed_lock:
        killed = set(_killed)
    ended = {process for process in killed if not _lives(process)}  # reads /proc
    with _killed_lock:
        _killed.difference_update(ended)
        return len(_killed)


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


class HelperProcesses:
    """Runs helpers, at most one of a verb and subject stuck.

    `command_line`, `popen` and `kill` are for tests.
    """

    def __init__(
        self,
        command_line: CommandLine = command,
        popen: Popen = subprocess.Popen,
        kill: Kill = os.kill,
    ) -> None:
        self._command_line, self._popen, self._kill = command_line, popen, kill
        self._abandoned: dict[tuple[str, str], Remains] = {}  # by verb and subject

    def call(
        self, verb: str, payload: Mapping[str, Any], timeout_s: float, subject: str = ""
    ) -> Json:
        """Run a helper and return its answer to `payload`; threads may call this at the same time.

        Raises Unavailable if it is late, dies or its answer is malformed. Blocks for up to
        `timeout_s`, and for up to KILL_TIMEOUT more if the helper has to be killed. `subject` is
        what the payload is about (a device), if the verb has helpers for several subjects.
        """
        name = f"helper {verb} {subject}".rstrip()
        self._require_few_stuck(name, verb, subject)
        with temporary_folder() as folder:
            process = self._start(name, self._command_line(verb, timeout_s), payload, folder)
            try:
                stdout, stderr = read_output(process, time.monotonic() + timeout_s)
                status = wait(process, KILL_TIMEOUT)
            except (TimeoutError, subprocess.TimeoutExpired, Unavailable) as error:
                remains = end(process, self._kill)
                late = f"no answer within {timeout_s:g} s"
                problem = str(error) if isinstance(error, Unavailable) else late
                if remains.left:
                    self._abandoned[verb, subject] = remains
                    problem += f", and {fate(remains.left[0])}"
                raise Unavailable(f"{name}: {problem}") from None
            else:
                kill_group(process, self._kill)
                if status == -signal.SIGKILL:  # it did not end its descendants
                    end(process, self._kill)
            finally:
                close_pipes(process)
        return parse_answer(name, status, stdout, stderr)

    def _require_few_stuck(self, name: str, verb: str, subject: str) -> None:
        """Raise Unavailable while a helper of this verb and subject is stuck, or MAX_STUCK are."""
        living = {helper: remains.living() for helper, remains in tuple(self._abandoned.items())}
        for helper in [helper for helper, left in living.items() if not left]:
            self._abandoned.pop(helper, None)
        if left := living.get((verb, subject)):
            raise Unavailable(f"{name}: {fate(left[0])}")
        count = sum(its_verb == verb and bool(left) for (its_verb, _), left in living.items())
        if count >= MAX_STUCK:
            raise Unavailable(f"helper {verb}: {count} were killed and have not ended")

    def _start(
        self, name: str, command_line: list[str], payload: Mapping[str, Any], folder: str | None
    ) -> Process:
        environment = {**os.environ, "TMPDIR": folder} if folder else None
        try:
            # As stdin a file in memory is better than a pipe: writing it cannot block.
            with os.fdopen(os.memfd_create("payload"), "wb") as stdin:
                stdin.write(json.dumps(payload).encode())
                stdin.seek(0)
                return start(self._popen, command_line, stdin=stdin, env=environment)
        except OSError as error:
            raise Unavailable(f"{name}: cannot be started: {process_fault(error)}") from error


class ForkServer:
    """A fork server for one verb; `command_line` and `popen` are for tests."""

    def __init__(
        self,
        verb: str,
        timeout_s: float,
        command_line: CommandLine = fork_server_command,
        popen: Popen = subprocess.Popen,
    ) -> None:
        self._verb, self._name, self._timeout = verb, f"helper {verb}", timeout_s
        self._command_line, self._popen = command_line, popen
        self._process: Process | None = None
        self._abandoned: Remains | None = None  # of the last server

    def call(self, payload: Mapping[str, Any]) -> Json:
        """Return a fork's answer to `payload`.

        Raises Unavailable if the fork is late, dies or its answer is malformed. Blocks for up to
        the timeout, and for up to KILL_TIMEOUT seconds more if the fork has to be killed.
        """
        process = self._running() or self._start()
        deadline = time.monotonic() + self._timeout + KILL_TIMEOUT
        late = f"{self._name}: no answer within {self._timeout:g} s"
        try:
            with suppress(OSError):  # a fork server that has ended is reported by its exit status
                os.write(fileno(process.stdin), json.dumps(payload).encode() + b"\n")
            stdout, stderr = read_output(process, deadline, LINES)
        except TimeoutError:
            left = self.stop()
            text = f"{late}, and {fate(left[0])}" if left else late
            raise Unavailable(text) from None
        except Unavailable as error:
            self.stop()
            raise Unavailable(f"{self._name}: {error}") from None
        match = _ANSWER.fullmatch(stdout)
        if not match:  # it has ended or broken the format
            status = 0  # of one that has only closed its stdout, too
            if stdout.count(b"\n") < LINES:
                with suppress(subprocess.TimeoutExpired):
                    status = wait(process, KILL_TIMEOUT)
            self.stop()  # its next answer would follow the rest of this answer
            return parse_answer(self._name, status, b"", stderr)
        end = match[2]
        if end == b"late":
            raise Unavailable(late)
        if end == b"limit":
            raise Unavailable(f"{self._name}: cannot be started: {PROCESS_LIMIT}")
        return parse_answer(self._name, int(end), match[1], stderr)

    def stop(self) -> tuple[psutil.Process, ...]:
        """Kill the fork server and its fork, and return those that live.

        The next call starts another when they have ended.
        """
        if process := self._process:
            self._abandoned = end(process)
            close_pipes(process)
        self._process = None
        return self._abandoned.left if self._abandoned else ()

    def _running(self) -> Process | None:
        """Return the fork server if it lives; raises Unavailable while a killed fork does."""
        if self._process and self._process.poll() is not None:  # killed between two calls
            self.stop()
        if self._abandoned:
            if left := self._abandoned.living():
                raise Unavailable(f"{self._name}: {fate(left[0])}")
            self._abandoned = None
        return self._process

    def _start(self) -> Process:
        command_line = self._command_line(self._verb, self._timeout)
        try:
            process = start(self._popen, command_line, stdin=subprocess.PIPE, bufsize=0)
        except OSError as error:
            fault = process_fault(error)
            raise Unavailable(f"{self._name}: cannot be started: {fault}") from error
        self._process = process
        return process


def read_output(process: Process, deadline: float, lines: float = math.inf) -> tuple[bytes, bytes]:
    """Read stdout and the end of stderr until both are closed or stdout has so many `lines`.

    Raises TimeoutError at the deadline (of the monotonic clock), and Unavailable if stdout exceeds
    MAX_ANSWER.
    """
    out, err = fileno(process.stdout), fileno(process.stderr)
    read, opened, poll = {out: b"", err: b""}, {out, err}, select.poll()
    for fd in opened:
        poll.register(fd, select.POLLIN)
    while opened and read[out].count(b"\n") < lines:
        left = deadline - time.monotonic()
        ready = poll.poll(left * 1000) if left > 0 else []
        if not ready:
            raise TimeoutError
        for fd, _ in ready:
            chunk = os.read(fd, PIPE_SIZE)
            read[fd] += chunk
            if not chunk:
                poll.unregister(fd)
                opened.discard(fd)
        read[err] = read[err][-MAX_STDERR:]
        if len(read[out]) > MAX_ANSWER:
            raise Unavailable(f"its answer is longer than {MAX_ANSWER} bytes")
    if any(fd == err for fd, _ in poll.poll(0)):  # written there before the last line of stdout
        read[err] += os.read(err, PIPE_SIZE)
    return read[out], read[err][-MAX_STDERR:]


def parse_answer(name: str, status: int, stdout: bytes, stderr: bytes) -> Json:
    """Decode an answer; raises Unavailable for a failed exit status or anything but an object.

    `name` is the helper's, for the message, which ends with the last line of stderr.
    """
    last = stderr.decode(errors="replace").strip().split("\n")[-1].strip()
    quote = f": {visible(last, MAX_QUOTE)}" if last else ""
    if status > 0:
        raise Unavailable(f"{name}: ended with status {status}{quote}")
    if status < 0:
        raise Unavailable(f"{name}: killed by {signal.Signals(-status).name}{quote}")
    with suppress(ValueError):
        answer = json.loads(stdout)
        if isinstance(answer, dict):
            return answer
    raise Unavailable(f"{name}: its answer is not a JSON object{quote}")


def fileno(pipe: Any) -> int:
    """Return the descriptor of a pipe that Popen has opened."""
    return int(pipe.fileno())


def close_pipes(process: Process) -> None:
    """Close the parent's ends of the pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


@contextmanager
def temporary_folder() -> Iterator[str | None]:
    """Make a folder (0700) for a helper's temporary files and remove it afterwards.

    None if no folder is writable, as on a read-only root file system; the helper has none either.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="bwagent-", ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder:
        yield folder.name


call = HelperProcesses().call
