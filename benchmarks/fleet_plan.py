"""Cost of judging a fleet by a plan: `python -m benchmarks.fleet_plan [NODES]`.

NODES nodes (10,000) of 8 cables, one swap between two nodes in every hundred, and a plan in CSV
with a row for each cable, which spells the names of hosts otherwise. CPU seconds of reading the
plan, judging and printing, and the peak of resident memory. Reading the Nodes and the pattern are
not in these numbers. More than LIMIT us of CPU time a cable is a failure.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TypeVar

from agent.cabling.plans.reader import read_plan
from agent.fleet.judge import judge
from agent.fleet.model import Fleet
from agent.fleet.report import FORMATS
from tests.support.planned_fleets import no_pattern
from tests.support.small_fleets import far_end, fleet, node

T = TypeVar("T")
RAILS, CREW = 8, 64  # cables of a node, nodes of a set of leaves
LIMIT = 50.0  # us a cable: reading its row, judging, printing


def end(number: int, rail: int) -> tuple[str, str]:
    """Return the planned far end of a node's cable."""
    return f"leaf{number // CREW * RAILS + rail:04}", f"swp{number % CREW + 1}"


def wired(count: int) -> Fleet:
    """Return the fleet, with a swap of two nodes in every hundred."""
    nodes = []
    for number in range(count):
        other = number ^ 1 if number % 100 < 2 else number
        ends = [end(other if rail == 3 else number, rail) for rail in range(RAILS)]
        nodes.append(node(f"gpu-{number:05}", [far_end(*one) for one in ends]))
    return fleet(nodes)


def plan_text(count: int) -> str:
    """Return the plan as CSV."""
    rows = (
        f"GPU-{number:05}.example.com,mlx5_{rail},{','.join(end(number, rail))},"
        for number in range(count)
        for rail in range(RAILS)
    )
    return "\n".join(["node,interface,device,port-id,port-name", *rows, ""])


def timed(title: str, work: Callable[[], T]) -> T:
    """Print the CPU seconds of a part."""
    start = time.process_time()
    result = work()
    print(f"{title:12}{time.process_time() - start:8.2f} s")
    return result


def main(count: int) -> int:
    """Print the parts; return 1 if a cable costs more than LIMIT."""
    members = wired(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.csv")
        path.write_text(plan_text(count))
        start = time.process_time()
        plans = timed("plan", lambda: read_plan(str(path), None))
    result = timed("judge", lambda: judge(members, plans, infer=no_pattern))
    text = timed("table", lambda: FORMATS["table"](result))
    cost = (time.process_time() - start) / (count * RAILS) * 1e6
    print(text.splitlines()[0])
    print(f"{cost:.1f} us a cable, {getrusage(RUSAGE_SELF).ru_maxrss >> 10} MB")
    return int(cost > LIMIT)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 10_000))
