"""Text that a stranger chose, made fit to be shown.

A neighbour names itself, and its name ends up in log lines and metrics. What comes out of here is on one line, moves no
cursor, turns no letters round and has an end.
"""

from __future__ import annotations


def visible(text: str, longest: int) -> str:
    r"""At most `longest` printable characters of it; others become `\n`, `\x1b`, `\u202e`, and a cut ends with `…`.

    It is no encoding: a name that already held a backslash looks the same as one that was made to.
    """
    if (
        not text.isprintable()
    ):  # which line breaks, controls, formatting characters and surrogates are not
        head = text[: longest + 1]
        text = "".join(
            one if one.isprintable() else one.encode("unicode_escape").decode() for one in head
        )
    return text if len(text) <= longest else text[: longest - 1] + "…"
