"""Facts of JSON documents, both ways: a schema has the kind of each fact, by name.

A fact that is malformed or null is unknown, and an unknown fact is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from agent.text import Json, utc

MAX_COUNT = 64 * 1024
MAX_SHARED = 1024  # texts of one kind
MAX_SECONDS = 1e10  # three centuries
MAX_SKEW = 300.0  # seconds by which two clocks may differ
MAX_TEXT = 1024  # characters of a neighbor's text; a TLV of 511 bytes, in hex, has 1024

_WORD = re.compile(r"[!-~]{1,64}")


class Kind(NamedTuple):
    """A kind of fact."""

    parse: Callable[[Any], Any]  # raises ValueError, TypeError or OverflowError if malformed
    document: Callable[[Any], Any] = lambda value: value  # as JSON


Schema = Mapping[str, Kind]  # in the order in which facts are written


def read(document: object, schema: Schema) -> tuple[Json, list[str]]:
    """Return the facts of a JSON object that are known, and the names of malformed ones.

    Raises TypeError for another JSON value.
    """
    if not isinstance(document, dict):
        raise TypeError("not a JSON object")
    facts, faults = {}, []
    for name, value in document.items():
        if value is not None and (fact := schema.get(name)):
            try:
                facts[name] = fact.parse(value)
            except (ValueError, TypeError, OverflowError):
                faults.append(name)
    return facts, faults


def written(facts: Mapping[str, Any], schema: Schema) -> Json:
    """Return the JSON object of these facts, without what is unknown."""
    return {
        name: fact.document(facts[name])
        for name, fact in schema.items()
        if facts.get(name) is not None
    }


def record(kind: Any, schema: Schema, required: Collection[str] = ()) -> Kind:
    """Return the fact that is a NamedTuple `kind`, malformed if any fact of it is.

    The first fields of `kind` are those of the schema, in its order.
    """
    parsers = [(name, fact.parse) for name, fact in schema.items()]

    def parse(value: object) -> Any:
        if not isinstance(value, dict):
            raise TypeError("not a JSON object")
        if required and any(value.get(name) is None for name in required):
            raise ValueError(value)
        known = value.get
        return kind(
            *[None if (fact := known(name)) is None else parse(fact) for name, parse in parsers]
        )

    return Kind(parse, lambda value: written(value._asdict(), schema))


def array(fact: Kind, most: int) -> Kind:
    """Return the fact that is a list of up to `most` facts, malformed if any of them is."""

    def parse(values: object) -> tuple[Any, ...]:
        if not isinstance(values, list) or len(values) > most:
            raise ValueError(values)
        return tuple(fact.parse(value) for value in values)

    return Kind(parse, lambda values: [fact.document(value) for value in values])


def matching(pattern: re.Pattern[str]) -> Kind:
    """Return the fact that is text of this pattern."""

    def parse(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(value)
        return value

    return Kind(parse)


def shared(fact: Kind) -> Kind:
    """Return the fact, whose texts many documents have: each is parsed and kept once."""
    return fact._replace(parse=lru_cache(MAX_SHARED)(fact.parse))


def number(most: float) -> Kind:
    """Return the fact that is a number from 0 to `most`; NaN is none."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(value)
        return float(value)

    return Kind(parse)


def whole(most: float) -> Kind:
    """Return the fact that is a number from 0 to `most`, without its fraction."""
    parse = number(most).parse
    return Kind(lambda value: int(parse(value)))


def is_word(text: str | None) -> bool:
    """Return True for 1 to 64 printable ASCII characters without a space."""
    return bool(_WORD.fullmatch(text or ""))


def parse_time(text: str) -> int:
    """Return RFC 3339 text in seconds since the epoch, UTC without an offset; or ValueError."""
    from datetime import UTC, datetime

    time = datetime.fromisoformat(text)
    seconds = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    datetime.fromtimestamp(seconds, UTC)  # ValueError for a time that has no year in UTC
    return seconds


def past(time: int | None, now: float) -> int | None:
    """Return the time; None for a time after `now`, which may be MAX_SKEW too early."""
    return None if time is None or time > now + MAX_SKEW else time


def _text(value: object) -> str:
    """Return a text of 1 to MAX_TEXT characters that is valid Unicode.

    JSON may carry half of a surrogate pair, which no UTF-8 text has.
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise ValueError(value)
    if not value.isascii():
        value.encode()
    return value


WORD = matching(_WORD)
TEXT = Kind(_text)
TIME = Kind(parse_time, utc)
# Of rows; a malformed count is 0
COUNT = Kind(lambda value: value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0)
SECONDS = whole(MAX_SECONDS)
