"""`bwagent completion`: the scripts for zsh and fish, loaded by them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.on_path import MODULE, on_path
from tests.support.real_parts import require
from tests.support.snapshots import bwagent

if TYPE_CHECKING:
    from pathlib import Path


FISH = "source {script}; complete --do-complete '{line}'"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with `bwagent` on PATH."""
    return on_path(tmp_path, "bwagent", MODULE)


def script_of(shell: str, folder: Path) -> Path:
    """Write what `completion` prints into a file."""
    path = folder / f"completion.{shell}"
    path.write_bytes(bwagent("completion", shell).stdout)
    return path


def require_shell(name: str) -> None:
    """Skip the test without this shell."""
    require(None if shutil.which(name) else f"{name} is missing")


def test_zsh_loads_the_script(environment: dict[str, str], tmp_path: Path) -> None:
    """And registers it for the program."""
    require_shell("zsh")
    code = f"autoload -U compinit; compinit -u; source {script_of('zsh', tmp_path)}; "
    code += "echo ${_comps[bwagent]}"
    command = ["zsh", "-f", "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (printed.stdout, printed.stderr) == ("_bwagent_completion\n", "")


def test_fish_completes(environment: dict[str, str], tmp_path: Path) -> None:
    """A command, with the begin of its help."""
    require_shell("fish")
    code = FISH.format(script=script_of("fish", tmp_path), line="bwagent cap")
    command = ["fish", "--no-config", "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in printed.stdout.splitlines()] == ["capture"]
