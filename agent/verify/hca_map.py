"""The file of --hca-map: which interface of the node a plan's HCA number, or rail, is."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.plans.model import Place
from agent.plans.source import load
from agent.verify.interfaces import map_key

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("port", "hca-name")
SEPARATORS = ",;\t"


def read_map(path: str) -> dict[str, str]:
    """Return the names in a plan, each with that of this node; raises Malformed."""
    header, *rows = _rows(path)
    columns = [cell.strip().lower().replace("_", "-").replace(" ", "-") for cell in header]
    if not {*columns}.issuperset(COLUMNS):
        raise Malformed(f"{Place(path, None, 1)}: the columns are not {','.join(COLUMNS)}")
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        if any(cell.strip() for cell in row):
            _add(found, dict(zip(columns, map(str.strip, row), strict=False)),
                 Place(path, None, number))  # fmt: skip
    return found


def _rows(path: str) -> list[list[str]]:
    """Return the rows, by the separator that the header has."""
    lines = load(path).text.splitlines() or [""]
    separator = max(SEPARATORS, key=lines[0].count)
    try:
        return list(csv.reader(lines, delimiter=separator))
    except csv.Error as error:
        raise Malformed(f"{path}: no CSV: {error}") from None


def _add(found: dict[str, str], cells: Mapping[str, str], place: Place) -> None:
    port, name = (cells.get(column) for column in COLUMNS)
    if not port or not name:
        raise Malformed(f"{place}: an empty cell")
    if found.setdefault(map_key(port), name) != name:
        raise Malformed(f"{place}: {port} is {name}, but {found[map_key(port)]} above")
