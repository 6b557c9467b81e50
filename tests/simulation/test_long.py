"""Long runs of one agent with a fault every hour: its memory and descriptors do not grow."""

from __future__ import annotations

import gc
import os
import random
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation import catalog, no_backend, process, sensors
from tests.simulation.scenario import machine, play
from tests.simulation.world import World

DAY = 24 * 3600.0  # seconds
# Bytes of the agent's own that the last quarter may have more than the first half: what is loaded
# at the first fault of its kind, as tables and caches, is there by then.
MOST_MORE = 32 << 10
SEEDS = {"RoCE": 6, "InfiniBand": 3}
DEADLY = (  # faults that end the agent, or may
    process.killed,
    process.crash_loop,
    process.rebooted,
    sensors.out_of_memory,
    no_backend.attribute_fails,
    no_backend.device_fails,
)


class Mark(NamedTuple):
    """Resources of the process."""

    allocated: int  # bytes by the agent's code
    descriptors: int


def mark() -> Mark:
    """Measure the resources after a garbage collection.

    CPython's cache of the attributes of types is emptied: it keeps a name of 63 bytes for each of
    up to 4,096 entries, `__match_args__` for a class pattern, and which ones is chance: the entry
    depends on the address of the name.
    """
    gc.collect()
    getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()  # noqa: SLF001 - documented
    snapshot = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=True, filename_pattern="*/agent/*")]
    )
    own = sum(trace.size for trace in snapshot.traces)
    return Mark(own, len(os.listdir("/proc/self/fd")))


@contextmanager
def measured() -> Iterator[None]:
    """Trace allocations, without coverage: its record of a line counts as that line's memory."""
    coverage = sys.gettrace()
    sys.settrace(None)
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()
        sys.settrace(coverage)


@pytest.mark.parametrize("days", [0.2, pytest.param(3.0, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("fabric", SEEDS)
def test_nothing_grows(fabric: str, days: float) -> None:
    """Memory and descriptors at the end of a run are those of its first half."""
    rng = random.Random(SEEDS[fabric])  # noqa: S311 - a simulation
    node = machine(rng)
    assert node.infiniband == (fabric == "InfiniBand")
    assert len(node.hcas) >= 2
    world = World(replace(node, hcas=node.hcas[:3]), 0)
    marks: list[Mark] = []
    drawn = [fault for _ in range(int(days * 24)) if (fault := catalog.draw(rng)) not in DEADLY]
    for quarter in range(1, 5):
        world.at(days * DAY * quarter / 4, lambda: marks.append(mark()))
    with measured():
        report = play(world, SEEDS[fabric], rng, drawn, days * DAY)
    assert not report.violations, report.told()
    assert report.counts["kills"] == 0
    first = max(mark.allocated for mark in marks[:2])
    assert marks[-1].allocated - first < MOST_MORE, marks
    assert marks[-1].descriptors <= marks[0].descriptors, marks


def test_the_marks_can_tell() -> None:
    """Memory that the agent's code allocates and keeps is measured."""
    from agent.lldp.neighbors import NeighborTable

    with measured():
        before = mark()
        table = NeighborTable()
        for number in range(2000):
            table.set_link(f"eth{number}", 0.0, up=True)
        after = mark()
    assert after.allocated - before.allocated > MOST_MORE
    with Path("/dev/null").open() as _held:
        assert mark_descriptors() == after.descriptors + 1


def mark_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
