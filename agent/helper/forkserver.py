"""The parent's side of a helper that stays, for the one question that is asked every minute of the agent's life.

A child that starts for each question spends nearly all of its CPU on starting: Python, ctypes, agent/nvml/library.py. This
one does so once, holds nothing of any driver, and answers each question in a fork of itself (helper.py, `stand_by`). It
has one thread, and so may fork, which the agent may not. benchmarks/nvml_poll.py compares.

The law of this module is that of child.py: a question has a deadline, an answer an end, and there is no second fork
while one is stuck. The helper kills a fork that is late, and waits for it, so that it becomes nobody else's orphan. It
is not asked again until it has said how its fork ended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.helper import process as child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.helper.process import Answer

GLANCE = 0.01  # seconds; to see whether something has been said
_ANSWER = re.compile(
    rb"(.*)\n(late|-?\d{1,3})\n"
)  # stand_by's: what the fork said, and how it ended


class ForkServer:
    """A helper for one verb; `command_line` and `popen` are the doors to processes."""

    def __init__(
        self,
        verb: str,
        deadline_s: float,
        command_line: Callable[[str, float], list[str]] = child.standing,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self._verb, self._deadline = verb, deadline_s
        self._command_line, self._popen = command_line, popen
        self._process: subprocess.Popen[bytes] | None = None
        self._stuck = False  # the last fork is

    def call(self, payload: Mapping[str, Any]) -> Answer:
        """What a fork answers to `payload`; Unavailable when it is late, dies or talks nonsense.

        Blocks for up to the deadline, and for up to DYING seconds more when the fork has to be killed.
        """
        process = self._process = self._at_hand() or self._start()
        try:
            said, complaint = _ask(
                process, payload, time.monotonic() + self._deadline + child.DYING
            )
        except TimeoutError:
            self._stuck = True
            raise self._late(f", and a fork of process {process.pid} cannot be killed") from None
        except Unavailable as error:
            self.dismiss()
            raise Unavailable(f"helper {self._verb}: {error}") from None
        if match := _ANSWER.fullmatch(said):
            if match[2] == b"late":
                raise self._late()
            return child.answer_of(self._verb, int(match[2]), match[1], complaint)
        status = _ended(process) if said.count(b"\n") < child.LINES else 0
        self.dismiss()  # or what it says next would be taken for the next answer
        return child.answer_of(self._verb, status, b"", complaint)

    def dismiss(self) -> None:
        """Be rid of the helper, and of its fork; the next question starts another."""
        if process := self._process:
            process.kill()
            _ended(process)
            child.close(process)
        self._process = None

    def _at_hand(self) -> subprocess.Popen[bytes] | None:
        """The helper, if it lives; Unavailable while its last fork is stuck."""
        process = self._process
        if process and self._stuck:
            try:
                child.listen(process, time.monotonic() + GLANCE, child.LINES)
            except TimeoutError:
                text = f"a fork of process {process.pid} is still stuck in the kernel"
                raise Unavailable(f"helper {self._verb}: {text}") from None
            self._stuck = False
        if process and process.poll() is not None:  # it was killed between two questions
            self.dismiss()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        command, pipe = self._command_line(self._verb, self._deadline), subprocess.PIPE
        try:
            return self._popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        except OSError as error:
            raise Unavailable(f"helper {self._verb}: cannot be started: {error}") from error

    def _late(self, more: str = "") -> Unavailable:
        return Unavailable(f"helper {self._verb}: no answer within {self._deadline:g} s{more}")


def _ask(
    process: subprocess.Popen[bytes], payload: Mapping[str, Any], deadline: float
) -> tuple[bytes, bytes]:
    with suppress(OSError):  # who takes no question any more says below why
        os.write(child.descriptor(process.stdin), json.dumps(payload).encode() + b"\n")
    return child.listen(process, deadline, child.LINES)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """How the helper itself came to an end; 0 where it only closed its standard output."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(child.DYING)
    return 0
