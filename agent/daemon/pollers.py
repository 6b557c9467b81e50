"""The pollers of all sources that have one; an observation reads their cached results.

Invariants:
- An observation may come at any time and never waits: a poller returns its last answer, or raises
  Unavailable. The loop starts polls and collects their results (`start_due`, `collect`).
- Nothing is queried that the last observation did not ask for.

A poller stands in the folder of its protocol (poller.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from agent.sources.table import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.daemon.background import BackgroundTask
    from agent.host import Host
    from agent.model import Observation


class Poller(Protocol):
    """A source that a helper process polls; an observation reads the cached result.

    The loop calls `begin_cycle` before an observation and `observed` after it, `start_due` and
    `collect` once a turn. Times are seconds of the loop's clock.
    """

    source: ClassVar[str]  # name of the source (agent/sources/table.py)
    task: BackgroundTask[Any]  # the poll under way

    def begin_cycle(self) -> None:
        """Forget which queries the previous observation needed."""

    def observed(self, observation: Observation) -> None:
        """Choose the next poll's time by what was observed."""

    def trigger(self, now: float) -> None:
        """Poll early: an event happened."""

    def start_due(self, now: float) -> None:
        """Start a poll if one is due."""

    def collect(self, now: float) -> bool:
        """Take a finished poll's result; True if an observation should read it."""

    def next_due(self) -> float:
        """Time at which `start_due` has something to start; infinity if none is needed."""


def pollers(
    host: Host, options: Mapping[str, Any], background: Callable[[], BackgroundTask[Any]]
) -> tuple[Host, tuple[Poller, ...]]:
    """Return the host with I/O that reads the pollers' caches, and the pollers.

    `host` queries and may block; `options` are the command line options by name; `background` makes
    the task in which one poller queries.
    """
    made = [source.poller(host, options, background()) for source in SOURCES if source.poller]
    fields = {name: query for _, polled in made for name, query in polled.items()}
    return replace(host, **fields), tuple(poller for poller, _ in made)
