"""`kubectl bwagent`, started by kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.real_parts import require
from tests.support.snapshots import FIXTURES, NO_BYTECODE, REPOSITORY

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


def test_kubectl_starts_it(environment: dict[str, str]) -> None:
    """With its arguments; kubectl passes on its exit code."""
    require(None if shutil.which("kubectl") else "kubectl is missing")
    words = ("probe", "--replay", str(FIXTURES / "dgx-h100"), "-o", "labels")
    finished = run(environment, "kubectl", "bwagent", *words)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == (FIXTURES / "dgx-h100/expected.labels").read_text()
    assert run(environment, "kubectl", "bwagent", "fleet", "--nosuch").returncode == 2
