"""Read and write our own plan files: expected labels, and the CSV of one or many nodes.

Labels are a mapping in YAML or JSON, or a Node's manifest with them. The CSV has the columns
`node,interface,device,port-id,port-name` in any order; OTHERS of columns.py are known, all others
are carried along.

Invariants of labels:
- a value is the text as it stands: YAML 1.1 reads `3_4` as 34, `1:2` as 62 and `010` as 8;
- aliases and merge keys of YAML are not expanded;
- a key that is given twice is returned twice.
"""

from __future__ import annotations

import csv
import io
import json
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from sys import intern
from typing import Any

from agent.cabling.plans.columns import FAR, FIELDS, NAMES, NEAR, OF_CABLE, PlanColumn, of_side
from agent.cabling.plans.headers import MAX_COLUMNS
from agent.cabling.plans.model import (
    ERRORS,
    MAX_CABLES,
    NO_FIELDS,
    End,
    FilePlace,
    Plan,
    PlanCable,
    date_fault,
    fault,
    quoted,
    range_fault,
    too_many,
)
from agent.cabling.plans.source import PlanContent, load
from agent.errors import Malformed
from agent.text import visible

CsvRow = tuple[FilePlace, list[str]]

COLUMNS = tuple(column.name for column in NAMES)
REQUIRED = ("node", "interface", "device")
MAX_SHOWN = 200  # characters of a header in a message
MAX_CACHED = 8192  # cells
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
MAX_LABELS = 1 << 20  # bytes; Kubernetes stores no larger object
NULLS = frozenset({"", "~", "null", "Null", "NULL"})  # as plain scalars


def is_labels(source: PlanContent) -> bool:
    """Return True for text with a line of an expected label."""
    return bool(_LABEL.search(source.text, 0, MAX_LABELS))


def read_labels(source: PlanContent) -> list[Plan]:
    """Read expected labels; other labels, and those with an empty value, are left out.

    Raises Malformed for a file that is too large, nested too deeply, or no YAML or JSON.
    """
    if len(source.data) > MAX_LABELS:
        raise Malformed(f"{source.file}: labels of more than {MAX_LABELS >> 20} MiB")
    try:
        every = _json_labels(source) if source.looks_like_json else _yaml_labels(source)
    except RecursionError as error:
        raise Malformed(f"{source.file}: nested too deeply") from error
    labels: dict[str, str] = {}
    for key, value, row in every:
        if EXPECTED.fullmatch(key) and value != "":
            place = source.place.at(row)
            if value is None or fault(value):
                raise Malformed(f"{place}, key {quoted(key)}: the value is no text of a label")
            if key in labels:
                raise Malformed(f"{place}, key {quoted(key)}: given twice")
            labels[key] = value
    if not labels:
        raise Malformed(f"{source.file}: no expected label, such as .../speed.expected")
    return [Plan(source.file, "labels", None, (), labels, source.notes)]


def is_own(source: PlanContent) -> bool:
    """Return True if the first row has the columns of our CSV."""
    return _separator(source) is not None


def _separator(source: PlanContent) -> str | None:
    """Return the separator by which the first row has the required columns; None without one."""
    for separator in SEPARATORS:
        columns = {
            column(cell) for cell in next(csv.reader([header_line(source)], delimiter=separator))
        }
        if columns.issuperset(REQUIRED) and columns & {"port-id", "port-name"}:
            return separator
    return None


def header_line(source: PlanContent) -> str:
    """Return the first line that is not blank, nor of separators alone."""
    lines = source.head.splitlines()
    return next((line for line in lines if line.strip(SEPARATORS + string.whitespace)), "")


def column(cell: str) -> str:
    """Return the name of a column by its title."""
    return cell.strip().lower().replace("_", "-").replace(" ", "-")


def read_csv(source: PlanContent) -> list[Plan]:
    """Read our own CSV."""
    cables = tuple(islice(cables_of(source), MAX_CABLES + 1))
    if len(cables) > MAX_CABLES:
        raise too_many(cables[-1])
    return [Plan(source.file, "own", None, cables, notes=source.notes)]


