"""Labels that are made of the memory of facts are as right as those that are held as texts."""

from __future__ import annotations

import pytest

from tests.simulation.assembly import Variant
from tests.simulation.beside import MemoryObserver
from tests.simulation.scenario import run

SCENARIOS, CHUNK = 40, 20
JOINED = ("leaves ", "ib.coreweave.cloud/ports.current ")  # tests/simulation/beside.py


@pytest.mark.parametrize("first", range(0, SCENARIOS, CHUNK))
def test_no_fault_makes_a_label_of_the_memory_wrong(first: int) -> None:
    """But for the joined texts, which follow each port as soon as it is read."""
    found = []
    for seed in range(first, first + CHUNK):
        report = run(seed, Variant(observer=MemoryObserver))
        wrong = [
            line for line in report.violations if not line.split(maxsplit=1)[1].startswith(JOINED)
        ]
        found += [f"seed {seed}: {line}" for line in wrong]
    assert not found, "\n".join(found)
