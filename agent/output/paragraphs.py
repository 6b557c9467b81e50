"""The parts of a report for people: wrapped lines below titles, 80 columns wide."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from agent.output.ports import WIDTH
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT = 4000  # characters of one text: a ring of 32 cables with their places


def opening(text: str) -> list[str]:
    """Return the first line, which may be wrapped."""
    return textwrap.wrap(visible(text, MAX_TEXT), WIDTH, subsequent_indent="  ")


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a title and its lines, indented and wrapped; nothing without lines."""
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
    body = [wrapped for line in lines for wrapped in wrapper.wrap(visible(line, MAX_TEXT))]
    return [visible(title, WIDTH), *body] if body else []


def joined(sections: Iterable[list[str]]) -> str:
    """Return the sections that have lines, an empty line between each two."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"