def cables_of(source: PlanContent) -> Iterator[PlanCable]:
    """Yield the cables of our own CSV; raises Malformed at the first wrong row."""
    titles, columns, rows = _csv(source, _separator(source) or ",", REQUIRED)
    at = {name: index for index, name in enumerate(columns)}
    names = [name for name in COLUMNS if name in at]
    of_names = itemgetter(*[at[name] for name in names])
    of_cable = [(known, at[known.name]) for known in OF_CABLE if known.name in at]
    headings = zip(columns, titles, strict=True)
    others = [(title, at[name]) for name, title in headings if name not in FIELDS]
    fields_at = {FIELDS[name]: index for name, index in at.items() if name in FIELDS}
    of_near, of_far = of_side(NEAR, fields_at), of_side(FAR, fields_at)
    place = None
    for place, cells in rows:
        # A row may have more cells than the header if they are empty, as a spreadsheet writes them.
        stripped = [*map(str.strip, cells)]
        if len(stripped) < len(columns) or any(stripped[len(columns) :]):
            raise Malformed(f"{place}: {len(cells)} cells, and the header has {len(columns)}")
        faults = [*map(_name_fault, names, of_names(stripped))]
        if any(faults):
            name, reason = next(each for each in zip(names, faults, strict=True) if each[1])
            raise Malformed(f"{place._replace(column=name)}: {reason}")
        texts = [*map(_text, stripped), None]
        near, far = End._make(of_near(texts)), End._make(of_far(texts))
        if not (far.node and far.interface):
            port = far.interface or far.port_name or ""
            far = far._replace(node=far.node or "", interface=port)
        if near.node == far.node and near.interface == far.interface:
            raise Malformed(f"{place}: both ends are {quoted(f'{near.node} {near.interface}')}")
        fields = {title: text for title, index in others if (text := texts[index])}
        of_row = [(known, text) for known, index in of_cable if (text := texts[index])]
        values = _of_cable(of_row, place)
        yield PlanCable(near, far, place, fields=fields or NO_FIELDS, **values)
    if place is None:
        raise Malformed(f"{source.file}: no row below the header")


def _of_cable(cells: Iterable[tuple[PlanColumn, str]], place: FilePlace) -> dict[str, Any]:
    """Return the values of the cable of a row by their fields."""
    values = {}
    for known, text in cells:
        at = place._replace(column=known.name)
        values[known.field] = known.parse(text, at, "G")
        if values[known.field] is None:
            raise Malformed(f"{at}: {text[:64]!r} is no {known.values}")
    return values


def _csv(
    source: PlanContent, separator: str, required: Collection[str]
) -> tuple[list[str], list[str], Iterator[CsvRow]]:
    """Return the titles of the header, the names of its columns, and each row below it.

    Blank rows are left out, also above the header. Raises Malformed for a header that lacks a
    required column, or has one twice.
    """
    rows = (
        (source.place.at(line), cells)
        for _, line, cells in source.rows(separator)
        if any(map(str.strip, cells))
    )
    place, cells = next(rows, (source.place.at(1), []))
    titles = [cell.strip() for cell in cells]
    columns = [column(title) for title in titles]
    if len(columns) > MAX_COLUMNS:
        raise Malformed(f"{place}: more than {MAX_COLUMNS} columns")
    for name in required:
        if name not in columns:
            shown = visible(", ".join(columns), MAX_SHOWN)
            raise Malformed(f"{place}: no column {name}; there are {shown}")
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice:
        raise Malformed(f"{place}: two columns {visible(twice, MAX_SHOWN)}")
    return titles, columns, rows


def table(
    path: str, required: Collection[str], optional: Collection[str] = ()
) -> Iterator[tuple[FilePlace, dict[str, str]]]:
    """Yield the rows of a CSV file with these columns; an empty cell is ""; raises Malformed."""
    source = load(path)
    separator = max(SEPARATORS, key=header_line(source).count)
    _, columns, rows = _csv(source, separator, required)
    for place, row in rows:
        cells = dict(zip(columns, row))  # noqa: B905 - a row may have fewer cells, or more
        yield place, {name: cells.get(name, "").strip() for name in (*required, *optional)}


