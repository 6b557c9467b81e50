"""`kubectl bwagent`, started by kubectl."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.on_path import INSTALLED, on_path
from tests.support.real_parts import require
from tests.support.snapshots import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with the plugin on PATH."""
    return on_path(tmp_path, "kubectl-bwagent", INSTALLED)


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_starts_it(environment: dict[str, str]) -> None:
    """With its arguments; kubectl passes on its exit code."""
    require(None if shutil.which("kubectl") else "kubectl is missing")
    words = ("probe", "--replay", str(FIXTURES / "dgx-h100"), "-o", "labels")
    finished = run(environment, "kubectl", "bwagent", *words)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == (FIXTURES / "dgx-h100/expected.labels").read_text()
    assert run(environment, "kubectl", "bwagent", "fleet", "--nosuch").returncode == 2
