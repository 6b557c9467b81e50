"""The parent's side of a helper: start it, hear it out, be rid of it.

The law of this module: nothing that a child does holds up the agent. It has a deadline and is killed when that is over;
what it says is bounded; and what cannot even be killed, because it sits in an uninterruptible sleep in some driver, is
left behind: nobody waits for it, and there is no second one of its kind until it is gone.

A child is an interpreter started isolated and without `site` (-I -S), which spares it the .pth files and a third of its
start; where `agent` and the installed packages are is told to it instead.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = dict[str, Any]

LONGEST_ANSWER = 1 << 20  # bytes
LAST_WORDS = 4096  # bytes of stderr that are kept
DYING = 1.0  # seconds that a killed child may take to go

LINES = 2  # to an answer of a helper that stands by (helper.py, stand_by)

# Nobody is left to tidy up for: to take an interpreter down in order is a tenth of a request.
_BOOT = "import os, sys; sys.path += {path!r}; from agent.helper.main import {entry}; os._exit({entry}(sys.argv[1:]))"


def command(verb: str, deadline_s: float) -> list[str]:
    """The command line of a helper."""
    # It dies with this process; its own alarm is for the case that it is not told.
    return [*_python("main"), verb, str(math.ceil(deadline_s + DYING)), str(os.getpid())]


def standing(verb: str, deadline_s: float) -> list[str]:
    """The command line of a helper that stands by; it ends when its standard input does."""
    return [*_python("stand_by"), verb, str(deadline_s)]


def _python(entry: str) -> list[str]:
    """An interpreter that runs it, wherever `agent` runs from: a checkout, a virtual environment or an image."""
    root = str(Path(agent.__file__).resolve().parent.parent)
    installed = [
        place
        for place in sys.path
        if place.endswith(("site-packages", "dist-packages")) and place != root
    ]
    return [sys.executable, "-I", "-S", "-c", _BOOT.format(path=[root, *installed], entry=entry)]


class HelperProcesses:
    """The helpers of one agent, at most one of a kind stuck; `command_line` and `popen` are the doors to processes."""

    def __init__(
        self,
        command_line: Callable[[str, float], list[str]] = command,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self._command_line = command_line
        self._popen = popen
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def call(self, verb: str, payload: Mapping[str, Any], deadline_s: float) -> Answer:
        """What the helper answers to `payload`; Unavailable when it is late, dies or talks nonsense.

        Blocks for up to `deadline_s`, and for up to DYING seconds more when the child has to be killed.
        """
        self._refuse_second(verb)
        process = self._start(verb, payload, deadline_s)
        try:
            said, complaint = listen(process, time.monotonic() + deadline_s)
            process.wait(DYING)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise Unavailable(
                f"helper {verb}: no answer within {deadline_s:g} s{self._end(verb, process)}"
            ) from None
        except Unavailable as error:
            raise Unavailable(f"helper {verb}: {error}{self._end(verb, process)}") from None
        finally:
            close(process)
        return answer_of(verb, process.returncode, said, complaint)

    def _refuse_second(self, verb: str) -> None:
        stuck = self._stuck.get(verb)
        if stuck is None:
            return
        if stuck.poll() is None:
            raise Unavailable(f"helper {verb}: process {stuck.pid} is still stuck in the kernel")
        del self._stuck[verb]

    def _start(
        self, verb: str, payload: Mapping[str, Any], deadline_s: float
    ) -> subprocess.Popen[bytes]:
        # A file as standard input, not a pipe: nobody has to be waited for while it is written.
        stdin = os.memfd_create("payload")
        try:
            with os.fdopen(os.dup(stdin), "wb") as file:
                file.write(json.dumps(payload).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            return self._popen(
                self._command_line(verb, deadline_s),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"helper {verb}: cannot be started: {error}") from error
        finally:
            os.close(stdin)

    def _end(self, verb: str, process: subprocess.Popen[bytes]) -> str:
        process.kill()
        try:
            process.wait(DYING)
        except subprocess.TimeoutExpired:
            self._stuck[verb] = process
            return f", and process {process.pid} cannot be killed"
        return ""


call = HelperProcesses().call


def listen(
    process: subprocess.Popen[bytes], deadline: float, lines: float = math.inf
) -> tuple[bytes, bytes]:
    """What a child says on stdout, and the last of what it says on stderr, until it closes both or has said `lines`.

    TimeoutError when the time has come, Unavailable when it says too much.
    """
    out, err = descriptor(process.stdout), descriptor(process.stderr)
    heard, poll = {out: b"", err: b""}, select.poll()
    open_ends = {out, err}
    for fd in open_ends:
        poll.register(fd, select.POLLIN)
    while open_ends and heard[out].count(b"\n") < lines:
        for fd in _wait(poll, deadline):
            piece = os.read(fd, 1 << 16)
            heard[fd] += piece
            if not piece:
                poll.unregister(fd)
                open_ends.discard(fd)
        heard[err] = heard[err][-LAST_WORDS:]
        if len(heard[out]) > LONGEST_ANSWER:
            raise Unavailable(f"its answer is longer than {LONGEST_ANSWER} bytes")
    if any(fd == err for fd, _ in poll.poll(0)):  # whoever said so many lines had complained before
        heard[err] += os.read(err, 1 << 16)
    return heard[out], heard[err][-LAST_WORDS:]


def _wait(poll: select.poll, deadline: float) -> list[int]:
    left = deadline - time.monotonic()
    ready = poll.poll(left * 1000) if left > 0 else []
    if not ready:
        raise TimeoutError
    return [fd for fd, _ in ready]


def descriptor(pipe: Any) -> int:
    """The descriptor of a pipe."""
    return int(pipe.fileno())


def close(process: subprocess.Popen[bytes]) -> None:
    """Give back the ends of its pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def answer_of(verb: str, status: int, said: bytes, complaint: bytes) -> Answer:
    """What a helper said, by its exit status and its outputs; Unavailable where that is no answer."""
    if status:
        raise Unavailable(f"helper {verb}: {_death(status)}{_quote(complaint)}")
    try:
        answer = json.loads(said)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"helper {verb}: its answer is no JSON object{_quote(complaint)}")
    return answer


def _death(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    return f"killed by {signal.Signals(-status).name}"


def _quote(complaint: bytes) -> str:
    """The last line of what a child wrote on stderr, as an end for a message."""
    lines = complaint.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {''.join(c if c.isprintable() else '?' for c in last)[:200]}" if last else ""
