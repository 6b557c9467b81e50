"""Cabling sheets: the sheets of a workbook, or one CSV file of any of the usual separators.

Kinds `point-to-point` and `netbox` (its tables): agent/cabling/plans/headers.py has the forms of
header. The header is one of the first twenty rows; what is above it is a title.

A workbook may have a sheet of nodes (`Node Name,Type,Rack,U`): rack and unit of the ends whose own
sheet has none. A node with two places has none, and neither has a sheet with two columns of nodes.

Invariants:
- a row with three of the four names is Malformed, one with the names of one end only is a free port
  and skipped;
- nothing is filled in: a merged cell has its value in its first row only.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from agent.cabling.plans import xlsx
from agent.cabling.plans.columns import OF_CABLE, PLACE, of_side
from agent.cabling.plans.headers import (
    MAX_HEADER_ROW,
    REQUIRED,
    WORDS,
    Header,
    header,
    key,
    letters,
    missing,
)
from agent.cabling.plans.ib_dump import described_end
from agent.cabling.plans.model import (
    NO_FIELDS,
    UNSAVED,
    Cables,
    End,
    FilePlace,
    Plan,
    PlanCable,
    date_fault,
    fault,
    quoted,
    range_fault,
)
from agent.cabling.plans.source import Columns, PlanContent
from agent.errors import Malformed

EXPECTED = "A-Node Name, A-Port, Z-Node Name, Z-Port"
SEPARATORS = (",", ";", "\t", "|")
OF_NODES = ("node", *PLACE)  # columns of a sheet of nodes
# UFM's network definition (NDT): the columns that tell it from other sheets
_NETWORK_DEFINITIONS = (
    {"startdevice", "startport", "state", "domain"},
    {"startdevice", "startport", "linktype"},
)
_INTERFACES = frozenset({"dcim.interface", "interface"})  # NetBox's type of an end
BLANK = frozenset({"-", "--", "\u2013", "\u2014", "n/a", "N/A"})  # of a cell that is left empty
_RULE = re.compile(r":?-{3,}:?")  # below the header of a table in Markdown

Location = dict[str, str | None]  # the fields of PLACE


class Table(NamedTuple):
    """The rows of one sheet, as text; a row may be shorter than others, and empty ones missing."""

    place: FilePlace  # the sheet
    rows: Callable[[], Iterator[tuple[int, list[str]]]]  # reads them anew: number and cells
    strict: bool  # a row longer than the header is Malformed: a separator within a cell
    columns: Columns = NO_FIELDS  # the value of --columns
    remarks: Sequence[str] = ()  # notes of the last reading of the rows

    def stripped(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, their cells without white space at the ends; BLANK is empty."""
        for row, cells in self.rows():
            texts = (cell.strip() for cell in cells)
            yield row, ["" if text in BLANK else text for text in texts]


def recognizes(source: PlanContent) -> bool:
    """Return True for a workbook, and for a CSV file with a header."""
    return xlsx.is_workbook(source) or _separator(source) is not None


def read(source: PlanContent) -> list[Plan]:
    """Return a plan for each sheet with cables; raises Malformed if there is none."""
    with catch_warnings():
        simplefilter("ignore")  # openpyxl warns of styles and extensions that it does not know
        if xlsx.is_workbook(source):
            sheets, notes = xlsx.sheets(source)
            tables = []
            for sheet in sheets:
                place, remarks = source.place._replace(sheet=sheet.title), list[str]()
                rows = partial(xlsx.rows, place, sheet, remarks)
                table = Table(place, rows, strict=False, columns=source.columns, remarks=remarks)
                tables.append(table)
        else:
            tables, notes = [table_of(source)], list(source.notes)
        results = [(table, plan_of(table)) for table in tables]
    plans = [plan for _, plan in results if plan and plan.cables]
    if not plans:
        raise _without_cables(source, results, notes)
    locations: dict[str, Location] = {}
    for table in [table for table, plan in results if plan is None]:
        of_sheet = _locations(table)
        locations |= of_sheet
        what = "gives the racks of nodes" if of_sheet else "has no header of cables: skipped"
        notes.append(f"sheet {quoted(table.place.sheet)} {what}")

    def located(end: End) -> End:
        if any(getattr(end, name) for name in PLACE):
            return end
        location: dict[str, Any] = locations.get(end.node.lower(), {})
        return end._replace(**location)

    for number, plan in enumerate(plans if locations else ()):
        cables = (cable._replace(a=located(cable.a), b=located(cable.b)) for cable in plan.cables)
        plans[number] = plan._replace(cables=tuple(cables))
    return [plans[0]._replace(notes=(*notes, *plans[0].notes)), *plans[1:]]


