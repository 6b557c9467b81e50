"""Keep one helper that answers each call in a fork of itself: the parent's side.

A verb that runs every minute spends nearly all of its CPU time on starting a process: Python, and
the library of the verb. A fork server imports its modules once (PRELOADED in agent/helper/main.py)
and never opens a device or a driver itself. It has one thread and so may fork, which the agent may
not.

Measured over a stand-in library with 8 GPUs (benchmarks/; Python 3.11, 2 cores):

    a fork of the server           3.6 ms of CPU, 0.2 s an hour   15 MB resident
    a fork that imports the rest  13.5 ms of CPU, 0.8 s an hour   13 MB resident
    a helper process              43.1 ms of CPU, 2.6 s an hour   nothing resident

Invariants are those of agent/helper/process.py: a call has a timeout, an answer a maximum size, and
no second fork starts while one is stuck. The fork server kills a fork that is late and waits for
it, so that no orphan is left; it gets no other call before it has reported that end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agent.errors import Unavailable
from agent.helper import process as helper
from agent.helper.process import Answer, CommandLine, Popen, Process
from agent.limits import PROCESS_LIMIT, process_fault

READY_TIMEOUT = 0.01  # seconds to wait for output that is expected to be there
LINES = 2  # of an answer: the fork's output and its exit status (agent/helper/main.py, serve_forks)
_ANSWER = re.compile(rb"(.*)\n(late|limit|-?\d{1,3})\n")


class ForkServer:
    """A fork server for one verb; `command_line` and `popen` are for tests."""

    def __init__(
        self,
        verb: str,
        timeout_s: float,
        command_line: CommandLine = helper.fork_server_command,
        popen: Popen = subprocess.Popen,
    ) -> None:
        self._verb, self._name, self._timeout = verb, f"helper {verb}", timeout_s
        self._command_line, self._popen = command_line, popen
        self._process: Process | None = None
        self._stuck = False  # the last fork is

    def call(self, payload: Mapping[str, Any]) -> Answer:
        """Return a fork's answer to `payload`.

        Raises Unavailable if the fork is late, dies or its answer is malformed. Blocks for up to
        the timeout, and for up to KILL_TIMEOUT seconds more if the fork has to be killed.
        """
        process = self._running() or self._start()
        deadline = time.monotonic() + self._timeout + helper.KILL_TIMEOUT
        late = f"{self._name}: no answer within {self._timeout:g} s"
        try:
            with suppress(OSError):  # a fork server that has ended is reported by its exit status
                os.write(helper.fileno(process.stdin), json.dumps(payload).encode() + b"\n")
            stdout, stderr = helper.read_output(process, deadline, LINES)
        except TimeoutError:
            self._stuck = True
            helper.expect_end(helper.descendants(process))
            text = f"{late}, and a fork of process {process.pid} cannot be killed"
            raise Unavailable(text) from None
        except Unavailable as error:
            self.stop()
            raise Unavailable(f"{self._name}: {error}") from None
        match = _ANSWER.fullmatch(stdout)
        if not match:  # it has ended or broken the format
            status = self._exit_status(process) if stdout.count(b"\n") < LINES else 0
            self.stop()  # its next output could not be told from the rest of this one
            return helper.parse_answer(self._name, status, b"", stderr)
        end = match[2]
        if end == b"late":
            raise Unavailable(late)
        if end == b"limit":
            raise Unavailable(f"{self._name}: cannot be started: {PROCESS_LIMIT}")
        return helper.parse_answer(self._name, int(end), match[1], stderr)

    def stop(self) -> None:
        """Kill the fork server and its fork; the next call starts another."""
        if process := self._process:
            helper.kill_tree(process)
            self._exit_status(process)
            helper.close_pipes(process)
        self._process = None

    def _running(self) -> Process | None:
        """Return the fork server if it lives; raises Unavailable while its last fork is stuck."""
        process = self._process
        if process and self._stuck:
            try:
                helper.read_output(process, time.monotonic() + READY_TIMEOUT, LINES)
            except TimeoutError:
                text = f"a fork of process {process.pid} is still stuck in the kernel"
                raise Unavailable(f"{self._name}: {text}") from None
            self._stuck = False
        if process and process.poll() is not None:  # killed between two calls
            self.stop()
        return self._process

    def _start(self) -> Process:
        command_line = self._command_line(self._verb, self._timeout)
        try:
            process = helper.start(self._popen, command_line, stdin=subprocess.PIPE, bufsize=0)
        except OSError as error:
            fault = process_fault(error)
            raise Unavailable(f"{self._name}: cannot be started: {fault}") from error
        self._process = process
        return process

    def _exit_status(self, process: Process) -> int:
        """Wait for the fork server's end; 0 if it has only closed its stdout."""
        with suppress(subprocess.TimeoutExpired):
            return helper.wait(process, helper.KILL_TIMEOUT)
        return 0
