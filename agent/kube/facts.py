"""Parsers of single facts of the annotation; a malformed one is unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Fact = TypeVar("Fact", str, int)

MAX_COUNT = 64 * 1024
MAX_SKEW = 300.0  # seconds by which two clocks may differ

_WORD = re.compile(r"[!-~]{1,64}")


def optional(
    document: Mapping[str, Any], name: str, parse_fact: Callable[[str], Fact]
) -> tuple[Fact | None, list[str]]:
    """Return a fact, None if it is unknown, and its name if it is malformed."""
    value = document.get(name)
    if value is None:
        return None, []
    try:
        if isinstance(value, str):
            return parse_fact(value), []
    except (ValueError, OverflowError):
        pass
    return None, [name]


def is_word(text: str | None) -> bool:
    """Return True for 1 to 64 printable ASCII characters without a space."""
    return bool(_WORD.fullmatch(text or ""))


def parse_word(text: str) -> str:
    """Return a word; raises ValueError."""
    if not is_word(text):
        raise ValueError(text)
    return text


def parse_time(text: str) -> int:
    """Return RFC 3339 text in seconds since the epoch, UTC without an offset; or ValueError."""
    from datetime import UTC, datetime

    time = datetime.fromisoformat(text)
    seconds = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    datetime.fromtimestamp(seconds, UTC)  # ValueError for a time that has no year in UTC
    return seconds


def past(time: int | None, now: float) -> int | None:
    """Return the time; None for one after `now`, which may be MAX_SKEW too early."""
    return None if time is None or time > now + MAX_SKEW else time


def count(document: Mapping[str, Any], name: str) -> int:
    """Return a number of rows; 0 if there is none or it is malformed."""
    value = document.get(name)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0
