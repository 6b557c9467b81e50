"""Read a plan file of any kind; the kind is recognized from the content."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.verify.plans import own
from agent.verify.plans.source import Source, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.verify.model import Plan


class Kind(NamedTuple):
    """A kind of plan file."""

    recognizes: Callable[[Source], bool]
    read: Callable[[Source], list[Plan]]


KINDS: dict[str, Kind] = {
    "own": Kind(own.is_own, own.read_csv),
    "labels": Kind(own.is_labels, own.read_labels),
}


def read_plan(path: str, format: str | None = None) -> list[Plan]:  # noqa: A002
    """Read the plan file at `path`. Raises Malformed."""
    source = load(path)
    if format is not None and format not in KINDS:
        raise Malformed(f"{path}: {format!r} is none of the kinds {', '.join(KINDS)}")
    kind = format or next((name for name, one in KINDS.items() if one.recognizes(source)), None)
    if kind is None:
        raise Malformed(f"{path}: no plan of a known kind")
    return KINDS[kind].read(source)
