"""`kubectl bwagent`: the same program under the name of a plugin of kubectl."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.on_path import INSTALLED, on_path
from tests.support.snapshots import REPOSITORY


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return on_path(tmp_path, "kubectl-bwagent", INSTALLED)


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_both_programs_are_one() -> None:
    """The plugin is installed beside the program."""
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-bwagent"] == scripts["bwagent"]


def test_the_plugin_has_its_name(environment: dict[str, str]) -> None:
    """In usage and errors, as it is typed."""
    assert run(environment, "kubectl-bwagent", "fleet", "--help").stdout.startswith(
        "Usage: kubectl bwagent fleet "
    )
    told = run(environment, "kubectl-bwagent", "--help").stdout.partition("Commands:\n")[2]
    assert "  capture " in told
    assert "..." not in told  # click cuts off what is too long for the list
    finished = run(environment, "kubectl-bwagent", "fleet", "export", "xml")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("kubectl bwagent fleet export: ")
