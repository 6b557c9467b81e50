"""The revision of a checkout, of a build and of neither."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from agent import __version__
from agent.revision import FILE, Revision, parsed, revision
from tests.support.checkouts import COMMITTED, committed, git

NAME = "2fd1c04a9e31" + 28 * "0"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one commit with one file."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/module.py").write_text("")
    return committed(tmp_path)


def test_a_checkout(checkout: Path) -> None:
    """A file that git does not know changes nothing, one that it knows makes it dirty."""
    (checkout / "unknown").write_text("")
    clean = revision(checkout)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean.name)
    assert clean.time == COMMITTED
    (checkout / "agent/module.py").write_text("changed")
    assert revision(checkout) == Revision(f"{clean.name}-dirty", COMMITTED)


def test_the_file_counts_before_git(checkout: Path) -> None:
    """What was built says the revision that it was built from, wherever it lies."""
    (checkout / FILE).write_text(Revision(NAME, 5).line())
    assert revision(checkout) == Revision(NAME, 5)


def test_a_repository_above_is_not_ours(checkout: Path) -> None:
    """Code without REVISION in a folder of another repository has no known revision."""
    assert revision(checkout / "agent") is None


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert revision(checkout) is None


def test_a_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert revision(tmp_path) is None


def test_variables_of_a_hook_name_no_other_repository(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR, which hooks of git have set, is not followed."""
    before = revision(checkout)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert revision(checkout) == before


@pytest.mark.parametrize(
    "line",
    [
        *("", "\n", NAME, f"{NAME} x", f"{NAME} -1", f"{NAME} 1 2", f" {NAME} 1", "0123 5"),
        *(f"{NAME} 1\n\n", f"{NAME}-odd 1", f"{NAME} {10**12}", f"{NAME} ٣"),
    ],
)
def test_malformed_lines(line: str) -> None:
    assert parsed(line) is None


@pytest.mark.parametrize("name", [NAME, f"{NAME}-dirty", 64 * "a"])
def test_a_line_is_read_as_it_was_written(name: str) -> None:
    assert parsed(Revision(name, COMMITTED).line()) == Revision(name, COMMITTED)


def test_for_people() -> None:
    """Twelve digits, a mark of changes, and the day in UTC."""
    assert str(Revision(NAME, COMMITTED)) == "2fd1c04a9e31, 2027-01-15"
    assert str(Revision(f"{NAME}-dirty", 0)) == "2fd1c04a9e31-dirty, 1970-01-01"


@pytest.mark.slow
def test_the_flag(repository: Path) -> None:
    command = [sys.executable, "-m", "agent.cli", "--version"]
    said = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    known = revision(repository)
    assert said.stdout == f"bwagent {__version__}{f' ({known})' if known else ''}\n"
    assert said.stderr == ""


def test_in_an_archive(tmp_path: Path) -> None:
    """`kubectl bwagent` is a zip archive with a shebang before it, and REVISION is in there."""
    known = Revision(NAME, COMMITTED)
    program = tmp_path / "kubectl-bwagent"
    with program.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with ZipFile(file, "w") as archive:
            archive.writestr("agent/cli.py", "")
    assert revision(program) is None
    with ZipFile(program, "a") as archive:
        archive.writestr(FILE, known.line())
    assert revision(program) == known
