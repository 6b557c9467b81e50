"""The manual pages have no warning of a formatter, and all that --help prints."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.manual import pages
from tests.support.real_parts import lacks, require
from tests.support.snapshots import REPOSITORY, bwagent

FOLDER = REPOSITORY / "docs/man"
NAMES = sorted(pages())

GROFF = ("groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=200n")


def formatted(name: str) -> str:
    """Return a page as text; a warning of the formatter fails the test."""
    command = [*GROFF, str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def dense(text: str) -> str:
    """Return a text without white space: two formatters break lines in different places."""
    return "".join(text.split())


def help_of(name: str) -> str:
    """Return what the page's command prints."""
    program, *words = name.removesuffix(".1").split("-")
    if program != "kubectl":
        return bwagent(*words, "--help").stdout.decode()
    code = "import sys; from agent.cli import main; sys.argv[0] = 'kubectl-bwagent'; main()"
    command = [sys.executable, "-c", code, *words[1:], "--help"]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_what_help_prints(name: str) -> None:
    """Each flag with its text, the description, and the examples."""
    require(lacks("groff"))
    printed = help_of(name)
    about, _, rest = printed.partition("\n\n")[2].partition("\nOptions:\n")
    options, _, after = rest.partition("\n\n")
    records = re.split(r"\n(?=  -)", options.removesuffix("\n"))
    examples = after.splitlines()[1:] if "Examples:" in after else []
    page = dense(formatted(name))
    missing = [text for text in (about, *records, *examples) if dense(text) not in page]
    assert len(records) >= 1
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_mandoc_has_no_warning(name: str) -> None:
    """But that a page has no date: it is as old as the program."""
    require(lacks("mandoc"))
    command = ["mandoc", "-Tlint", "-Wwarning", str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_man_shows_a_page() -> None:
    """`man -l` prints it, with the flags as they are typed."""
    require(lacks("man"))
    command = ["man", "-l", str(FOLDER / "bwagent-run.1")]
    environment = {"PATH": "/usr/bin:/bin", "MANPAGER": "cat", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stderr, "--min-interval TIME" in done.stdout) == ("", True)
