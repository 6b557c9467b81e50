"""The command `doctor`: what of each source is there, what is missing, and what brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.check import Step, absent, missing
from agent.errors import Unavailable
from agent.model import Failed
from agent.sources.table import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.check import Check, Surroundings
    from agent.sources.table import Source

    Line = tuple[str, Check]  # name of a source, or of CLUSTER

CLUSTER = "kubernetes"


def of_sources(around: Surroundings) -> Iterator[Line]:
    """Yield the checks of the sources that --source does not leave out.

    The first row is always checked: the others get their ports from it.
    """
    for source in SOURCES:
        if source is SOURCES[0] or around.observation.is_asked(source.name):
            yield from ((source.name, check) for check in _checked(source, around))


def _checked(source: Source, around: Surroundings) -> Iterable[Check]:
    """Return the checks of a source; a read that blocks is one of them."""
    if source.link_layer and isinstance(around.observation.rdma, Failed):
        return [absent("not checked: the ports of this node are not known")]
    try:
        return list(source.checks(around))
    except Unavailable as error:
        return [missing(Step.DRIVER, str(error), "dmesg")]


def lines(found: Iterable[Line]) -> list[str]:
    """Return what is there, then what is missing in the order in which it is mended."""
    return [_line(*one) for one in sorted(found, key=lambda one: one[1].missing or 0)]


def _line(source: str, check: Check) -> str:
    if check.missing is None:
        return f"{'ok' if check.is_there else '-':9}{source:12}{check.text}"
    return f"{'missing':9}{source:12}{check.text}; run: {check.command}"


def exit_code(found: Sequence[Line]) -> int:
    """Return 1 if anything is missing."""
    return int(any(check.missing for _, check in found))
