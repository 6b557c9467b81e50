"""`bwagent completion`: the scripts, loaded by the shells themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.on_path import MODULE, on_path
from tests.support.snapshots import bwagent

# The script's function fills COMPREPLY from COMP_WORDS, as bash calls it.
BASH = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={place}
{function} bwagent
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return on_path(tmp_path, "bwagent", MODULE)


def script_of(shell: str, folder: Path) -> Path:
    """Write what `completion` prints into a file."""
    finished = bwagent("completion", shell)
    assert (finished.returncode, finished.stderr) == (0, b"")
    path = folder / f"completion.{shell}"
    path.write_bytes(finished.stdout)
    return path


def completed_by_bash(
    line: str, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    words = line.split(" ")
    code = BASH.format(
        script=script_of("bash", folder),
        words=" ".join(f"'{word}'" for word in words),
        place=len(words) - 1,
        function="_bwagent_completion",
    )
    return subprocess.run(
        ["bash", "--norc", "-c", code], env=environment, capture_output=True, text=True, check=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bwagent cap", ["capture"]),
        ("bwagent fleet ver", ["verify"]),
        ("bwagent run --port-i", ["--port-interval"]),
        ("bwagent probe --output ya", ["yaml"]),
        ("bwagent fleet export kue", ["kueue"]),
        ("bwagent completion f", ["fish"]),
        ("bwagent run --hold ", [""]),
        ("bwagent nosuch --wh", [""]),
    ],
)
def test_bash_completes(
    line: str, expected: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """A command, a flag, the value of a flag, and an argument; nothing of an unknown command."""
    finished = completed_by_bash(line, environment, tmp_path)
    assert (finished.stdout.splitlines(), finished.stderr) == (expected, "")


@pytest.mark.parametrize("command", ["run", "probe"])
def test_wrong_settings_are_no_matter_to_completion(
    command: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """A flag is completed behind a wrong value, with a variable that no flag reads."""
    environment |= {"BWAGENT_NOSUCH": "1", "BWAGENT_LABEL_PREFIX": "-"}
    finished = completed_by_bash(f"bwagent {command} --hold soon --con", environment, tmp_path)
    assert (finished.stdout.splitlines(), finished.stderr) == (["--context"], "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_names_the_program(shell: str, tmp_path: Path) -> None:
    """Each script calls `bwagent` with the variable that makes click complete."""
    text = script_of(shell, tmp_path).read_text()
    assert f"_BWAGENT_COMPLETE={shell}_complete" in text
