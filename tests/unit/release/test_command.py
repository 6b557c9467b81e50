"""`python -m release`, which `nox -s release` starts: what it refuses, in one line."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from release.errors import Refused
from release.image import checked_base

if TYPE_CHECKING:
    from pathlib import Path


def release(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "release", *arguments]
    return subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    "base", [None, "", "python:3.13", "python@sha256:12", "@sha256:" + 64 * "a"]
)
def test_a_base_without_its_digest(base: str | None) -> None:
    """A tag moves, and the image that it made could not be built again."""
    with pytest.raises(Refused, match=r"^--base .*: name it by its digest"):
        checked_base(base)


def test_a_base_with_its_digest() -> None:
    """A name with a port and a digest is a base."""
    base = f"registry.example.com:5000/python@sha256:{64 * 'a'}"
    assert checked_base(base) == base


@pytest.mark.slow
def test_no_release_without_its_tag(repository: Path, tmp_path: Path) -> None:
    """A copy of the repository without tags makes no release, and writes nothing."""
    copy = tmp_path / "copy"
    clone = ["git", "clone", "-q", "--no-tags", "--depth=1", f"file://{repository}", str(copy)]
    done = subprocess.run(clone, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no git checkout: {done.stderr.strip()}")
    refused = release(copy, "--source", "https://example.com/bwagent")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("release: HEAD is not v")
    assert refused.stderr.count("\n") == 1
    assert not (copy / "dist").exists()
