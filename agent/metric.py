"""The type of one row in the table of metrics.

The rows are in agent/telemetry/metrics.py, which renders them, and for a metric of one data source
in the folder of that source's protocol, which needs no library for that.
"""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

# Label values in the row's order, and the value; None is unknown and has no series.
Sample = tuple[tuple[str | None, ...], float | None]

T = TypeVar("T")

GAUGE, COUNTER = "gauge", "counter"
OTHER = "other"  # label value for a word outside a metric's fixed list


class Metric(NamedTuple, Generic[T]):
    """A metric, and the function that computes its samples from a T."""

    name: str  # in the text format 0.0.4: a counter ends with _total
    kind: str  # GAUGE or COUNTER
    text: str  # the HELP line
    labels: tuple[str, ...]
    samples: Callable[[T], Iterable[Sample]]


def single(value: float | None) -> Iterable[Sample]:
    """Return the sample of a metric without labels."""
    return [((), value)]


def by_key(values: Iterable[tuple[str, float]]) -> Iterable[Sample]:
    """Return the samples of a metric with one label."""
    return [((key,), value) for key, value in values]
