"""JSON written without the json package, which imports re and enum: a third of the shortest child's life (helper.py).

The law of this module: what it writes is JSON in ASCII, and what it cannot write is a TypeError.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs as much
if TYPE_CHECKING:
    from typing import Any

WORDS = {None: "null", True: "true", False: "false"}


def dumps(value: Any) -> str:
    """JSON (RFC 8259) of dicts with str keys, lists, tuples, str, int, finite float, bool and None, however nested."""
    if value is None or isinstance(value, bool):
        return WORDS[value]
    if isinstance(value, int) or (isinstance(value, float) and value - value == 0):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(key)}:{dumps(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dumps, value)) + "]"
    raise TypeError(f"{type(value).__name__} is nothing that is written here")


def quoted(text: str) -> str:
    """A JSON string: printable ASCII as it is, all else as UTF-16 units, lone surrogates too."""
    return (
        '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else _escaped(c) for c in text) + '"'
    )


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
