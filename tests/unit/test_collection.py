"""Collection defines tests and reads files of the repository, and nothing else.

That it has one order is seen by xdist, which compares those of its workers: they are processes
with other hashes and addresses.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("tests/unit", "tests/simulation")


@pytest.mark.slow
def test_collection_starts_nothing(repository: Path) -> None:
    """A process that may start no other and open no socket finds all tests, by lasting names."""
    plugins = ("-p", "tests.support.inert", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--collect-only", "-q", *FOLDERS],
        cwd=repository,
        env={"PATH": "/nonexistent"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-4000:]
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(found) > 1000
    assert not [line for line in found if " at 0x" in line]
