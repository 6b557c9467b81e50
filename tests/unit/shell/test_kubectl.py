"""`kubectl bwagent`: the same program under the name of a plugin of kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.support.snapshots import NO_BYTECODE, REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

# As pip writes it where a path has a space: no line of `#!` can name such an interpreter.
SCRIPT = """\
#!/bin/sh
'''exec' "{}" "$0" "$@"
' '''
import sys
from agent.cli import main
sys.exit(main())
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with the plugin on PATH."""
    program = tmp_path / "bin/kubectl-bwagent"
    program.parent.mkdir()
    program.write_text(SCRIPT.format(sys.executable))
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path), **NO_BYTECODE}


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
    finished = run(environment, "kubectl-bwagent", "fleet", "export", "xml")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("kubectl bwagent fleet export: ")
