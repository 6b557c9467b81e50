"""One look at the node: every source once, and none of them can fail the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.host import Reader
from agent.model import Failed, Observation, Problem, Reading, Seen
from agent.sources import rdma

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host import Host

# The name of a source is that of its field in Observation.
SOURCES: tuple[tuple[str, Callable[[Host], Reading[Any]]], ...] = (("rdma", rdma.read),)


def observe(host: Host) -> Observation:
    """Run the sources and put together what they saw."""
    readings = {name: _look(name, read, host) for name, read in SOURCES}
    boot_id, problems = _boot_id(host)
    for name, reading in readings.items():
        problems += reading.problems
        if not isinstance(reading.outcome, Seen):
            problems.append(Problem(name, name, None, reading.outcome.reason))
    outcomes: dict[str, Any] = {name: reading.outcome for name, reading in readings.items()}
    return Observation(time=host.clock(), node=host.name, boot_id=boot_id, problems=tuple(problems), **outcomes)


def _look(name: str, read: Callable[[Host], Reading[Any]], host: Host) -> Reading[Any]:
    try:
        return read(host)
    except Exception as error:  # noqa: BLE001 - a bug in one source must not take the labels of the others away
        return Reading(Failed(f"the {name} source broke: {error!r}"))


def _boot_id(host: Host) -> tuple[str | None, list[Problem]]:
    reader = Reader(host.root, "host")
    try:
        return reader.text("proc/sys/kernel/random/boot_id"), reader.problems
    except Unavailable as error:
        return None, [Problem("host", "boot_id", "ETIMEDOUT", str(error))]
