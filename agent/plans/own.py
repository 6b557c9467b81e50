"""Read and write our own plan files: expected labels, and the CSV of one or many nodes.

Labels are a mapping in YAML or JSON, or a Node's manifest with them. The CSV has the columns
`node,interface,device,port-id,port-name` in any order; `rate`, `mark`, `rack`, `unit`, `far-rack`
and `far-unit` are known, all others are carried along.
"""

from __future__ import annotations

import csv
import io
import re
from sys import intern
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.plans import label_file
from agent.plans.cables import bounded, mark_of, quoted
from agent.plans.cells import ERRORS, date_fault, fault
from agent.plans.headers import MAX_COLUMNS
from agent.plans.model import NO_FIELDS, Cable, End, Place, Plan
from agent.plans.rates import rate
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.plans.source import Source

COLUMNS = ("node", "interface", "device", "port-id", "port-name")
REQUIRED = ("node", "interface", "device")
KNOWN = {*COLUMNS, "rate", "mark", "rack", "unit", "far-rack", "far-unit"}
MAX_SHOWN = 200  # characters of a header in a message
SEPARATORS = ",;\t"
EXPECTED = re.compile(
    r"(?:[a-z0-9.-]+/)?(?:neighbors\.expected\..+|(?:speed|leaves|ports)\.expected)"
)
_LABEL = re.compile(
    r"""(?:^|[{,])[ \t{"']{0,64}[a-z0-9.-]{1,253}/(?:neighbors\.expected\.|\w{5,6}\.expected)""",
    re.MULTILINE,
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet program evaluates such a cell
QUOTE = "'"  # before such a cell: a spreadsheet program shows what follows as text


def is_labels(source: Source) -> bool:
    """Return True for text with a line of an expected label."""
    return bool(_LABEL.search(source.text, 0, label_file.MAX_SIZE))


def read_labels(source: Source) -> list[Plan]:
    """Read expected labels; other labels, and those with an empty value, are left out."""
    found: dict[str, str] = {}
    for key, value, place in label_file.labels_in(source):
        if EXPECTED.fullmatch(key) and value != "":
            if value is None or fault(value):
                raise Malformed(f"{place}, key {quoted(key)}: the value is no text of a label")
            if key in found:
                raise Malformed(f"{place}, key {quoted(key)}: given twice")
            found[key] = value
    if not found:
        raise Malformed(f"{source.file}: no expected label, such as .../speed.expected")
    return [Plan(source.file, "labels", None, (), found, source.notes)]


def is_own(source: Source) -> bool:
    """Return True if the first row has the columns of our CSV."""
    return _separator(source) is not None


def _separator(source: Source) -> str | None:
    """Return the separator by which the first row has the required columns; None without one."""
    first = next((line for line in source.head.splitlines() if line.strip()), "")
    for one in SEPARATORS:
        columns = {column(cell) for cell in next(csv.reader([first], delimiter=one))}
        if columns.issuperset(REQUIRED) and columns & {"port-id", "port-name"}:
            return one
    return None


def column(cell: str) -> str:
    """Return the name of a column by its title."""
    return cell.strip().lower().replace("_", "-").replace(" ", "-")


def read_csv(source: Source) -> list[Plan]:
    """Read our own CSV."""
    cables = tuple(bounded(cables_of(source)))
    return [Plan(source.file, "own", None, cables, notes=source.notes)]


def cables_of(source: Source) -> Iterator[Cable]:
    """Yield the cables of our own CSV; raises Malformed at the first wrong row."""
    rows = _rows(source)
    _, header = next(rows, (1, []))
    columns = [column(cell) for cell in header]
    titles = [cell.strip() for cell in header]
    _require_columns(source, columns)
    others = [one for one in zip(columns, titles, strict=True) if one[0] not in KNOWN]
    number = None
    for number, row in rows:
        place = Place(source.file, None, number)
        _require_whole(place, row, columns)
        yield _cable(place, dict(zip(columns, map(_plain_text, row), strict=False)), others)
    if number is None:
        raise Malformed(f"{source.file}: no row below the header")


def _rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, with their numbers."""
    lines = io.StringIO(source.text, newline="")
    reader = csv.reader(lines, delimiter=_separator(source) or ",", strict=True)
    try:
        for row in reader:
            if any(map(str.strip, row)):
                yield reader.line_num, row
    except csv.Error as error:
        place = Place(source.file, None, reader.line_num)
        raise Malformed(f"{place}: no CSV: {error}") from None


def _require_whole(place: Place, row: list[str], columns: list[str]) -> None:
    """Raise Malformed for a row that was cut, or has a cell too many."""
    if len(row) < len(columns) or any(map(str.strip, row[len(columns) :])):
        raise Malformed(f"{place}: {len(row)} cells, and the header has {len(columns)}")


def _require_columns(source: Source, columns: list[str]) -> None:
    place, shown = Place(source.file, None, 1), visible(", ".join(columns), MAX_SHOWN)
    if len(columns) > MAX_COLUMNS:
        raise Malformed(f"{place}: more than {MAX_COLUMNS} columns")
    for name in REQUIRED:
        if name not in columns:
            raise Malformed(f"{place}: no column {name}; there are {shown}")
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice:
        raise Malformed(f"{place}: two columns {visible(twice, MAX_SHOWN)}")


def _plain_text(cell: str) -> str:
    """Return the text of a cell; most of them are those of many rows, and kept once."""
    return intern(unquoted(cell.strip()))


def _cable(place: Place, cells: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> Cable:
    """Return the cable of a row; `columns` are the names and titles of those that are not known."""
    _require_names(cells, place)
    near, far = _ends(cells)
    if near[:2] == far[:2]:
        raise Malformed(f"{place}: both ends are {quoted(f'{near.node} {near.interface}')}")
    others = {title: cells[name] for name, title in columns if cells.get(name)}
    return Cable(near, far, place, _rate(cells, place), _mark(cells, place), others or NO_FIELDS)


def _ends(cells: Mapping[str, str]) -> tuple[End, End]:
    port_id, port_name = cells.get("port-id"), cells.get("port-name")
    port = port_id or port_name or ""
    near = End(cells["node"], cells["interface"], None, *_place(cells, ""))
    return near, End(cells["device"], port, port_name or None, *_place(cells, "far-"))


def _require_names(cells: Mapping[str, str], place: Place) -> None:
    """Raise Malformed for a name that is missing, or that a spreadsheet program has replaced."""
    for name in ("node", "interface"):
        if not cells.get(name):
            raise Malformed(f"{place._replace(column=name)}: empty")
    for name in COLUMNS:
        text = cells.get(name, "")
        is_port = name not in {"node", "device"}
        reason = text if text in ERRORS else date_fault(text) if is_port else None
        if reason:
            raise Malformed(f"{place._replace(column=name)}: {reason}")


def _place(cells: Mapping[str, str], prefix: str) -> tuple[str | None, str | None]:
    return cells.get(f"{prefix}rack") or None, cells.get(f"{prefix}unit") or None


def _rate(cells: Mapping[str, str], place: Place) -> float | None:
    text = cells.get("rate")
    if not text:
        return None
    if (found := rate(text, "G")) is None:
        raise Malformed(f"{place._replace(column='rate')}: {text[:64]!r} is no rate such as 400G")
    return found


def _mark(cells: Mapping[str, str], place: Place) -> str | None:
    return mark_of(cells.get("mark"), place._replace(column="mark"))


def rows_text(rows: Iterable[Iterable[str | None]]) -> str:
    """Return rows as CSV; no cell is a formula to a spreadsheet program."""
    out = io.StringIO()
    bare = csv.writer(out, lineterminator="\n")
    quoting = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [_plain(cell or "") for cell in row]
        # Python 3.11 quotes no carriage return, which ends a row for its reader.
        (quoting if any("\r" in cell for cell in cells) else bare).writerow(cells)
    return out.getvalue()


def _plain(cell: str) -> str:
    return QUOTE + cell if _is_formula(cell) else cell


def unquoted(cell: str) -> str:
    """Return the text of a cell that `rows_text` wrote."""
    return cell[1:] if cell.startswith(QUOTE) and _is_formula(cell) else cell


def _is_formula(cell: str) -> bool:
    """Return True for a formula behind any number of quotes: each writing adds one of them."""
    return cell.lstrip(QUOTE).startswith(FORMULA)
