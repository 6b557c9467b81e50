"""The file of --hca-map: which interface of the node a plan's HCA number, or rail, is."""

from __future__ import annotations

from agent.errors import Malformed
from agent.plans.own import SEPARATORS, column, csv_rows, header_line
from agent.plans.source import load
from agent.verify.interfaces import map_key

COLUMNS = ("port", "hca-name")


def read_map(path: str) -> dict[str, str]:
    """Return the names in a plan, each with that of this node; raises Malformed."""
    source = load(path)
    header, titles, rows = csv_rows(source, max(SEPARATORS, key=header_line(source).count))
    columns = [column(title) for title in titles]
    if not {*columns}.issuperset(COLUMNS):
        raise Malformed(f"{header}: the columns are not {','.join(COLUMNS)}")
    if twice := [name for name in COLUMNS if columns.count(name) > 1]:
        raise Malformed(f"{header}: two columns {twice[0]}")
    found: dict[str, str] = {}
    for place, cells in rows:
        port, name = ((cells[title] or "").strip() for title in COLUMNS)
        if not port or not name:
            raise Malformed(f"{place}: an empty cell")
        if found.setdefault(map_key(port), name) != name:
            raise Malformed(f"{place}: {port} is {name}, but {found[map_key(port)]} above")
    return found
