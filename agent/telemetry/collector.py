"""The exposition: a prometheus_client collector over the last snapshot of the metrics.

Invariants:
- No label value is longer than MAX_LABEL_LENGTH, and none has an unprintable character.
- No series is exposed twice. Of two samples with equal labels the first counts.

The registry is the agent's own. Of prometheus_client's default collectors it has four metrics of
the process, which are read from /proc/self at the scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from agent.metric import COUNTER
from agent.telemetry.families import COUNTED, OBSERVED
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.metric import Metric, Sample
    from agent.model import Observation
    from agent.telemetry.metrics import Metrics

    Family = CounterMetricFamily | GaugeMetricFamily

T = TypeVar("T")

MAX_LABEL_LENGTH = 128  # characters
# Names of families: prometheus_client appends _total to that of a counter.
PROCESS = frozenset(
    {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    }
)


def registry(metrics: Metrics) -> CollectorRegistry:
    """Return a registry of the agent's metrics, and of no others."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(metrics))
    registry.register(OwnProcess())
    return registry


class SnapshotCollector:
    """Computes every row of the table from the last snapshot; called in the server's threads.

    The rows of an observation are computed once and kept until there is another observation: most
    scrapes of an idle node find the one of the scrape before.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._observed: tuple[Observation | None, list[Family]] = (None, [])

    def collect(self) -> Iterator[Family]:
        """Return the families that have samples."""
        now = self._metrics.snapshot
        counted = [family(row, now) for row in COUNTED]
        yield from (one for one in (*self._of(now.observation), *counted) if one.samples)

    def describe(self) -> Iterable[Family]:
        """Return the names of all families, for `/metrics?name[]=`."""
        return [*map(_empty, OBSERVED), *map(_empty, COUNTED)]

    def _of(self, observation: Observation | None) -> list[Family]:
        """Return the families of an observation; those of the last one are kept."""
        last, families = self._observed
        if observation is not last:
            families = [family(row, observation) for row in OBSERVED] if observation else []
            self._observed = observation, families
        return families


class OwnProcess:
    """CPU time, memory, descriptors and start time of this process."""

    def __init__(self) -> None:
        self._all = ProcessCollector(registry=None)

    def collect(self) -> Iterable[Any]:
        """Return the families in PROCESS; fewer if /proc/self cannot be read."""
        return [family for family in self._all.collect() if family.name in PROCESS]

    describe = collect


def family(row: Metric[T], of: T) -> Family:
    """Return a metric with its samples; a value of None is unknown and left out."""
    found = _empty(row)
    for labels, value in _series(row.samples(of)).items():
        found.add_metric(labels, value)
    return found


def _series(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    """Return the known values by their label values as they are shown; the first counts."""
    series: dict[tuple[str, ...], float] = {}
    for labels, value in samples:
        if value is not None:
            shown = tuple(visible(label or "", MAX_LABEL_LENGTH) for label in labels)
            series.setdefault(shown, value)
    return series


def _empty(row: Metric[T]) -> Family:
    kind = CounterMetricFamily if row.kind == COUNTER else GaugeMetricFamily
    return kind(row.name, row.text, labels=row.labels)
