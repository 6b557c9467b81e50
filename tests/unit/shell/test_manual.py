"""The manual pages: generated from the parser, complete, and without a warning of a formatter."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.support.manual import pages
from tests.support.snapshots import REPOSITORY, bwagent

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = REPOSITORY / "docs/man"
NAMES = sorted(pages())
GROFF = ("groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=200n")


@pytest.fixture(autouse=True)
def _updated(update_golden: bool) -> None:
    """Rewrite the pages with --update-golden."""
    if update_golden:
        for path in FOLDER.glob("*.1"):
            path.unlink()
        for name, text in pages().items():
            (FOLDER / name).write_text(text)


def test_the_pages_are_those_of_the_parser() -> None:
    """One for each command and group; `--update-golden` writes them."""
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == pages()


def test_the_wheel_has_them(repository: Path) -> None:
    """Below share/man/man1, also when it is built from the source distribution."""
    build = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["shared-data"] == {"docs/man": "share/man/man1"}
    assert "docs/man" in build["targets"]["sdist"]["include"]


def formatted(name: str) -> str:
    """Return a page as text; a warning of the formatter fails the test."""
    command = [*GROFF, str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def dense(text: str) -> str:
    """Return a text without white space: two formatters break lines in different places."""
    return "".join(text.split())


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff is installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_what_help_prints(name: str) -> None:
    """Each flag with its text, the description, and the examples."""
    words = name.removesuffix(".1").split("-")[1:]
    printed = bwagent(*words, "--help").stdout.decode()
    about, _, rest = printed.partition("\n\n")[2].partition("\nOptions:\n")
    options, _, after = rest.partition("\n\n")
    records = re.split(r"\n(?=  -)", options.removesuffix("\n"))
    examples = after.splitlines()[1:] if "Examples:" in after else []
    page = dense(formatted(name))
    missing = [text for text in (about, *records, *examples) if dense(text) not in page]
    assert len(records) >= 1
    assert missing == []


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="no mandoc is installed")
@pytest.mark.parametrize("name", NAMES)
def test_mandoc_has_no_warning(name: str) -> None:
    """But that a page has no date: it is as old as the program."""
    command = ["mandoc", "-Tlint", "-Wwarning", str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


@pytest.mark.skipif(shutil.which("man") is None, reason="no man is installed")
def test_man_shows_a_page() -> None:
    """`man -l` prints it, with the flags as they are typed."""
    command = ["man", "-l", str(FOLDER / "bwagent-run.1")]
    environment = {"PATH": "/usr/bin:/bin", "MANPAGER": "cat", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stderr, "--min-interval TIME" in done.stdout) == ("", True)
