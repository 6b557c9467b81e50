"""Cost of a comparison: `python -m benchmarks.verify [ROUNDS]`, from the repository.

A node of 64 backend ports is compared with a plan that spells every name otherwise: as planned, and
with all cables in one ring, the worst case. The caches of names are cleared before each round, as
in a command that compares once; the last column keeps them, as a daemon does. More than 50 us of
CPU time a port for a node as planned is a failure.

The last line is the time to take the rows of one node out of a plan of 100,000 cables.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from agent.cabling import cables, names
from agent.cabling.judge import verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable
from tests.support.cabling import node, plan

PORTS = 64
CABLES = 100_000
CACHES = [
    one
    for module in (names, cables)
    for one in vars(module).values()
    if hasattr(one, "cache_clear")
]
LIMIT = 50.0  # us a port
ENDS = [(f"leaf{number:02}.dc1.example.com", f"Ethernet{number}/1") for number in range(PORTS)]
PLANNED = [(f"LEAF{number:02}", f"Eth{number}/1") for number in range(PORTS)]


def cold() -> None:
    """Clear the caches of compared names."""
    for cached in CACHES:
        cached.cache_clear()


def measure(work: Callable[[], object], rounds: int, before: Callable[[], object]) -> float:
    """Return the median microseconds a port."""
    times = []
    for _ in range(rounds):
        before()
        start = time.process_time()
        work()
        times.append((time.process_time() - start) / PORTS * 1e6)
    return statistics.median(times)


def fleet() -> Plan:
    """Return a plan of CABLES cables, eight for each node."""
    cables = tuple(
        PlanCable(
            End(f"gpu-{number // 8:05}", f"mlx5_{number % 8}"),
            End(f"leaf{number % 800:03}", f"swp{number // 800}"),
            FilePlace("plan.csv", None, number + 2),
        )
        for number in range(CABLES)
    )
    return Plan("plan.csv", "own", None, cables)


def main(rounds: int) -> int:
    """Print the table; return 1 if a comparison is slower than LIMIT."""
    expected = plan(PLANNED)
    ring = node([*ENDS[1:], ENDS[0]])
    results = []
    print(f"{PORTS} ports{'':14}{'us a port':>10}{'again':>10}")
    for title, seen in (("as planned", node(ENDS)), ("in a ring", ring)):
        first = measure(lambda seen=seen: verify(expected, seen), rounds, cold)  # type: ignore[misc]
        again = measure(lambda seen=seen: verify(expected, seen), rounds, lambda: None)  # type: ignore[misc]
        results += [first, again]
        print(f"{title:22}{first:10.1f}{again:10.1f}")
    large = fleet()
    start = time.process_time()
    from_plans([large], ["gpu-00017"])
    print(f"rows of one node of {CABLES} cables: {time.process_time() - start:.2f} s")
    return int(max(results[:2]) > LIMIT)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 20))
