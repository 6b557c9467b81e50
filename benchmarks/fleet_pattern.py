"""Precision, recall and cost of the pattern: `python -m benchmarks.fleet_pattern [SEEDS]`.

Fleets of 1,024 nodes of each regular shape get faults of one kind, or of all kinds mixed, at four
rates (the part of the cables that are wrong). The oracle is the list of what was injected, and
tests/support/fleet_models.py says when a finding is right. A fault counts if it has a cable off its
leaf: which port of a leaf is right, only a plan says. A cell is `recall`, with the precision
before it unless that is 1. The seeds are 0, 1, 2, and so on; each has another style of names.

Then fabrics whose storage leaves hold more nodes than a compute unit has: none may have a finding
without a fault. Then the CPU time and the memory of one inference, on top of the model, for fleets
of three sizes.
More than 15 s or 300 MB for 100,000 nodes is a failure, and so is a wrong finding at up to 5 %.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Sequence
from itertools import product

from agent.fleet.pattern.infer import infer
from tests.support import fleets
from tests.support.fleet_models import Score, model, score
from tests.support.fleets import Shape, storage_leaves

NODES = 1024
RATES = (0.001, 0.01, 0.05, 0.2)
KINDS = {**{kind: (kind,) for kind in fleets.KINDS}, "mixed": fleets.KINDS}
UNITS, CABLES, UNITS_OF_FLEET = (16, 18, 20, 32), ((8, 2), (4, 1), (8, 1)), (2, 3, 8)
SIZES = (1_000, 10_000, 100_000)
MAX_SECONDS, MAX_MEGABYTES = 15.0, 300.0  # of 100,000 nodes


def measured(shape: Shape, kinds: Sequence[str], rate: float, seeds: int) -> Score:
    """Return the sum of the scores of all seeds."""
    total = Score(0, 0, 0, 0)
    for seed in range(seeds):
        style = fleets.STYLES[seed % len(fleets.STYLES)]
        fleet = fleets.Fleet(shape, NODES, style=style, seed=seed)
        fleet.inject(rate, kinds)
        total += score(fleet, infer(model(fleet)).findings)
    return total


def cell(found: Score) -> str:
    """Return a cell of the table."""
    recall = f"{found.recall:.3f}"
    return recall if found.precision == 1 else f"{found.precision:.3f} {recall}"


def table(seeds: int) -> bool:
    """Print the table; return False if a finding at up to 5 % is wrong."""
    is_good = True
    print("| shape | fault | 0.1 % | 1 % | 5 % | 20 % | faults |")
    print("|---|---|---|---|---|---|---|")
    for shape in fleets.REGULAR:
        for name, kinds in KINDS.items():
            scores = [measured(shape, kinds, rate, seeds) for rate in RATES]
            faults = sum(one.faults for one in scores)
            cells = [shape.name, name, *map(cell, scores), str(faults)]
            print(f"| {' | '.join(cells)} |", flush=True)
            is_good &= all(one.precision == 1 for one in scores[:3])
    return is_good


def borders() -> bool:
    """Print the table of fabrics whose storage leaves end elsewhere; False if one is wrong."""
    print("\n| cables | unit | fabrics | false without faults | recall at 1 % |")
    print("|---|---|---|---|---|")
    is_good = True
    for unit in UNITS:
        for rails, cables in CABLES:
            false, total = 0, Score(0, 0, 0, 0)
            shapes = [
                fleets.with_storage(unit, rails, cables, leaf) for leaf in storage_leaves(unit)
            ]
            for shape, units in product(shapes, UNITS_OF_FLEET):
                fleet = fleets.Fleet(shape, unit * units)
                false += len(infer(model(fleet)).findings)
                fleet.inject(0.01)
                total += score(fleet, infer(model(fleet)).findings)
            fabrics = len(shapes) * len(UNITS_OF_FLEET)
            print(
                f"| {rails}+{cables} | {unit} | {fabrics} | {false} | {cell(total)} |", flush=True
            )
            is_good &= not false
    return is_good


def cost(size: int) -> tuple[float, float]:
    """Return the CPU seconds and the megabytes of an inference, with 1 % of faults."""
    fleet = fleets.Fleet(fleets.RAIL, size)
    fleet.inject(0.01)
    nodes = model(fleet)
    start = time.process_time()
    found = infer(nodes)
    seconds = time.process_time() - start
    del found
    tracemalloc.start()
    infer(nodes)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak


def main(seeds: int) -> int:
    """Print both tables; return 1 for a failure."""
    is_good = table(seeds) if seeds else True
    is_good &= borders()
    print(f"\n{'nodes of 8 ports':>16}{'CPU s':>8}{'MB':>8}")
    for size in SIZES:
        seconds, megabytes = cost(size)
        print(f"{size:16,}{seconds:8.2f}{megabytes:8.1f}", flush=True)
        is_good &= seconds <= MAX_SECONDS and megabytes <= MAX_MEGABYTES
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 5))
