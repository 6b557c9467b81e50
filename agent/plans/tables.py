"""Plans in tables: the sheets of a workbook, or one CSV file of any of the usual separators.

A workbook may have a sheet of nodes (`Node Name,Type,Rack,U`): rack and unit of the ends whose own
sheet has none. A node with two places has none, and neither has a sheet with two columns of nodes.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

from agent.errors import Malformed
from agent.plans import sheets, xlsx
from agent.plans.cables import quoted
from agent.plans.headers import MAX_HEADER_ROW, WORDS, key
from agent.plans.sheets import Table, has_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.plans.model import End, Plan
    from agent.plans.source import Source

    Location = tuple[str | None, str | None]  # rack, unit

SEPARATORS = (",", ";", "\t", "|")
COLUMNS = ("node", "rack", "unit")


def recognizes(source: Source) -> bool:
    """Return True for a workbook, and for a CSV file with a header."""
    return xlsx.is_workbook(source) or separator(source) is not None


def read(source: Source) -> list[Plan]:
    """Return a plan for each sheet with cables; raises Malformed if there is none."""
    with catch_warnings():
        simplefilter("ignore")  # openpyxl warns of styles and extensions that it does not know
        return _plans(source)


def _plans(source: Source) -> list[Plan]:
    if xlsx.is_workbook(source):
        tables, notes = xlsx.tables(source)
    else:
        tables, notes = [table_of(source)], list(source.notes)
    found = [(table, sheets.plan_of(table)) for table in tables]
    plans = [plan for _, plan in found if plan and plan.cables]
    if not plans:
        raise _without_cables(source, found, notes)
    located = _located([table for table, plan in found if plan is None], notes)
    first, *others = (placed(plan, located) for plan in plans)
    return [first._replace(notes=(*notes, *first.notes)), *others]


def _located(tables: Iterable[Table], notes: list[str]) -> dict[str, Location]:
    """Return the places of the sheets of nodes, and note what each sheet is."""
    found: dict[str, Location] = {}
    for table in tables:
        of_sheet = places(table)
        found |= of_sheet
        what = "gives the racks of nodes" if of_sheet else "has no header of cables: skipped"
        notes.append(f"sheet {quoted(table.place.sheet)} {what}")
    return found


def _without_cables(
    source: Source, found: list[tuple[Table, Plan | None]], notes: list[str]
) -> Malformed:
    """Return the error for a file without cables."""
    for table, plan in found:
        if plan is not None:
            reasons = "; ".join(plan.notes) or "no row below the header"
            return Malformed(f"{table.place}: no cables: {reasons}")
    if found:
        return sheets.without_header(found[0][0])
    return Malformed(f"{source.file}: no sheet to read: {'; '.join(notes)}")


def separator(source: Source) -> str | None:
    """Return the separator by which a header is found in the first rows, None if there is none."""
    head = io.StringIO(source.head, newline="").readlines()
    tables = (
        (one, _table(source, enumerate(csv.reader(head, delimiter=one), 1))) for one in SEPARATORS
    )
    return next((one for one, table in tables if has_header(table)), None)


def table_of(source: Source) -> Table:
    """Return the rows; they are read by commas where no separator gives a header."""
    return _table(source, _Rows(source, separator(source) or ","))


def _table(source: Source, rows: Iterable[tuple[int, list[str]]]) -> Table:
    return Table(source.place, rows, strict=True)


class _Rows:
    """The rows of the file, read anew by each iteration; a broken quotation raises Malformed."""

    def __init__(self, source: Source, delimiter: str) -> None:
        self._source = source
        self._delimiter = delimiter

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        lines = io.StringIO(self._source.text, newline="")
        row = 0
        try:
            for row, cells in enumerate(
                csv.reader(lines, delimiter=self._delimiter, strict=True), 1
            ):
                yield row, cells
        except csv.Error as error:
            place = self._source.place._replace(row=row + 1)
            raise Malformed(f"{place}: no CSV: {error}") from error


def places(table: Table) -> dict[str, Location]:
    """Return the places of a sheet of nodes by the node's name; none for any other sheet."""
    rows = iter(table.rows)
    for number, row in rows:
        if number > MAX_HEADER_ROW:
            break
        if columns := _columns(row):
            return _read((cells for _, cells in rows), columns)
    return {}


def placed(plan: Plan, found: dict[str, Location]) -> Plan:
    """Return the plan with the places of ends that have no rack."""
    cables = (c._replace(a=_end(c.a, found), b=_end(c.b, found)) for c in plan.cables)
    return plan._replace(cables=tuple(cables)) if found else plan


def _columns(row: Sequence[str]) -> dict[str, int] | None:
    """Return the columns of a header of nodes, None for another row."""
    keys = [key(cell) for cell in row]
    at = {name: [i for i, k in enumerate(keys) if k in WORDS[name]] for name in COLUMNS}
    if not at["node"] or not at["rack"] or max(map(len, at.values())) > 1:
        return None
    return {name: columns[0] for name, columns in at.items() if columns}


def _read(rows: Iterable[Sequence[str]], columns: dict[str, int]) -> dict[str, Location]:
    found: dict[str, Location] = {}
    for row in rows:
        node, location = _location(row, columns)
        if found.setdefault(node, location) != location:
            found[node] = None, None
    return found


def _location(row: Sequence[str], columns: dict[str, int]) -> tuple[str, Location]:
    """Return the node of a row in lower case, and its place."""
    cells = {name: row[i].strip() if i < len(row) else "" for name, i in columns.items()}
    return cells["node"].lower(), (cells["rack"] or None, cells.get("unit") or None)


def _end(end: End, found: dict[str, Location]) -> End:
    if end.rack or end.unit:
        return end
    rack, unit = found.get(end.node.lower(), (None, None))
    return end._replace(rack=rack, unit=unit)
