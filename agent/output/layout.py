"""The layout of text for people, in 80 columns: wrapped lines below titles, and columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from agent.text import visible

WIDTH = 80
GAP = "  "  # between two columns
MIN_COLUMN_WIDTH = 6
MAX_TEXT = 4000  # characters of one text: a ring of 32 cables with their places


def wrap(text: str, first: str = "", others: str = "  ", *, break_words: bool = True) -> list[str]:
    """Return the lines of a text; `first` and `others` are their indentation.

    A word that is longer than a line is broken, or has a line of its own.
    """
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=break_words,
    )


def opening(text: str) -> list[str]:
    """Return the first line, which may be wrapped."""
    return textwrap.wrap(visible(text, MAX_TEXT), WIDTH, subsequent_indent="  ")


def section(
    title: str, lines: Iterable[str], *, most: int = MAX_TEXT, break_words: bool = True
) -> list[str]:
    """Return a title and its lines, indented and wrapped; nothing without lines.

    `most` is the length of a line that is not cut. A line keeps its own indentation.
    """
    body = []
    for line in lines:
        indent = " " * (2 + len(line) - len(line.lstrip()))
        shown = visible(line.strip(), most)
        body += wrap(shown, indent, f"{indent}  ", break_words=break_words)
    return [visible(title, WIDTH), *body] if body else []


def joined(sections: Iterable[list[str]]) -> str:
    """Return the sections that have lines, an empty line between each two."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def columns(
    rows: Sequence[Sequence[str]], mark: str = "…", shrink_first: Sequence[int] = ()
) -> list[str]:
    """Return a line of at most WIDTH characters for each row, with its cells in columns.

    The widest columns shrink, those of `shrink_first` before any other. A cell that does not fit is
    cut in the middle, with a mark there, since the names of a site differ at the end.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    every = range(len(widths))
    for which in (shrink_first or every, every):
        while sum(widths) + len(GAP) * (len(widths) - 1) > WIDTH:
            widest = max(which, key=lambda column: widths[column])
            if widths[widest] <= MIN_COLUMN_WIDTH:
                break
            widths[widest] -= 1
    lines = []
    for row in rows:
        cells = []
        for text, width in zip(row, widths, strict=True):
            cell = text.ljust(width)
            if len(text) > width:
                kept = width - 1  # of an odd number the extra letter is before `~`, or behind `…`
                tail = kept // 2 if mark == "~" else kept - kept // 2
                cell = f"{text[: kept - tail]}{mark}{text[len(text) - tail :]}"
            cells.append(cell)
        lines.append(GAP.join(cells).rstrip())
    return lines
