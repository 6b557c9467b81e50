"""Parts of documents that are generated from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def between(path: Path, begin: str, end: str, truth: str, *, update: bool) -> str:
    """What a document says between two marks; with `update` it is made to say the truth first."""
    before, mark, rest = path.read_text().partition(begin)
    said, closing, behind = rest.partition(end)
    if update:
        path.write_text(before + mark + truth + closing + behind)
        return truth
    return said