def _without_cables(
    source: PlanContent, results: Sequence[tuple[Table, Plan | None]], notes: Sequence[str]
) -> Malformed:
    """Return the error for a file without cables; `results` are its sheets, and their plans."""
    if not results:
        return Malformed(f"{source.file}: no sheet to read: {'; '.join(notes)}")
    table, plan = next((result for result in results if result[1] is not None), results[0])
    if plan is None:
        return Malformed("; ".join([str(without_header(table)), *notes]))
    reasons = "; ".join([*plan.notes, *notes]) or "no row below the header"
    return Malformed(f"{table.place}: no cables: {reasons}")


def _separator(source: PlanContent) -> str | None:
    """Return the separator by which a header is found in the first rows, None if there is none."""
    head = io.StringIO(source.head, newline="").readlines()
    for separator in SEPARATORS:
        rows = partial(enumerate, csv.reader(head, delimiter=separator), 1)
        table = Table(source.place, rows, strict=True, columns=source.columns)
        try:
            if _find_header(table.stripped(), table):
                return separator
        except Malformed:  # an ambiguous header
            return separator
    return None


def table_of(source: PlanContent) -> Table:
    """Return the rows; they are read by commas where no separator gives a header."""
    separator = _separator(source) or ","
    return Table(
        source.place,
        lambda: ((number, cells) for number, _, cells in source.rows(separator)),
        strict=True,
        columns=source.columns,
    )


def _locations(table: Table) -> dict[str, Location]:
    """Return the places of a sheet of nodes by the name in lower case; none for any other sheet."""
    columns: dict[str, int] = {}
    locations: dict[str, Location] = {}
    for number, row in table.stripped():
        if columns:
            texts = [text.replace(UNSAVED, "") for text in row]
            cells = {name: texts[i] if i < len(texts) else "" for name, i in columns.items()}
            location = {name: cells.get(name) or None for name in PLACE}
            node = cells["node"].lower()
            if locations.setdefault(node, location) != location:
                locations[node] = {}
        elif number > MAX_HEADER_ROW:
            break
        else:
            keys = [key(cell) for cell in row]
            at = {name: [i for i, k in enumerate(keys) if k in WORDS[name]] for name in OF_NODES}
            if at["node"] and at["rack"] and max(map(len, at.values())) == 1:
                columns = {name: indices[0] for name, indices in at.items() if indices}
    return locations


def plan_of(table: Table) -> Plan | None:
    """Return the plan of a sheet, without cables perhaps; None for a sheet without a header."""
    rows = table.stripped()
    headed = _find_header(rows, table)
    if headed is None:
        return None
    columns, number = headed
    reader = _Reader(table, columns)
    for row, cells in rows:
        reader.read(row, cells)
    notes = [f"the header is row {number}"] if number > 1 else []
    return reader.cables.plan(columns.kind, [*notes, *table.remarks])


def without_header(table: Table) -> Malformed:
    """Return the error for a sheet without a header; it names the row that is nearest to one."""
    head = takewhile(lambda row: row[0] <= MAX_HEADER_ROW, table.stripped())
    lacks = [(absent, row) for row, cells in head if (absent := missing(cells, table.columns))]
    absent, row = min(lacks, key=lambda lack: len(lack[0]), default=([], 0))
    if absent and 2 * len(absent) <= len(table.columns or REQUIRED):
        return Malformed(f"{table.place.at(row)}: no column {absent[0]}")
    wanted = ", ".join(table.columns.values())
    what = f"row with all of {wanted}" if wanted else f"header such as {EXPECTED}"
    return Malformed(f"{table.place}: no {what} in the first {MAX_HEADER_ROW} rows")


def _find_header(rows: Iterator[tuple[int, list[str]]], table: Table) -> tuple[Header, int] | None:
    for row, cells in rows:
        if row > MAX_HEADER_ROW:
            return None
        if columns := header(cells, table.place.at(row), table.columns):
            return columns, row
    return None


