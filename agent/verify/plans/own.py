"""Read and write our own plan files: expected labels, and the CSV of one or many nodes.

Labels are a mapping in YAML or JSON, or a Node's manifest with them. The CSV has the columns
`node,interface,device,port-id,port-name` in any order; `rate`, `mark`, `rack`, `unit`, `far-rack`
and `far-unit` are known, all others are carried along.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.text import visible
from agent.verify.model import Cable, End, Place, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.verify.plans.source import Source

COLUMNS = ("node", "interface", "device", "port-id", "port-name")
REQUIRED = ("node", "interface", "device")
KNOWN = {*COLUMNS, "rate", "mark", "rack", "unit", "far-rack", "far-unit"}
MAX_SHOWN = 200  # characters of a header in a message
MARKS = ("ignore", "link-state-only")
SEPARATORS = ",;\t"
EXPECTED = re.compile(
    r"(?:[a-z0-9.-]+/)?(?:neighbors\.expected\..+|(?:speed|leaves|ports)\.expected)"
)
_LABEL = re.compile(
    r"""(?:^|[{,])[ \t{"']*[a-z0-9.-]+/(?:neighbors\.expected\.|\w+\.expected)""", re.MULTILINE
)
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) ?(?:G|Gb/?s?|Gbps)?", re.IGNORECASE)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet program evaluates such a cell


def is_labels(source: Source) -> bool:
    """Return True for text with a line of an expected label."""
    return bool(_LABEL.search(source.text))


def read_labels(source: Source) -> list[Plan]:
    """Read expected labels; other labels are left out."""
    import yaml

    try:
        content = source.json if source.looks_like_json else yaml.safe_load(source.text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(source.file, None, mark.line + 1 if mark else None)
        raise Malformed(
            f"{place}: no YAML: {getattr(error, 'problem', None) or 'malformed'}"
        ) from None
    labels = _labels_in(content)
    found = {key: value for key, value in labels.items() if EXPECTED.fullmatch(str(key))}
    if not found:
        raise Malformed(f"{source.file}: no expected label, such as .../speed.expected")
    wrong = next((key for key, value in found.items() if not isinstance(value, str | int)), None)
    if wrong:
        raise Malformed(f"{source.file}, key {wrong}: the value is no text")
    texts = {key: str(value) for key, value in found.items()}
    return [Plan(source.file, "labels", None, (), texts, source.notes)]


def _labels_in(content: Any) -> Mapping[Any, Any]:
    """Return the labels of a mapping, or of a Node's manifest."""
    if isinstance(content, dict) and isinstance(content.get("metadata"), dict):
        content = content["metadata"].get("labels")
    return content if isinstance(content, dict) else {}


def is_own(source: Source) -> bool:
    """Return True if the first row has the columns of our CSV."""
    return _separator(source) is not None


def _separator(source: Source) -> str | None:
    """Return the separator by which the first row has the required columns; None without one."""
    first = next((line for line in source.text.splitlines() if line.strip()), "")
    for one in SEPARATORS:
        columns = {_column(cell) for cell in next(csv.reader([first], delimiter=one))}
        if columns.issuperset(REQUIRED) and columns & {"port-id", "port-name"}:
            return one
    return None


def _column(cell: str) -> str:
    return cell.strip().lower().replace("_", "-").replace(" ", "-")


def read_csv(source: Source) -> list[Plan]:
    """Read our own CSV."""
    lines = io.StringIO(source.text, newline="")
    reader = csv.reader(lines, delimiter=_separator(source) or ",", strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        place = Place(source.file, None, reader.line_num)
        raise Malformed(f"{place}: no CSV: {error}") from None
    header, *body = rows or [(1, [])]
    columns = [_column(cell) for cell in header[1]]
    titles = [cell.strip() for cell in header[1]]
    _require_columns(source, columns)
    cables = [_cable(source, number, columns, titles, row) for number, row in body]
    if not cables:
        raise Malformed(f"{source.file}: no row below the header")
    return [Plan(source.file, "own", None, tuple(cables), notes=source.notes)]


def _require_columns(source: Source, columns: list[str]) -> None:
    place, shown = Place(source.file, None, 1), visible(", ".join(columns), MAX_SHOWN)
    for name in REQUIRED:
        if name not in columns:
            raise Malformed(f"{place}: no column {name}; there are {shown}")
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice:
        raise Malformed(f"{place}: two columns {visible(twice, MAX_SHOWN)}")


def _cable(
    source: Source, number: int, columns: list[str], titles: list[str], row: list[str]
) -> Cable:
    cells = {name: unquoted(cell.strip()) for name, cell in zip(columns, row, strict=False)}
    place = Place(source.file, None, number)
    for name in ("node", "interface"):
        if not cells.get(name):
            raise Malformed(f"{place._replace(column=name)}: empty")
    port_id, port_name = cells.get("port-id"), cells.get("port-name")
    near = End(cells["node"], cells["interface"], None, *_place(cells, ""))
    far = End(
        cells["device"], port_id or port_name or "", port_name or None, *_place(cells, "far-")
    )
    others = {
        title: cells[name]
        for name, title in zip(columns, titles, strict=True)
        if name not in KNOWN and cells.get(name)
    }
    return Cable(near, far, place, _rate(cells, place), _mark(cells, place), others)


def _place(cells: Mapping[str, str], prefix: str) -> Iterator[str | None]:
    return ((cells.get(f"{prefix}{name}") or None) for name in ("rack", "unit"))


def _rate(cells: Mapping[str, str], place: Place) -> float | None:
    text = cells.get("rate")
    if not text:
        return None
    found = _RATE.fullmatch(text)
    if not found:
        raise Malformed(f"{place._replace(column='rate')}: {text[:64]!r} is no rate such as 400G")
    return float(found[1])


def _mark(cells: Mapping[str, str], place: Place) -> str | None:
    text = cells.get("mark") or None
    if text and text not in MARKS:
        where = place._replace(column="mark")
        raise Malformed(f"{where}: {text[:64]!r} is none of {', '.join(MARKS)}")
    return text


def rows_text(rows: Iterable[Iterable[str | None]]) -> str:
    """Return rows as CSV; no cell is a formula to a spreadsheet program."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_plain(cell or "") for cell in row] for row in rows)
    return out.getvalue()


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def unquoted(cell: str) -> str:
    """Return the text of a cell that `rows_text` wrote."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
