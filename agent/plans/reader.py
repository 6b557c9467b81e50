"""Read a plan file of any kind; the kind is recognized from the content.

Every file is one of KINDS. The first one that recognizes it reads it; `format`, the value of
`--plan-format`, names one instead. A reader returns a plan for each sheet with cables and raises
Malformed with one line that names file, sheet, row and column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.garbage import uncollected
from agent.plans import dot, ib_dump, links, netbox, own, tables, topo, xlsx
from agent.plans.sheets import without_header
from agent.plans.source import Source, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.plans.model import Plan


class Kind(NamedTuple):
    """A kind of plan file."""

    recognizes: Callable[[Source], bool]
    read: Callable[[Source], list[Plan]]


# In the order in which they are tried. Tables come last: text of any kind has commas in it; the
# agent's own files come first.
KINDS: dict[str, Kind] = {
    "own": Kind(own.is_own, own.read_csv),
    "labels": Kind(own.is_labels, own.read_labels),
    "netbox": Kind(netbox.recognizes, netbox.read),
    "links": Kind(links.recognizes, links.read),
    "dot": Kind(dot.recognizes, dot.read),
    "ibnetdiscover": Kind(ib_dump.is_ibnetdiscover, ib_dump.read_ibnetdiscover),
    "iblinkinfo": Kind(ib_dump.is_iblinkinfo, ib_dump.read_iblinkinfo),
    "topo": Kind(topo.recognizes, topo.read),
    "point-to-point": Kind(tables.recognizes, tables.read),
}
TABLES = "point-to-point"


def read_plan(path: str, format: str | None = None) -> list[Plan]:  # noqa: A002
    """Read the plan file at `path`. Raises Malformed, Unavailable without openpyxl for XLSX."""
    return read_source(load(path), format)


def read_source(source: Source, format: str | None = None) -> list[Plan]:  # noqa: A002
    """Read a plan file whose content is already there."""
    if format is not None and format not in KINDS:
        raise Malformed(f"{source.file}: {format!r} is none of the kinds {', '.join(KINDS)}")
    with uncollected():
        return KINDS[format or _kind(source)].read(source)


def _kind(source: Source) -> str:
    if xlsx.is_workbook(source):
        return TABLES
    for name, kind in KINDS.items():
        if kind.recognizes(source):
            return name
    if source.looks_like_json:
        raise Malformed(f"{source.file}: JSON of no known kind: neither cables nor links")
    raise without_header(tables.table_of(source))
