"""Text for people: text that a stranger chose made printable, natural order, times; JSON files.

A neighbor chooses its own name, and that name reaches terminals, log lines and metrics. Call
`visible` where text leaves the agent, and only there: observations, labels and the JSON document
keep the unaltered text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

Json = dict[str, Any]  # a JSON object

MAX_LISTED = 8  # names in one sentence
_DIGITS = re.compile(r"([0-9]+)")


def visible(text: str, max_length: int) -> str:
    r"""Return `text` as one printable line of at most `max_length` characters (1 or more).

    Characters that do not print (line breaks, controls, format characters such as U+202E,
    surrogates) become Python escapes: `\n`, `\x1b`, `\u202e`. Text that is cut ends with `…`.
    Printable text that fits is returned as it is. This is no encoding: the two characters `\n` in
    the text look like an escaped line break.
    """
    if not text.isprintable():
        head = text[: max_length + 1]  # escaping makes it no shorter
        text = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in head
        )
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def with_octets(text: str) -> str:
    r"""Return `text` with the UTF-8 octets of its unprintable characters as `\xNN`.

    For names of the wire, which have the same form in labels and documents.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else "".join(f"\\x{octet:02x}" for octet in letter.encode())
        for letter in text
    )


def listed(texts: Sequence[str], most: int = MAX_LISTED, separator: str = ", ") -> str:
    """Return the first `most` texts, and the number of the others: `ibp0, ibp1 and 6 more`."""
    shown = separator.join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


@lru_cache(4096)  # every observation sorts the same few names
def natural(name: str) -> tuple[str | tuple[int, str, int], ...]:
    """Return the sort key of natural order: mlx5_9 before mlx5_10, and leaf1 before leaf01."""
    return tuple(
        _number(part) if number % 2 else part for number, part in enumerate(_DIGITS.split(name))
    )


def _number(digits: str) -> tuple[int, str, int]:
    """Return the sort key of a number; int() refuses more than 4,300 digits.

    Leading zeros count last: without them the order of leaf1 and leaf01 would be by chance.
    """
    significant = digits.lstrip("0")
    return len(significant), significant, len(digits)


def many(count: int, noun: str) -> str:
    """Return a number and its noun: `1,024 nodes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def missing_since(seconds: int | None) -> str:
    """Return since when something is missing; None is an unknown time."""
    return f"missing since {'an unknown time' if seconds is None else utc(seconds)}"


def utc(seconds: int) -> str:
    """Return a time in seconds since the epoch as RFC 3339 text: `2026-11-22T09:30:00Z`."""
    from datetime import UTC, datetime

    # strftime does not pad a year before 1000.
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return the content of a JSON file."""
    import json

    return f"{json.dumps(content, indent=2)}\n".encode()
