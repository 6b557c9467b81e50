"""Cost of a round of SMPs: `python -m benchmarks.smp_round [ROUNDS]`, from the repository.

Over a stand-in libibumad whose ports answer at once, so that the agent's share is measured: a
fabric's own microseconds are added to it. A port gets two requests, one after the other; the ports
are queried all at the same time, in one child. The child without ports is its start and its JSON,
with ctypes imported but no library loaded; the difference to it is the round. The ways take turns
in one run, and CPU is that of the child and of starting it, from getrusage().

A round over eight ports may take 50 ms more than the child with none.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agent.helper.process import HelperProcesses
from benchmarks.nvml_poll import interpreter, measure
from tests.support import stand_in
from tests.support.real_parts import lacks

PORTS = 8
MANY = 64  # as many as the stand-in has
GOAL_MS = 50.0  # wall, above the child with no port
QUESTIONS = 2  # NodeInfo, NodeDescription


def child(library: str, ports: int) -> Callable[[], dict[str, Any]]:
    """Return a query of that many ports as the agent makes it; an unanswered port raises, since its
    cost differs.
    """
    asked = [(f"mlx5_{number}", 1) for number in range(ports)]
    work = partial(HelperProcesses().call, "smp", {"ports": asked, "library": library}, 10)
    for port in (answer := work()["ports"]):
        if port["error"] or [one["error"] for one in port["exchanges"]] != [None] * QUESTIONS:
            raise SystemExit(f"{port['device']} of the stand-in left a query unanswered")
    if len(answer) != ports:
        raise SystemExit(f"{len(answer)} ports in the answer about {ports}")
    return work


@contextmanager
def built() -> Iterator[str]:
    """Build the stand-in, without faults and without its log."""
    if reason := lacks("cc"):
        raise SystemExit(reason)
    for variable in ("STAND_IN", "STAND_IN_LOG"):
        os.environ.pop(variable, None)
    with tempfile.TemporaryDirectory() as folder:
        yield stand_in.build(Path(folder))


def main(rounds: int) -> int:
    """Print the table; return 1 if eight ports exceed the goal."""
    none, some, many = (f"smp child, {ports} ports" for ports in (0, PORTS, MANY))
    with built() as library:
        ways: dict[str, Callable[[], object]] = {
            "interpreter": interpreter("-c", "pass"),
            "interpreter, -I -S": interpreter("-I", "-S", "-c", "pass"),
            none: child(library, 0),
            some: child(library, PORTS),
            many: child(library, MANY),
        }
        results = measure(ways, rounds)
    start = results[none][0]
    print(f"medians of {rounds:<13}{'wall ms':>9}{'CPU ms':>9}{'above no port':>15}")
    for name, (wall, cpu) in results.items():
        above = f"{wall - start:15.1f}" if name in (some, many) else ""
        print(f"{name:24}{wall:9.1f}{cpu:9.1f}{above}")
    above_none = results[some][0] - start
    print(
        f"a round over {PORTS} ports: {above_none:.1f} ms above the child with none "
        f"(goal: {GOAL_MS:.0f})"
    )
    return int(above_none > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 40))
