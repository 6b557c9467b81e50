"""The manual pages are generated from the parser."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.manual import pages
from tests.support.snapshots import REPOSITORY

FOLDER = REPOSITORY / "docs/man"


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
