"""Which end the error counters of a link accuse: `python -m benchmarks.bad_links`.

From the repository. For each place of the errors and each rate, NODES modeled nodes of eight links,
one of them bad; all ends have up to one error an hour beside, and totals of before. A reading is
an hour after the other. Prints a table of how often the verdict has the right end, another one,
or none, and how many of the seven other links are accused. Exits 1 if less than 99 of 100 are right
from 25 errors an hour on, or a quiet link is accused.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

from agent.infiniband.bad_link import BadEnd, judge
from tests.support.perf import modeled

NODES, PORTS, HOUR = 1000, 8, 3600.0
PLACES = {"near": BadEnd.NEAR, "far": BadEnd.FAR, "both": BadEnd.CABLE, "nowhere": BadEnd.QUIET}
RATES = (5, 10, 15, 25, 50, 250)  # errors an hour
SURE = 25


def verdicts(place: str, rate: float) -> tuple[Counter[BadEnd], int]:
    """Return the verdicts of the bad links, and the number of other links that are accused."""
    random, told, accused = Random(f"{place} {rate}"), Counter[BadEnd](), 0  # noqa: S311 - a model
    for _ in range(NODES):
        for port in range(PORTS):
            at = place if port == 0 else "nowhere"
            near, far = (
                modeled(random, rate if at in {end, "both"} else random.random())
                for end in ("near", "far")
            )
            end = judge(near, far, HOUR, "leaf port 1").end
            if port == 0:
                told[end] += 1
            else:
                accused += end is not BadEnd.QUIET
    return told, accused


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    print("| errors | an hour | right end | another | none | others accused |")
    print("|---|---|---|---|---|---|")
    is_missed = False
    for place, end in PLACES.items():
        for rate in RATES if end is not BadEnd.QUIET else (0,):
            told, accused = verdicts(place, rate)
            right, none = told[end], 0 if end is BadEnd.QUIET else told[BadEnd.QUIET]
            shares = (f"{count / NODES:.1%}" for count in (right, NODES - right - none, none))
            print(
                f"| {place} | {rate} | {' | '.join(shares)} | {accused} of {NODES * (PORTS - 1)} |"
            )
            is_sure = rate >= SURE or end is BadEnd.QUIET
            is_missed |= accused > 0 or (is_sure and right < 0.99 * NODES)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
