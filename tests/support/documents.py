"""Parts of Markdown documents that are generated from the code."""

from __future__ import annotations

from pathlib import Path


def between(path: Path, begin: str, end: str, truth: str, *, update: bool) -> str:
    """Return the text between two marks of a document; with `update` replace it by `truth`."""
    before, mark, rest = path.read_text().partition(begin)
    found, closing, behind = rest.partition(end)
    if update:
        path.write_text(before + mark + truth + closing + behind)
        return truth
    return found
