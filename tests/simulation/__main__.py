"""`python -m tests.simulation --scenarios 10000`: run many seeds, from a random one, count the
outcomes, and print the timeline of each seed that fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from multiprocessing import Pool

from tests.simulation.combinations import Case, cases
from tests.simulation.combinations import run as combined
from tests.simulation.scenario import Report, run


def main() -> int:
    """Run the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100)
    parser.add_argument("--seed", type=int, help="the first one; a random one if left out")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--timeline", action="store_true", help="print what happened, whether it was right or not"
    )
    parser.add_argument(
        "--combinations",
        metavar="WORDS",
        help='in place of seeds: each fault with each change whose name has these words; "": all',
    )
    parser.add_argument("--first", action="store_true", help="stop at the first that fails")
    options = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    words = options.combinations
    if words is None:
        print(f"seed {first}", flush=True)  # noqa: T201 - a report on the terminal
        jobs: Sequence[int | Case] = range(first, first + options.scenarios)
    else:
        jobs = [case for case in cases(every=True) if words in str(case)]
    counts: Counter[str] = Counter()
    started, failed, seconds = time.monotonic(), 0, 0.0
    with Pool(options.processes) if options.processes > 1 else nullcontext() as pool:
        reports = pool.imap(_run, jobs, 8) if pool else map(_run, jobs)
        for report in reports:
            counts.update(report.counts)
            seconds += report.seconds
            failed += bool(report.violations)
            _show(report, always=options.timeline)
            if options.first and report.violations:
                break
    for name, count in sorted(counts.items()):
        print(f"{count:10}  {name}")  # noqa: T201 - a report on the terminal
    took = time.monotonic() - started
    hours = seconds / 3600
    summary = f"{len(jobs)} scenarios, {hours:.0f} simulated hours, {took:.0f} s: {failed} failed"
    print(summary)  # noqa: T201 - a report on the terminal
    return int(failed > 0)


def _run(job: int | Case) -> Report:
    return run(job) if isinstance(job, int) else combined(job)


def _show(report: Report, *, always: bool) -> None:
    if report.violations or always:
        print(report.told(), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
