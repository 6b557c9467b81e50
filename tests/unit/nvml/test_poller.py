"""The GPUs are queried at an interval, and an observation reads the last answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.daemon.background import BackgroundTask
from agent.errors import Pending, Unavailable
from agent.model import Verdict
from agent.nvml.poller import NvmlPoller
from agent.reasons import AcceleratorReason

if TYPE_CHECKING:
    from collections.abc import Callable


def inline(work: Callable[[], None]) -> None:
    """Run the work in the caller's thread."""
    work()


def test_nvml_is_queried_once_per_interval() -> None:
    """Not before an observation needs it, then each interval; an equal answer is no change."""
    gpus = NvmlPoller(lambda: {"n": 0}, 60.0, BackgroundTask(inline))
    gpus.start_due(0.0)
    assert not gpus.task.busy
    with pytest.raises(Pending, match="not asked yet"):
        gpus()
    gpus.start_due(0.0)
    assert gpus.collect(0.1)
    assert gpus.next_due() == float("inf")
    assert gpus() == {"n": 0}
    gpus.judged(Verdict("x.1"))
    assert gpus.next_due() == pytest.approx(60.1)
    gpus.start_due(60.1)
    assert not gpus.collect(60.2)
    assert gpus.next_due() == pytest.approx(120.2)


def test_every_observation_has_the_error_of_a_query_that_hangs() -> None:
    """And the same failure again is no change."""

    def query() -> dict[str, Any]:
        raise Unavailable("helper nvml: no answer within 30 s")

    gpus = NvmlPoller(query, 60.0, BackgroundTask(inline))
    for expected in (True, False):
        with pytest.raises(Unavailable):
            gpus()
        gpus.start_due(1000.0)
        assert gpus.collect(1000.0) is expected
        gpus.judged(Verdict(None, AcceleratorReason.FAILED))
        gpus.start_due(2000.0)
        gpus.collect(2000.0)
    with pytest.raises(Unavailable, match="within 30 s"):
        gpus()
