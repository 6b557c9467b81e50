"""Read a plan file of any kind; the kind is recognized from the content.

Every file is one of KINDS. The first one that recognizes it reads it; `format`, the value of
`--plan-format`, names one instead. A reader returns a plan for each sheet with cables and raises
Malformed with one line that names file, sheet, row and column.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.cabling.plans import dot, ib_dump, netbox, own, sheets, xlsx
from agent.cabling.plans.model import NO_FIELDS, Plan
from agent.cabling.plans.source import Columns, PlanContent, load
from agent.errors import Malformed
from agent.limits import uncollected

# How each kind is recognized, and read, in the order in which they are tried: the agent's own files
# come first, tables last, since text of any kind has commas in it.
KINDS: dict[str, tuple[Callable[[PlanContent], bool], Callable[[PlanContent], list[Plan]]]] = {
    "own": (own.is_own, own.read_csv),
    "labels": (own.is_labels, own.read_labels),
    "netbox": (netbox.recognizes, netbox.read),
    "dot": (dot.recognizes, dot.read),
    "ibnetdiscover": (ib_dump.is_ibnetdiscover, ib_dump.read_ibnetdiscover),
    "iblinkinfo": (ib_dump.is_iblinkinfo, ib_dump.read_iblinkinfo),
    "point-to-point": (sheets.recognizes, sheets.read),
}
TABLES = "point-to-point"

# `MQM8700 sw-01`, and below it `   P2 -4x-50G-> HCA_1 gpu-017 mlx5_0/P1`
_TOPO = r"^\S+ +\S+.*\n\s+\S+ +(?:-\d+x)?(?:-[\w.]+)?-> "
_CONTAINERLAB = r"^topology:\s*\n(?:\s+#.*\n)*\s+(?:nodes|kinds|defaults|groups|links):\s*$"
# Two lines of a mapping or a list, below comments.
_YAML = r"\A(?:\s+|#.*\n|---.*\n)*+(?:- )?[\w./-]+:(?: .*)?\n\s*(?:- ?)?[\w./-]+:(?:\s|$)"
# Formats that are not read, found in the first 64 Ki characters: pattern, name, the kind to make of
# it. They describe cables or nodes, and are found beside plan files; none has both ends with their
# ports in a form that one of the kinds reads.
LOOKS = (
    (r"\A\s*<(?:\?xml|!DOCTYPE|html|graphml)\b", "XML or HTML", TABLES),
    (_TOPO, "a topology file of ibdm or UFM", "ibnetdiscover"),
    (_CONTAINERLAB, "YAML of containerlab", "dot"),
    (r"^(?:links|nodes):\s*$", "YAML of netlab or the like", "dot"),
    (r"^[ \t]*SwitchName=", "topology.conf of Slurm, which has no ports", "ibnetdiscover"),
    (r"^START_(?:NODES|LINKS)\b", "ibdiagnet2.db_csv of ibdiagnet", "ibnetdiscover"),
    (r"^\{ (?:CA|SW)[ -]", "a .lst file of ibdiagnet", "iblinkinfo"),
    (r"^(?:Ca|Switch)\t: 0x", "a list of nodes (ibhosts, ibnetdiscover -l)", "ibnetdiscover"),
    (r"(?i)^ *(?:LLDP neighbors|Local (?:Intf|Interface|Port)\b)", "LLDP of a switch", TABLES),
    (_YAML, "YAML", "labels"),
)
SOURCES = {  # where a file of a kind comes from
    "ibnetdiscover": " (what that command prints, or UFM's network definition as CSV)",
}


# Kinds that were removed, with what takes their place.
FORMER = {"links": "dot, or own", "topo": "ibnetdiscover"}


def read_plan(
    path: str,
    format: str | None = None,  # noqa: A002
    columns: Columns = NO_FIELDS,
) -> list[Plan]:
    """Read the plan file at `path`. Raises Malformed, Unavailable without openpyxl for XLSX."""
    return read_source(load(path, columns), format)


def read_source(source: PlanContent, format: str | None = None) -> list[Plan]:  # noqa: A002
    """Read a plan file whose content is already there."""
    if format in FORMER:
        raise Malformed(f"{source.file}: {_removed(format)}")
    if format is not None and format not in KINDS:
        raise Malformed(f"{source.file}: {format!r} is none of the kinds {', '.join(KINDS)}")
    if source.columns and format not in {None, TABLES}:
        raise Malformed(f"{source.file}: --columns is for tables, not for the kind {format}")
    with uncollected():
        if format is None and (source.columns or xlsx.is_workbook(source)):
            format = TABLES  # noqa: A001
        for name, (recognizes, read) in KINDS.items():
            if name == format or (format is None and recognizes(source)):
                return read(source)
    raise Malformed(f"{_no_kind(source)} (kinds: {', '.join(KINDS)})")


def _removed(kind: str) -> str:
    return f"the kind {kind} was removed: use {FORMER[kind]}"


def _no_kind(source: PlanContent) -> str:
    """Return why a file is not read: what it looks like, else that it has no header."""
    if source.looks_like_json:
        document = source.json if isinstance(source.json, dict) else {}
        content = document.get("content")
        if "links" in document or (isinstance(content, dict) and "links" in content):
            return f"{source.file}: JSON of NVIDIA AIR or spcx-gen: {_removed('links')}"
        keys = ", ".join(map(str, [*document][:5]))
        keys = f" with the keys {keys[:80]}" if keys else ""
        return f"{source.file}: JSON{keys}: no cables of NetBox"
    for pattern, name, nearest in LOOKS:
        if re.search(pattern, source.head, re.MULTILINE):
            kind = nearest + SOURCES.get(nearest, "")
            return f"{source.file}: looks like {name}: not read; nearest: {kind}"
    reason = sheets.without_header(sheets.table_of(source))
    return f"{reason}; --columns names the columns of any table"
