"""Read and write our own plan files: expected labels, and the CSV of one or many nodes.

Labels are a mapping in YAML or JSON, or a Node's manifest with them. The CSV has the columns
`node,interface,device,port-id,port-name` in any order; `rate`, `mark`, `rack`, `unit`, `far-rack`
and `far-unit` are known, all others are carried along.
"""

from __future__ import annotations

import csv
import io
import re
import string
from itertools import zip_longest
from sys import intern
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.plans import label_file
from agent.plans.cables import ERRORS, bounded, date_fault, fault, mark_of, quoted
from agent.plans.headers import MAX_COLUMNS
from agent.plans.model import NO_FIELDS, Cable, End, Place, Plan
from agent.plans.rates import rate
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.plans.source import Source

    PlacedRow = tuple[Place, dict[str, Any]]

COLUMNS = ("node", "interface", "device", "port-id", "port-name")
REQUIRED = ("node", "interface", "device")
KNOWN = {*COLUMNS, "rate", "mark", "rack", "unit", "far-rack", "far-unit"}
MAX_SHOWN = 200  # characters of a header in a message
SEPARATORS = ",;\t"
MORE = "\0"  # key of the cells to the right of the header; no column has this name
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
    for one in SEPARATORS:
        columns = {column(cell) for cell in next(csv.reader([header_line(source)], delimiter=one))}
        if columns.issuperset(REQUIRED) and columns & {"port-id", "port-name"}:
            return one
    return None


def header_line(source: Source) -> str:
    """Return the first line that is not blank, nor of separators alone."""
    lines = source.head.splitlines()
    return next((line for line in lines if line.strip(SEPARATORS + string.whitespace)), "")


def column(cell: str) -> str:
    """Return the name of a column by its title."""
    return cell.strip().lower().replace("_", "-").replace(" ", "-")


def read_csv(source: Source) -> list[Plan]:
    """Read our own CSV."""
    cables = tuple(bounded(cables_of(source)))
    return [Plan(source.file, "own", None, cables, notes=source.notes)]


def cables_of(source: Source) -> Iterator[Cable]:
    """Yield the cables of our own CSV; raises Malformed at the first wrong row."""
    header, titles, rows = csv_rows(source, _separator(source) or ",")
    columns = [column(title) for title in titles]
    _require_columns(header, columns)
    others = [one for one in zip(columns, titles, strict=True) if one[0] not in KNOWN]
    place = None
    for place, cells in rows:
        more = cells.pop(MORE, [])
        if None in cells.values() or any(map(str.strip, more)):  # cut, or a separator in a cell
            count = sum(cell is not None for cell in cells.values()) + len(more)
            raise Malformed(f"{place}: {count} cells, and the header has {len(columns)}")
        # Most texts are those of many rows, and kept once.
        known = {name: intern(unquoted(cell.strip())) for name, cell in cells.items()}
        yield _cable(place, known, others)
    if place is None:
        raise Malformed(f"{source.file}: no row below the header")


def csv_rows(source: Source, separator: str) -> tuple[Place, list[str], Iterator[PlacedRow]]:
    """Return the place of the header, the titles of its columns, and each row below it.

    The cells of a row are by `column`, those to the right of the header in MORE. Blank rows are
    left out, also above the header. Raises Malformed.
    """
    rows = _filled(source, separator)
    place, header = next(rows, (Place(source.file, None, 1), []))
    titles = [cell.strip() for cell in header]
    columns = [column(title) for title in titles]
    return place, titles, ((place, _by_column(columns, cells)) for place, cells in rows)


def _filled(source: Source, separator: str) -> Iterator[tuple[Place, list[str]]]:
    """Yield each row that has text; raises Malformed at the line where the reader stopped."""
    lines = io.StringIO(source.text, newline="")
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield Place(source.file, None, reader.line_num), cells
    except csv.Error as error:
        place = Place(source.file, None, reader.line_num)
        raise Malformed(f"{place}: no CSV: {error}") from None


def _by_column(columns: Sequence[str], cells: list[str]) -> dict[str, Any]:
    """Return the cells of a row; None stands for those that it does not have."""
    found: dict[str, Any] = dict(zip_longest(columns, cells[: len(columns)]))
    if len(cells) > len(columns):
        found[MORE] = cells[len(columns) :]
    return found


def _require_columns(place: Place, columns: list[str]) -> None:
    shown = visible(", ".join(columns), MAX_SHOWN)
    if len(columns) > MAX_COLUMNS:
        raise Malformed(f"{place}: more than {MAX_COLUMNS} columns")
    for name in REQUIRED:
        if name not in columns:
            raise Malformed(f"{place}: no column {name}; there are {shown}")
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice:
        raise Malformed(f"{place}: two columns {visible(twice, MAX_SHOWN)}")


def _cable(place: Place, cells: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> Cable:
    """Return the cable of a row; `columns` are the names and titles of those that are not known."""
    for name in ("node", "interface"):
        if not cells.get(name):
            raise Malformed(f"{place._replace(column=name)}: empty")
    for name in COLUMNS:  # texts by which a spreadsheet program has replaced a name
        text = cells.get(name, "")
        replaced = text if text in ERRORS else None
        if not replaced and name not in {"node", "device"}:
            replaced = date_fault(text)
        if replaced:
            raise Malformed(f"{place._replace(column=name)}: {replaced}")
    racks = [cells.get(name) or None for name in ("rack", "unit", "far-rack", "far-unit")]
    port_id, port_name = cells.get("port-id"), cells.get("port-name")
    near = End(cells["node"], cells["interface"], None, *racks[:2])
    far = End(cells["device"], port_id or port_name or "", port_name or None, *racks[2:])
    if near[:2] == far[:2]:
        raise Malformed(f"{place}: both ends are {quoted(f'{near.node} {near.interface}')}")
    gbps = rate(speed, "G") if (speed := cells.get("rate")) else None
    if speed and gbps is None:
        raise Malformed(f"{place._replace(column='rate')}: {speed[:64]!r} is no rate such as 400G")
    mark = mark_of(cells.get("mark"), place._replace(column="mark"))
    others = {title: cells[name] for name, title in columns if cells.get(name)}
    return Cable(near, far, place, gbps, mark, others or NO_FIELDS)


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
