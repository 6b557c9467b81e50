"""Cabling sheets: the rows of a CSV file or of a workbook's sheet to the cables of a plan.

Kinds `point-to-point` and `netbox` (its tables): agent/plans/headers.py has the forms of
header. The header is one of the first ten rows; what is above it is a title.

Invariants:
- a row with three of the four names is Malformed, one with the names of one end only is a free port
  and skipped;
- nothing is filled in: a merged cell has its value in its first row only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.plans.cables import Cables, are_plain, date_fault, fault, mark_of
from agent.plans.headers import MAX_HEADER_ROW, Header, header, key, letters, missing
from agent.plans.model import NO_FIELDS, Cable, End, Place
from agent.plans.ports import described_end
from agent.plans.rates import rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.plans.model import Plan

EXPECTED = "A-Node Name, A-Port, Z-Node Name, Z-Port"
_NETWORK_DEFINITION = {"startdevice", "startport", "state", "domain"}  # UFM's NDT
_INTERFACES = frozenset({"dcim.interface", "interface"})  # NetBox's type of an end


class Table(NamedTuple):
    """The rows of one sheet, as text; a row may be shorter than others, and empty ones missing."""

    place: Place  # the sheet
    rows: Iterable[tuple[int, Sequence[str]]]  # number and cells
    strict: bool  # a row longer than the header is Malformed: a separator within a cell


def plan_of(table: Table) -> Plan | None:
    """Return the plan of a sheet, without cables perhaps; None for a sheet without a header."""
    rows = _numbered(table)
    found = _find_header(rows, table.place)
    if found is None:
        return None
    columns, number = found
    reader = _Reader(table, columns)
    for row, cells in rows:
        reader.read(row, cells)
    notes = [f"the header is row {number}"] if number > 1 else []
    return reader.cables.plan(columns.kind, notes)


def has_header(table: Table) -> bool:
    """Return True if one of the first rows is a header, be it an ambiguous one."""
    try:
        return _find_header(_numbered(table), table.place) is not None
    except Malformed:
        return True


def without_header(table: Table) -> Malformed:
    """Return the error for a sheet without a header; it names the row that is nearest to one."""
    for row, cells in _numbered(table):
        if row > MAX_HEADER_ROW:
            break
        if reason := missing(cells):
            return Malformed(f"{table.place._replace(row=row)}: {reason}")
    return Malformed(f"{table.place}: no header such as {EXPECTED} in the first 10 rows")


def _numbered(table: Table) -> Iterator[tuple[int, list[str]]]:
    for row, cells in table.rows:
        yield row, [cell.strip() for cell in cells]


def _find_header(rows: Iterator[tuple[int, list[str]]], place: Place) -> tuple[Header, int] | None:
    for row, cells in rows:
        if row > MAX_HEADER_ROW:
            return None
        if found := header(cells, place._replace(row=row)):
            return found, row
    return None


class _Reader:
    """Reads the rows below the header."""

    def __init__(self, table: Table, columns: Header) -> None:
        self.cables = Cables(table.place)
        self._place = table.place
        self._strict = table.strict
        self._columns = columns
        self._width = len(columns.names)
        self._ports = tuple(
            columns.ends[side][name] for side in (0, 1) for name in ("node", "interface")
        )
        keys = [key(name) for name in columns.names]
        self._types = [i for i, name in enumerate(keys) if name in {"sideatype", "sidebtype"}]
        self._cable_type = keys.index("type") if "type" in keys else -1
        self._title = columns.column(0, "node").lower()
        self._described = set(keys) >= _NETWORK_DEFINITION
        # `BandWidth` of SONiC's links.csv is in Mb/s.
        self._bare_unit = "M" if columns.rate >= 0 and keys[columns.rate] == "bandwidth" else ""

    def read(self, row: int, cells: list[str]) -> None:
        """Add the cable of a row, if it is one."""
        if not any(cells):
            return
        cells = self._padded(cells, row)
        names = [cells[column] for column in self._ports]
        if not all(names):
            self._incomplete(row, names)
        elif names[0].lower() == self._title:
            keys = [key(re.sub(r" \(\d+\)$", "", name)) for name in self._columns.names]
            if [key(cell) for cell in cells[: self._width]] != keys:
                raise Malformed(f"{self._at(row)}: a second header that differs from the first")
        elif reason := self._no_interface(cells):
            self.cables.skip(reason, self._at(row))
        else:
            self._check(row, names)
            self.cables.add(self._cable(row, cells))

    def _padded(self, cells: list[str], row: int) -> list[str]:
        width = self._width
        if self._strict and any(cells[width:]):
            place = self._at(row, f"{letters(width)}")
            raise Malformed(f"{place}: more cells than the header: a separator in a cell")
        return cells + [""] * (width - len(cells)) if len(cells) < width else cells

    def _at(self, row: int, column: str | None = None) -> Place:
        return self._place._replace(row=row, column=column)

    def _incomplete(self, row: int, names: list[str]) -> None:
        """Skip a row without a far end; raise Malformed if a part of an end is missing."""
        if not any(names):
            self.cables.skip("not a cable", self._at(row))
        elif not any(names[:2]) or not any(names[2:]):
            self.cables.skip("without a far end", self._at(row))
        else:
            side, port = divmod(names.index(""), 2)
            place = self._at(row, self._columns.column(side, ("node", "interface")[port]))
            raise Malformed(f"{place}: empty (a merged cell has its value in its first row only)")

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

    def _check(self, row: int, names: list[str]) -> None:
        """Raise Malformed for names that nobody typed."""
        checked = () if are_plain(names) else enumerate(names)
        faults = [(index, fault(name)) for index, name in checked]
        faults += [(index, date_fault(names[index])) for index in (1, 3)]
        for index, reason in faults:
            if reason:
                raise Malformed(f"{self._at(row, self._name(index))}: {reason}")

    def _name(self, index: int) -> str:
        side, port = divmod(index, 2)
        return self._columns.column(side, ("node", "interface")[port])

    def _cable(self, row: int, cells: list[str]) -> Cable:
        columns, names = self._columns, self._columns.names
        place = Place(self._place.file, self._place.sheet, row)
        speed = cells[columns.rate] if columns.rate >= 0 else ""
        rate_gbps = rate(speed, self._bare_unit) if speed else None
        mark = mark_of(cells[columns.mark], place) if columns.mark >= 0 else None
        fields = {names[i]: cells[i] for i in columns.others if cells[i]}
        for i in range(self._width, len(cells)):  # to the right of the header, of a workbook
            if cells[i]:
                fields[f"column {letters(i)}"] = cells[i]
        if speed and rate_gbps is None:
            fields[names[columns.rate]] = speed
        types = [side["type"] for side in columns.ends]
        if min(types) >= 0 and {cells[column].lower() for column in types} == {"host"}:
            raise Malformed(f"{self._at(row, names[types[1]])}: both ends are hosts")
        a, b = (_end(cells, side) for side in columns.ends)
        if self._described:
            a, b = _described(a), _described(b)
        return Cable(a, b, place, rate_gbps, mark, fields or NO_FIELDS)


def _end(cells: list[str], columns: Mapping[str, int]) -> End:
    node, interface, port_name, rack, unit, _ = columns.values()
    others = (
        (cells[column] or None) if column >= 0 else None for column in (port_name, rack, unit)
    )
    return End(cells[node], cells[interface], *others)


def _described(end: End) -> End:
    """Return an end that is given by a NodeDescription and `Port 26`."""
    plain = described_end(end.node, end.interface)
    return plain._replace(rack=end.rack, unit=end.unit)
