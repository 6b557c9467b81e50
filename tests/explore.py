"""Search for new random examples: `python -m tests.explore [--seed N] [--minutes N]`.

Runs, in turn, the property tests of a file of tests/unit with new examples, and new seeds of the
simulation. Each has a seed of its own, drawn from the one that is printed first; a failure is
printed with the command that repeats it. What is found becomes an `@example` of the property, or a
fixed seed in tests/simulation.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from threading import Lock
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
SCENARIOS = 20  # of the simulation, in one process
PROPERTIES = ("-q", "-p", "no:cacheprovider", "-m", "hypothesis", "--hypothesis-profile=explore")
COUNT = re.compile(r"(\d+) (passed|scenarios)")


class Step(NamedTuple):
    """One process: `python -m` with these arguments."""

    kind: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"python -m {' '.join(self.arguments)}"


def main() -> int:
    """Search until the time is over; return 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--seed", type=int, help="a random one if left out")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("simulation", "properties"))
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)  # noqa: T201 - a report
    search = Search(steps(random.Random(seed), options.only), options.minutes * 60)  # noqa: S311
    with ThreadPoolExecutor(options.processes) as pool:
        for worker in [pool.submit(search.work) for _ in range(options.processes)]:
            worker.result()
    for name, count in sorted(search.counts.items()):
        print(f"{count:10}  {name}")  # noqa: T201
    print(f"{search.failed} failed; the seed was {seed}")  # noqa: T201
    return int(search.failed > 0)


def steps(rng: random.Random, only: str | None) -> Iterator[Step]:
    """Yield the steps of a seed, without an end."""
    files = [
        str(path.relative_to(REPOSITORY))
        for path in sorted((REPOSITORY / "tests/unit").rglob("test_*.py"))
        if "from hypothesis import" in path.read_text()
    ]
    rng.shuffle(files)
    for file in cycle(files):
        seeds = [str(rng.randrange(1 << 31)) for _ in range(2)]
        if only != "simulation":
            command = ("pytest", *PROPERTIES, f"--hypothesis-seed={seeds[0]}", file)
            yield Step("properties", command)
        if only != "properties":
            arguments = ("tests.simulation", "--seed", seeds[1], "--scenarios", str(SCENARIOS))
            yield Step("simulation", arguments)


class Search:
    """The steps, their counts and their failures."""

    def __init__(self, steps: Iterator[Step], seconds: float) -> None:
        self.counts: Counter[str] = Counter()
        self.failed = 0
        self._steps, self._end, self._lock = steps, time.monotonic() + seconds, Lock()

    def work(self) -> None:
        """Run one step after the other; one that is not done at the end is killed."""
        while (left := self._end - time.monotonic()) > 0:
            with self._lock:
                step = next(self._steps)
            command = [sys.executable, "-m", *step.arguments]
            try:
                done = subprocess.run(
                    command, cwd=REPOSITORY, capture_output=True, text=True, timeout=left,
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return
            with self._lock:
                self._note(step, done)

    def _note(self, step: Step, done: subprocess.CompletedProcess[str]) -> None:
        self.counts[f"{step.kind}: processes"] += 1
        for count, noun in COUNT.findall(done.stdout.rpartition("\n\n")[2]):
            self.counts[f"{step.kind}: {noun}"] += int(count)
        if done.returncode:
            self.failed += 1
            print(f"{done.stdout}{done.stderr}\nagain: {step}\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