class _Reader:
    """Reads the rows below the header."""

    def __init__(self, table: Table, columns: Header) -> None:
        self.cables = Cables(table.place)
        self._table, self._columns = table, columns
        self._width = len(columns.names)
        at, keys = columns.fields, columns.keys
        self._ports = tuple(at[field] for field in REQUIRED)
        self._sides = [of_side(side, at) for side in (0, 1)]
        self._of_cable = [
            (column, at[None, column.field]) for column in OF_CABLE if (None, column.field) in at
        ]
        self._roles = [at[side, "type"] for side in (0, 1) if (side, "type") in at]
        self._types = [i for i, name in enumerate(keys) if name in {"sideatype", "sidebtype"}]
        self._cable_type = keys.index("type") if "type" in keys else -1
        self._title = columns.names[self._ports[0]].lower()
        self._described = any(set(keys) >= columns for columns in _NETWORK_DEFINITIONS)
        # `BandWidth` of SONiC's links.csv is in Mb/s.
        rate = at.get((None, "rate_gbps"))
        self._bare_unit = "M" if rate is not None and keys[rate] == "bandwidth" else ""

    def read(self, row: int, cells: list[str]) -> None:
        """Add the cable of a row, if it is one."""
        if all(_RULE.fullmatch(cell) for cell in cells if cell):
            return
        place = self._table.place.at(row)
        if self._table.strict and any(cells[self._width :]):
            place = place.at(row, letters(self._width))
            raise Malformed(f"{place}: more cells than the header: a separator in a cell")
        cells = cells + [""] * (self._width - len(cells))
        names = [cells[column] for column in self._ports]
        if not all(names):
            if any(names[:2]) and any(names[2:]):
                place = place.at(row, self._columns.names[self._ports[names.index("")]])
                hint = "" if self._table.strict else ", and text that is struck through is left out"
                raise Malformed(
                    f"{place}: empty (a merged cell has its value in its first row only{hint})"
                )
            self.cables.skip("without a far end" if any(names) else "not a cable", place)
        elif names[0].lower() == self._title:
            if tuple(map(key, cells[: self._width])) != self._columns.keys:
                raise Malformed(f"{place}: a second header that differs from the first")
        elif reason := self._no_interface(cells):
            self.cables.skip(reason, place)
        else:
            faults = [*enumerate(map(fault, names)), *enumerate(map(range_fault, names))]
            faults += [(1, date_fault(names[1])), (3, date_fault(names[3]))]
            for index, reason in faults:  # names that nobody typed
                if reason:
                    name = self._columns.names[self._ports[index]]
                    raise Malformed(f"{place.at(row, name)}: {reason}")
            self.cables.add(self._cable(place, cells))

    def _no_interface(self, cells: list[str]) -> str | None:
        """Return the reason why a NetBox cable is none between interfaces."""
        if self._columns.kind != "netbox":
            return None
        if not all(cells[column].lower() in _INTERFACES for column in self._types):
            return "not between interfaces"
        if self._cable_type >= 0 and cells[self._cable_type].lower() == "power":
            return "not between interfaces"
        if any("," in cells[column] for column in self._ports):
            return "with several ends on a side"
        return None

    def _cable(self, place: FilePlace, cells: list[str]) -> PlanCable:
        columns, names = self._columns, self._columns.names
        known = [cell.replace(UNSAVED, "") for cell in cells]  # a note has the rows
        fields = {names[i]: known[i] for i in columns.others if known[i]}
        for i in range(self._width, len(cells)):  # to the right of the header, of a workbook
            if known[i]:
                fields[f"column {letters(i)}"] = known[i]
        values: dict[str, Any] = {}
        for column, i in self._of_cable:
            if cells[i]:
                values[column.field] = column.parse(cells[i], place, self._bare_unit)
                if values[column.field] is None and known[i]:
                    fields[names[i]] = known[i]
        if [known[i].lower() for i in self._roles] == ["host", "host"]:
            place = place._replace(column=names[self._roles[1]])
            raise Malformed(f"{place}: both ends are hosts")
        texts = [*(cell or None for cell in known), None]
        a, b = (End._make(take(texts)) for take in self._sides)
        if self._described:
            a, b = described_end(a), described_end(b)
        return PlanCable(a, b, place, fields=fields or NO_FIELDS, **values)
