"""Polls NVML in the background; an observation reads the cached answer.

NVML is polled at the intervals of agent/nvml/domain.py, and only if the last observation asked for
it: a node without GPUs starts no helper process.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Pending, Unavailable
from agent.model import Verdict
from agent.nvml.domain import Pace
from agent.reasons import AcceleratorReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.daemon.background import BackgroundTask
    from agent.host import Host
    from agent.model import Observation

    Answer = dict[str, Any]


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
