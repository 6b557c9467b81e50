"""Host.gpus of a live node: queries NVML by the helper's verb `nvml` (agent/helper/main.py).

NVML is not loaded into the agent: held open it blocks driver upgrades, and its calls may hang. The
daemon polls it in the background, and an observation reads the cached answer. It is polled only if
the last observation asked for it: a node without GPUs starts no helper process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from agent.errors import Pending, Unavailable
from agent.model import Observation, Verdict
from agent.reasons import AcceleratorReason

if TYPE_CHECKING:  # not part of this layer
    from agent.daemon.background import BackgroundTask
    from agent.helper.forkserver import ForkServer
    from agent.host import Host

VERB = "nvml"
TIMEOUT = 30.0  # seconds; initialization is slow if no process keeps the driver loaded
LIBRARY = "nvml_library"  # the option --nvml-library
POLL_INTERVAL = 60.0  # seconds between two queries
REGISTERING_INTERVAL = 10.0  # seconds, while a GPU registers
MAX_REGISTERING = 600.0  # seconds of registration after which POLL_INTERVAL applies again

Fields = dict[str, Any]
Answer = dict[str, Any]
Options = Mapping[str, Any]


def by_helper(call: Callable[[str, Fields, float], Fields], options: Options) -> Fields:
    """Return the fields of a Host that start one helper process for each query."""
    payload = _payload(options)
    return {"gpus": lambda: call(VERB, payload, TIMEOUT), "gpus_off_bus": "library" in payload}


def by_fork_server(start: Callable[[str, float], ForkServer], options: Options) -> Fields:
    """Return the fields of a Host that query by a fork server, for a daemon."""
    payload = _payload(options)
    query = partial(_query, start(VERB, TIMEOUT), payload)
    return {"gpus": query, "gpus_off_bus": "library" in payload}


def _payload(options: Options) -> Fields:
    library = options.get(LIBRARY)
    return {"library": library} if library else {}


def _query(server: ForkServer, payload: Fields) -> Fields:
    answer = server.call(payload)
    if answer.get("library") is None and "/" not in payload.get("library", ""):
        # The dynamic loader never again searches a folder that did not exist.
        server.stop()
    return answer


class Pace(NamedTuple):
    """The time of the next NVML query, in seconds of a monotonic clock; `Pace()` is due at once."""

    due: float = float("-inf")
    interval: float = POLL_INTERVAL
    registering_since: float | None = None

    def after(self, found: Verdict, now: float) -> Pace:
        """Return the pace after a query at `now`.

        REGISTERING_INTERVAL applies while a GPU registers, up to MAX_REGISTERING: registration may
        never end. A failed query leaves the start of the registration as it is.
        """
        is_registering = found.reason is AcceleratorReason.IN_PROGRESS
        since = None
        if is_registering or found.reason is AcceleratorReason.FAILED:
            since = self.registering_since
        if is_registering and since is None:
            since = now
        is_short = is_registering and since is not None and now - since < MAX_REGISTERING
        wait = min(REGISTERING_INTERVAL, self.interval) if is_short else self.interval
        return Pace(now + wait, self.interval, since)


class NvmlPoller:
    """Host.gpus with a cache: calling it returns the last answer or raises Unavailable.

    `ask` queries NVML and may block for seconds.
    """

    source: ClassVar[str] = "nvml"

    def __init__(
        self,
        ask: Callable[[], Answer],
        interval: float,
        task: BackgroundTask[Answer],
    ) -> None:
        self.task = task
        self._ask = ask
        self._pace = Pace(interval=interval)
        self._answer: Answer | Exception = Pending("NVML was not asked yet")
        self._verdict = Verdict(None, AcceleratorReason.FAILED)
        self._wanted = False  # the last observation asked for it
        self._answered: float | None = None  # arrival of an answer that is not observed yet

    def __call__(self) -> Answer:
        self._wanted = True
        if isinstance(self._answer, Exception):
            kind = Pending if isinstance(self._answer, Pending) else Unavailable
            raise kind(str(self._answer))
        return self._answer

    def begin_cycle(self) -> None:
        self._wanted = False

    def observed(self, observation: Observation) -> None:
        self.judged(observation.accelerator)

    def trigger(self, now: float) -> None:
        """Keep the pace: no event concerns GPUs."""

    def judged(self, found: Verdict) -> None:
        """Set the next poll's time by the verdict over the last answer."""
        self._verdict = found
        if self._answered is not None:
            self._pace, self._answered = self._pace.after(found, self._answered), None

    def start_due(self, now: float) -> None:
        if self.next_due() <= now:
            self.task.start(self._ask)

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        same = _equal(answer, self._answer)
        self._answer, self._answered = answer, now
        if same:
            self.judged(self._verdict)
        return not same

    def next_due(self) -> float:
        idle = self._wanted and not self.task.busy and self._answered is None
        return self._pace.due if idle else math.inf


def _equal(one: Answer | Exception, other: Answer | Exception) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other) and str(one) == str(other)
    return one == other


def make(
    host: Host, options: Mapping[str, Any], task: BackgroundTask[Answer]
) -> tuple[NvmlPoller, dict[str, Any]]:
    """Return the poller, and the fields of a Host that read its cache."""
    poller = NvmlPoller(host.gpus, options["gpu_interval"], task)
    return poller, {"gpus": poller}
