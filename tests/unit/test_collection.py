"""Collection defines tests and reads files of the repository: nothing else, and in one order."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Addresses of functions differ between two processes too, and with them the order of a set.
FOLDERS = ("tests/unit", "tests/simulation")


def collected(repository: Path, seed: int) -> list[str]:
    """Collect all tests in a process that may start no other and open no socket."""
    plugins = ("-p", "tests.support.inert", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--collect-only", "-q", *FOLDERS],
        cwd=repository,
        env={"PATH": "/nonexistent", "PYTHONHASHSEED": str(seed)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-4000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_collection_starts_nothing_and_has_one_order(repository: Path) -> None:
    """Two processes with other hashes and addresses find the same tests in the same order."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(partial(collected, repository), (1, 2))
    assert first == second
    assert len(first) > 1000
    assert not [line for line in first if " at 0x" in line]