@lru_cache(MAX_CACHED)
def _name_fault(name: str, text: str) -> str | None:
    """Return why a row cannot be meant: without node or interface, or what a spreadsheet wrote.

    A date or an error behind a quote is the name: `rows_text` wrote it.
    """
    reason = text if text in ERRORS else None
    if name not in {"node", "device"}:
        reason = reason or date_fault(text)
    if name == "node":
        reason = reason or range_fault(text)
    return "empty" if name in {"node", "interface"} and not text else reason


@lru_cache(MAX_CACHED)
def _text(cell: str) -> str | None:
    """Return the text of a cell, None if it is empty; most are of many rows, and kept once."""
    return intern(unquoted(cell)) or None


def rows_text(rows: Iterable[Iterable[str | None]], *, names: bool = False) -> str:
    """Return rows as CSV; no cell is a formula to a spreadsheet program.

    With `names`, dates and errors are those of names, and quoted as well: our reader refuses them
    otherwise.
    """

    def escaped(cell: str) -> str:
        text = cell.lstrip(QUOTE)
        is_quoted = names or text != cell
        needs_quote = text.startswith(FORMULA) or (is_quoted and _is_replaced(text))
        return QUOTE + cell if needs_quote else cell

    out = io.StringIO()
    bare = csv.writer(out, lineterminator="\n")
    quoting = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [escaped(cell or "") for cell in row]
        # Python 3.11 quotes no carriage return, which ends a row for its reader.
        (quoting if any("\r" in cell for cell in cells) else bare).writerow(cells)
    return out.getvalue()


# One quote is written before a formula, a date and an error, and before each of them that begins
# with quotes itself; one is taken away where it is read. So no two texts are one cell.


def unquoted(cell: str) -> str:
    """Return the text of a cell that `rows_text` wrote."""
    if not cell.startswith(QUOTE):
        return cell
    text = cell.lstrip(QUOTE)
    return cell[1:] if text.startswith(FORMULA) or _is_replaced(text) else cell


def _is_replaced(text: str) -> bool:
    """Return True for what a spreadsheet program puts in the place of a name."""
    return text in ERRORS or date_fault(text) is not None


# the labels in YAML or JSON


# Key, value and row of each; None: a value that is no text, a row that is not known.
Members = list[tuple[str, Any, int | None]]


def _json_labels(source: PlanContent) -> Members:
    _ = source.json  # raises Malformed with the row of a defect
    document = json.loads(source.text, object_pairs_hook=tuple, parse_int=str, parse_float=str)
    labels = _below(
        document,
        lambda value: [(*pair, None) for pair in value] if isinstance(value, tuple) else [],
    )
    return [(key, value if isinstance(value, str) else None, row) for key, value, row in labels]


def _yaml_labels(source: PlanContent) -> Members:
    import yaml

    def members(node: Any) -> Members:
        """Return the members of a node; none if it is no mapping."""
        if getattr(node, "id", None) != "mapping":
            return []
        keys = ((key, value) for key, value in node.value if key.id == "scalar")
        return [(str(key.value), value, key.start_mark.line + 1) for key, value in keys]

    def text(node: Any) -> str | None:
        """Return the text of a scalar; None for a null, and for any other node."""
        is_null = node.id == "scalar" and node.style is None and node.value in NULLS
        return None if node.id != "scalar" or is_null else str(node.value)

    try:
        root = yaml.compose(source.text, yaml.BaseLoader)  # nothing is constructed of it
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = source.place.at(mark.line + 1 if mark else None)
        problem = getattr(error, "problem", None) or "malformed"
        raise Malformed(f"{place}: no YAML: {problem}") from None
    return [(key, text(value), row) for key, value, row in _below(root, members)]


def _below(document: Any, members: Callable[[Any], Members]) -> Members:
    """Return the members of a mapping of labels, or of `metadata.labels` of a Node."""
    top = members(document)
    for key, value, _ in top:
        if key == "metadata" and (inside := members(value)):
            labels = (value for key, value, _ in inside if key == "labels")
            return [label for value in labels for label in members(value)]
    return top
