"""Read the plan files of `bwagent run --plan` for one node: the helper's verb `plan`.

Only the agent's own CSV and labels are read here; `verify --write-plan csv --split` makes the
former of any other kind.

Invariants:
- A file is read to its limit and no further, a FIFO or a device not at all.
- The memory of the helper is limited: the kernel may end a whole container that exceeds its own.
- The result is what `verify --plan` compares this node with, without the rest of the plan: who has
  the port of a wrong cable is not in it (agent/cabling/plan_index.py).
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterable
from typing import BinaryIO

from agent.cabling.expected import Expected, FarPort, dump, from_labels, merged
from agent.cabling.plan_index import index_of
from agent.cabling.plans import own
from agent.cabling.plans.source import PlanContent
from agent.encode import Naming
from agent.errors import Malformed
from agent.text import Json

ExpectedOf = Callable[[str, Iterable[FarPort]], Expected]

MAX_SIZE = 1 << 20  # bytes of a file; a ConfigMap holds as many
# Bytes of the helper's data (RLIMIT_DATA), below the memory limit of the container. About 4 MiB
# of our CSV over all files fit; a MiB of a YAML sequence of empty ones would take 280 MB.
MAX_MEMORY = 96 << 20
MAX_ROWS = 256  # of this node
CONVERT = "bwagent verify --plan FILE --write-plan csv --split DIR"


def read_limited(payload: Json) -> Json:
    """Read plan files with a limit of this process's memory; see `plan` in agent/helper/main.py."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MAX_MEMORY if hard == resource.RLIM_INFINITY else min(hard, MAX_MEMORY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    return read(payload)


def read(payload: Json) -> Json:
    """Read plan files."""
    node = payload["names"][0]
    try:
        parts = [_part(path, payload) for path in payload["files"]]
        # The ports of all files, which other nodes may have by any of them.
        planned = merged([of_node(node, ()) for of_node in parts]).far_ports
        expected = merged([of_node(node, planned) for of_node in parts])
        if len(expected.rows) > MAX_ROWS:
            place = expected.rows[MAX_ROWS].place
            return {"error": f"{place}: more than {MAX_ROWS} rows for {node}"}
        return {"expected": dump(expected)}
    except Malformed as error:
        return {"error": str(error)}
    except (MemoryError, SystemError):  # the latter: CPython 3.11 loses some MemoryErrors
        pass  # the exception holds what was read
    files = ", ".join(payload["files"])
    return {"error": f"{files}: more than {MAX_MEMORY >> 20} MiB of memory to read"}


def _part(path: str, payload: Json) -> ExpectedOf:
    """Return what gives the expected half in one file; its notes name the file.

    Raises Malformed if it is no file, too large, or changes meanwhile.
    """
    try:
        # O_NONBLOCK: opening a FIFO without a writer blocks.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            source = PlanContent(path, content(path, file))
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror or error}") from error
    if own.is_own(source):
        of_any = index_of(own.cables_of(source), payload["names"]).of_any
    elif own.is_labels(source):
        [plan] = own.read_labels(source)
        labels = from_labels(plan.labels, Naming(*payload["prefixes"]), path)
        of_any = lambda *_about: labels  # noqa: E731
    else:
        raise Malformed(f"{path}: neither bwagent's own CSV nor labels; convert it: {CONVERT}")
    notes = tuple(f"{path}: {note}" for note in source.notes)
    return lambda *about: of_any(*about)._replace(notes=notes)


def content(path: str, file: BinaryIO) -> bytes:
    """Return the content of an open file; raises Malformed if it is not whole."""
    before = os.fstat(file.fileno())
    if not stat.S_ISREG(before.st_mode):
        raise Malformed(f"{path}: not a regular file")
    data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise Malformed(f"{path}: more than {MAX_SIZE >> 20} MiB; split it: {CONVERT}")
    after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Malformed(f"{path}: changed while it was read")
    return data
