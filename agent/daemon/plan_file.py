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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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

# Seconds.
TIMEOUT = 30.0  # for the helper
LOOK_INTERVAL = 30.0  # between two looks at the files
RETRY_INTERVAL = 300.0  # after a failed helper
STALLED = 60.0  # after which a file system that does not answer is a problem


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


def by_helper(payload: Json) -> Json:
    """Read the rows of a node in a helper; raises Unavailable."""
    return call("plan", payload, TIMEOUT)


@dataclass(slots=True)
class PlanFile(Companion):
    """The plan files of a node, by its names; the loop drives it as the pollers of sources.

    `ask` sends a payload to the helper's verb `plan`; `look` returns the signature of the files.
    Both may block. `report` is called when the rows or the problem are others.
    """

    source: ClassVar[str] = "plan"
    paths: Sequence[str]
    names: Sequence[str]
    naming: Naming
    task: BackgroundTask[Look]
    ask: Callable[[Json], Json] = by_helper
    look: Callable[[Iterable[str]], Signature] = signature
    report: Callable[[PlanFile], object] = lambda _plan: None
    expected: Expected | None = None  # as last read; None: never since the start
    _fault: str | None = None
    _is_stalled: bool = False
    _signature: Signature | None = None  # of the files that were read last
    _due: float = -math.inf
    _started: float = math.inf

    @property
    def files(self) -> str:
        """The names of the files."""
        return ", ".join(self.paths)

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
            signature = self.look(self.paths)
        except Unavailable as error:
            return Look(None, fault=str(error))
        if signature == known:
            return Look(signature)
        prefixes = self.naming.prefix, self.naming.ib_prefix
        answer = self.ask({"files": self.paths, "names": self.names, "prefixes": prefixes})
        if "error" in answer:
            return Look(signature, fault=answer["error"])
        return Look(signature, load(answer["expected"]))
