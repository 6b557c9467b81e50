"""Skipping of tests whose real parts a host lacks; the project's own CI must have them all."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

# Builds and downloads; a user without an entry in passwd has no home, and none of them.
_CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
CACHE_OF_PARTS = Path(_CACHE) / "bwagent"


def lacks(*programs: str) -> str | None:
    """Return which of these programs this host lacks; None if it has them all."""
    absent = [program for program in programs if not shutil.which(program)]
    return f"not installed: {', '.join(absent)} (tests/apt-packages.txt)" if absent else None


def go_version(folder: Path, module: str) -> str:
    """Return the version of a Go module that the go.mod of a folder requires."""
    found = re.search(
        rf"^(?:require |\t){module} (\S+)", (folder / "go.mod").read_text(), re.MULTILINE
    )
    assert found
    return found[1]


def require(missing: str | None) -> None:
    """Skip the test when a part is missing, with the reason; fail it in CI, where a skip would hide
    it for ever.
    """
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
