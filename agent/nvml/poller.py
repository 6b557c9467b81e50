"""Host.gpus of a live node: queries NVML by the helper's verb `nvml` (agent/helper/main.py).

NVML is not loaded into the agent: held open it blocks driver upgrades, and its calls may hang. The
daemon polls it in the background, and an observation reads the cached answer. It is polled only if
the last observation asked for it: a node without GPUs starts no helper process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from agent.errors import Malformed, Pending, Unavailable
from agent.ids import PCI
from agent.model import NvlinkDomain, Observation
from agent.nvml import decode
from agent.pace import doubled
from agent.reasons import AcceleratorReason
from agent.text import Json

if TYPE_CHECKING:  # not part of this layer
    from agent.daemon.background import BackgroundTask
    from agent.helper.process import ForkServer

VERB = "nvml"
TIMEOUT = 30.0  # seconds; initialization is slow if no process keeps the driver loaded
LIBRARY = "nvml_library"  # the option --nvml-library
POLL_INTERVAL = 60.0  # seconds between two queries
REGISTERING_INTERVAL = 10.0  # seconds, while a GPU registers
MAX_REGISTERING = 600.0  # seconds of registration after which POLL_INTERVAL applies again
MAX_MISSING_INTERVAL = 600.0  # seconds, while library or driver is missing
MIN_QUERY_INTERVAL = 10.0  # seconds between two queries then, however many events happen


def by_helper(
    call: Callable[[str, Json, float], Json], options: Mapping[str, Any]
) -> Callable[[], Json]:
    """Return a query of the GPUs that starts a helper process each time."""
    payload = _payload(options)
    return lambda: call(VERB, payload, TIMEOUT)


def by_fork_server(
    start: Callable[[str, float], ForkServer], options: Mapping[str, Any]
) -> Callable[[], Json]:
    """Return a query of the GPUs by a fork server, for a daemon."""
    payload, server = _payload(options), start(VERB, TIMEOUT)

    def query() -> Json:
        answer = server.call(payload)
        if answer.get("library") is None and "/" not in payload.get("library", ""):
            # The dynamic loader never again searches a folder that did not exist.
            server.stop()
        return answer

    return query


def _payload(options: Mapping[str, Any]) -> Json:
    library = options.get(LIBRARY)
    return {"library": library} if library else {}


class Pace(NamedTuple):
    """The time of the next NVML query, in seconds of a monotonic clock; `Pace()` is due at once."""

    due: float = float("-inf")
    interval: float = POLL_INTERVAL
    registering_since: float | None = None
    missing: int = 0  # answers in a row without library or driver

    def after(self, domain: NvlinkDomain, now: float, *, is_missing: bool = False) -> Pace:
        """Return the pace after a query at `now`.

        REGISTERING_INTERVAL applies while a GPU registers, up to MAX_REGISTERING: registration may
        never end. A failed query leaves the start of the registration as it is. Where library or
        driver is missing, the interval doubles up to MAX_MISSING_INTERVAL.
        """
        is_registering = domain.reason is AcceleratorReason.IN_PROGRESS
        since = None
        if is_registering or domain.reason is AcceleratorReason.FAILED:
            since = self.registering_since
        if is_registering and since is None:
            since = now
        is_short = is_registering and since is not None and now - since < MAX_REGISTERING
        wait = min(REGISTERING_INTERVAL, self.interval) if is_short else self.interval
        if is_missing:
            wait = doubled(wait, max(wait, MAX_MISSING_INTERVAL), self.missing)
        return Pace(now + wait, self.interval, since, self.missing + 1 if is_missing else 0)


class NvmlPoller:
    """Host.gpus with a cache: calling it returns the last answer or raises Unavailable.

    `ask` queries NVML and may block for seconds.
    """

    source: ClassVar[str] = "nvml"

    def __init__(
        self,
        ask: Callable[[], Json],
        interval: float,
        task: BackgroundTask[Json],
    ) -> None:
        self.task = task
        self._ask = ask
        self._pace = Pace(interval=interval)
        self._answer: Json | Exception = Pending("NVML was not asked yet")
        self._verdict = NvlinkDomain(None, AcceleratorReason.FAILED)
        self._wanted = False  # the last observation asked for it
        self._answered: float | None = None  # arrival of an answer that is not observed yet
        self._queried = self._triggered = -math.inf  # times of the last query and event

    def __call__(self) -> Json:
        self._wanted = True
        if isinstance(self._answer, Exception):
            kind = Pending if isinstance(self._answer, Pending) else Unavailable
            raise kind(str(self._answer))
        return self._answer

    def begin_cycle(self) -> None:
        self._wanted = False

    def observed(self, observation: Observation) -> None:
        self.judged(observation.accelerator)

    def trigger(self, now: float, event: tuple[str, str]) -> None:
        """Look for a missing library or driver when a driver binds a PCI function, or on SIGHUP.

        No other event concerns GPUs, but those that were missed may.
        """
        kind, subject = event  # agent/events/event.py
        is_bound = kind == "device" and PCI.fullmatch(subject)
        if is_bound or kind in ("signal", "resync"):
            self._triggered = now

    def judged(self, domain: NvlinkDomain) -> None:
        """Set the next poll's time by the verdict over the last answer."""
        self._verdict = domain
        if self._answered is not None:
            try:
                failed, _ = decode.answer(self._answer)
            except Malformed:
                failed = None
            is_missing = failed is not None and failed.error in decode.NOT_INSTALLED
            self._pace = self._pace.after(domain, self._answered, is_missing=is_missing)
            self._answered = None

    def start_due(self, now: float) -> None:
        if self.next_due() <= now:
            self._queried = now
            self.task.start(self._ask)

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        same = answer == self._answer
        if isinstance(answer, Exception):  # two are equal by their text
            same = (type(answer), str(answer)) == (type(self._answer), str(self._answer))
        self._answer, self._answered = answer, now
        if same:
            self.judged(self._verdict)
        return not same

    def next_due(self) -> float:
        if not self._wanted or self.task.busy or self._answered is not None:
            return math.inf
        if self._pace.missing and self._triggered > self._queried:
            return min(self._pace.due, max(self._triggered, self._queried + MIN_QUERY_INTERVAL))
        return self._pace.due
