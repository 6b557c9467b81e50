"""The plan files of `run --plan`: the expected half of this node, read again when they change.

    every 30 s    look at the files; a helper reads them if a file has changed
    300 s later   look again, after a helper that died or was late

Invariants:
- The parsers and the whole plan stay in the helper (agent/cabling/one_node.py): of the rows
  only this node's come back.
- The last good rows stand while a file is missing, wrong, or cannot be read; `problem` says why.
- Nothing here blocks: a file system that does not answer holds up a thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from agent.cabling.expected import Expected, load
from agent.daemon.background import BackgroundTask, Companion
from agent.encode import Naming
from agent.errors import Unavailable
from agent.helper.process import call
from agent.text import Json

Signature = tuple[tuple[int, ...], ...]

VERB = "plan"
# Seconds.
TIMEOUT = 30.0  # for the helper
LOOK_INTERVAL = 30.0  # between two looks at the files
RETRY_INTERVAL = 300.0  # after a failed helper
STALLED = 60.0  # after which a file system that does not answer is a problem


class Question(NamedTuple):
    """The subject of the plan: the files, the names of this node, the prefixes of its labels."""

    files: tuple[str, ...]
    names: tuple[str, ...]
    prefixes: tuple[str, str]  # P and IB


class Look(NamedTuple):
    """The result of one look at the files."""

    signature: Signature | None  # None: a file is not there
    expected: Expected | None = None  # None: not read, since `fault`, or as they were before
    fault: str | None = None


def signature(files: Iterable[str]) -> Signature:
    """Return the identity of the files in their place: a ConfigMap volume swaps a symlink.

    Raises Unavailable for a file that is not there.
    """
    versions = []
    for path in files:
        try:
            now = Path(path).stat()
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror or error}") from error
        versions.append((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    return tuple(versions)


class PlanFile(Companion):
    """The plan files of one agent; the loop drives it as the pollers of sources.

    `ask` sends a payload to the helper's verb `plan`; `look` returns the signature of the files.
    Both may block. `report` is called when the rows or the problem are others.
    """

    source: ClassVar[str] = "plan"

    def __init__(
        self,
        question: Question,
        task: BackgroundTask[Look],
        ask: Callable[[Json], Json],
        look: Callable[[Iterable[str]], Signature] = signature,
    ) -> None:
        self.task = task
        self.report: Callable[[PlanFile], object] = lambda _plan: None
        self._question, self._ask, self._look = question, ask, look
        self.expected: Expected | None = None  # as last read; None: never since the start
        self._fault: str | None = None
        self._is_stalled = False
        self._signature: Signature | None = None  # of the files that were read last
        self._due = -math.inf
        self._started = math.inf

    @property
    def files(self) -> str:
        """The names of the files."""
        return ", ".join(self._question.files)

    @property
    def problem(self) -> str | None:
        """Reason why the present files are not in use; None if they are, or before a look."""
        return f"{self.files}: the file system does not answer" if self._is_stalled else self._fault

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        self._due, self._started = now + LOOK_INTERVAL, now
        self.task.start(partial(self._read, self._signature))

    def collect(self, now: float) -> bool:
        """Take the result of a look; True if the rows or the problem are others."""
        before = self.expected, self.problem
        result = self.task.take()
        if isinstance(result, Exception):
            self._signature, self._fault = None, f"{self.files}: {result or repr(result)}"
            self._due = now + RETRY_INTERVAL
        elif result is not None:
            self._signature = result.signature
            if result.expected or result.fault:
                self.expected, self._fault = result.expected or self.expected, result.fault
        self._is_stalled = self.task.busy and now >= self._started + STALLED
        if (self.expected, self.problem) == before:
            return False
        self.report(self)
        return True

    def next_due(self) -> float:
        return math.inf if self.task.busy else self._due

    def _read(self, known: Signature | None) -> Look:
        """Look at the files, and read them if they are not the known ones; in a thread."""
        try:
            signature = self._look(self._question.files)
        except Unavailable as error:
            return Look(None, fault=str(error))
        if signature == known:
            return Look(signature)
        answer = self._ask(self._question._asdict())
        if "error" in answer:
            return Look(signature, fault=answer["error"])
        return Look(signature, load(answer["expected"]))


def plan_file(
    files: tuple[str, ...], naming: Naming, names: Iterable[str], task: BackgroundTask[Look]
) -> PlanFile:
    """Return the plan files of this node, read by the helper."""
    question = Question(files, tuple(names), (naming.prefix, naming.ib_prefix))
    return PlanFile(question, task, lambda payload: call(VERB, payload, TIMEOUT))
