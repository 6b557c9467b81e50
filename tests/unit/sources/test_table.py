"""The table of sources, and the names that the command line has of them."""

from __future__ import annotations

from agent.sources import NAMES
from agent.sources.table import SOURCES


def test_each_name_has_its_row() -> None:
    """The names stand apart, since `--help` does not load the sources."""
    assert [source.name for source in SOURCES] == [*NAMES]
