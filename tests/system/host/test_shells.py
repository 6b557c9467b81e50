"""`kubectl bwagent`, started by kubectl, and the completion of zsh and fish."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.on_path import INSTALLED, MODULE, on_path
from tests.support.real_parts import lacks, require
from tests.support.snapshots import FIXTURES, bwagent


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_starts_it(tmp_path: Path) -> None:
    """With its arguments; kubectl passes on its exit code."""
    environment = on_path(tmp_path, "kubectl-bwagent", INSTALLED)
    require(lacks("kubectl"))
    words = ("probe", "--replay", str(FIXTURES / "dgx-h100"), "-o", "labels")
    finished = run(environment, "kubectl", "bwagent", *words)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == (FIXTURES / "dgx-h100/expected.labels").read_text()
    assert run(environment, "kubectl", "bwagent", "fleet", "--nosuch").returncode == 2


FISH = "source {script}; complete --do-complete '{line}'"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return on_path(tmp_path, "bwagent", MODULE)


def script_of(shell: str, folder: Path) -> Path:
    """Write what `completion` prints into a file."""
    path = folder / f"completion.{shell}"
    path.write_bytes(bwagent("completion", shell).stdout)
    return path


def test_zsh_loads_the_script(environment: dict[str, str], tmp_path: Path) -> None:
    """And registers it for the program."""
    require(lacks("zsh"))
    code = f"autoload -U compinit; compinit -u; source {script_of('zsh', tmp_path)}; "
    code += "echo ${_comps[bwagent]}"
    command = ["zsh", "-f", "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (printed.stdout, printed.stderr) == ("_bwagent_completion\n", "")


def test_fish_completes(environment: dict[str, str], tmp_path: Path) -> None:
    """A command, with the begin of its help."""
    require(lacks("fish"))
    code = FISH.format(script=script_of("fish", tmp_path), line="bwagent cap")
    command = ["fish", "--no-config", "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in printed.stdout.splitlines()] == ["capture"]
