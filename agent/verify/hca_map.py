"""The file of --hca-map: which interface of the node a plan's HCA number, or rail, is."""

from __future__ import annotations

from agent.errors import Malformed
from agent.plans.model import Place
from agent.plans.own import SEPARATORS, column, csv_rows
from agent.plans.source import load
from agent.verify.interfaces import map_key

COLUMNS = ("port", "hca-name")


def read_map(path: str) -> dict[str, str]:
    """Return the names in a plan, each with that of this node; raises Malformed."""
    source = load(path)
    header = next(iter(source.head.splitlines()), "")
    titles, rows = csv_rows(source, max(SEPARATORS, key=header.count))
    if not {*map(column, titles)}.issuperset(COLUMNS):
        raise Malformed(f"{Place(path, None, 1)}: the columns are not {','.join(COLUMNS)}")
    found: dict[str, str] = {}
    for place, cells in rows:
        port, name = ((cells[title] or "").strip() for title in COLUMNS)
        if not port or not name:
            raise Malformed(f"{place}: an empty cell")
        if found.setdefault(map_key(port), name) != name:
            raise Malformed(f"{place}: {port} is {name}, but {found[map_key(port)]} above")
    return found
