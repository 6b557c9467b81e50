"""The documents are equal to the code where they repeat it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from agent.cli import cli
from agent.labels.table import LABELS
from agent.output.table import render
from tests.support.documents import between
from tests.support.machines import document_of

if TYPE_CHECKING:
    from pathlib import Path


def test_label_table(repository: Path, update_golden: bool) -> None:
    """The README's label table is the table in the code, row by row."""
    truth = "".join(f"| `{row.key}` | {row.value} | {row.absent} |\n" for row in LABELS)
    begin = "| key | value | absent |\n|---|---|---|\n"
    assert (
        between(repository / "README.md", begin, "\nA value that", truth, update=update_golden)
        == truth
    )


def test_the_table_shown_is_the_table_printed(repository: Path, update_golden: bool) -> None:
    """The README shows what `probe` prints for the half-failed machine."""
    truth = render(document_of(repository / "sysfs_fixtures/half-failed"), color=False)
    begin = "--replay sysfs_fixtures/half-failed\n"
    assert between(repository / "README.md", begin, "```", truth, update=update_golden) == truth


def test_every_command_is_in_the_readme(repository: Path) -> None:
    """The README's command table names every command, and no other."""
    readme = (
        (repository / "README.md").read_text().partition("## Commands")[2].partition("\n\n### ")[0]
    )
    assert set(re.findall(r"^\| `bwagent (\w+)", readme, re.MULTILINE)) == set(cli.commands)


def test_ci_runs_the_readmes_test_command(repository: Path) -> None:
    """CI runs the tests by the README's second command, word for word."""
    commands = re.findall(r"```sh\n(.*?)\n```", (repository / "README.md").read_text(), re.DOTALL)
    assert commands[1] in (repository / ".ci/run").read_text().splitlines()


def test_the_readmes_first_command_prints_labels(repository: Path) -> None:
    """The README's first command prints the labels of its machine."""
    first = re.findall(r"```sh\n(.*?)\n```", (repository / "README.md").read_text(), re.DOTALL)[0]
    arguments = first.rpartition("bin/bwagent ")[2].split()
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", *arguments],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "backend.coreweave.cloud/speed.current=3200G" in done.stdout


def test_files_that_are_named_exist(repository: Path) -> None:
    """CONTRIBUTING names no module that has moved."""
    text = (repository / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"`(agent/[\w/]+\.py|tests/[\w./-]+|docs/[\w./]+)`", text):
        assert (repository / name).exists() or name == "agent/sources/x.py", name
