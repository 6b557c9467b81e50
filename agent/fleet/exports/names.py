"""Names that a format takes, each of one thing: characters, lengths and collisions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from agent.labels.encode import fnv1a_64

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

Thing = TypeVar("Thing", bound="Hashable")
HASH_LENGTH = 17  # `-` and 16 hex digits


def unique(
    wanted: Mapping[Thing, str], limit: int, shaped: Callable[[str], str] = str
) -> dict[Thing, str]:
    """Return a name for each thing: its wanted one in the format's characters.

    Where that is too long, or that of two things, a hash of the thing is appended: the name then
    depends on the thing alone, whatever is in the fleet beside it.
    """
    found = {thing: shaped(name) for thing, name in wanted.items()}
    counts = Counter(found.values())
    return {
        thing: name if counts[name] == 1 and 0 < len(name) <= limit else _hashed(thing, name, limit)
        for thing, name in found.items()
    }


def _hashed(thing: Hashable, name: str, limit: int) -> str:
    head = name[: limit - HASH_LENGTH].rstrip("._-") or "x"
    return f"{head}-{fnv1a_64(repr(thing).encode()):016x}"
