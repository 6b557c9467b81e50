"""The result of an export, and the texts that all formats share."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.hostlist import hostlist
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BACKSLASH = "\\"
MAX_LISTED = 1000  # characters of the names in a note


class Exported(NamedTuple):
    """An export: the text for standard output, and notes for standard error."""

    text: str  # ends with a line break; "" if no Node can be exported
    notes: tuple[str, ...] = ()  # one printable line each: what was left out, and why


def joined(lines: Iterable[str]) -> str:
    """Return lines as one text, without a list of them: the wiring has millions."""
    text = io.StringIO()
    text.writelines(f"{line}\n" for line in lines)
    return text.getvalue()


def commented(lines: Iterable[str], mark: str = "#") -> str:
    """Return lines as comments; none ends with a backslash, which may continue a line."""
    return "".join(f"{mark} {line}{'.' * line.endswith(BACKSLASH)}\n" for line in lines)


def listed(names: Sequence[str], what: str = "Node") -> str:
    """Return a count and the names: `2 Nodes: gpu-[001-002]`."""
    shown = visible(hostlist(names), MAX_LISTED)
    return f"{len(names)} {what}{'s' * (len(names) != 1)}: {shown}"


def quoted(text: str) -> str:
    """Return text as a scalar of YAML that no schema takes for a number, a date or null."""
    return json.dumps(text)
